//! Options that inputs and outputs share: TLS, credentials of senders, addresses.

use serde_json::{Map, Value, json};

use super::source::Section;
use super::values::{self, Place};
use crate::migrate::report::Report;

const TLS_OTHERS: [(&str, &str); 4] = [
    ("tls_key_pwd", "the key has to stand in its file without a password"),
    ("tls_cipher_suites", "write them into `tls.cipher_suites`, by the names that are known there"),
    ("tls_renegotiation_method", "no TLS connection is negotiated anew"),
    ("tls_enable", "the scheme of the URL says whether TLS is used"),
];

/// Filters of metrics, which all plugins have.
const FILTERS: [&str; 11] = [
    "namepass",
    "namedrop",
    "fieldinclude",
    "fieldpass",
    "fieldexclude",
    "fielddrop",
    "tagpass",
    "tagdrop",
    "taginclude",
    "metricpass",
    "name_override",
];

/// Options of both sides that change names, which stay here.
const NAMES: [&str; 2] = ["name_prefix", "name_suffix"];

pub(super) fn refuse_filters(section: &mut Section, report: &mut Report) {
    let text = "Sluice has no processor that leaves out metrics or changes their names; \
                `tagexclude` and an aggregator's `namepass` are translated";
    for key in FILTERS.iter().chain(&NAMES) {
        section.refuse(&[(*key, text)], report);
    }
}

/// An option's text in our form.
pub(super) fn text(section: &mut Section, key: &str, report: &mut Report) -> Option<String> {
    let (line, text) = section.text(key, report)?;
    let place = section.place(key);
    Some(values::text(&text, &Place { line, name: &place }, report))
}

pub(super) fn secret(section: &mut Section, key: &str, report: &mut Report) -> Option<String> {
    let (line, text) = section.text(key, report)?;
    let place = section.place(key);
    Some(values::secret(&text, &Place { line, name: &place }, report))
}

pub(super) fn duration(section: &mut Section, key: &str, report: &mut Report) -> Option<String> {
    let (line, text) = section.text(key, report)?;
    let place = section.place(key);
    values::duration(&text, &Place { line, name: &place }, report)
}

pub(super) fn integer(section: &mut Section, key: &str, report: &mut Report) -> Option<Value> {
    let (line, text) = section.text(key, report)?;
    let place = section.place(key);
    values::integer(&text, &Place { line, name: &place }, report)
}

/// Whether a server has one of name and password only, which is reported. Telegraf lets in no
/// sender without it then.
pub(super) fn has_half_a_user(section: &Section, report: &mut Report) -> bool {
    let [user, password] = ["basic_username", "basic_password"].map(|key| section.line_of(key));
    let (line, key, missing) = match (user, password) {
        (Some(line), None) => (line, "basic_username", "basic_password"),
        (None, Some(line)) => (line, "basic_password", "basic_username"),
        _ => return false,
    };
    let text = format!(
        "`{missing}` is missing, and so all of `{}` is left out: Telegraf asks for it as an empty \
         one, which `basicauth` cannot, and without it all senders would be let in. Set both",
        section.name
    );
    report.left_out(line, &section.place(key), text);
    true
}

/// The section `tls` of a client. None if Telegraf's options say nothing of it.
pub(super) fn client_tls(section: &mut Section, report: &mut Report) -> Option<Value> {
    for key in ["ca", "cert", "key"] {
        section.rename_removed(&format!("ssl_{key}"), &format!("tls_{key}"), report);
    }
    let mut tls = Map::new();
    let texts = [
        ("tls_ca", "ca_file"),
        ("tls_cert", "cert_file"),
        ("tls_key", "key_file"),
        ("tls_server_name", "server_name_override"),
    ];
    for (theirs, ours) in texts {
        if let Some(text) = text(section, theirs, report) {
            tls.insert(ours.to_owned(), json!(text));
        }
    }
    if section.boolean("insecure_skip_verify", report) == Some(true) {
        tls.insert("insecure_skip_verify".to_owned(), json!(true));
    }
    lowest_version(section, &mut tls, report);
    section.refuse(&TLS_OTHERS, report);
    (!tls.is_empty()).then_some(Value::Object(tls))
}

fn lowest_version(section: &mut Section, tls: &mut Map<String, Value>, report: &mut Report) {
    if let Some((line, version)) = section.text("tls_min_version", report) {
        match version.as_str() {
            "TLS12" => tls.insert("min_version".to_owned(), json!("1.2")),
            "TLS13" => tls.insert("min_version".to_owned(), json!("1.3")),
            _ => {
                let text = "the lowest version of TLS is 1.2 here";
                report.note(line, &section.place("tls_min_version"), text);
                None
            }
        };
    }
}

/// The section `tls` of a server.
pub(super) fn server_tls(section: &mut Section, report: &mut Report) -> Option<Value> {
    let mut tls = Map::new();
    for (theirs, ours) in [("tls_cert", "cert_file"), ("tls_key", "key_file")] {
        if let Some(text) = text(section, theirs, report) {
            tls.insert(ours.to_owned(), json!(text));
        }
    }
    if let Some((line, files)) = section.texts("tls_allowed_cacerts", report) {
        let place = section.place("tls_allowed_cacerts");
        match files.as_slice() {
            [] => {}
            [file] => {
                let file = values::text(file, &Place { line, name: &place }, report);
                tls.insert("client_ca_file".to_owned(), json!(file));
            }
            [file, ..] => {
                // The fewest senders, until the files are put together.
                let file = values::text(file, &Place { line, name: &place }, report);
                tls.insert("client_ca_file".to_owned(), json!(file));
                let text = "only the first file is used: put all certificates into one";
                report.left_out(line, &place, text);
            }
        }
    }
    lowest_version(section, &mut tls, report);
    section.refuse(&TLS_OTHERS, report);
    let text = "a certificate's name is not checked: let an authority of its own sign the senders'";
    section.refuse(&[("tls_allowed_dns_names", text)], report);
    (!tls.is_empty()).then_some(Value::Object(tls))
}

/// The host and the port of `service_address`, without `tcp://`.
pub(super) fn address(text: &str) -> &str {
    text.strip_prefix("tcp://").unwrap_or(text)
}
