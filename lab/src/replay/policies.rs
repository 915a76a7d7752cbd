//! The policies of a file, and the one that each line names.

use super::arguments::ReplayArguments;
use super::event::{Applied, Effect};
use super::fields::{Names, Values};
use super::keys::{Full, Keys};
use super::template::Template;
use redis_throttle_engine::algorithms::Rule;
use redis_throttle_engine::grammar::error::GrammarError;
use redis_throttle_engine::grammar::policy_file::{FILE_LEN_MAX, LineFault, policy_file};
use redis_throttle_engine::policy::definition::{Enforcement, Setting, Stance};
use redis_throttle_engine::policy::families::Refusal;
use redis_throttle_engine::policy::name::{FullName, Name};
use redis_throttle_engine::policy::pattern::Pattern;
use redis_throttle_engine::policy::table;
use redis_throttle_engine::time::Instant;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;

/// A policy, or a variant of one.
#[derive(Clone, Debug)]
pub struct Policy {
    /// The name.
    pub name: String,
    /// The rule and its mode.
    pub setting: Setting,
}

/// The policies of a file, and the templates that name the policy of a line.
#[derive(Debug)]
pub struct Policies {
    list: Vec<Policy>,
    by_name: HashMap<Box<[u8]>, u16>,
    policy: Option<Template>,
    /// The policy of all lines, if it is not a template.
    fixed: Option<String>,
    variants: Vec<Template>,
    /// The number of calls that named no policy of the file.
    pub unknown: u64,
    copies: Vec<u8>,
    scoped: Vec<u8>,
}

/// The most templates for variants.
const VARIANTS_MAX: usize = 8;

