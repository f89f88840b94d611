//! The HTTP client over HTTP/2: many requests share one connection, also when it has to be
//! replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Method, Uri};
use rustls::pki_types::PrivateKeyDer;
use sluice_config::Secret;
use sluice_net::client::{Answer, ConnectOptions, HttpClient, HttpOptions, Target, TransportError};
use sluice_net::tls::{ClientTls, ClientTlsOptions, Pem, TlsOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const REQUESTS: usize = 16;

/// Both sides' TLS settings, with a certificate for 127.0.0.1.
fn tls() -> (TlsAcceptor, ClientTls) {
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("generates");
    let der = PrivateKeyDer::try_from(key.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], der)
        .expect("a certificate");
    server.alpn_protocols = vec![b"h2".to_vec()];
    let authorities = Some(Pem::Inline(Secret::new(key.cert.pem())));
    let common = TlsOptions { authorities, ..TlsOptions::default() };
    let client = ClientTls::new(ClientTlsOptions { common, ..ClientTlsOptions::default() });
    (TlsAcceptor::from(Arc::new(server)), client.expect("good settings"))
}

fn client(address: SocketAddr, tls: ClientTls) -> (HttpClient, Uri) {
    let connect = ConnectOptions { tls: Some(tls), ..ConnectOptions::default() };
    let target = Target::Host { host: "127.0.0.1".to_owned(), port: address.port() };
    let uri = format!("https://{address}/v1/traces").parse().expect("a URI");
    (HttpClient::new(target, HttpOptions { connect, ..HttpOptions::default() }), uri)
}

async fn post_many(client: &HttpClient, uri: &Uri) -> Vec<Result<Answer, TransportError>> {
    let body: Arc<[Bytes]> = [Bytes::from_static(b"spans")].into();
    let headers = HeaderMap::new();
    join_all((0..REQUESTS).map(|_| client.post(uri, &headers, &body))).await
}

/// Answers everything; or, on the first connection, one request, after which it waits for
/// [`REQUESTS`] more and says GOAWAY to all of them.
async fn serve(stream: TcpStream, tls: TlsAcceptor, goes_away: bool) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let (mut waiting, mut is_first) = (Vec::new(), true);
    while let Some(Ok((_, mut respond))) = connection.accept().await {
        if goes_away && !std::mem::replace(&mut is_first, false) {
            waiting.push(respond);
            if waiting.len() == REQUESTS {
                connection.abrupt_shutdown(h2::Reason::NO_ERROR);
            }
            continue;
        }
        let answer = http::Response::builder().status(200).body(()).expect("a head");
        let _ = respond.send_response(answer, true);
    }
}

/// Scenario: sixteen requests are under way on the shared connection when the peer ends it with
/// GOAWAY. Guarantee: all are delivered over one new connection, not over one each.
#[tokio::test]
async fn requests_that_a_goaway_sends_back_share_one_new_connection() {
    let (acceptor, tls) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let accepted = accepted.clone();
        async move {
            while let Ok((stream, _)) = listener.accept().await {
                let goes_away = accepted.fetch_add(1, Ordering::Relaxed) == 0;
                tokio::spawn(serve(stream, acceptor.clone(), goes_away));
            }
        }
    });
    let (client, uri) = client(address, tls);
    let body: Arc<[Bytes]> = [Bytes::from_static(b"first")].into();
    client.post(&uri, &HeaderMap::new(), &body).await.expect("the first opens the connection");
    let answers = post_many(&client, &uri).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(accepted.load(Ordering::Relaxed), 2);
}

/// Scenario: pages below and above the limit on answers. Guarantee: a GET has neither a body nor a
/// length; the larger page is an error.
#[tokio::test]
async fn pages_are_got_up_to_a_limit() {
    const LIMIT: usize = 100_000;
    let (acceptor, tls) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("connects");
        let stream = acceptor.accept(stream).await.expect("speaks TLS");
        let mut connection = h2::server::handshake(stream).await.expect("speaks HTTP/2");
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            assert_eq!(request.method(), Method::GET);
            assert!(!request.headers().contains_key(CONTENT_LENGTH));
            assert!(request.body().is_end_stream());
            let length = request.uri().path()[1..].parse().expect("a length");
            let mut body = respond.send_response(http::Response::new(()), false).expect("a head");
            body.send_data(Bytes::from(vec![b'x'; length]), true).expect("a body");
        }
    });
    let connect = ConnectOptions { tls: Some(tls), ..ConnectOptions::default() };
    let target = Target::Host { host: "127.0.0.1".to_owned(), port: address.port() };
    let options = HttpOptions { connect, answer_limit_bytes: LIMIT, ..HttpOptions::default() };
    let client = HttpClient::new(target, options);
    let get = async |length: usize| {
        let uri = format!("https://{address}/{length}").parse().expect("a URI");
        client.get(&uri, &HeaderMap::new()).await.map(|answer| answer.body.len())
    };
    assert_eq!(get(0).await, Ok(0));
    assert_eq!(get(LIMIT).await, Ok(LIMIT));
    assert_eq!(get(LIMIT + 1).await, Err(TransportError::AnswerTooLarge { limit_bytes: LIMIT }));
}

/// Scenario: sixteen requests meet a peer that accepts connections and closes them at once.
/// Guarantee: requests that waited for an attempt to connect share its failure instead of making
/// attempts of their own.
#[tokio::test]
async fn requests_that_wait_for_one_attempt_share_its_failure() {
    let (_, tls) = tls();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    let accepted = Arc::new(AtomicUsize::new(0));
    tokio::spawn({
        let accepted = accepted.clone();
        async move {
            while listener.accept().await.is_ok() {
                accepted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (client, uri) = client(address, tls);
    let answers = post_many(&client, &uri).await;
    assert!(answers.iter().all(Result::is_err), "{answers:?}");
    assert_eq!(accepted.load(Ordering::Relaxed), 1);
}
