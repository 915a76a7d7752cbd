//! The search for a back end over a slow network, and one that never ends well.

use std::sync::{Arc, Mutex};

use redis_throttle_client::redis::{self, RedisError, Value};
use redis_throttle_client::{Backend, Command, Connection, Error, Limiter, Options, Reply, Source};

use crate::{api, ms};

/// A server without the module, 40 ms away: less than half of the time-out.
#[derive(Clone, Default)]
struct Far {
    asked: Arc<Mutex<Vec<String>>>,
    loaded: Arc<Mutex<bool>>,
    forgets: bool,
}

fn refused(error: &str) -> Result<Value, RedisError> {
    match redis::parse_redis_value(format!("-{error}\r\n").as_bytes())? {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

impl Connection for Far {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        Box::pin(async move {
            let [name, function, ..] = command.words() else { panic!("{command:?}") };
            self.asked.lock().unwrap().push(format!("{name} {function}"));
            tokio::time::sleep(ms(40)).await;
            let mut loaded = self.loaded.lock().unwrap();
            match (&**name, &**function) {
                ("FUNCTION", _) => *loaded = true,
                ("FCALL", "rl_version") if *loaded => {
                    return Ok(Value::SimpleString("0.2.0".to_owned()));
                }
                ("FCALL", "rl_gcra") if *loaded && !self.forgets => {
                    return Ok(Value::Array([1, 6, 5, 0, 6000].map(Value::Int).to_vec()));
                }
                ("FCALL", _) => return refused("ERR Function not found"),
                _ => return refused(&format!("ERR unknown command '{name}', with args")),
            }
            Ok(Value::Okay)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_outlives_the_call_that_began_it() {
    let far = Far::default();
    let limiter = Limiter::new(far.clone());
    let first = limiter.check(api().of("42")).await.unwrap();
    assert_eq!(first.source, Source::Error);
    tokio::time::sleep(ms(100)).await;
    far.asked.lock().unwrap().clear();
    assert_eq!(limiter.check(api().of("42")).await.unwrap().source, Source::Server);
    assert_eq!(*far.asked.lock().unwrap(), ["FCALL rl_gcra"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_gone_again_and_again_is_no_answer() {
    let far = Far { forgets: true, ..Far::default() };
    let options = Options::default().timeout_ms(10_000).backend(Backend::Functions);
    let limiter = Limiter::with_options(far.clone(), options).unwrap();
    let error = limiter.charge(api().of("42")).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { source: Some(_), .. }), "{error}");
    assert!(far.asked.lock().unwrap().len() < 10);
    let decision = limiter.check(api().of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Error);
}
