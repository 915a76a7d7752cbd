//! A proxy that drops the answers to some calls and closes their connections.

use redis_throttle_client::{Backend, Limiter, Rule, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::patient;
use crate::server::Server;

/// The maximum number of calls that a connection answers before it breaks.
const ANSWERED_MAX: usize = 9;

/// Starts the proxy and returns its port.
async fn cutting(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut answered = 0;
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            // Use each number in turn, so that the answer to each step of a search is lost once.
            answered = (answered + 1) % ANSWERED_MAX;
            tokio::spawn(lead(client, server, answered + 1));
        }
    });
    port
}

/// Forwards both ways, until it drops the answer to a call that decides or loads.
async fn lead(mut client: TcpStream, mut server: TcpStream, mut until: usize) {
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let text = String::from_utf8_lossy(&request[..length]);
                if ["FCALL", "EVALSHA", "LOAD"].iter().any(|word| text.contains(word)) {
                    until = until.saturating_sub(1);
                }
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
            }
            read = server.read(&mut reply) => {
                let Ok(length @ 1..) = read else { return };
                if until == 0 {
                    // The server has run the call, but its answer is dropped.
                    return;
                }
                if client.write_all(&reply[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn limiter_does_not_repeat_calls_whose_answers_are_lost() {
    let server = Server::of(Backend::Functions, &[]).await;
    let many = Rule::gcra("many", 1000, 1, "1h").unwrap();
    for wanted in [Backend::Auto, Backend::Script] {
        let way = format!("redis://127.0.0.1:{}", cutting(server.port).await);
        let options = patient().backend(wanted).breaker_failures(1_000_000);
        let limiter = Limiter::with_options(redis::Client::open(way).unwrap(), options).unwrap();
        let (subject, mut calls, mut told) = (format!("{wanted:?}"), 0, 0);
        for _ in 0..12 {
            let calling: Vec<_> = (0..8)
                .map(|_| {
                    let (limiter, many, subject) = (limiter.clone(), many.clone(), subject.clone());
                    tokio::spawn(async move { limiter.check(many.of(&subject)).await })
                })
                .collect();
            for call in calling {
                let decision = call.await.unwrap().expect("a decision");
                calls += 1;
                told += u64::from(decision.source == Source::Server);
            }
            server.run(&["FUNCTION", "FLUSH"]).await;
            server.run(&["SCRIPT", "FLUSH"]).await;
        }
        let counting = Limiter::with_options(server.client(), patient()).unwrap();
        let left = counting.peek(many.of(&subject).cost(0)).await.unwrap().remaining;
        assert!((told..=calls).contains(&(1000 - left)), "{wanted:?}: {told} of {calls}, {left}");
        assert!((1..calls).contains(&told), "{wanted:?}: {told} of {calls}");
    }
}
