//! Edge cases of responses: the end of the body, and the fields of other layers.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use redis_throttle_client::Rule;
use redis_throttle_client::testing::FakeServer;
use tower::{ServiceExt, service_fn};
use tower_layer::Layer;
use tower_redis_throttle::{Peer, RateLimitLayer};

fn request() -> Request<()> {
    Request::builder().extension(Peer("192.0.2.7".parse::<IpAddr>().unwrap())).body(()).unwrap()
}

fn jobs() -> Rule {
    Rule::lease("jobs", 1, "60s").unwrap()
}

async fn released(server: &FakeServer) -> usize {
    tokio::time::sleep(Duration::from_millis(1)).await;
    server.calls().iter().filter(|call| call[0] == "RL.RELEASE").count()
}

/// A body in parts; the last one may be an error.
struct Parts(VecDeque<Result<&'static str, &'static str>>);

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let part = self.0.pop_front();
        Poll::Ready(part.map(|part| part.map(|part| Frame::data(Bytes::from(part)))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.map_or(0, str::len) as u64).sum())
    }
}

#[tokio::test(start_paused = true)]
async fn layer_holds_the_lease_until_the_last_part_of_the_body() {
    for last in [Ok("end"), Err("broken")] {
        let server = FakeServer::new();
        let parts = move |_: Request<()>| async move {
            Ok::<_, Infallible>(Response::new(Parts([Ok("one"), Ok("two"), last].into())))
        };
        let service =
            RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(service_fn(parts));
        let mut body = service.oneshot(request()).await.unwrap().into_body();
        for part in ["one", "two"] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), part);
            assert_eq!(released(&server).await, 0);
        }
        assert_eq!(body.frame().await.unwrap().is_err(), last.is_err());
        assert!(body.frame().await.is_none());
        assert_eq!(released(&server).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn layer_keeps_the_size_hint_of_the_body() {
    let server = FakeServer::new();
    let parts =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Parts([Ok("four")].into()))) };
    let service = RateLimitLayer::new(server.limiter(), jobs()).unwrap().layer(service_fn(parts));
    let mut body = service.oneshot(request()).await.unwrap().into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(4), false));
    let _ = body.frame().await.unwrap().unwrap();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}

#[tokio::test(start_paused = true)]
async fn response_keeps_the_header_fields_of_both_layers() {
    let server = FakeServer::new();
    let layer = |rule| RateLimitLayer::new(server.limiter(), rule).unwrap();
    let empty =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    let service = layer(Rule::fixed("day", 9, "1d").unwrap())
        .layer(layer(Rule::fixed("hour", 5, "1h").unwrap()).layer(service_fn(empty)));
    let response = service.oneshot(request()).await.unwrap();
    let limits: Vec<_> = response.headers().get_all("ratelimit").iter().collect();
    assert_eq!(limits, [r#""hour";r=4;t=3600"#, r#""day";r=8;t=86400"#]);
    assert_eq!(response.headers().get_all("ratelimit-policy").iter().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn lease_among_several_rules_takes_one_permit_regardless_of_the_cost() {
    let server = FakeServer::new();
    let builder = RateLimitLayer::builder(server.limiter());
    let builder = builder.rule(Rule::gcra("api", 6, 10, "60s").unwrap()).rule(jobs());
    let layer = builder.cost(|_| 4).build().unwrap();
    let empty =
        |_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) };
    let response = layer.layer(service_fn(empty)).oneshot(request()).await.unwrap();
    let limit = response.headers().get("ratelimit").unwrap();
    assert_eq!(limit, r#""api";r=2;t=24, "jobs";r=0;t=60"#);
    assert_eq!(released(&server).await, 0);
    drop(response);
    assert_eq!(released(&server).await, 1);
}
