use redis_throttle_client::redis::aio::MultiplexedConnection;
use redis_throttle_client::{Backend, Error, Limiter, Options};

pub async fn who_decides(connection: MultiplexedConnection) -> Result<Backend, Error> {
    let options = Options::default().backend(Backend::Functions); // or "functions".parse()?
    let limiter = Limiter::with_options(connection, options)?;
    limiter.ready().await
}
