//! Scrapes and their answers.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use sluice_net::auth::server::{AuthError, ServerAuth};
use sluice_net::server::{
    Handler, ReplyBody, RequestBody, SharedPage, reply, reply_with_page, takes_gzip,
};
use sluice_prometheus::exposed::Page;

use super::config::PrometheusConfig;
use super::negotiate::negotiate;
use crate::pages::Collected;

/// As in the Collector.
const PATH: &str = "/metrics";
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) struct Scrapes {
    pub(super) config: PrometheusConfig,
    pub(super) authenticator: Option<Arc<dyn ServerAuth>>,
    pub(super) collected: Arc<Collected>,
    pub(super) page: SharedPage,
}

impl Scrapes {
    async fn answer(&self, request: &Request<RequestBody>) -> Response<ReplyBody> {
        if let Some(preflight) = self.config.answers.preflight(request) {
            return preflight;
        }
        let headers = request.headers();
        if let Some(authenticator) = &self.authenticator
            && let Err(error) = authenticator.authenticate(headers).await
        {
            return refused(error, &**authenticator);
        }
        if request.uri().path() != PATH {
            return reply(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut refusal = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "");
            refusal.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refusal;
        }
        self.page(headers).await
    }

    async fn page(&self, headers: &HeaderMap) -> Response<ReplyBody> {
        let form = negotiate(headers, self.config.open_metrics);
        let escapes = form.escapes && !self.config.settings.strategy.escapes();
        let timestamps = self.config.send_timestamps;
        let page = Page { format: form.format, timestamps, escapes };
        let collected = Arc::clone(&self.collected);
        let make = move || collected.exposed.lock().page(page, collected.now());
        let page = self.page.get(form.number(), takes_gzip(headers), make).await;
        reply_with_page(form.content_type(), page)
    }
}

fn refused(error: AuthError, authenticator: &dyn ServerAuth) -> Response<ReplyBody> {
    let text = format!("{error}\n");
    match error {
        AuthError::Busy => {
            let mut refusal = reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
            refusal.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            refusal
        }
        _ => {
            let mut refusal = reply(StatusCode::UNAUTHORIZED, TEXT, text);
            let challenge = authenticator.challenge().clone();
            refusal.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            refusal
        }
    }
}

impl Handler for Scrapes {
    type Connection = ();

    fn connected(&self, _: Option<SocketAddr>) {}

    async fn handle(&self, (): &(), request: Request<RequestBody>) -> Response<ReplyBody> {
        let finish = self.config.answers.finish(&request);
        finish(self.answer(&request).await)
    }

    fn refuse_for_memory(&self, _: Request<RequestBody>) -> Response<ReplyBody> {
        reply(StatusCode::SERVICE_UNAVAILABLE, TEXT, "")
    }
}
