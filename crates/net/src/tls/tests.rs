use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, ProtocolVersion, ServerConnection};

use super::*;

fn inline(text: String) -> Pem {
    Pem::Inline(sluice_config::Secret::new(text))
}

const ALPN: &[&[u8]] = &[b"h2", b"http/1.1"];

/// An authority that signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("an authority"),
        )
    }

    fn pem(&self) -> Pem {
        inline(self.0.pem())
    }

    /// (certificate, key) for localhost.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        (params.signed_by(&key, &self.0).expect("a certificate").pem(), key.serialize_pem())
    }

    fn identity(&self) -> TlsOptions {
        let (certificate, key) = self.issue();
        TlsOptions {
            certificate: Some(inline(certificate)),
            key: Some(inline(key)),
            ..TlsOptions::default()
        }
    }
}

fn server(common: TlsOptions, client_authorities: Option<Pem>) -> ServerTls {
    let options = TlsOptions { authorities: client_authorities, ..common };
    server_tls("a server", options, ALPN).expect("good settings")
}

fn trusting(authority: &Authority) -> ClientTlsOptions {
    let common = TlsOptions { authorities: Some(authority.pem()), ..TlsOptions::default() };
    ClientTlsOptions { common, ..ClientTlsOptions::default() }
}

fn client(options: ClientTlsOptions) -> ClientTls {
    ClientTls::new(options).expect("good settings")
}

/// A handshake and one byte each way, in memory. Returns the negotiated protocol and the server's
/// certificate.
fn handshake(server: &ServerTls, client: &ClientTls) -> Result<(Vec<u8>, Vec<u8>), String> {
    handshake_with("localhost", server, client)
}

fn handshake_with(
    name: &'static str,
    server: &ServerTls,
    client: &ClientTls,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let name = ServerName::try_from(name).expect("a name");
    let mut near =
        ClientConnection::new(client.current(ALPN), name).map_err(|error| error.to_string())?;
    let mut far = ServerConnection::new(server.current()).map_err(|error| error.to_string())?;
    near.writer().write_all(b"x").expect("is buffered");
    for _ in 0..10 {
        let mut wire = Vec::new();
        while near.wants_write() {
            near.write_tls(&mut wire).expect("a vector takes it");
        }
        let mut unread = wire.as_slice();
        while !unread.is_empty() {
            far.read_tls(&mut unread).expect("is read");
            far.process_new_packets().map_err(|error| format!("server: {error}"))?;
        }
        let mut wire = Vec::new();
        while far.wants_write() {
            far.write_tls(&mut wire).expect("a vector takes it");
        }
        let mut unread = wire.as_slice();
        while !unread.is_empty() {
            near.read_tls(&mut unread).expect("is read");
            near.process_new_packets().map_err(|error| format!("client: {error}"))?;
        }
        let mut byte = [0];
        if far.reader().read(&mut byte).is_ok_and(|length| length == 1) {
            let certificate = near.peer_certificates().expect("was shown")[0].to_vec();
            return Ok((near.alpn_protocol().unwrap_or_default().to_vec(), certificate));
        }
    }
    Err("the handshake never ended".to_owned())
}

#[test]
fn a_trusted_server_is_talked_to_and_http_2_preferred() {
    let authority = Authority::new();
    let (protocol, _) =
        handshake(&server(authority.identity(), None), &client(trusting(&authority)))
            .expect("works");
    assert_eq!(protocol, b"h2");
}

#[test]
fn an_untrusted_server_or_another_name_is_refused_unless_told_otherwise() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(authority.identity(), None);
    assert!(handshake(&server, &client(trusting(&other))).is_err());
    assert!(handshake_with("elsewhere", &server, &client(trusting(&authority))).is_err());
    let mut options = trusting(&other);
    options.insecure_skip_verify = true;
    assert!(handshake(&server, &client(options)).is_ok());
}

#[test]
fn mutual_tls_takes_only_certificates_of_the_client_authorities() {
    let (authority, other) = (Authority::new(), Authority::new());
    let server = server(authority.identity(), Some(authority.pem()));
    assert!(handshake(&server, &client(trusting(&authority))).is_err(), "no certificate");
    for (issuer, taken) in [(&authority, true), (&other, false)] {
        let mut options = trusting(&authority);
        let identity = issuer.identity();
        (options.common.certificate, options.common.key) = (identity.certificate, identity.key);
        assert_eq!(handshake(&server, &client(options)).is_ok(), taken);
    }
}

