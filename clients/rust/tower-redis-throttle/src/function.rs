//! The functions of the request that an application passes to the layer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::parts::RequestParts;

/// The result of a function of the request: a value, or a future of it. The future cannot borrow
/// from the request, so the function first copies what the future needs. `M` distinguishes the
/// two; the compiler finds it.
pub trait Answer<T, M> {
    #[doc(hidden)]
    fn value_or_future(self) -> ValueOrFuture<T>;
}

/// A value or its future.
#[doc(hidden)]
#[allow(unnameable_types, missing_debug_implementations, reason = "only this crate uses it")]
pub enum ValueOrFuture<T> {
    Now(T),
    Later(Pin<Box<dyn Future<Output = T> + Send>>),
}

/// Marks values.
#[doc(hidden)]
#[allow(unnameable_types, missing_debug_implementations, reason = "a marker is not named")]
pub enum Now {}

/// Marks futures.
#[doc(hidden)]
#[allow(unnameable_types, missing_debug_implementations, reason = "a marker is not named")]
pub enum Later {}

impl<T> Answer<T, Now> for T {
    fn value_or_future(self) -> ValueOrFuture<T> {
        ValueOrFuture::Now(self)
    }
}

impl<T, F: Future<Output = T> + Send + 'static> Answer<T, Later> for F {
    fn value_or_future(self) -> ValueOrFuture<T> {
        ValueOrFuture::Later(Box::pin(self))
    }
}

type Called<T> = dyn Fn(&RequestParts<'_>) -> ValueOrFuture<T> + Send + Sync;

/// A function of the request.
pub(crate) struct Function<T>(Arc<Called<T>>);

impl<T> Function<T> {
    pub fn new<R: Answer<T, M>, M>(
        function: impl Fn(&RequestParts<'_>) -> R + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |parts| function(parts).value_or_future()))
    }

    pub async fn call(&self, parts: &RequestParts<'_>) -> T {
        match (self.0)(parts) {
            ValueOrFuture::Now(value) => value,
            ValueOrFuture::Later(future) => future.await,
        }
    }
}
