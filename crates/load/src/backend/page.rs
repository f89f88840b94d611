//! A small HTTP server for scripts of k6: each request is answered with a short page.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

const PAGE: &[u8] = b"<!doctype html><title>Shop</title><p>Welcome</p>";

/// Listens on a free port of loopback until it is dropped.
#[derive(Debug)]
pub struct Page {
    addr: SocketAddr,
    _listening: AbortOnDropHandle<()>,
}

impl Page {
    pub async fn serve() -> io::Result<Page> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let listening = tokio::spawn(async move {
            // Connections end with it.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    Ok((stream, _)) = listener.accept() => {
                        // An error means that the client has gone.
                        let _ = stream.set_nodelay(true);
                        connections.spawn(async move {
                            let page = service_fn(async |_| {
                                let page = Full::new(Bytes::from_static(PAGE));
                                Ok::<_, Infallible>(Response::new(page))
                            });
                            let server = auto::Builder::new(TokioExecutor::new());
                            let _ = server.serve_connection(TokioIo::new(stream), page).await;
                        });
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Page { addr, _listening: AbortOnDropHandle::new(listening) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }
}
