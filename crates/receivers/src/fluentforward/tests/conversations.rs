//! Whole conversations: acknowledgements, the handshake, TLS.

use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

use super::*;

#[tokio::test]
async fn chunks_are_acknowledged_once_they_are_accepted() {
    let intake = Arc::new(Intake::default());
    let (running, mut stream) = start(&intake, "").await;
    // In pieces, and larger than is read without being admitted.
    let message = packed(0..5000, Some("id-1"));
    for piece in message.chunks(10_000) {
        stream.write_all(piece).await.expect("is sent");
        tokio::task::yield_now().await;
    }
    let ack = answer(&mut stream).await.expect("is acknowledged");
    assert_eq!(read_ack(&ack), Ok(&b"id-1"[..]));
    assert_eq!(intake.records().len(), 5000);
    // A heartbeat, two messages without a chunk, and one with.
    let several = [&[0xc0], &*packed(0..1, None), &packed(1..2, None), &packed(2..3, Some("2"))];
    stream.write_all(&several.concat()).await.expect("is sent");
    let ack = answer(&mut stream).await.expect("is acknowledged");
    assert_eq!(read_ack(&ack), Ok(&b"2"[..]));
    assert_eq!(intake.records().len(), 5003);
    assert_eq!(intake.taken.lock().len(), 2, "what arrives together is one request");
    drop(stream);
    running.shutdown().await;
    assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
}

/// Scenario: a length that is above the limit, and one that memory cannot have. Guarantee: both are
/// refused by their first bytes, with nothing kept for them.
#[tokio::test]
async fn announced_lengths_are_refused_before_anything_comes() {
    let intake = Arc::new(Intake { limit_bytes: Some(1 << 20), ..Intake::default() });
    for len in [u32::MAX, 2 << 20] {
        let (_running, mut stream) = start(&intake, "").await;
        let mut head = vec![0x92, 0xa1, b't', 0xc6];
        head.extend_from_slice(&len.to_be_bytes());
        stream.write_all(&head).await.expect("is sent");
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn senders_have_to_know_the_key_and_a_user() {
    let intake = Arc::new(Intake::default());
    let options = "security: {shared_key: key, users: [{username: u, password: p}]}";
    for (key, password, is_taken) in
        [("key", "p", true), ("other", "p", false), ("key", "q", false)]
    {
        let (_running, mut stream) = start(&intake, options).await;
        let secret = SharedSecret { key: Secret::new(key), hostname: "sender".to_owned() };
        let user = User { name: "u".to_owned(), password: Secret::new(password) };
        let hello = answer(&mut stream).await.expect("a HELO");
        let greeted = Client::greet(&secret, Some(&user), &hello, [1; 16]);
        let (client, ping) = greeted.expect("is a HELO");
        // A message that comes with the PING is taken once that is answered.
        let all = [&*ping, &packed(0..1, Some("id"))].concat();
        stream.write_all(&all).await.expect("is sent");
        let pong = answer(&mut stream).await.expect("a PONG");
        assert_eq!(client.verdict(&pong).expect("is a PONG").is_ok(), is_taken);
        assert_eq!(answer(&mut stream).await.is_some(), is_taken);
    }
    assert_eq!(intake.records().len(), 1);
    let (_running, mut stream) = start(&intake, options).await;
    answer(&mut stream).await.expect("a HELO");
    stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
    assert_eq!(answer(&mut stream).await, None, "without a PING nothing is taken");
}

/// A client that trusts this certificate.
fn trusting(certificate: &CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Guarantee: over TLS senders have to know the shared key, too. One that does not trust the
/// certificate, or speaks no TLS, gets nowhere, and is counted.
#[tokio::test]
async fn senders_come_over_tls() {
    let own = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("generates");
    let (own, other) = (own(), own());
    let (certificate, key) = (own.cert.pem(), own.signing_key.serialize_pem());
    let options = format!(
        "tls: {{cert_pem: {certificate:?}, key_pem: {key:?}}}, security: {{shared_key: key}}"
    );
    let intake = Arc::new(Intake::default());
    let (running, mut plain) = start(&intake, &options).await;
    let address = running.addresses()[0].1.clone();
    let connect = async |certificate: &CertificateDer<'static>| {
        let stream = TcpStream::connect(&address).await.expect("connects");
        let name = "localhost".try_into().expect("a name");
        trusting(certificate).connect(name, stream).await
    };
    for (key, is_taken) in [("key", true), ("other", false)] {
        let mut stream = connect(own.cert.der()).await.expect("is trusted");
        let secret = SharedSecret { key: Secret::new(key), hostname: "sender".to_owned() };
        let hello = answer(&mut stream).await.expect("a HELO");
        let greeted = Client::greet(&secret, None, &hello, [1; 16]);
        let (client, ping) = greeted.expect("is a HELO");
        stream.write_all(&ping).await.expect("is sent");
        let pong = answer(&mut stream).await.expect("a PONG");
        assert_eq!(client.verdict(&pong).expect("is a PONG").is_ok(), is_taken);
        // Larger than a record of TLS.
        let sent = stream.write_all(&packed(0..5_000, Some("id"))).await;
        assert!(sent.is_ok() || !is_taken);
        assert_eq!(answer(&mut stream).await.is_some(), is_taken);
    }
    assert_eq!(intake.records().len(), 5_000);
    let refused = connect(other.cert.der()).await.expect_err("is not trusted");
    assert!(refused.to_string().contains("certificate"), "{refused}");
    plain.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
    let mut said = Vec::new();
    let ended = timeout(Duration::from_secs(10), plain.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "the connection ends");
    assert_eq!(intake.records().len(), 5_000);
}
