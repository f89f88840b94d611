//! The HTTP side of a target. A scrape counts if the scraper has read its answer to the end: hyper
//! lets go of a page that it has written, and a scraper that leaves with a part of it unread resets
//! the connection.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::page::{Format, Page};
use super::{Scrape, Shared};
use crate::identity::Identity;

/// Open at once at one target.
const CONNECTIONS_LIMIT: usize = 64;
/// Pages that are kept between scrapes.
const KEPT_PAGES: usize = 16;

/// Answers the scrapes of one target.
pub(super) async fn serve(shared: Arc<Shared>, target: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            Ok((stream, _)) = listener.accept(), if connections.len() < CONNECTIONS_LIMIT => {
                // Failure means a connection that is already gone.
                let _ = stream.set_nodelay(true);
                connections.spawn(serve_one(Arc::clone(&shared), target, stream));
            }
        }
    }
}

async fn serve_one(shared: Arc<Shared>, target: usize, stream: TcpStream) {
    let latest: Mutex<Option<Scrape>> = Mutex::new(None);
    let (shared, latest) = (&shared, &latest);
    let service = service_fn(move |request| async move {
        // The scraper asks again: it has read the answer before.
        latest.lock().take();
        let answer = match scrape(shared, target, &request).await {
            Ok((scrape, page)) => {
                *latest.lock() = Some(scrape.clone());
                let content_type = page.format.content_type();
                let served = Served { shared: Arc::clone(shared), scrape, page };
                let body = Full::new(Bytes::from_owner(served));
                Response::builder().header(CONTENT_TYPE, content_type).body(body)
            }
            Err(status) => Response::builder().status(status).body(Full::default()),
        };
        Ok::<_, Infallible>(answer.expect("constants"))
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let is_read = match connection.without_shutdown().await {
        Ok(parts) => is_read_to_its_end(parts.io.into_inner()).await,
        Err(_) => false,
    };
    if let Some(scrape) = latest.lock().take().filter(|_| !is_read) {
        shared.cut_off(scrape);
    }
}

/// Whether the scraper closes the connection having read everything.
async fn is_read_to_its_end(mut stream: TcpStream) -> bool {
    // Hyper takes a reset for an end, but a socket that was reset has no peer any more.
    stream.peer_addr().is_ok()
        && stream.shutdown().await.is_ok()
        && copy(&mut stream, &mut sink()).await.is_ok()
}

/// The scrape that a request is and its page, or the status of its refusal.
async fn scrape(
    shared: &Shared,
    target: usize,
    request: &Request<Incoming>,
) -> Result<(Scrape, Page), StatusCode> {
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if request.uri().path() != "/metrics" {
        return Err(StatusCode::NOT_FOUND);
    }
    shared.wait_for_start().await;
    let scrape = shared.begin_scrape(target).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let mut page = shared.page(Format::of(accept.unwrap_or_default()));
    let first = Identity::new(shared.generator, scrape.start);
    page.stamp(first, Page::cycle(&shared.farm, shared.began.elapsed()));
    Ok((scrape, page))
}

impl Shared {
    fn page(&self, format: Format) -> Page {
        let idle = {
            let mut pages = self.idle_pages.lock();
            let index = pages.iter().position(|page| page.format == format);
            index.map(|index| pages.swap_remove(index))
        };
        idle.unwrap_or_else(|| Page::build(&self.farm, format))
    }
}

/// A page on its way, which hyper drops when it has written it.
struct Served {
    shared: Arc<Shared>,
    scrape: Scrape,
    page: Page,
}

impl AsRef<[u8]> for Served {
    fn as_ref(&self) -> &[u8] {
        &self.page.bytes
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shared.complete(&self.scrape, self.page.bytes.len());
        let mut idle = self.shared.idle_pages.lock();
        if idle.len() < KEPT_PAGES {
            idle.push(std::mem::take(&mut self.page));
        }
    }
}
