//! Families: a policy and its variants, which must have the same algorithm. Otherwise members would
//! replace each other's state, and so refill the limit.

use crate::algorithms::Algorithm;
use crate::policy::name::FullName;
use std::collections::HashMap;

/// The largest number of policies, variants and overrides included.
pub const COUNT_MAX: usize = 10_000;

/// The reason why a policy is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A variant of the policy, or the policy it overrides, has another algorithm.
    OtherAlgorithm,
    /// A file defines the policy twice.
    Repeated,
    /// A mode is set without a rule, and there is no policy to take the rule from.
    NoRule,
    /// There are [`COUNT_MAX`] policies already.
    TooMany,
}

/// The families of all policies, by the policy's name.
#[derive(Debug, Default)]
pub struct Families(HashMap<Box<[u8]>, Family>);

#[derive(Debug)]
struct Family {
    algorithm: Algorithm,
    members: usize,
}

impl Families {
    /// Returns true if the policy `name` may have `algorithm`. `is_member` is true if `name` is
    /// already in its family.
    pub fn admit(&self, name: &FullName, is_member: bool, algorithm: Algorithm) -> bool {
        let family = self.0.get(name.policy());
        family.is_none_or(|family| {
            family.algorithm == algorithm || family.members == usize::from(is_member)
        })
    }

    /// Adds `name`, or updates the algorithm of a member.
    pub fn put(&mut self, name: &FullName, is_member: bool, algorithm: Algorithm) {
        match self.0.get_mut(name.policy()) {
            Some(family) => {
                family.algorithm = algorithm;
                family.members += usize::from(!is_member);
            }
            None => {
                self.0.insert(name.policy().into(), Family { algorithm, members: 1 });
            }
        }
    }

    /// Removes a member.
    pub fn remove(&mut self, name: &FullName) {
        if let Some(family) = self.0.get_mut(name.policy()) {
            family.members -= 1;
            if family.members == 0 {
                self.0.remove(name.policy());
            }
        }
    }
}
