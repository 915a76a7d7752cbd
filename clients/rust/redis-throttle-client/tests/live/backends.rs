//! The search for a back end on real servers.

use redis_throttle_client::{Backend, Error, Limiter, OnError, Options, Rule, Source};

use crate::server::Server;
use crate::{api, ms, patient};

const LIBRARY: &str = include_str!("../../../../../functions/redis_throttle.lua");
const VERSION_LINE: &str = "\nlocal VERSION = '";

fn limiter(server: &Server, backend: Backend) -> Limiter {
    Limiter::with_options(server.client(), patient().backend(backend)).unwrap()
}

/// Returns a client for a user with all permissions but the given ones.
async fn without(server: &Server, rights: &[&str]) -> redis::Client {
    let user = ["ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"];
    server.run(&[&user, rights].concat()).await;
    let url = server.url().replace("//", "//app:secret@");
    redis::Client::open(url).unwrap()
}

/// Returns the number of units left, which shows how often a call was counted.
async fn left(limiter: &Limiter) -> u64 {
    let decision = limiter.check(api().of("42")).await.unwrap();
    assert_eq!(decision.source, Source::Server);
    decision.remaining
}

async fn version(server: &Server) -> Option<String> {
    server.query(&["FCALL", "rl_version", "0"]).await.ok()
}

#[tokio::test]
async fn limiter_finds_the_available_back_end_and_continues_its_counts() {
    let with = [Backend::Module, Backend::Functions, Backend::Script];
    for there in with {
        let server = Server::of(there, &[]).await;
        server.freeze().await;
        let limiter = limiter(&server, Backend::Auto);
        assert_eq!(left(&limiter).await, 5, "{there:?}");
        assert_eq!(limiter.ready().await.unwrap(), there);
    }
    let server = Server::of(Backend::Module, &[]).await;
    for (wanted, remaining) in with.into_iter().zip([5, 4, 3]) {
        let limiter = limiter(&server, wanted);
        assert_eq!(left(&limiter).await, remaining);
        assert_eq!(limiter.ready().await.unwrap(), wanted);
    }
}

#[tokio::test]
async fn limiter_sends_calls_only_to_the_selected_back_end() {
    let plain = Server::plain(&[]).await;
    let error = limiter(&plain, Backend::Module).ready().await.unwrap_err();
    assert!(error.to_string().contains("is the module loaded"), "{error}");
    assert_eq!(plain.calls("fcall").await, 0);
    let old = Server::of(Backend::Script, &[]).await;
    let error = limiter(&old, Backend::Functions).ready().await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    assert_eq!(old.calls("eval").await, 0);
}

/// Counts all commands of a limiter that reached the server.
async fn commands(server: &Server) -> u64 {
    let mut sum = 0;
    for command in ["rl.gcra", "rl.peek", "fcall", "fcall_ro", "function|load", "eval", "evalsha"] {
        sum += server.calls(command).await;
    }
    sum
}

#[tokio::test]
async fn call_takes_one_command_after_the_search() {
    for backend in [Backend::Module, Backend::Functions, Backend::Script] {
        let server = Server::of(backend, &[]).await;
        let limiter = limiter(&server, Backend::Auto);
        left(&limiter).await;
        let before = commands(&server).await;
        for _ in 0..5 {
            left(&limiter).await;
        }
        assert_eq!(commands(&server).await - before, 5);
    }
}

#[tokio::test]
async fn limiter_loads_a_flushed_library_again_and_counts_the_call_once() {
    let server = Server::of(Backend::Functions, &[]).await;
    for backend in [Backend::Functions, Backend::Script] {
        server.freeze().await;
        let limiter = limiter(&server, backend);
        assert_eq!(left(&limiter).await, 5);
        server.run(&["FUNCTION", "FLUSH"]).await;
        server.run(&["SCRIPT", "FLUSH"]).await;
        assert_eq!(left(&limiter).await, 4);
        assert_eq!(limiter.ready().await.unwrap(), backend);
        // Concurrent calls share one search.
        server.run(&["FUNCTION", "FLUSH"]).await;
        server.run(&["SCRIPT", "FLUSH"]).await;
        let hundred = Rule::gcra("hundred", 100, 1, "1h").unwrap();
        let calling: Vec<_> = (0..120)
            .map(|_| {
                let (limiter, hundred) = (limiter.clone(), hundred.clone());
                tokio::spawn(async move { limiter.check(hundred.of("42")).await.unwrap() })
            })
            .collect();
        let mut allowed = 0;
        for call in calling {
            let decision = call.await.unwrap();
            assert_eq!(decision.source, Source::Server);
            allowed += u32::from(decision.allowed);
        }
        assert_eq!(allowed, 100);
    }
}

