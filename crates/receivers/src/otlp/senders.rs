//! The metadata that is kept of a request's sender.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::header::HOST;
use http::request::Parts;
use sluice_flow::Metadata;
use sluice_flow::source::{Permit, Refusal};

/// A connection's part of the metadata, shared by its requests where headers are not kept.
pub(crate) struct Sender(Arc<Metadata>);

impl Sender {
    pub(crate) fn new(peer: Option<SocketAddr>) -> Self {
        let peer = peer.map(|address| address.to_string());
        Sender(Arc::new(Metadata { peer, headers: Vec::new() }))
    }

    pub(crate) fn peer(&self) -> Option<&str> {
        self.0.peer.as_deref()
    }

    /// The metadata of a request: the headers with the names in `keys`, which are in lower case, as
    /// header names always are. Nothing else is kept, credentials least of all. The permit grows by
    /// the size of the headers before they are copied.
    pub(crate) fn metadata(
        &self,
        head: &Parts,
        keys: &[String],
        permit: &mut Permit,
    ) -> Result<Arc<Metadata>, Refusal> {
        let kept = || {
            keys.iter().flat_map(|key| {
                let values = head.headers.get_all(key).iter().map(HeaderValue::as_bytes);
                values.chain(authority(head, key)).map(move |value| (key, value))
            })
        };
        let bytes: usize = kept().map(|(name, value)| Metadata::header_bytes(name, value)).sum();
        if bytes == 0 {
            return Ok(Arc::clone(&self.0));
        }
        permit.grow(bytes)?;
        let headers = kept().map(|(name, value)| (name.clone(), value.to_vec())).collect();
        Ok(Arc::new(Metadata { peer: self.0.peer.clone(), headers }))
    }
}

/// HTTP/2 names the host outside of the headers. As in the Collector it can be read as `host`, too.
fn authority<'a>(head: &'a Parts, key: &str) -> Option<&'a [u8]> {
    let is_asked = key == ":authority" || (key == "host" && !head.headers.contains_key(HOST));
    let authority = if is_asked { head.uri.authority() } else { None };
    authority.map(|authority| authority.as_str().as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{HeaderMap, Request, Uri};
    use sluice_flow::source::MemoryPool;

    use super::*;

    #[derive(Default)]
    struct Pool(AtomicUsize);

    impl MemoryPool for Pool {
        fn take(&self, _: usize, bytes: usize) -> Result<(), Refusal> {
            self.0.fetch_add(bytes, Ordering::Relaxed);
            Ok(())
        }

        fn give_back(&self, _: usize) {}
    }

    #[test]
    fn only_headers_that_something_reads_are_kept_and_charged_before_they_are_copied() {
        let address = "192.0.2.1:5000".parse().expect("an address");
        let sender = Sender::new(Some(address));
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("authorization", "Bearer secret"), ("cookie", "secret"), ("other", "x")]
        {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers.append("x-tenant", HeaderValue::from_static("a"));
        headers.append("x-tenant", HeaderValue::from_static("b"));
        let (mut head, ()) = Request::new(()).into_parts();
        head.headers = headers;
        let pool = Arc::new(Pool::default());
        let mut permit = Permit::take(pool.clone(), 0).expect("there is memory");
        let mut kept = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
            let metadata = sender.metadata(&head, &keys, &mut permit).expect("there is memory");
            assert_eq!(metadata.peer.as_deref(), Some("192.0.2.1:5000"));
            let charged = pool.0.swap(0, Ordering::Relaxed);
            assert_eq!(metadata.headers_bytes(), charged);
            metadata.headers.clone()
        };
        let header = |name: &str, value: &[u8]| (name.to_owned(), value.to_vec());
        assert_eq!(kept(&[]), []);
        assert_eq!(kept(&["absent"]), []);
        assert_eq!(
            kept(&["absent", "x-tenant"]),
            [header("x-tenant", b"a"), header("x-tenant", b"b")]
        );
        assert_eq!(kept(&["cookie"]), [header("cookie", b"secret")]);
    }

    /// Guarantee: the host can be read whether it stands in a header or, as in HTTP/2, beside them.
    #[test]
    fn the_host_is_metadata_too() {
        let sender = Sender::new(None);
        let mut permit = Permit::take(Arc::new(Pool::default()), 0).expect("there is memory");
        let keys = [":authority".to_owned(), "host".to_owned()];
        let mut kept = |uri: &'static str, host: Option<&'static str>| {
            let (mut head, ()) = Request::new(()).into_parts();
            head.uri = Uri::from_static(uri);
            head.headers.extend(host.map(|host| (HOST, HeaderValue::from_static(host))));
            let metadata = sender.metadata(&head, &keys, &mut permit).expect("there is memory");
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let headers = metadata.headers.iter();
            headers.map(|(name, value)| (name.clone(), text(value))).collect::<Vec<_>>()
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let both = [pair(":authority", "a:4317"), pair("host", "a:4317")];
        assert_eq!(kept("http://a:4317/x", None), both);
        assert_eq!(kept("/x", Some("b")), [pair("host", "b")]);
    }
}
