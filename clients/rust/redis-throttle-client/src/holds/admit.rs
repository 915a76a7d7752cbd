//! Calls that hold something while work lasts: leases, reservations, and admissions of several
//! items.

use uuid::Uuid;

use crate::calls::steps::Ask;
use crate::holds::hold::Asked;
use crate::net::connection::Command;
use crate::rules::clock;
use crate::rules::item::{Keyed, Owned};
use crate::wire::words;
use crate::{Admission, Checked, Error, EventKind, Item, Kind, Lease, Limiter, Reservation};

fn random_id() -> String {
    Uuid::new_v4().simple().to_string()
}

impl Limiter {
    /// Takes a permit that renews itself. The permit is released when the returned guard is
    /// released or dropped.
    ///
    /// # Errors
    /// [`Error::Denied`] with the decision if no permit is free; otherwise the same as
    /// [`check`](Limiter::check).
    pub async fn lease(&self, item: Item<'_>) -> Result<Lease, Error> {
        if item.rule.kind() != Kind::Lease {
            return Err(words::expected_lease(item.rule));
        }
        let mut checked = self.check_with_leases(&[item], None).await?;
        checked.leases.pop().ok_or_else(|| Error::Denied(Box::new(checked.decision)))
    }

    /// Checks several rules in one call. Some of them may be leases. Middleware uses this method.
    /// Each lease is held until its guard is released or dropped. If the answer never reaches the
    /// caller, the leases are released.
    ///
    /// # Errors
    /// The same as [`check_all`](Limiter::check_all).
    #[doc(hidden)]
    pub async fn check_with_leases(
        &self,
        items: &[Item<'_>],
        tag: Option<&str>,
    ) -> Result<Checked, Error> {
        let began = clock::now();
        let random = random_id();
        let mut items = items.to_vec();
        for item in &mut items {
            item.tag = tag.or(item.tag);
            if item.rule.kind() == Kind::Lease {
                item.id.get_or_insert(&random);
            }
        }
        let calls = self.keyed(&items, None)?;
        let mut command = match (&items[..], &calls[..]) {
            ([item], [call]) if item.is_held() => words::lease(call)?,
            ([item], _) => {
                let decision = self.check(*item).await?;
                return Ok(Checked::new(self, &items, &calls, decision, Vec::new()));
            }
            _ => words::check_all(&calls, false)?,
        };
        let asked = self.asked(&items, &calls, &mut command, false);
        let (kind, decided) = if let [call] = &calls[..] {
            let (calls, budget) = (std::slice::from_ref(call), &self.budget());
            let ask = Ask { command: &command, calls, is_all: false, admits: false, began, budget };
            (EventKind::Lease, self.decide(&ask, false, false).await)
        } else {
            (EventKind::Check, self.decide_all(&command, &calls, began).await)
        };
        match self.told_all(kind, decided, &items, began) {
            Ok(decision) => {
                let holds = asked.decided(&decision)?.into_iter().filter_map(|(_, hold)| hold);
                let leases = holds.map(|hold| Lease::new(self, hold, decision.clone())).collect();
                Ok(Checked::new(self, &items, &calls, decision, leases))
            }
            Err(error) => {
                asked.refused();
                Err(error)
            }
        }
    }

    /// Takes from all rules of the items, or from none, for work whose units are known at its end:
    /// several rules, leases and reservations in one call. The returned guard renews what it holds
    /// and settles every item when it is finished or dropped.
    ///
    /// The call asks the server even if this process has permits or a cached denial. `tag` is the
    /// hash tag of all keys, which a cluster needs. The [`id`](Item::id) of an item names all
    /// leases and reservations; the default is a random one.
    ///
    /// # Errors
    /// [`Error::Denied`] with the decision if a rule denies: nothing was taken. Otherwise the same
    /// as [`check_all`](Limiter::check_all), and [`Error::InvalidArgument`] for two ids.
    pub async fn admit(&self, items: &[Item<'_>], tag: Option<&str>) -> Result<Admission, Error> {
        let began = clock::now();
        let random = random_id();
        let id = items.iter().find_map(|item| item.id).unwrap_or(&random);
        words::checked_held_id(Some(id))?;
        if items.iter().any(|item| item.id.is_some_and(|other| other != id)) {
            return Err(Error::invalid("id", "expected one id for all items"));
        }
        let items: Vec<_> = items.iter().map(|item| item.id(id)).collect();
        let calls = self.keyed(&items, tag)?;
        let mut command = words::check_all(&calls, false)?;
        let asked = self.asked(&items, &calls, &mut command, true);
        let (command, budget) = (&command, &self.budget());
        let ask = Ask { command, calls: &calls, is_all: true, admits: true, began, budget };
        let decided = self.decide(&ask, false, false).await;
        match self.told_all(EventKind::Check, decided, &items, began) {
            Ok(decision) => {
                let items = asked.decided(&decision)?;
                if !decision.allowed {
                    return Err(Error::Denied(Box::new(decision)));
                }
                Ok(Admission::new(self, id, decision, items))
            }
            Err(error) => {
                asked.refused();
                Err(error)
            }
        }
    }

    /// Reserves the item's cost under a fixed window, a quota or a policy, for work whose units are
    /// known at its end. The returned guard renews the reservation until it is committed, cancelled
    /// or dropped.
    ///
    /// # Errors
    /// The same as [`admit`](Limiter::admit).
    pub async fn reserve(&self, item: Item<'_>) -> Result<Reservation, Error> {
        self.admit(&[item.reserving()], item.tag).await.map(Reservation::new)
    }

    /// Returns a guard that gives back what the command takes if its answer never reaches the
    /// caller.
    fn asked(
        &self,
        items: &[Item<'_>],
        calls: &[Keyed<'_>],
        command: &mut Command<'_>,
        is_admission: bool,
    ) -> Asked {
        let items = items.iter().zip(calls).map(|(item, call)| Owned::new(item, call)).collect();
        Asked::new(self, items, command.record(), is_admission)
    }
}