#[tokio::test]
async fn limiter_replaces_an_older_library_and_keeps_a_newer_one() {
    let server = Server::of(Backend::Functions, &[]).await;
    let (before, line) = LIBRARY.split_once(VERSION_LINE).unwrap();
    let (current, after) = line.split_once('\'').unwrap();
    for (there, wanted) in [("0.1.9", current), (current, current), ("0.10.0", "0.10.0")] {
        for backend in [Backend::Auto, Backend::Functions] {
            let loaded = format!("{before}{VERSION_LINE}{there}'{after}");
            server.run(&["FUNCTION", "LOAD", "REPLACE", &loaded]).await;
            let limiter = limiter(&server, backend);
            assert_eq!(limiter.ready().await.unwrap(), Backend::Functions);
            assert_eq!(version(&server).await.as_deref(), Some(wanted));
        }
    }
}

#[tokio::test]
async fn limiter_uses_the_script_for_a_user_without_functions() {
    let server = Server::of(Backend::Functions, &[]).await;
    for rights in [&["-function"][..], &["-fcall"]] {
        let client = without(&server, rights).await;
        let limiter = Limiter::with_options(client, patient()).unwrap();
        assert_eq!(limiter.ready().await.unwrap(), Backend::Script);
        let functions = patient().backend(Backend::Functions);
        let client = without(&server, rights).await;
        let limiter = Limiter::with_options(client, functions).unwrap();
        assert!(matches!(limiter.ready().await, Err(Error::CommandRejected { .. })));
    }
    assert_eq!(version(&server).await, None);
}

#[tokio::test]
async fn call_returns_an_error_when_the_user_may_not_call_the_module() {
    let server = Server::of(Backend::Module, &[]).await;
    let client = without(&server, &["-rl.gcra", "-rl.peek"]).await;
    let limiter = Limiter::with_options(client, patient()).unwrap();
    let open = api().on_error(OnError::Allow).unwrap();
    let error = limiter.check(open.of("42")).await.unwrap_err();
    assert!(matches!(error, Error::CommandRejected { .. }), "{error}");
    assert_eq!(version(&server).await, None);
    // A back end found earlier does not decide instead of the module either.
    let mut server = Server::of(Backend::Functions, &[]).await;
    let limiter = Limiter::with_options(server.client(), options()).unwrap();
    left(&limiter).await;
    server.end();
    server.become_one_of(Backend::Module).await;
    server.run(&["ACL", "SETUSER", "default", "-rl.gcra", "-rl.peek"]).await;
    let is_rejected = async || {
        limiter
            .check(open.of("42"))
            .await
            .is_err_and(|error| matches!(error, Error::CommandRejected { .. }))
    };
    crate::until("the rejection is returned", is_rejected).await;
    assert_eq!(version(&server).await, None);
}

#[tokio::test]
async fn limiter_finds_another_back_end_after_the_server_changes() {
    let mut server = Server::of(Backend::Functions, &[]).await;
    let limiter = Limiter::with_options(server.client(), options()).unwrap();
    assert_eq!(left(&limiter).await, 5);
    for there in [Backend::Script, Backend::Module, Backend::Functions] {
        server.end();
        server.become_one_of(there).await;
        let back = async || {
            limiter.check(api().of("back")).await.is_ok_and(|it| it.source == Source::Server)
        };
        crate::until("the server decides", back).await;
        assert_eq!(limiter.ready().await.unwrap(), there);
    }
}

#[tokio::test]
async fn limiter_keeps_libraries_of_other_programs() {
    let others = [
        "#!lua name=redis_throttle\nredis.register_function('other', function() end)",
        "#!lua name=other\nredis.register_function('rl_gcra', function() end)",
    ];
    for other in others {
        let server = Server::of(Backend::Functions, &[]).await;
        server.run(&["FUNCTION", "LOAD", other]).await;
        let auto = limiter(&server, Backend::Auto);
        assert_eq!(left(&auto).await, 5);
        assert_eq!(auto.ready().await.unwrap(), Backend::Script);
        let functions = limiter(&server, Backend::Functions);
        for _ in 0..2 {
            let error = functions.check(api().of("42")).await.unwrap_err();
            assert!(error.to_string().contains("already exists"), "{error}");
        }
        let kept: String =
            format!("{:?}", server.query::<redis::Value>(&["FUNCTION", "LIST", "WITHCODE"]).await);
        assert!(kept.contains("function() end") && !kept.contains("rl_version"), "{kept}");
    }
}

fn options() -> Options {
    patient().breaker_pause(ms(20))
}

#[tokio::test]
async fn limiter_keeps_its_back_end_when_the_server_is_out_of_memory() {
    let server = Server::of(Backend::Functions, &[]).await;
    let limiter = limiter(&server, Backend::Auto);
    left(&limiter).await;
    server.run(&["CONFIG", "SET", "maxmemory", "1"]).await;
    assert_eq!(limiter.check(api().of("42")).await.unwrap().source, Source::Error);
    server.run(&["CONFIG", "SET", "maxmemory", "0"]).await;
    assert_eq!(left(&limiter).await, 4);
    assert_eq!(server.calls("eval").await + server.calls("evalsha").await, 0);
}
