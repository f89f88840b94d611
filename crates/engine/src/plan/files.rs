//! Checks of files with certificates or credentials, for `sluice validate`. Elsewhere the start
//! finds what is wrong: a file may change between both.

use std::io::ErrorKind;
use std::path::Path;

use sluice_config::document::Document;
use sluice_config::{Component, Diagnostic, Diagnostics};
use sluice_extensions::CredentialsFile;
use sluice_net::tls::{TlsError, TlsOptions, check_client, check_server};

use super::ports::{listening, span_at};
use super::read::{Read, component};

pub(super) fn check(document: &Document, read: &Read, diagnostics: &mut Diagnostics) {
    for (component, listening) in listening(document, read) {
        if let Some(tls) = listening.tls {
            let path = listening.beside_address("tls");
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
    for component in &document.extensions {
        let extension = read.extensions.get(&component.id.to_string());
        for file in extension.iter().flat_map(|extension| &extension.credentials) {
            report_credentials(component, file, diagnostics);
        }
    }
}

const NEEDED: &str = "it has to be there when sluice starts";

/// The user that checks need not be the one that runs Sluice, as in a build server.
const NEEDED_READABLE: &str = "the user that sluice runs as has to be able to read it";

/// Why a file cannot be checked here, and what Sluice needs when it starts: it is missing, or this
/// user may not read it. Opens regular files only: a pipe would wait for its writer.
fn uncheckable(file: &Path) -> Option<(String, &'static str)> {
    let named = file.display();
    let is_regular = || std::fs::metadata(file).map(|it| it.is_file());
    let opened = is_regular().and_then(|regular| match regular {
        true => std::fs::File::open(file).map(drop),
        false => Ok(()),
    });
    match opened.map_err(|error| error.kind()) {
        Err(ErrorKind::NotFound) => Some((format!("there is no file {named}"), NEEDED)),
        Err(ErrorKind::PermissionDenied) => {
            let user = rustix::process::geteuid().as_raw();
            let reason = format!("the user {user}, who checks, may not read {named}");
            Some((reason, NEEDED_READABLE))
        }
        _ => None,
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
    let mut unchecked = tls.files().filter_map(|file| uncheckable(file)).peekable();
    if unchecked.peek().is_none() {
        if let Err(error) = check() {
            let message = format!("`{}.{option}`: {error}", component.path);
            diagnostics.push(Diagnostic::error(span, message));
        }
        return;
    }
    for (reason, hint) in unchecked {
        let message = format!("`{}.{option}`: {reason}", component.path);
        diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
    }
}

/// As [`report`]. A file without which Sluice starts is worth a warning, whatever is wrong with it.
fn report_credentials(
    component: &Component,
    file: &CredentialsFile,
    diagnostics: &mut Diagnostics,
) {
    let path: Vec<_> = file.option.split('.').collect();
    let (span, option) = (span_at(component, &path), format!("{}.{}", component.path, file.option));
    let unchecked = uncheckable(&file.path);
    let (reason, needed) = match unchecked {
        Some((reason, needed)) => (reason, Some(needed)),
        None => match (file.check)() {
            Ok(()) => return,
            Err(reason) => (reason, None),
        },
    };
    let message = format!("`{option}`: {reason}");
    diagnostics.push(match file.otherwise.or(needed) {
        None => Diagnostic::error(span, message),
        Some(hint) => Diagnostic::warning(span, message).with_hint(hint),
    });
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use sluice_config::SystemEnvironment;

    use crate::plan::validate;

    fn write(path: &Path, text: &str) {
        std::fs::write(path, text).expect("a file");
    }

    /// Scenario: the certificate files of a receiver and of an exporter are missing, no PEM, of
    /// another key, a pipe, or good. Guarantee: the finding names the option and its line.
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
        mknodat(CWD, file("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        for (certificate, key, expected) in [
            ("a.crt", "a.key", None),
            ("gone.crt", "a.key", Some((false, "there is no file "))),
            ("a.crt", "no.key", Some((true, "holds no private key"))),
            ("pipe", "a.key", Some((true, "it is not a regular file"))),
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

    /// Scenario: the file with credentials of an extension is missing, empty, malformed, a pipe, or
    /// good. Guarantee: the finding names the option, its line and the file. It is an error if the
    /// file is there and a start would fail, and else a warning that says what follows.
    #[test]
    fn credentials_that_cannot_be_used_are_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name).display().to_string();
        write(Path::new(&at("empty")), " \n");
        write(Path::new(&at("good")), "user:secret\n");
        write(Path::new(&at("bad")), "user:secret\nno user\n");
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        let waits = "retry_on_failure: {enabled: true, interval: 1s}, filename";
        let stops = "it has to be there when sluice starts";
        let no_sender =
            "until it can be used, no sender is let in, and nothing is sent that needs it";
        let unsent = "until it can be used, nothing is sent that needs it";
        for (kind, option, file, expected) in [
            ("bearertokenauth", "filename", "good", None),
            ("bearertokenauth", "filename", "gone", Some(("there is no file ", Some(stops)))),
            ("bearertokenauth", "filename", "empty", Some(("it has no token", None))),
            ("bearertokenauth", "filename", "pipe", Some(("it is not a regular file", None))),
            ("bearertokenauth", waits, "gone", Some(("there is no file ", Some(no_sender)))),
            ("bearertokenauth", waits, "empty", Some(("it has no token", Some(no_sender)))),
            ("basicauth", "htpasswd.file", "good", None),
            ("basicauth", "htpasswd.file", "gone", Some(("there is no file ", Some(stops)))),
            ("basicauth", "htpasswd.file", "empty", Some(("it names no user", None))),
            (
                "basicauth",
                "htpasswd.file",
                "bad",
                Some(("line 2 is not `user:password-hash`", None)),
            ),
            ("basicauth", "client_auth.password_file", "good", None),
            (
                "basicauth",
                "client_auth.password_file",
                "gone",
                Some(("there is no file ", Some(unsent))),
            ),
            (
                "basicauth",
                "client_auth.password_file",
                "empty",
                Some(("it is empty", Some(unsent))),
            ),
            ("oauth2client", "client_secret_file", "empty", Some(("it is empty", Some(unsent)))),
        ] {
            let path = at(file);
            let named = option.rsplit(' ').next().expect("a name");
            let options = match option.split_once('.') {
                Some(("client_auth", key)) => {
                    format!("client_auth: {{username: me, \n      {key}: {path}}}")
                }
                Some((section, key)) => format!("{section}: {{\n      {key}: {path}}}"),
                None if kind == "oauth2client" => {
                    format!("token_url: 'https://a', client_id: a,\n    {option}: {path}")
                }
                None => format!("\n    {option}: {path}"),
            };
            let text = format!(
                "receivers:\n  otlp: {{protocols: {{grpc: {{}}}}}}\nexporters:\n  nop:\n\
                 extensions:\n  {kind}: {{{options}}}\nservice:\n  extensions: [{kind}]\n  \
                 pipelines: {{traces: {{receivers: [otlp], exporters: [nop]}}}}\n"
            );
            let (_, diagnostics) = validate(&[format!("yaml:{text}")], &SystemEnvironment);
            let said = diagnostics.render(false);
            let found: Vec<_> = diagnostics.items().iter().collect();
            let Some((reason, hint)) = expected else {
                assert!(found.is_empty(), "{kind} {option} {file}: {said}");
                continue;
            };
            assert_eq!(found.len(), 1, "{kind} {option} {file}: {said}");
            assert_eq!(diagnostics.errors().count(), usize::from(hint.is_none()), "{said}");
            let start = format!("`extensions.{kind}.{named}`: ");
            let message = &found[0].message;
            assert!(message.starts_with(&start) && message.contains(reason), "{said}");
            assert!(message.contains(&path), "{said}");
            assert_eq!(found[0].hint.as_deref(), hint, "{said}");
            assert_eq!(found[0].span.map(|span| span.line), Some(7), "{said}");
        }
    }
}
