//! Checks of certificate files, for `sluice validate`. Elsewhere the start finds what is wrong: a
//! file may change between both.

use std::path::PathBuf;

use sluice_config::document::Document;
use sluice_config::{Component, Diagnostic, Diagnostics};
use sluice_net::tls::{TlsError, TlsOptions, check_client, check_server};

use super::ports::{listening, span_at};
use super::read::{Read, component};

pub(super) fn check(document: &Document, read: &Read, diagnostics: &mut Diagnostics) {
    for (component, listening) in listening(document, read) {
        if let Some(tls) = listening.tls {
            let [protocols, protocol, _] = listening.path;
            let path = [protocols, protocol, "tls"];
            report(component, &path, tls, || check_server(tls), diagnostics);
        }
    }
    for (id, planned) in &read.exporters {
        let component = component(&document.exporters, id);
        let (Some(component), Some(client)) = (component, planned.config.client()) else {
            continue;
        };
        if planned.config.destinations().iter().any(|it| it.tls == Some(true)) {
            let check = || check_client(&client.tls);
            report(component, &["tls"], &client.tls.common, check, diagnostics);
        }
    }
}

/// A file that is not there may be on another machine: that is a warning.
fn report(
    component: &Component,
    path: &[&str],
    tls: &TlsOptions,
    check: impl FnOnce() -> Result<(), TlsError>,
    diagnostics: &mut Diagnostics,
) {
    let (span, option) = (span_at(component, path), path.join("."));
    let is_missing = |file: &&PathBuf| {
        std::fs::metadata(file).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
    };
    let mut missing = tls.files().filter(is_missing).peekable();
    if missing.peek().is_none() {
        if let Err(error) = check() {
            let message = format!("`{}.{option}`: {error}", component.path);
            diagnostics.push(Diagnostic::error(span, message));
        }
        return;
    }
    for file in missing {
        let message = format!("`{}.{option}`: there is no file {}", component.path, file.display());
        let hint = "it has to be there when sluice starts";
        diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sluice_config::SystemEnvironment;

    use crate::plan::validate;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("a file");
    }

    /// Scenario: the certificate files of a receiver and of an exporter are missing, no PEM, of
    /// another key, or good. Guarantee: the finding names the option and its line.
    #[test]
    fn certificates_that_cannot_be_used_are_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = |name: &str| directory.path().join(name);
        for name in ["a", "b"] {
            let key = rcgen::KeyPair::generate().expect("a key");
            let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]);
            let certificate = parameters.expect("parameters").self_signed(&key).expect("signed");
            write(&file(&format!("{name}.crt")), &certificate.pem());
            write(&file(&format!("{name}.key")), &key.serialize_pem());
        }
        write(&file("no.key"), "nothing");
        for (certificate, key, expected) in [
            ("a.crt", "a.key", None),
            ("gone.crt", "a.key", Some((false, "there is no file "))),
            ("a.crt", "no.key", Some((true, "holds no private key"))),
            ("a.crt", "b.key", Some((true, "the certificate and the key cannot be used: "))),
        ] {
            let tls = format!(
                "cert_file: {}, key_file: {}",
                file(certificate).display(),
                file(key).display()
            );
            let text = format!(
                "receivers:\n  otlp:\n    protocols:\n      grpc:\n        tls: {{{tls}}}\n\
                 exporters:\n  otlp:\n    endpoint: https://backend:4317\n    \
                 tls: {{insecure_skip_verify: true, {tls}}}\n\
                 service: {{pipelines: {{traces: {{receivers: [otlp], exporters: [otlp]}}}}}}\n"
            );
            let (_, diagnostics) = validate(&[format!("yaml:{text}")], &SystemEnvironment);
            let found: Vec<_> = diagnostics.items().iter().collect();
            let Some((is_error, message)) = expected else {
                assert!(found.is_empty(), "{}", diagnostics.render(false));
                continue;
            };
            assert_eq!(diagnostics.errors().count(), if is_error { 2 } else { 0 });
            let lines: Vec<_> = found.iter().filter_map(|it| Some(it.span?.line)).collect();
            assert_eq!(lines, [5, 9], "{}", diagnostics.render(false));
            assert!(found.iter().all(|it| it.message.contains(message)), "{found:?}");
            let paths = ["`receivers.otlp.protocols.grpc.tls`: ", "`exporters.otlp.tls`: "];
            assert!(found.iter().zip(paths).all(|(it, path)| it.message.starts_with(path)));
        }
    }
}
