//! The driver's credentials provider.

mod server;

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{Stream, once};
use redis::auth::{BasicAuth, StreamingCredentialsProvider};
use redis::{AsyncConnectionConfig, RedisResult};
use redis_throttle_client::{Error, Limiter, Options, Rule};
use server::{Server, until};

/// A provider whose password changes.
#[derive(Clone)]
struct Changing(Arc<Mutex<&'static str>>);

impl StreamingCredentialsProvider for Changing {
    fn subscribe(&self) -> Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>> {
        let password = (*self.0.lock().unwrap()).to_owned();
        Box::pin(once(async { Ok(BasicAuth::new("app".to_owned(), password)) }))
    }
}

#[tokio::test]
async fn next_dial_calls_the_credentials_provider() {
    let server = Server::start().await;
    let user = |password| ["ACL", "SETUSER", "app", "on", password, "~*", "&*", "+@all"];
    server.run(&user(">old")).await;
    let provider = Changing(Arc::new(Mutex::new("old")));
    let config = AsyncConnectionConfig::new().set_credentials_provider(provider.clone());
    let options = Options::default().timeout(Duration::from_secs(10));
    let options = options.breaker_pause(Duration::from_millis(20));
    let limiter = Limiter::with_options((server.client(), config), options).unwrap();
    limiter.ready().await.unwrap();
    let name: String = server.query(&["CLIENT", "LIST"]).await.unwrap();
    assert!(name.contains("user=app"), "{name}");

    server.run(&["ACL", "DELUSER", "app"]).await;
    server.run(&user(">new")).await;
    let api = Rule::gcra("api", 6, 10, "60s").unwrap();
    let rejected =
        async || matches!(limiter.check(api.of("42")).await, Err(Error::CommandRejected { .. }));
    until("the password is refused", rejected).await;
    *provider.0.lock().unwrap() = "new";
    until("the new password is used", async || limiter.ready().await.is_ok()).await;
}
