//! A port's handler without its type. The code that serves a connection, with all of HTTP/2, would
//! else exist once for each kind of port, and take memory and cache for each.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Request, Response};

use super::{Handler, Peer, ReplyBody, RequestBody};

/// Answers the requests of one connection.
pub(super) trait Answers: Send + Sync {
    fn answer(&self, request: Request<RequestBody>) -> BoxFuture<'_, Response<ReplyBody>>;

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody>;
}

/// Those of a new connection.
pub(super) type AnswersOf = Box<dyn Fn(&Peer) -> Arc<dyn Answers> + Send + Sync>;

pub(super) fn of(handler: impl Handler) -> AnswersOf {
    let handler = Arc::new(handler);
    Box::new(move |peer| {
        let (handler, connection) = (Arc::clone(&handler), handler.connected(peer));
        Arc::new(Connected { handler, connection })
    })
}

struct Connected<H: Handler> {
    handler: Arc<H>,
    connection: H::Connection,
}

impl<H: Handler> Answers for Connected<H> {
    fn answer(&self, request: Request<RequestBody>) -> BoxFuture<'_, Response<ReplyBody>> {
        Box::pin(self.handler.handle(&self.connection, request))
    }

    fn refuse_for_memory(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        self.handler.refuse_for_memory(request)
    }
}
