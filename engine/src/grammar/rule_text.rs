//! The canonical text of a rule: the same words for the same meaning, so that lines can be
//! compared.

use crate::algorithms::{Argument, Rule};
use crate::calendar::Unit;
use crate::calendar::zone::Zone;
use crate::grammar::{number, quota};
use crate::policy::duration::duration_text;
use std::fmt::Write;

/// Returns the words of `rule`, which was parsed from its name and `args`. The arguments are needed
/// because a rule of `GCRA` does not keep its rate and period.
///
/// Numbers are plain and durations in the largest whole unit. Options have a fixed order and appear
/// only if they are not the default: `GCRA 6 10 1m`, `QUOTA 1000 month ZONE Europe/Berlin START
/// 15`. `SLOTS` appears if it was given, because the default is a setting.
pub fn rule_text(rule: &Rule, args: &[&[u8]]) -> String {
    let algorithm = rule.algorithm();
    let mut text = algorithm.name().to_owned();
    for (argument, word) in algorithm.arguments().iter().zip(args) {
        text.push(' ');
        // These arguments were parsed before, so neither call fails.
        match argument {
            Argument::Number => {
                let _ = write!(text, "{}", number::integer(word).unwrap_or_default());
            }
            Argument::Duration => {
                text.extend(number::period(word).map(|period| duration_text(period.span())));
            }
        }
    }
    match rule {
        Rule::FixedWindow(window) if window.aligned => text.push_str(" ALIGNED"),
        Rule::SlidingLog(log) if log.has_own_slots => {
            let _ = write!(text, " SLOTS {}", log.slots.count());
        }
        Rule::CalendarQuota(quota) => {
            let (unit, start, zone) = quota.calendar.parts();
            let _ = write!(text, " {}", unit.name());
            if zone != Zone::UTC {
                let _ = write!(text, " ZONE {}", zone.name());
            }
            if start != 1 {
                text.push_str(" START ");
                match quota::WEEKDAYS.get(usize::from(start) - 1).filter(|_| unit == Unit::Week) {
                    Some(weekday) => text.push_str(&String::from_utf8_lossy(weekday)),
                    None => text.push_str(&start.to_string()),
                }
            }
        }
        _ => {}
    }
    text
}
