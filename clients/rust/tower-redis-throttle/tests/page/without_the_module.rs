use redis_throttle_client::redis::Client;
use redis_throttle_client::{Backend, Error, Limiter, Options};

pub async fn who_decides(client: Client) -> Result<Backend, Error> {
    let options = Options::default().backend(Backend::Functions); // or "functions".parse()?
    let limiter = Limiter::with_options(client, options)?;
    limiter.ready().await
}
