use std::time::Duration;

use sluice_config::load::read_text;
use sluice_net::server::{Address, Family, Protocols, ServerOptions};

use super::*;

fn read(text: &str) -> (OtlpConfig, Vec<String>) {
    let (config, diagnostics) = read_text("receivers.otlp", text, OtlpConfig::read);
    (config, diagnostics.items().iter().map(|diagnostic| diagnostic.message.clone()).collect())
}

#[test]
fn an_empty_protocol_has_the_collectors_ports_on_localhost() {
    let (config, messages) = read("protocols: {grpc: , http: }");
    assert_eq!(messages, [""; 0]);
    let (grpc, http) = (config.grpc.expect("is on"), config.http.expect("is on"));
    assert_eq!(grpc.address, Address::Tcp("localhost:4317".to_owned(), Family::Any));
    assert_eq!(http.shared.address, Address::Tcp("localhost:4318".to_owned(), Family::Any));
    assert_eq!((grpc.limit_bytes, http.shared.limit_bytes), (64 << 20, 64 << 20));
    assert_eq!(http.url_paths[2], "/v1/logs");
    assert!(grpc.tls.is_none() && !grpc.include_metadata);
}

#[test]
fn a_protocol_that_is_not_named_is_off_and_none_at_all_is_an_error() {
    let (config, messages) = read("protocols: {http: {}}");
    assert!(config.grpc.is_none() && config.http.is_some() && messages.is_empty());
    for text in ["{}", "protocols:", "protocols: {}"] {
        assert_eq!(read(text).1.len(), 1, "{text}");
    }
}

#[test]
fn everything_that_the_collector_knows_is_known_and_takes_effect_or_is_warned_of() {
    let (config, messages) = read(
        "
protocols:
  grpc:
    endpoint: 0.0.0.0:14317
    transport: tcp
    tls: {cert_file: a, key_file: b, client_ca_file: c, client_ca_file_reload: true, min_version: '1.3', reload_interval: 1m}
    max_recv_msg_size_mib: 8
    max_concurrent_streams: 16
    read_buffer_size: 524288
    write_buffer_size: 32768
    keepalive:
      server_parameters: {max_connection_idle: 11s, max_connection_age: 12s, max_connection_age_grace: 13s, time: 30s, timeout: 5s}
      enforcement_policy: {min_time: 10s, permit_without_stream: true}
    auth: {authenticator: basicauth/server}
    include_metadata: true
    middlewares:
  http:
    endpoint: ':4318'
    traces_url_path: v1/t
    metrics_url_path: /m
    logs_url_path: /l
    cors: {allowed_origins: ['https://*.example.com'], allowed_headers: [X-Tenant], exposed_headers: [X-Id], max_age: 7200}
    auth: {authenticator: bearertokenauth}
    max_request_body_size: 1048576
    include_metadata: true
    response_headers: {x-frame-options: deny}
    compression_algorithms: ['', gzip, zstd]
    read_timeout: 20s
    read_header_timeout: 21s
    write_timeout: 22s
    idle_timeout: 23s
    keep_alives_enabled: false
",
    );
    let no_effect: Vec<_> =
        messages.iter().filter(|message| message.contains("has no effect")).collect();
    assert_eq!((messages.len(), no_effect.len()), (6, 6), "{messages:?}");
    let grpc = config.grpc.expect("is on");
    assert_eq!(grpc.limit_bytes, 8 << 20);
    assert_eq!(grpc.server.max_concurrent_streams, 16);
    assert_eq!(grpc.server.max_connection_idle, Some(Duration::from_secs(11)));
    assert_eq!(grpc.server.max_connection_age, Some(Duration::from_secs(12)));
    assert_eq!(grpc.server.max_connection_age_grace, Some(Duration::from_secs(13)));
    assert_eq!(grpc.server.keepalive_time, Duration::from_secs(30));
    assert_eq!(grpc.server.keepalive_timeout, Duration::from_secs(5));
    assert_eq!(grpc.authenticator.as_deref(), Some("basicauth/server"));
    let tls = grpc.tls.expect("is on");
    assert!(tls.authorities.is_some() && tls.reload_interval == Some(Duration::from_secs(60)));
    let http = config.http.expect("is on");
    assert_eq!(http.url_paths[0], "/v1/t");
    assert_eq!(
        http.encodings.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["identity", "gzip", "zstd"]
    );
    assert!(http.answers.cors.is_some() && !http.answers.keep_alive);
    assert_eq!(http.answers.headers.len(), 1);
    assert_eq!(http.shared.body_timeouts.total, Duration::from_secs(20));
    assert_eq!(http.shared.server.read_header_timeout, Duration::from_secs(21));
    assert_eq!(http.shared.server.max_connection_idle, Some(Duration::from_secs(23)));
}

