//! A policy and its variants are a family: all of them have one algorithm, or two of them could
//! refill each other by turns.

use crate::algorithms::Algorithm;
use crate::policy::name::FullName;
use std::collections::HashMap;

/// The most policies at a time, variants and overrides included.
pub const COUNT_MAX: usize = 10_000;

/// Why a policy is not taken into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A variant of it, or what it stands in for, has another algorithm.
    OtherAlgorithm,
    /// A file has it twice.
    Repeated,
    /// There are as many as there may be.
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
    /// Whether `name` may have `algorithm`, being in its family already or not.
    pub fn admit(&self, name: &FullName, is_member: bool, algorithm: Algorithm) -> bool {
        let family = self.0.get(name.policy());
        family.is_none_or(|family| {
            family.algorithm == algorithm || family.members == usize::from(is_member)
        })
    }

    /// Takes `name` in, or tells of a new algorithm of a member.
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

    /// Lets a member go.
    pub fn remove(&mut self, name: &FullName) {
        if let Some(family) = self.0.get_mut(name.policy()) {
            family.members -= 1;
            if family.members == 0 {
                self.0.remove(name.policy());
            }
        }
    }
}
