//! `RL.BLOCK`: the ban of a key. It replaces every state of the module, and no other value.

use crate::api::Refused;
use crate::api::call::Call;
use crate::api::key::{Event, KeyKind, MemberChanges, ReadKey, WriteKey};
use crate::commands::table::CommandId;
use crate::error::CommandError;
use crate::fault::{self, Point};
use crate::keyspace::{self, Commit, CommitError, Committed, KeyWrite};
use crate::leases::set as holders;
use crate::{clock, config, ending};
use redis_throttle_engine::algorithms::State;
use redis_throttle_engine::ban::Ban;
use redis_throttle_engine::grammar;
use redis_throttle_engine::state::decimal;

/// Bans a key until a duration from now, in place of the state that the key has.
#[cold]
pub fn block(id: CommandId, call: &mut Call<'_>) -> Result<(), CommandError> {
    let duration = grammar::ban::ban(call.args_after_key())?;
    let key = call.only_key()?.open_for_writing();
    fault::point(Point::Decide);
    if !holds_state(&key) {
        return Err(CommandError::NotAState);
    }
    let ban = Ban::new(clock::now(), duration);
    ending::store(id, key, Some(ban))?.finish(call, true, &(), ())
}

/// Returns true if the key is missing or holds a state of the module. Digits are a state only if a
/// command that stores digits is enabled, and only with an expiry: each of the module's keys has
/// one.
fn holds_state(key: &WriteKey<'_, '_>) -> bool {
    match key.kind() {
        KeyKind::Missing => true,
        KeyKind::String => {
            let is_decimal = || decimal::decode_decimal(key.bytes()).is_ok();
            is_array(key) || config::stores_digits() && key.expire_at_ms().is_some() && is_decimal()
        }
        KeyKind::SortedSet => holders::check_mark(key).is_ok(),
        KeyKind::Other => false,
    }
}

/// Returns true if the key holds an array of the module, with a valid list of reservations.
fn is_array(key: &ReadKey<'_, '_>) -> bool {
    match keyspace::load(key) {
        Ok(Some(State::Reserved(state))) => state.list.read(|_, _| ()).is_ok(),
        Ok(Some(_)) => true,
        Ok(None) | Err(_) => false,
    }
}

impl Commit for Ban {
    /// Replaces the value by the ban. A set of holders may be large, so it is unlinked: the server
    /// frees it in the background.
    fn commit<'call>(
        &self,
        id: CommandId,
        mut key: WriteKey<'_, 'call>,
    ) -> Result<Committed<'call>, CommitError> {
        let write = KeyWrite::of_ban(&self.next());
        if key.kind() != KeyKind::SortedSet {
            return keyspace::commit_out_of_line(Some(id), key, &write);
        }
        key.unlink().map_err(|Refused| CommitError::NotStored)?;
        let unlinked = key.replicate_unlink();
        // The key was there, so no command has created it.
        let committed = keyspace::commit_out_of_line(None, key, &write)?;
        let replicated = unlinked.and(committed.replicated);
        let changes = MemberChanges { replaced: true, becomes_string: true, ..Default::default() };
        Ok(Committed { event: Event::SortedSet(changes), replicated, ..committed })
    }
}
