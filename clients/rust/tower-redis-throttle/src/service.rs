//! The service that the layer returns.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::request::Plan;
use crate::{ResponseBody, ResponseFuture};

/// A rate-limited service. It fails only if the inner service fails: a denial is a response.
#[derive(Debug, Clone)]
pub struct RateLimit<S> {
    inner: S,
    plan: Arc<Plan>,
}

impl<S> RateLimit<S> {
    pub(crate) fn new(inner: S, plan: Arc<Plan>) -> Self {
        Self { inner, plan }
    }

    /// Returns the inner service.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// Returns the inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, B> Service<Request<R>> for RateLimit<S>
where
    S: Service<Request<R>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<B, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        // The instance that was polled ready must handle the request; a clone may not be ready.
        let clone = self.inner.clone();
        let ready = mem::replace(&mut self.inner, clone);
        ResponseFuture::new(self.plan.clone(), ready, request)
    }
}