/// A certificate as `openssl req -x509` makes it: self-signed, and marked as an authority's.
fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> TlsOptions {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    change(&mut params);
    TlsOptions {
        certificate: Some(inline(params.self_signed(&key).expect("a certificate").pem())),
        key: Some(inline(key.serialize_pem())),
        ..TlsOptions::default()
    }
}

/// Both sides show this certificate and trust only it.
fn mutual_handshake(identity: &TlsOptions, name: &'static str) -> Result<(), String> {
    let server = server(identity.clone(), identity.certificate.clone());
    let common = TlsOptions { authorities: identity.certificate.clone(), ..identity.clone() };
    let client = client(ClientTlsOptions { common, ..ClientTlsOptions::default() });
    handshake_with(name, &server, &client).map(drop)
}

/// Scenario: a self-signed certificate is its own `ca_file` and `client_ca_file`, as in many
/// clusters. Guarantee: both sides take it, within its dates, for its name and for its usages.
#[test]
fn a_self_signed_certificate_that_is_trusted_itself_is_taken() {
    assert_eq!(mutual_handshake(&self_signed(|_| {}), "localhost"), Ok(()));
    let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let for_both = self_signed(|params| params.extended_key_usages = both.to_vec());
    assert_eq!(mutual_handshake(&for_both, "localhost"), Ok(()));

    for usage in both {
        let for_one = self_signed(|params| params.extended_key_usages = vec![usage]);
        assert!(mutual_handshake(&for_one, "localhost").is_err());
    }
    let expired = self_signed(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    assert!(mutual_handshake(&expired, "localhost").is_err());
    assert!(mutual_handshake(&self_signed(|_| {}), "elsewhere").is_err());
}

/// Scenario: a self-signed certificate that the other side does not have. Guarantee: it is refused.
#[test]
fn another_self_signed_certificate_is_refused() {
    let (own, other) = (self_signed(|_| {}), self_signed(|_| {}));
    let trusting_other = |identity: &TlsOptions| ClientTlsOptions {
        common: TlsOptions { authorities: other.certificate.clone(), ..identity.clone() },
        ..ClientTlsOptions::default()
    };
    assert!(handshake(&server(own.clone(), None), &client(trusting_other(&own))).is_err());
    let server = server(other.clone(), other.certificate.clone());
    assert!(handshake(&server, &client(trusting_other(&own))).is_err());
    assert!(handshake(&server, &client(trusting_other(&other))).is_ok());
}

#[test]
fn versions_suites_and_curves_are_kept_to() {
    let authority = Authority::new();
    let only = |version, common: TlsOptions| TlsOptions {
        min_version: version,
        max_version: version,
        ..common
    };
    let modern = server(only(ProtocolVersion::TLSv1_3, authority.identity()), None);
    let old = |cipher_suites: &[&str]| {
        let mut options = trusting(&authority);
        options.common = only(ProtocolVersion::TLSv1_2, options.common);
        options.common.cipher_suites =
            cipher_suites.iter().map(|name| (*name).to_owned()).collect();
        options
    };
    assert!(handshake(&modern, &client(old(&[]))).is_err());
    let any = server(authority.identity(), None);
    // The certificate's key is ECDSA, so the first of these suites can be used and the second
    // cannot.
    assert!(handshake(&any, &client(old(&["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]))).is_ok());
    assert!(handshake(&any, &client(old(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]))).is_err());
    assert!(handshake(&any, &client(old(&["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"]))).is_ok());
    let mut curves = trusting(&authority);
    curves.common.curve_preferences = vec!["P384".to_owned()];
    assert!(handshake(&any, &client(curves)).is_ok());
    let mut unknown = trusting(&authority);
    unknown.common.curve_preferences = vec!["P999".to_owned()];
    assert!(ClientTls::new(unknown).is_err());
    assert!(ClientTls::new(old(&["TLS_RSA_WITH_RC4_128_SHA"])).is_err());
}

/// Scenario: versions, suites and curves that only the Collector has, and names that neither has.
/// Guarantee: a warning for each of the former, after which the rest of a list applies, or the
/// default; an error for each of the latter.
#[test]
fn what_only_the_collector_has_is_warned_of() {
    const CBC: &str = "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA";
    const GCM: &str = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256";
    const RC4: &str = "TLS_RSA_WITH_RC4_128_SHA";
    let read = |text: &str| {
        let text = format!("tls: {{{text}}}");
        let (options, diagnostics) = sluice_config::read_text("x", &text, ClientTlsOptions::read);
        (options.common, diagnostics.warnings().count(), diagnostics.errors().count())
    };
    for (text, warnings, errors) in [
        ("min_version: '1.0'".to_owned(), 1, 0),
        ("min_version: '1.0', max_version: '1.1'".to_owned(), 2, 0),
        ("min_version: ''".to_owned(), 0, 0),
        ("min_version: '1.4'".to_owned(), 0, 1),
        (format!("cipher_suites: [{CBC}]"), 1, 0),
        (format!("cipher_suites: [{RC4}]"), 0, 1),
        (format!("cipher_suites: [{RC4}], include_insecure_cipher_suites: true"), 2, 0),
        ("curve_preferences: [P521, X25519MLKEM768]".to_owned(), 2, 0),
        ("curve_preferences: [P522]".to_owned(), 0, 1),
    ] {
        let (_, found_warnings, found_errors) = read(&text);
        assert_eq!((found_warnings, found_errors), (warnings, errors), "{text}");
    }
    let (old, ..) = read("min_version: '1.0', max_version: '1.1'");
    let only_1_2 = (ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_2);
    assert_eq!((old.min_version, old.max_version), only_1_2);
    let (mixed, ..) =
        read(&format!("cipher_suites: [{CBC}, {GCM}], curve_preferences: [P521, P256]"));
    assert_eq!(
        (mixed.cipher_suites, mixed.curve_preferences),
        (vec![GCM.into()], vec!["P256".into()])
    );
    assert!(read(&format!("cipher_suites: [{CBC}]")).0.cipher_suites.is_empty());
}

/// Scenario: the files are rotated, first halfway (the key of another certificate), then
/// completely. Guarantee: the old certificate is shown until the new pair is whole, then the new
/// one.
#[test]
fn certificates_are_rotated_without_a_restart_and_never_halfway() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("is written");
    let (first, second) = (authority.issue(), authority.issue());
    write(&at("cert"), &first.0);
    write(&at("key"), &first.1);
    let common = TlsOptions {
        certificate: Some(Pem::File(at("cert"))),
        key: Some(Pem::File(at("key"))),
        ..TlsOptions::default()
    };
    let server = server(common, None);
    let client = client(trusting(&authority));
    let shown = || handshake(&server, &client).expect("works").1;
    let before = shown();
    write(&at("cert"), &second.0);
    assert!(!server.check());
    assert_eq!(shown(), before);
    write(&at("key"), &second.1);
    assert!(server.check());
    assert_ne!(shown(), before);
}

#[test]
fn errors_name_the_file_and_what_is_wrong() {
    let authority = Authority::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file.pem");
    let with_certificate = |source: Pem| {
        let common = TlsOptions { certificate: Some(source), ..authority.identity() };
        server_tls("a server", common, ALPN).err().expect("is refused")
    };
    let missing = with_certificate(Pem::File(path.clone())).to_string();
    assert!(missing.contains("file.pem") && missing.contains("No such file"), "{missing}");
    std::fs::write(&path, "not PEM").expect("is written");
    let empty = with_certificate(Pem::File(path.clone())).to_string();
    assert!(empty.contains("file.pem holds no certificate"), "{empty}");
    let other_key = with_certificate(inline(authority.issue().0));
    assert!(other_key.to_string().contains("cannot be used"), "{other_key}");
    let alone = TlsOptions { key: None, ..authority.identity() };
    let alone = server_tls("a server", alone, ALPN);
    assert!(alone.err().expect("is refused").to_string().starts_with("cert_file: "));
}

/// Scenario: a bundle of authorities in which one certificate cannot be read, and one without any
/// that can. Guarantee: the others are trusted, and only them; nothing to trust is an error.
#[test]
fn an_unreadable_authority_is_left_out_of_a_bundle() {
    const UNREADABLE: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let (authority, other) = (Authority::new(), Authority::new());
    let trusting = |bundle: String| ClientTlsOptions {
        common: TlsOptions { authorities: Some(inline(bundle)), ..TlsOptions::default() },
        ..ClientTlsOptions::default()
    };
    let good = authority.0.pem();
    for bundle in [format!("{UNREADABLE}{good}"), format!("{good}{UNREADABLE}")] {
        let client = client(trusting(bundle));
        assert!(handshake(&server(authority.identity(), None), &client).is_ok());
        assert!(handshake(&server(other.identity(), None), &client).is_err());
    }
    let error = ClientTls::new(trusting(UNREADABLE.to_owned())).err().expect("is refused");
    assert!(error.to_string().contains("is not valid PEM"), "{error}");
}

#[test]
fn keys_in_the_configuration_are_not_shown() {
    let options = Authority::new().identity();
    assert!(!format!("{options:?}").contains("BEGIN"));
    let _ = Arc::new(options);
}
