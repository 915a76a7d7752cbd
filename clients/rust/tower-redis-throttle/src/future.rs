//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use redis_throttle_client::Checked;
use tower_service::Service;

use crate::ResponseBody;
use crate::body_input::Watch;
use crate::limit_error::{denial_in, take_denial};
use crate::request::{Plan, Verdict};

type Boxed<B, E> = Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B>>, E>> + Send>>;

/// Checks the request, then calls the service. Holds the request's leases until they move to the
/// body of the response; releases them if this future is dropped or the service fails.
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture<B, E>(Boxed<B, E>);

impl<B, E> fmt::Debug for ResponseFuture<B, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<B, E> ResponseFuture<B, E> {
    pub(crate) fn new<S, R>(plan: Arc<Plan>, mut inner: S, request: Request<R>) -> Self
    where
        S: Service<Request<R>, Response = Response<B>, Error = E> + Send + 'static,
        S::Future: Send,
        E: 'static,
        R: Send + 'static,
    {
        Self(Box::pin(async move {
            let (mut head, mut body) = request.into_parts();
            let checked = match plan.verdict(&mut head).await {
                Verdict::Refused(response) => return Ok(response.map(ResponseBody::complete)),
                Verdict::Skipped => None,
                Verdict::Admitted(checked) => Some(checked),
            };
            let counts_all = checked.as_ref().is_none_or(Checked::counts_all);
            let watch = (!counts_all).then(|| Watch::begin(&mut head, &mut body));
            let kept = plan.kept(&head);
            // A call of the handler itself may have been denied.
            let response = match inner.call(Request::from_parts(head, body)).await {
                Ok(mut response) => match take_denial(&mut response) {
                    Some(decision) => plan.denial_of_handler(kept.as_ref(), &decision, response),
                    None => response.map(ResponseBody::inner),
                },
                Err(error) => match denial_in(&error) {
                    Some(decision) => {
                        plan.denial(kept.as_ref(), decision).map(ResponseBody::complete)
                    }
                    None => return Err(error),
                },
            };
            let Some(mut checked) = checked else { return Ok(response) };
            let (mut head, body) = response.into_parts();
            // A client that cut the body of its request has left: the request counts.
            if !watch.is_some_and(|watch| watch.is_cut()) {
                checked.record_response(&head);
            }
            plan.add_fields(&mut head.headers, &checked.decision);
            Ok(Response::from_parts(head, body.holding(checked.leases)))
        }))
    }
}

impl<B, E> Future for ResponseFuture<B, E> {
    type Output = Result<Response<ResponseBody<B>>, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}