impl Policies {
    /// Reads a policy file.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, and where.
    pub fn read(path: &str) -> Result<Self, String> {
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| format!("cannot open {path}: {error}"))?;
        let read = file.take(FILE_LEN_MAX as u64 + 1).read_to_end(&mut text);
        read.map_err(|error| format!("cannot read {path}: {error}"))?;
        if text.len() > FILE_LEN_MAX {
            return Err(format!("{path} is too long: expected at most {FILE_LEN_MAX} bytes"));
        }
        Self::parse(&text).map_err(|error| format!("{path}, {error}"))
    }

    /// Reads the text of a policy file.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong, and where.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let file = policy_file(text)
            .map_err(|error| format!("line {}: {}", error.line, fault_text(error.fault)))?;
        let mut table = table::Policies::default();
        table.load(file, Instant::from_us(0));
        let (mut list, mut by_name) = (Vec::new(), HashMap::new());
        for (name, setting) in table.settings(Pattern::ANY) {
            // A file has at most 10,000 policies.
            by_name.insert(name.as_bytes().into(), list.len() as u16);
            list.push(Policy { name: name.as_str().to_owned(), setting: setting.clone() });
        }
        if list.is_empty() {
            return Err(
                "line 1: the file has no policies: expected a line such as `api GCRA 20 10 \
                        1s`"
                .to_owned(),
            );
        }
        let (policy, fixed, variants) = (None, None, Vec::new());
        let (copies, scoped) = (Vec::new(), Vec::new());
        Ok(Self { list, by_name, policy, fixed, variants, unknown: 0, copies, scoped })
    }

    /// Returns the policies, sorted by name.
    pub fn list(&self) -> &[Policy] {
        &self.list
    }

    /// Sets the policy and the variants that a line names.
    ///
    /// # Errors
    ///
    /// A text for a missing or invalid argument.
    pub fn bind(mut self, arguments: &ReplayArguments, names: &mut Names) -> Result<Self, String> {
        let mut bases: Vec<_> =
            self.list.iter().filter_map(|policy| policy.name.split('@').next()).collect();
        bases.dedup();
        match (arguments.policy.as_deref(), bases.as_slice()) {
            (Some(template), _) if template.contains('$') => {
                self.policy = Some(Template::parse(template, names)?);
            }
            (Some(name), bases) if bases.contains(&name) => self.fixed = Some(name.to_owned()),
            (None, [name]) => self.fixed = Some((*name).to_owned()),
            (named, bases) => {
                let wrong = if named.is_some() { "no policy of that name" } else { "missing" };
                let few = bases.get(..bases.len().min(5)).unwrap_or_default().join(", ");
                return Err(format!(
                    "--policy: {wrong}: expected a policy of the file, such as {few}, or a field \
                     such as '$uri_class'"
                ));
            }
        }
        if arguments.variants.len() > VARIANTS_MAX {
            return Err(format!("too many --for: expected at most {VARIANTS_MAX}"));
        }
        let variants = arguments.variants.iter();
        self.variants =
            variants.map(|variant| Template::parse(variant, names)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Returns the number of a line's key, and the policy that applies to it. Each policy has its
    /// own keys, as a server's keys have in their names.
    ///
    /// # Errors
    ///
    /// [`Full`] if the key is new and there is no room for it.
    pub fn number(
        &mut self,
        line: &[u8],
        values: &Values,
        key: &[u8],
        keys: &mut Keys,
    ) -> Result<(u32, Applied), Full> {
        self.scoped.clear();
        let named = match (&self.policy, &self.fixed) {
            (Some(template), _) => template.fill(line, values, &mut self.copies).ok(),
            (None, fixed) => fixed.as_ref().map(|name| name.as_bytes()),
        };
        let Some(name) = named.and_then(Name::new) else {
            self.unknown += 1;
            return Ok((keys.number(key)?, Applied::NONE));
        };
        self.scoped.extend_from_slice(name.as_bytes());
        let policy_len = self.scoped.len();
        self.scoped.push(b' ');
        self.scoped.extend_from_slice(key);
        let number = keys.number(&self.scoped)?;
        // The bytes of the name are needed after the template's memory is used again.
        let Some(name) = self.scoped.get(..policy_len).and_then(Name::new) else {
            return Ok((number, Applied::NONE));
        };
        let variants = self.variants.iter();
        let (by_name, copies) = (&self.by_name, &mut self.copies);
        let mut of_variants = variants.filter_map(|variant| {
            let variant = variant.fill(line, values, copies).ok().and_then(Name::new)?;
            by_name.get(FullName::new(name, Some(variant)).as_bytes()).copied()
        });
        let found = of_variants.next().or_else(|| by_name.get(name.as_bytes()).copied());
        let Some((found, policy)) =
            found.and_then(|found| Some((found, self.list.get(usize::from(found))?)))
        else {
            self.unknown += 1;
            return Ok((number, Applied::NONE));
        };
        let enforcement = policy.setting.enforcement;
        let effect = match enforcement.stance(name, key, None, Instant::from_us(0)) {
            Stance::Enforced => Effect::Enforced,
            Stance::Shadow => Effect::Shadow,
            Stance::Off => Effect::Off,
            Stance::Blocked(_) => Effect::Blocked,
        };
        Ok((number, Applied { policy: found, effect }))
    }
}

impl Policy {
    /// Returns the mode in words.
    pub fn mode(&self) -> String {
        match self.setting.enforcement {
            Enforcement::Percent(100) => "enforced".to_owned(),
            Enforcement::Percent(percent) => format!("enforced for {percent} %"),
            Enforcement::Shadow => "shadow".to_owned(),
            Enforcement::Off => "off".to_owned(),
            Enforcement::Block => "block".to_owned(),
        }
    }

    /// Returns the words of the rule, without the mode.
    pub fn rule_text(&self) -> String {
        let enforced = self.setting.in_mode(Enforcement::Percent(100));
        enforced.text.into()
    }

    /// Returns the rule.
    pub const fn rule(&self) -> &Rule {
        &self.setting.rule
    }
}

fn error_text(error: GrammarError) -> String {
    let text = error.text().map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_else(|| "ERR wrong number of arguments".to_owned())
}

fn fault_text(fault: LineFault) -> String {
    match fault {
        LineFault::Grammar(error) => error_text(error),
        LineFault::Ends => "a policy of a file cannot have EX".to_owned(),
        LineFault::TooLong => "the line is too long: expected at most 1024 bytes".to_owned(),
        LineFault::Refused(Refusal::Repeated) => "the policy is defined twice".to_owned(),
        LineFault::Refused(Refusal::OtherAlgorithm) => {
            "a policy and its variants must have the same algorithm".to_owned()
        }
        LineFault::Refused(Refusal::TooMany) => "the file has too many policies".to_owned(),
        LineFault::Refused(Refusal::NoRule) => "the policy has no rule".to_owned(),
    }
}
