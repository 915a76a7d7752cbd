//! The body of a response: the service's body, which holds the request's leases, or a complete body
//! that the layer built.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use redis_throttle_client::Lease;

pin_project! {
    /// A body that releases the leases of its request when it ends, fails or is dropped.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        kind: Kind<B>,
        leases: Vec<Lease>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Complete { body: Option<Bytes> },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B) -> Self {
        Self { kind: Kind::Inner { body }, leases: Vec::new() }
    }

    /// Returns the body, holding the leases of its request.
    pub(crate) fn holding(self, leases: Vec<Lease>) -> Self {
        Self { leases, ..self }
    }

    pub(crate) fn complete(body: Bytes) -> Self {
        let body = Some(body).filter(|body| !body.is_empty());
        Self { kind: Kind::Complete { body }, leases: Vec::new() }
    }
}

impl<B: Body<Data = Bytes>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let frame = match this.kind.project() {
            KindProjection::Inner { body } => ready!(body.poll_frame(context)),
            KindProjection::Complete { body } => body.take().map(|body| Ok(Frame::data(body))),
        };
        if !matches!(frame, Some(Ok(_))) {
            this.leases.clear();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Complete { body } => body.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Complete { body } => {
                SizeHint::with_exact(body.as_ref().map_or(0, Bytes::len) as u64)
            }
        }
    }
}
