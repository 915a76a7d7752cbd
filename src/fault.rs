//! Deliberate panics, for the tests that prove that no panic reaches the server. A release cannot
//! panic here: without the feature `fault-injection`, `point` does nothing.

/// A place where tests can plant a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The point before the arguments are read.
    Parse = 1,
    /// The point before the decision, with the key open.
    Decide,
    /// The point after the reply is complete and before the key is written.
    Reply,
    /// The point before the key is written.
    Store,
    /// The point at which `INFO` is written.
    Info,
    /// The point at which the server reads a setting.
    ConfigGet,
    /// The point at which the server changes a setting.
    ConfigSet,
    /// The point before the policies of the file replace the current ones.
    PolicyLoad,
    /// The point before the new policy file is created.
    SaveCreate,
    /// The point before the new policy file is written.
    SaveWrite,
    /// The point before the new policy file is synced.
    SaveSync,
    /// The point before the new policy file replaces the old one.
    SaveRename,
    /// The point before the folder of the policy file is synced.
    SaveFolder,
    /// A point during the load of the module. The environment variable `RL_PANIC=load` plants this
    /// panic.
    Load,
}

#[cfg(not(feature = "fault-injection"))]
mod injection {
    use super::Point;
    use crate::api::call::Call;

    /// Does nothing.
    #[inline(always)]
    pub fn point(_: Point) {}

    /// Returns false: without the feature there is no `RL.DEBUG PANIC`.
    #[inline(always)]
    pub fn obeys(_: &Call<'_>) -> bool {
        false
    }
}

#[cfg(feature = "fault-injection")]
mod injection {
    use super::Point;
    use crate::api::call::Call;
    use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

    static PLANTED: AtomicU8 = AtomicU8::new(0);

    /// Panics if `RL.DEBUG PANIC` planted a panic here.
    pub fn point(here: Point) {
        if here == Point::Load && std::env::var_os("RL_PANIC").is_some_and(|at| at == "load") {
            panic!("planted at {here:?}");
        }
        if PLANTED.compare_exchange(here as u8, 0, Relaxed, Relaxed).is_ok() {
            panic!("planted at {here:?}");
        }
    }

    /// Plants a panic at the point that `RL.DEBUG PANIC point` names, and replies. Returns false
    /// for any other call and for an unknown point.
    pub fn obeys(call: &Call<'_>) -> bool {
        let [b"PANIC", name] = call.args() else {
            return false;
        };
        let points = [
            (Point::Parse, "parse"),
            (Point::Decide, "decide"),
            (Point::Store, "store"),
            (Point::Reply, "reply"),
            (Point::Info, "info"),
            (Point::ConfigGet, "config_get"),
            (Point::ConfigSet, "config_set"),
            (Point::PolicyLoad, "policy_load"),
            (Point::SaveCreate, "save_create"),
            (Point::SaveWrite, "save_write"),
            (Point::SaveSync, "save_sync"),
            (Point::SaveRename, "save_rename"),
            (Point::SaveFolder, "save_folder"),
        ];
        let found = points.iter().find(|(_, text)| name.eq_ignore_ascii_case(text.as_bytes()));
        if let Some((point, _)) = found {
            PLANTED.store(*point as u8, Relaxed);
            call.context().reply_ok();
        }
        found.is_some()
    }
}

pub use injection::*;
