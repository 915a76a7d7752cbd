//! The policies of a file, checked against each other before any of them is used.

use crate::policy::definition::Setting;
use crate::policy::families::{COUNT_MAX, Families, Refusal};
use crate::policy::name::FullName;
use std::collections::HashMap;

/// Policies that can be in one table together; none of them expires.
#[derive(Debug, Default)]
pub struct FileSet {
    by_name: HashMap<Box<[u8]>, (FullName, Setting)>,
    families: Families,
}

impl FileSet {
    /// Adds a policy.
    ///
    /// # Errors
    ///
    /// Returns a [`Refusal`] if the policy is not added.
    pub fn add(&mut self, name: FullName, setting: Setting) -> Result<(), Refusal> {
        if self.by_name.contains_key(name.as_bytes()) {
            return Err(Refusal::Repeated);
        }
        let algorithm = setting.rule.algorithm();
        if !self.families.admit(&name, false, algorithm) {
            return Err(Refusal::OtherAlgorithm);
        }
        if self.by_name.len() >= COUNT_MAX {
            return Err(Refusal::TooMany);
        }
        self.families.put(&name, false, algorithm);
        self.by_name.insert(name.as_bytes().into(), (name, setting));
        Ok(())
    }

    /// Returns the number of policies.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns true if there are no policies.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Returns true if a policy has this name.
    pub(super) fn has(&self, name: &FullName) -> bool {
        self.by_name.contains_key(name.as_bytes())
    }

    /// Returns all policies and their families.
    pub(super) fn into_parts(self) -> (impl Iterator<Item = (FullName, Setting)>, Families) {
        (self.by_name.into_values(), self.families)
    }
}
