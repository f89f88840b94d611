//! Headers that the configuration of a port adds to every answer over HTTP.

use http::header::{CONNECTION, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Version};

use super::{Cors, ReplyBody, RequestBody};

/// The headers of all answers of a port.
#[derive(Clone, Debug)]
pub struct Answers {
    pub cors: Option<Cors>,
    /// Added to every answer.
    pub headers: HeaderMap,
    /// False: `connection: close` on every HTTP/1 answer.
    pub keep_alive: bool,
}

impl Answers {
    /// The answer to a preflight request. `None` if the request is none, or without `cors`.
    pub fn preflight(&self, request: &Request<RequestBody>) -> Option<Response<ReplyBody>> {
        self.cors.as_ref()?.preflight(request.method(), request.headers())
    }

    /// Adds the headers that browsers and the configuration want of the answer to this request,
    /// which may be gone by then.
    pub fn finish<'a>(
        &'a self,
        request: &Request<RequestBody>,
    ) -> impl FnOnce(Response<ReplyBody>) -> Response<ReplyBody> + use<'a> {
        let origin = request.headers().get(ORIGIN).cloned();
        let is_http1 = request.version() < Version::HTTP_2;
        let is_preflight = request.method() == Method::OPTIONS;
        move |mut response| {
            let headers = response.headers_mut();
            if let Some(cors) = self.cors.as_ref().filter(|_| !is_preflight) {
                cors.apply(origin.as_ref(), headers);
            }
            let configured = self.headers.iter();
            headers.extend(configured.map(|(name, value)| (name.clone(), value.clone())));
            if is_http1 && !self.keep_alive {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        }
    }
}
