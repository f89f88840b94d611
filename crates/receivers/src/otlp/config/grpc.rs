//! `protocols.grpc`: the Collector's `configgrpc` server settings.

use std::time::Duration;

use sluice_config::Fields;
use sluice_net::server::{BodyTimeouts, Protocols, ServerOptions};

use super::{
    DEFAULT_LIMIT_MIB, GrpcConfig, SharedConfig, address, authenticator, include_metadata, tls,
};

/// Shorter ages of connections, and pings more often, would only cost CPU.
const AGE_LEAST: Duration = Duration::from_millis(1);
const PING_LEAST: Duration = Duration::from_millis(10);

pub(super) fn read(fields: &mut Fields<'_>) -> GrpcConfig {
    let address = address(fields, "localhost:4317");
    let tls = tls::read(fields);
    let authenticator = authenticator(fields);
    let include_metadata = include_metadata(fields);
    let limit_mib = fields.integer(
        "max_recv_msg_size_mib",
        DEFAULT_LIMIT_MIB,
        0..=2047,
        "Largest request in MiB, as sent and again after decompression. Larger ones are answered \
         RESOURCE_EXHAUSTED. 0 means the default. (The Collector's default is 4; OTLP recommends \
         64.)",
    );
    let limit_mib = if limit_mib == 0 { DEFAULT_LIMIT_MIB } else { limit_mib };
    let mut server = ServerOptions::new(Protocols::Http2);
    let streams = fields.integer(
        "max_concurrent_streams",
        u64::from(server.max_concurrent_streams),
        0..=u64::from(u32::MAX),
        "Requests in flight on one connection. 0 means the default.",
    );
    if streams > 0 {
        server.max_concurrent_streams = u32::try_from(streams).unwrap_or(u32::MAX);
    }
    server.max_connections = connections(fields, server.max_connections);
    fields.section("keepalive", "Pings, and how long connections live.", |fields| {
        keepalive(fields, &mut server)
    });
    fields.no_effect(
        "read_buffer_size",
        "HTTP/2 windows bound what is read ahead: 512 KiB a stream, 2 MiB a connection",
    );
    fields.no_effect("write_buffer_size", "answers are a few bytes");
    fields.not_yet("middlewares", "middleware extensions");
    GrpcConfig {
        shared: SharedConfig {
            address,
            tls,
            authenticator,
            include_metadata,
            limit_bytes: usize::try_from(limit_mib << 20).unwrap_or(usize::MAX),
            server,
            body_timeouts: BodyTimeouts::default(),
        },
    }
}

/// Sluice's own: bounds the memory that connections alone can take.
pub(super) fn connections(fields: &mut Fields<'_>, default: usize) -> usize {
    fields.integer(
        "max_connections",
        default,
        1..=1_000_000,
        "Connections at a time. A further one takes the place of the longest idle one, or is \
         closed. Those of all receivers together may take an eighth of the memory limit, which \
         `sluice plan` shows. (Sluice's own option.)",
    )
}

/// Zero means the same as no value, as for gRPC's Go library.
fn or_never(fields: &mut Fields<'_>, key: &str, doc: &str) -> Option<Duration> {
    let duration = fields.optional_duration(key, Duration::ZERO..=Duration::MAX, doc);
    duration.filter(|duration| !duration.is_zero()).map(|duration| duration.max(AGE_LEAST))
}

fn or_default(fields: &mut Fields<'_>, key: &str, default: Duration, doc: &str) -> Duration {
    match fields.duration(key, default, doc) {
        Duration::ZERO => default,
        duration => duration.max(PING_LEAST),
    }
}

fn keepalive(fields: &mut Fields<'_>, server: &mut ServerOptions) {
    fields.section("server_parameters", "As in gRPC's Go library.", |fields| {
        server.max_connection_idle = or_never(
            fields,
            "max_connection_idle",
            "A connection without a request for this long is asked to go. 0 or unset: never.",
        );
        server.max_connection_age = or_never(
            fields,
            "max_connection_age",
            "A connection is asked to go at this age ± 10 %, so that clients behind a load \
             balancer spread. 0 or unset: never.",
        );
        server.max_connection_age_grace = or_never(
            fields,
            "max_connection_age_grace",
            "What a connection that was asked to go may still take before it is cut off. 0 or \
             unset: forever.",
        );
        server.keepalive_time = or_default(
            fields,
            "time",
            server.keepalive_time,
            "A ping after this long without a sign of life, at least 10 ms. 0: the default. (The \
             Collector's default is two hours.)",
        );
        server.keepalive_timeout = or_default(
            fields,
            "timeout",
            server.keepalive_timeout,
            "The connection is closed if the ping is not answered within this time, at least 10 \
             ms. 0: the default.",
        );
    });
    fields.section("enforcement_policy", "Bounds on clients' pings.", |fields| {
        fields.no_effect(
            "min_time",
            "clients may ping as often as they like: a ping costs nothing here",
        );
        fields.no_effect("permit_without_stream", "clients may always ping");
    });
}
