//! Attributes of the current span of OpenTelemetry, version 0.33.

use ::opentelemetry::trace::get_active_span;
use ::opentelemetry::{Array, KeyValue, StringValue, Value};

use crate::rules::event::{Field, fields_of};
use crate::{DecisionEvent, EventKind};

/// Sets `redis_throttle.rule`, `.allowed`, `.source` and the others on the span that is current in
/// OpenTelemetry's context. A hook for [`Limiter::on_decision`](crate::Limiter::on_decision), for
/// checks, leases and rejected calls.
///
/// After several in one span the attributes are those of the last one. No attribute has a key or a
/// subject.
pub fn set_span_attributes(event: &DecisionEvent<'_>) {
    if !matches!(event.kind, EventKind::Check | EventKind::Lease | EventKind::Rejected) {
        return;
    }
    get_active_span(|span| {
        if span.is_recording() {
            let named =
                |(name, field)| KeyValue::new(format!("redis_throttle.{name}"), value(field));
            span.set_attributes(fields_of(event).into_iter().map(named));
        }
    });
}

fn value(field: Field<'_>) -> Value {
    let owned = |text: &str| StringValue::from(text.to_owned());
    match field {
        Field::Bool(value) => Value::Bool(value),
        Field::Number(value) => Value::I64(i64::try_from(value).unwrap_or(i64::MAX)),
        Field::Text(text) => Value::String(owned(text)),
        Field::Texts(texts) => Value::Array(Array::String(texts.into_iter().map(owned).collect())),
    }
}
