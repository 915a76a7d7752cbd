//! Opens connections, and spreads the dials after a failure.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis::{AsyncConnectionConfig, RedisError};
use uuid::Uuid;

use crate::net::connection::Connection;
use crate::{Error, Reason};

/// The longest pause after a failed dial, or a failed reading of a cluster's slots.
pub(crate) const DIAL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The future of a connection, which [`Dial::dial`] returns.
pub type Dialling<'a> =
    Pin<Box<dyn Future<Output = Result<Box<dyn Connection>, RedisError>> + Send + 'a>>;

/// Opens the connections of a limiter to one server.
///
/// The limiter keeps one connection. It calls `dial` for the first call, and again after a
/// connection is lost, falls silent or leads to a replica. Credentials may differ at each dial.
pub trait Dial: Send + Sync + 'static {
    /// Opens a connection. The limiter drops the future if it takes longer than one second, or than
    /// the limiter's timeout if that is longer.
    fn dial(&self) -> Dialling<'_>;
}

/// Opens connections with the default configuration, and with TCP_NODELAY.
impl Dial for redis::Client {
    fn dial(&self) -> Dialling<'_> {
        Box::pin(dialled(self, AsyncConnectionConfig::new()))
    }
}

/// Opens connections with the given configuration, but without its timeouts: those of the limiter
/// apply. A credentials provider in it is called at each dial.
impl Dial for (redis::Client, AsyncConnectionConfig) {
    fn dial(&self) -> Dialling<'_> {
        Box::pin(dialled(&self.0, self.1.clone()))
    }
}

/// Opens connections with a closure, such as one that fetches new credentials.
impl<F, R, C> Dial for F
where
    F: Fn() -> R + Send + Sync + 'static,
    R: Future<Output = Result<C, RedisError>> + Send + 'static,
    C: Connection,
{
    fn dial(&self) -> Dialling<'_> {
        let dialled = self();
        Box::pin(async { dialled.await.map(|connection| Box::new(connection) as Box<_>) })
    }
}

async fn dialled(
    client: &redis::Client,
    config: AsyncConnectionConfig,
) -> Result<Box<dyn Connection>, RedisError> {
    let config = config.set_response_timeout(None).set_connection_timeout(None);
    let info = client.get_connection_info();
    // Otherwise a command waits until the server has confirmed the one before.
    let tcp = info.tcp_settings().clone().set_nodelay(true);
    let client = redis::Client::open(info.clone().set_tcp_settings(tcp))?;
    let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    Ok(Box::new(connection))
}

/// Returns the error of a call for which no connection could be opened, or no slots be read.
pub(crate) fn undialled(error: RedisError) -> Error {
    match Error::from(error) {
        Error::Unavailable { source, .. } => {
            Error::Unavailable { reason: Reason::Connection, source }
        }
        rejected => rejected,
    }
}

/// Returns a random duration that is shorter by up to the part `jitter`, so that processes that
/// lost their server together do not return together.
pub(crate) fn jittered(pause: Duration, jitter: f64) -> Duration {
    let random = f64::from(Uuid::new_v4().as_bytes()[0]) / f64::from(u8::MAX);
    pause.mul_f64(1.0 - jitter * random)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn pause_is_shorter_by_at_most_a_fifth() {
        let Options { jitter, breaker_pause, .. } = Options::default();
        let pauses: Vec<_> = (0..100).map(|_| jittered(breaker_pause * 10, jitter)).collect();
        let (least, most) = (pauses.iter().min().unwrap(), pauses.iter().max().unwrap());
        assert!(*least >= Duration::from_secs(8) && *most <= Duration::from_secs(10));
        assert!(*most - *least > Duration::from_secs(1), "{least:?} to {most:?}");
    }
}
