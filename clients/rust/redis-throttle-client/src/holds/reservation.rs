//! Reservations: units that are held while work lasts.

use crate::{Admission, Decision, Error, Item, Limiter};

/// Units that are reserved as long as work lasts: an [`Admission`] of one item. A drop cancels it.
#[derive(Debug)]
#[must_use = "a reservation that is dropped is cancelled"]
pub struct Reservation(Admission);

impl Reservation {
    /// Returns the decision that reserved the units.
    pub fn decision(&self) -> &Decision {
        self.0.decision()
    }

    /// Returns the name of the reservation.
    #[must_use]
    pub fn id(&self) -> &str {
        self.0.id()
    }

    /// Returns true if this process still holds the reservation, by its own clock.
    #[must_use]
    pub fn held(&self) -> bool {
        self.0.held()
    }

    /// Takes the units that the work took, 0 to 10^12, frees the rest, and waits as
    /// [`finish`](Admission::finish) does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::{QuotaUnit, Rule};
    ///
    /// let tokens = Rule::quota("tokens", 100_000, QuotaUnit::Month)?;
    /// let reserved = limiter.reserve(tokens.of("42").cost(500)).await?;
    /// reserved.commit(420).await?;
    /// assert_eq!(limiter.peek(tokens.of("42").cost(0)).await?.remaining, 99_580);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other units, and after the end.
    pub async fn commit(&self, units: u64) -> Result<(), Error> {
        self.0.settle_first(units)?;
        self.0.finish().await;
        Ok(())
    }

    /// Frees the units, and waits as [`finish`](Admission::finish) does.
    pub async fn cancel(&self) {
        self.0.finish().await;
    }
}

impl Limiter {
    /// Reserves the item's cost under a fixed window, a quota or a policy, for work whose units are
    /// known at its end. The returned guard renews the reservation until it is committed, cancelled
    /// or dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), redis_throttle_client::Error> {
    /// # let limiter = redis_throttle_client::testing::FakeServer::new().limiter();
    /// use redis_throttle_client::{QuotaUnit, Rule};
    ///
    /// let tokens = Rule::quota("tokens", 100_000, QuotaUnit::Month)?;
    /// let reserved = limiter.reserve(tokens.of("42").cost(500)).await?;
    /// assert_eq!(reserved.decision().remaining, 99_500);
    /// reserved.cancel().await;
    /// assert_eq!(limiter.peek(tokens.of("42").cost(0)).await?.remaining, 100_000);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same as [`admit`](Limiter::admit).
    pub async fn reserve(&self, item: Item<'_>) -> Result<Reservation, Error> {
        self.admit(&[item.reserving()], item.tag).await.map(Reservation)
    }
}
