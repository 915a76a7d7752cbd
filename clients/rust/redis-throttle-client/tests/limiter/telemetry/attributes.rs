use std::collections::BTreeMap;

use opentelemetry::trace::{
    FutureExt as _, TraceContextExt as _, Tracer as _, TracerProvider as _,
};
use opentelemetry::{Context, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use redis_throttle_client::Options;
use redis_throttle_client::opentelemetry::set_span_attributes;
use redis_throttle_client::testing::FakeServer;

use super::exports;
use crate::api;

/// Runs calls in a span, and returns the attributes of the span without the prefix.
async fn traced(calls: impl Future<Output = ()>) -> BTreeMap<String, Value> {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let span = provider.tracer("test").start("request");
    let context = Context::current_with_span(span);
    calls.with_context(context.clone()).await;
    context.span().end();
    let spans = exporter.get_finished_spans().unwrap();
    assert!(!format!("{spans:?}").contains("alice"));
    let attributes = spans[0].attributes.iter().map(|attribute| {
        let name = attribute.key.as_str().strip_prefix("redis_throttle.").unwrap();
        (name.to_owned(), attribute.value.clone())
    });
    attributes.collect()
}

fn text(attributes: &BTreeMap<String, Value>) -> String {
    let compared = attributes.iter().filter(|(name, _)| *name != "key_hash");
    compared.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn current_span_gets_the_decision_without_the_subject() {
    let server = FakeServer::new();
    let options = Options::default().on_decision(set_span_attributes);
    let limiter = server.limiter_with(options).unwrap();
    let (api, exports) = (api(), exports());
    let checked = traced(async {
        let calls = [api.of("alice"), exports.of("alice")];
        let _ = limiter.check_all(&calls, None).await.unwrap();
        let _ = limiter.peek(api.of("alice")).await.unwrap();
        let _ = limiter.charge(api.of("alice")).await.unwrap();
    });
    let checked = checked.await;
    assert_eq!(checked["key_hash"].as_str().len(), 16);
    let expected = "allowed=true degraded=false kind=check limit=1 remaining=0 retry_after_ms=0 \
                    rule=exports rules=[\"api\",\"exports\"] source=server";
    assert_eq!(text(&checked), expected);
}
