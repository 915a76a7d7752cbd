//! The body of a request, which its client may cut.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Extensions, Request};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Whether the client has cut the body of a request, as an extension of the request.
#[derive(Debug, Clone, Default)]
struct Cut(Arc<AtomicBool>);

pin_project! {
    /// A request's body that notes that its client cut it: see [`watch_body`].
    #[derive(Debug)]
    pub struct WatchedBody<B> {
        #[pin]
        body: B,
        cut: Cut,
    }
}

impl<B: Body> Body for WatchedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(context));
        if matches!(frame, Some(Err(_))) {
            this.cut.0.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Wraps the body of a request, so that the layer learns if its client cuts it. Such a request
/// counts, whatever its response: its client has left.
///
/// With the feature `axum` the layer does this itself for axum. Elsewhere, apply it before a layer
/// whose rules set `Rule::count`, as with `ServiceBuilder::map_request`: the layer cannot change
/// the service's type of body. Any error of the body counts, also that of a bound of its length.
pub fn watch_body<B>(mut request: Request<B>) -> Request<WatchedBody<B>> {
    let cut = Cut::of(request.extensions_mut());
    request.map(|body| WatchedBody { body, cut })
}

impl Cut {
    /// Returns the mark of a request, which all layers share.
    fn of(extensions: &mut Extensions) -> Self {
        extensions.get_or_insert_default::<Self>().clone()
    }
}

/// The body of a request on its way to the service.
#[derive(Debug)]
pub(crate) struct Watch(Option<Cut>);

impl Watch {
    /// Watches a body, if that is possible.
    pub fn begin<R: 'static>(head: &mut Parts, body: &mut R) -> Self {
        if head.extensions.get::<Cut>().is_none() {
            watch_axum(head, body);
        }
        Self(head.extensions.get().cloned())
    }

    /// Returns true if the service has met the cut.
    pub fn is_cut(&self) -> bool {
        self.0.as_ref().is_some_and(|cut| cut.0.load(Ordering::Relaxed))
    }
}

/// Wraps the body if it is one of axum: such a body may contain any other.
#[cfg(feature = "axum")]
fn watch_axum(head: &mut Parts, body: &mut dyn Any) {
    use axum::body::Body as AxumBody;

    let Some(body) = body.downcast_mut::<AxumBody>().filter(|body| !body.is_end_stream()) else {
        return;
    };
    let cut = Cut::of(&mut head.extensions);
    *body = AxumBody::new(WatchedBody { body: std::mem::take(body), cut });
}

#[cfg(not(feature = "axum"))]
fn watch_axum(_: &mut Parts, _: &mut dyn Any) {}
