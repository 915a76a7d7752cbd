//! Reads the rules and items of the cases.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{Error, Item, Rule};

/// Returns a text of a case.
pub(super) fn text<'a>(of: &'a Value, field: &str) -> &'a str {
    of[field].as_str().unwrap_or_else(|| panic!("{field} of {of} is text"))
}

/// Reads an unsigned integer. Any other number is an error here; in a program, Rust's types rule it
/// out at compile time.
pub(super) fn natural(of: &Value, field: &'static str) -> Result<u64, Error> {
    of[field].as_u64().ok_or_else(|| Error::invalid(field, "expected an integer"))
}

/// Reads a duration of a case. A number is in seconds.
pub(super) fn span(value: &Value, argument: &'static str) -> Result<String, Error> {
    let Some(seconds) = value.as_f64() else { return Ok(value.as_str().unwrap().to_owned()) };
    let span = Duration::try_from_secs_f64(seconds);
    let span = span.map_err(|_| Error::invalid(argument, "expected a positive number"))?;
    // Convert back to text, so that the function returns one type.
    let us = crate::rules::durations::checked_us(&span, argument)?;
    Ok(crate::rules::durations::text(us))
}

/// Builds the rule that a case describes.
pub(super) fn rule_of(spec: &Value) -> Result<Rule, Error> {
    let name = text(spec, "name");
    let number = |field| natural(spec, field);
    let span = |field| span(&spec[field], field);
    let mut rule = match text(spec, "kind") {
        "gcra" => Rule::gcra(name, number("burst")?, number("rate")?, &*span("period")?)?,
        "token_bucket" => {
            Rule::token_bucket(name, number("capacity")?, number("rate")?, &*span("period")?)?
        }
        "leaky_bucket" => {
            Rule::leaky_bucket(name, number("capacity")?, number("rate")?, &*span("period")?)?
        }
        "fixed" => Rule::fixed(name, number("limit")?, &*span("window")?)?,
        "sliding" => Rule::sliding(name, number("limit")?, &*span("window")?)?,
        "sliding_log" => Rule::sliding_log(name, number("limit")?, &*span("window")?)?,
        "backoff" => {
            let (base, max, forget) = (span("base")?, span("max")?, span("forget")?);
            Rule::backoff(name, number("attempts")?, &*base, &*max, &*forget)?
        }
        "quota" => Rule::quota(name, number("limit")?, text(spec, "unit").parse()?)?,
        "lease" => Rule::lease(name, number("limit")?, &*span("ttl")?)?,
        "policy" => Rule::policy(name)?,
        other => panic!("the table has a rule of kind {other}"),
    };
    if spec["aligned"] == json!(true) {
        rule = rule.aligned()?;
    }
    if !spec["slots"].is_null() {
        rule = rule.slots(number("slots")?)?;
    }
    if let Some(count) = spec["count"].as_str() {
        rule = rule.count(count.parse()?)?;
    }
    if let Some(zone) = spec["zone"].as_str() {
        rule = rule.zone(zone)?;
    }
    if !spec["start"].is_null() {
        rule = rule.start(number("start")?)?;
    }
    for variant in spec["variants"].as_array().into_iter().flatten() {
        rule = rule.variants([variant.as_str().unwrap()])?;
    }
    if !spec["default"].is_null() {
        rule = rule.default(rule_of(&spec["default"])?)?;
    }
    if let Some(on_error) = spec["on_error"].as_str() {
        rule = rule.on_error(on_error.parse()?)?;
    }
    if !spec["prefetch"].is_null() {
        rule = rule.prefetch(number("prefetch")?)?;
    }
    if let Some(share) = spec["local_share"].as_f64() {
        rule = rule.local_share(share)?;
    }
    Ok(rule)
}

/// Adds the options of a case to an item. In a program, Rust's types rule out the other forms.
pub(super) fn with_options<'a>(mut item: Item<'a>, of: &'a Value) -> Result<Item<'a>, Error> {
    if !of["cost"].is_null() {
        item = item.cost(natural(of, "cost")?);
    }
    if !of["reserve"].is_null() {
        item = item.reserve(natural(of, "reserve")?);
    }
    if let Some(leave) = of["leave"].as_str() {
        let percent = leave.strip_suffix('%').and_then(|number| number.parse().ok());
        item = item.leave_percent(percent.ok_or_else(|| Error::invalid("leave", "expected %"))?);
    } else if !of["leave"].is_null() {
        item = item.leave(natural(of, "leave")?);
    }
    if let Some(ttl) = of["ttl"].as_str() {
        item = item.ttl(ttl);
    }
    if of["partial"] == json!(true) {
        item = item.partial();
    }
    Ok(item)
}
