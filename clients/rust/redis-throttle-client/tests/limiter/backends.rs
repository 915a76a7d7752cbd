//! The search for a back end: over a slow network, and when it never succeeds.

use std::sync::{Arc, Mutex};

use redis_throttle_client::redis::{self, RedisError, Value};
use redis_throttle_client::{
    Backend, Command, Connection, Error, Limiter, Options, Reason, Reply, Source,
};

use crate::{api, ms, over};

/// A server without the module, 40 ms away: less than half of the timeout.
#[derive(Clone, Default)]
struct Far {
    calls: Arc<Mutex<Vec<String>>>,
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
            self.calls.lock().unwrap().push(format!("{name} {function}"));
            tokio::time::sleep(ms(40)).await;
            let mut loaded = self.loaded.lock().unwrap();
            match (&**name, &**function) {
                ("FUNCTION", _) => *loaded = true,
                ("FCALL", "rl_version") if *loaded => {
                    return Ok(Value::SimpleString(env!("CARGO_PKG_VERSION").to_owned()));
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
async fn search_outlives_the_call_that_started_it() {
    let far = Far::default();
    let options = Options::default().timeout(ms(100));
    let limiter = Limiter::with_options(over(&far), options).unwrap();
    let first = limiter.check(api().of("42")).await.unwrap();
    assert_eq!(first.reason, Some(Reason::Overloaded));
    tokio::time::sleep(ms(100)).await;
    far.calls.lock().unwrap().clear();
    assert_eq!(limiter.check(api().of("42")).await.unwrap().source, Source::Server);
    assert_eq!(*far.calls.lock().unwrap(), ["FCALL rl_gcra"]);
}

#[tokio::test(start_paused = true)]
async fn call_that_is_not_polled_does_not_keep_others_from_searching() {
    let far = Far { forgets: true, ..Far::default() };
    let options = Options::default().timeout(ms(1000));
    let limiter = Limiter::with_options(over(&far), options).unwrap();
    let api = api();
    let first = tokio::spawn({
        let (limiter, api) = (limiter.clone(), api.clone());
        async move { limiter.check(api.of("42")).await }
    });
    tokio::time::sleep(ms(5)).await;
    // It finds that the module is missing, and waits for the search of the first call.
    let mut held = Box::pin(limiter.check(api.of("42")));
    let _ = tokio::time::timeout(ms(60), &mut held).await.unwrap_err();
    let _ = first.await.unwrap();
    let error = limiter.check(api.of("42")).await.unwrap_err();
    assert!(error.to_string().contains("Function not found"), "{error}");
    drop(held);
}

/// Happens behind a proxy to several servers of which one has the library, or if a function is
/// forbidden. The error is not temporary, so `on_error` must not decide.
#[tokio::test(start_paused = true)]
async fn call_returns_an_error_when_the_back_end_is_missing_again_after_each_search() {
    let far = Far { forgets: true, ..Far::default() };
    for backend in [Backend::Auto, Backend::Functions] {
        let options = Options::default().timeout(ms(10_000)).backend(backend);
        let limiter = Limiter::with_options(over(&far), options).unwrap();
        for _ in 0..2 {
            far.calls.lock().unwrap().clear();
            let error = limiter.check(api().of("42")).await.unwrap_err();
            assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
            assert!(far.calls.lock().unwrap().len() < 10);
        }
    }
}

/// A server that returns the result of a given function for each command, and records the
/// commands.
#[derive(Clone)]
struct Computed {
    reply: fn(&str, &str) -> Result<Value, RedisError>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Connection for Computed {
    fn send<'a>(&'a self, command: &'a Command<'a>) -> Reply<'a> {
        let [name, second, ..] = command.words() else { panic!("{command:?}") };
        self.calls.lock().unwrap().push(name.to_string());
        let reply = (self.reply)(name, second);
        Box::pin(async move { reply })
    }
}

fn computed(reply: fn(&str, &str) -> Result<Value, RedisError>) -> (Limiter, Computed) {
    let server = Computed { reply, calls: Arc::default() };
    (Limiter::new(over(&server)), server)
}

fn unknown(name: &str) -> Result<Value, RedisError> {
    refused(&format!("ERR unknown command '{name}', with args beginning with: "))
}

fn allowed() -> Result<Value, RedisError> {
    Ok(Value::Array([1, 6, 5, 0, 6000].map(Value::Int).to_vec()))
}

#[tokio::test]
async fn call_returns_an_error_when_the_server_has_renamed_a_command() {
    // Without EVALSHA the script cannot run, even if EVAL works.
    let (limiter, server) = computed(|name, _| match name {
        "EVAL" => Ok(Value::Okay),
        _ => unknown(name),
    });
    for _ in 0..2 {
        let error = limiter.check(api().of("42")).await.unwrap_err();
        assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    }
    assert!(!server.calls.lock().unwrap().contains(&"EVAL".to_owned()));
    // A command that is not the module's cannot run on another back end.
    let (_, server) = computed(|name, _| unknown(name));
    let functions = Options::default().backend(Backend::Functions);
    let limiter = Limiter::with_options(over(&server), functions).unwrap();
    let error = limiter.forget(api().of("42")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    assert_eq!(*server.calls.lock().unwrap(), ["DEL"]);
}

#[tokio::test]
async fn limiter_uses_the_script_to_read_a_replica_that_lacks_the_library() {
    let (limiter, _) = computed(|name, second| match (name, second) {
        ("FCALL", _) => refused("ERR Function not found"),
        ("FUNCTION", _) => refused("READONLY You can't write against a read only replica."),
        ("EVALSHA", _) => allowed(),
        _ => unknown(name),
    });
    assert_eq!(limiter.peek(api().of("42")).await.unwrap().source, Source::Server);
    assert_eq!(limiter.ready().await.unwrap(), Backend::Script);
}
