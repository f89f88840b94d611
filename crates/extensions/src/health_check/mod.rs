//! `health_check`: 200 from start to shutdown. The engine serves it: it alone knows the deliveries.

use sluice_config::{ComponentKind, Fields, Kind};
use sluice_net::tls::TlsOptions;

use crate::extension::{Extension, HealthCheck};

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "health_check",
        "Answers 200 once all components have started and until shutdown begins, even while \
         senders are refused. The body names deliveries and disks in trouble.",
    )
    .aliases(&["healthcheck", "healthcheckv2"]),
    |fields| Extension { health_check: read(fields), ..Extension::default() },
);

fn read(fields: &mut Fields<'_>) -> Option<HealthCheck> {
    let body = "the body names the deliveries in trouble";
    fields.no_effect("check_collector_pipeline", body);
    fields.no_effect("response_body", body);
    let (endpoint, tls) = read_server(fields);
    let doc = "Path of the check, for any HTTP method. A path that ends in `/` includes all paths \
               below it.";
    let path = read_path(fields, "/", doc);
    let doc = "Has no effect by itself: `http` or `grpc` are used wherever they are.";
    let is_new = fields.boolean("use_v2", false, doc);
    let doc = "The check as `healthcheckv2` spells it. It replaces `endpoint` and `path`.";
    let http = fields.section("http", doc, read_http);
    let has_grpc = fields.is_present("grpc");
    let doc = "Has no effect, and causes a warning: there is no gRPC health service.";
    let grpc = fields.node("grpc", "any", doc);
    if has_grpc {
        let message =
            "has no effect: there is no gRPC health service; check over HTTP, with `http`";
        fields.warn_at("grpc", message);
    }
    let endpoint_of_grpc = grpc.and_then(|grpc| grpc.get("endpoint")?.as_scalar());
    if endpoint_of_grpc.is_some_and(|endpoint| endpoint.text.is_empty()) {
        fields.error_at("grpc", "has an empty `endpoint`");
    }
    fields.no_effect("component_health", body);
    if is_new && http.is_none() && !has_grpc {
        fields.error_with_hint("has no protocol to listen for", "write `http:`");
    }
    match http {
        Some(check) => check,
        None if has_grpc => None,
        None => Some(HealthCheck { endpoint, path, tls }),
    }
}

/// `http` of `healthcheckv2`.
fn read_http(fields: &mut Fields<'_>) -> Option<HealthCheck> {
    let (endpoint, tls) = read_server(fields);
    let (is_enabled, path) = fields.section_or_default("status", "The check.", |fields| {
        let is_enabled = fields.boolean("enabled", true, "If false, nothing is served.");
        let path = read_path(fields, "/status", "Path of the check.");
        fields.no_effect("include_attributes", "the body names the deliveries in trouble");
        (is_enabled, path)
    });
    let doc = "The configuration, which is not served.";
    fields.section("config", doc, |fields| {
        if fields.boolean("enabled", false, "Has no effect, and causes a warning.") {
            fields.warn("has no effect: the configuration is not served");
        }
        read_path(fields, "/config", "Has no effect.");
    });
    is_enabled.then_some(HealthCheck { endpoint, path, tls })
}

fn read_path(fields: &mut Fields<'_>, default: &str, doc: &str) -> String {
    let path = fields.string("path", default, doc);
    if !path.starts_with('/') {
        fields.error_at("path", "must begin with `/`");
    }
    path
}

/// The options of an HTTP server: its address and TLS.
fn read_server(fields: &mut Fields<'_>) -> (String, Option<TlsOptions>) {
    let doc = "Address to listen on, `host:port`.";
    let endpoint = fields.string("endpoint", "localhost:13133", doc);
    if endpoint.is_empty() {
        fields.error_at("endpoint", "must not be empty");
    }
    let doc = "TLS. Unset: connections are not encrypted.";
    let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
    let transports = ["tcp", "tcp4", "tcp6"].map(|name| (name, ()));
    let doc = "Has no effect: `endpoint` decides. There is no check on a Unix socket.";
    fields.choice("transport", (), &transports, doc);
    fields.no_effect("auth", "probes need no credentials");
    let why = "probes have no body, and the port has time limits of its own";
    for option in [
        "compression_algorithms",
        "cors",
        "dialer",
        "idle_timeout",
        "include_metadata",
        "keep_alives_enabled",
        "keepalive",
        "max_request_body_size",
        "read_header_timeout",
        "read_timeout",
        "response_headers",
        "write_timeout",
    ] {
        fields.no_effect(option, why);
    }
    fields.not_yet("middlewares", "middleware extensions");
    (endpoint, tls)
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    /// The address and the path that are served, the warnings and whether there is an error.
    fn said(text: &str) -> (Option<String>, Vec<String>, bool) {
        let (check, diagnostics) = read_text("x", text, read);
        let place = check.map(|HealthCheck { endpoint, path, .. }| endpoint + &path);
        let warnings = diagnostics.warnings().map(|warning| warning.message.clone()).collect();
        (place, warnings, diagnostics.has_errors())
    }

    /// Scenario: the options of both generations. Guarantee: each decides what is served, and what
    /// has no effect is named.
    #[test]
    fn both_generations_of_options_are_read() {
        for (text, place, warned) in [
            ("", Some("localhost:13133/"), ""),
            ("{endpoint: 'a:1', path: /up}", Some("a:1/up"), ""),
            ("{use_v2: true, http: }", Some("localhost:13133/status"), ""),
            ("http: {endpoint: 'a:1', status: {path: /up}}", Some("a:1/up"), ""),
            ("{endpoint: 'b:1', http: {endpoint: 'a:1'}}", Some("a:1/status"), ""),
            ("http: {config: {enabled: true}}", Some("localhost:13133/status"), "x.http.config"),
            ("http: {status: {enabled: false}}", None, ""),
            ("{http: , grpc: {endpoint: 'a:2'}}", Some("localhost:13133/status"), "x.grpc"),
            ("grpc: {endpoint: 'a:2'}", None, "x.grpc"),
            ("{response_body: {healthy: yes}}", Some("localhost:13133/"), "x.response_body"),
            ("{read_timeout: 5s}", Some("localhost:13133/"), "x.read_timeout"),
        ] {
            let (found, warnings, has_errors) = said(text);
            assert!(!has_errors, "{text}");
            assert_eq!(found.as_deref(), place, "{text}");
            assert_eq!(warnings.len(), usize::from(!warned.is_empty()), "{text}: {warnings:?}");
            assert!(
                warnings.iter().all(|it| it.starts_with(&format!("`{warned}`"))),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn mistakes_of_both_generations_are_errors() {
        for text in [
            "endpoint: ''",
            "path: up",
            "use_v2: true",
            "http: {endpoint: ''}",
            "grpc: {endpoint: ''}",
            "http: {status: {path: up}}",
            "http: {config: {enabled: true, path: up}}",
            "tls: {cert_file: x}",
            "transport: unix",
        ] {
            assert!(said(text).2, "{text}");
        }
    }
}