/// Guarantee: as in the Collector, connections have no limit of their own and may be idle.
#[test]
fn connections_have_no_bounds_that_were_not_asked_for() {
    for options in ["", "max_connections: 0, idle_timeout: 0"] {
        let (config, messages) = read(&format!("protocols: {{http: {{{options}}}}}"));
        assert_eq!(messages, [""; 0]);
        let server = config.http.expect("is on").shared.server;
        assert_eq!((server.max_connections, server.max_connection_idle), (usize::MAX, None));
    }
}

/// Guarantee: the Collector's spelling of idle connections' options means the same as the older
/// one, stands alone, and may be empty, as may other sections.
#[test]
fn current_spellings_of_the_collector_are_known() {
    let read = |options: &str| {
        let (config, messages) = read(&format!("protocols: {{http: {{{options}}}}}"));
        let HttpConfig { shared, answers, .. } = config.http.expect("is on");
        (
            (shared.server.max_connection_idle, answers.keep_alive, shared.tls.is_some()),
            messages.len(),
        )
    };
    let idle = Some(Duration::from_secs(5));
    assert_eq!(read("idle_timeout: 5s, keep_alives_enabled: false"), ((idle, false, false), 0));
    assert_eq!(read("keepalive: {idle_timeout: 5s, enabled: false}"), ((idle, false, false), 0));
    assert_eq!(read("keepalive: {idle_timeout: 5s}"), ((idle, true, false), 0));
    assert_eq!(read("keepalive: , tls: , auth: "), ((None, true, false), 0));
    assert_eq!(read("keepalive: {idle_timeout: 5s}, keep_alives_enabled: false").1, 1);
}

#[test]
fn a_limit_of_zero_is_the_default() {
    let (config, messages) =
        read("protocols: {grpc: {max_recv_msg_size_mib: 0}, http: {max_request_body_size: 0}}");
    assert_eq!(messages, [""; 0]);
    let limits =
        [config.grpc.expect("is on").limit_bytes, config.http.expect("is on").shared.limit_bytes];
    assert_eq!(limits, [64 << 20; 2]);
}

#[test]
fn transports_name_a_family() {
    for (endpoint, transport, family) in [
        ("0.0.0.0:1", "tcp", Family::Any),
        ("[::]:1", "tcp", Family::Any),
        ("0.0.0.0:1", "tcp4", Family::V4),
        ("[::1]:1", "tcp6", Family::V6),
        (":1", "tcp6", Family::V6),
        ("localhost:1", "tcp6", Family::V6),
    ] {
        let (config, messages) = read(&format!(
            "protocols: {{http: {{endpoint: '{endpoint}', transport: {transport}}}}}"
        ));
        assert_eq!(messages, [""; 0]);
        assert_eq!(
            config.http.expect("is on").shared.address,
            Address::Tcp(endpoint.to_owned(), family)
        );
    }
}

#[test]
fn mistakes_are_errors() {
    for text in [
        "protocols: {grpc: {endpoint: localhost}}",
        "protocols: {grpc: {endpoint: 'http://localhost:4317'}}",
        "protocols: {grpc: {endpoint: '::1:4317'}}",
        "protocols: {grpc: {endpoint: 'localhost:99999'}}",
        "protocols: {grpc: {endpoint: '127.0.0.1:4317', transport: tcp6}}",
        "protocols: {grpc: {endpoint: '[::1]:4317', transport: tcp4}}",
        "protocols: {grpc: {endpont: 'localhost:4317'}}",
        "protocols: {grpc: {tls: {cert_file: a}}}",
        "protocols: {grpc: {tls: {cert_file: a, key_file: b, min_version: '1.3', max_version: '1.2'}}}",
        "protocols: {http: {compression_algorithms: [brotli]}}",
        "protocols: {http: {auth: {}}}",
        "protocols: {grpc: {}, thrift: {}}",
    ] {
        assert_eq!(read(text).1.len(), 1, "{text}");
    }
}

#[test]
fn unix_sockets_are_named_either_way() {
    let expected = Address::Unix("/run/sluice.sock".into());
    for text in [
        "protocols: {grpc: {endpoint: /run/sluice.sock, transport: unix}}",
        "protocols: {grpc: {endpoint: 'unix:///run/sluice.sock'}}",
        "protocols: {grpc: {endpoint: 'unix:/run/sluice.sock'}}",
    ] {
        let (config, messages) = read(text);
        assert_eq!(
            (config.grpc.expect("is on").address, messages.len()),
            (expected.clone(), 0),
            "{text}"
        );
    }
}

/// Scenario: zeros, which gRPC's Go library reads as "not set". Guarantee: connections live on, and
/// pings come as by default.
#[test]
fn zero_keepalive_times_mean_the_defaults() {
    let (config, messages) = read(
        "protocols: {grpc: {keepalive: {server_parameters: {max_connection_idle: 0s, \
         max_connection_age: 0s, max_connection_age_grace: 0s, time: 0s, timeout: 0s}}}}",
    );
    assert!(messages.is_empty(), "{messages:?}");
    let defaults = ServerOptions::new(Protocols::Http2);
    assert_eq!(config.grpc.expect("is on").server, defaults);
}
