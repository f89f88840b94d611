//! `protocols.grpc`: the Collector's `configgrpc` server settings.

use std::time::Duration;

use sluice_config::Fields;
use sluice_net::server::{BodyTimeouts, Protocols, ServerOptions};

use super::{DEFAULT_LIMIT_MIB, GrpcConfig, SharedConfig, address, authenticator, include_metadata, tls};

pub(super) fn read(fields: &mut Fields<'_>) -> GrpcConfig {
    let address = address(fields, "localhost:4317");
    let tls = tls::read(fields);
    let authenticator = authenticator(fields);
    let include_metadata = include_metadata(fields);
    let limit_mib = fields.integer(
        "max_recv_msg_size_mib",
        DEFAULT_LIMIT_MIB,
        0..=2047,
        "Largest request in MiB, as sent and again after decompression. Larger ones are answered RESOURCE_EXHAUSTED. 0 means \
         the default. (The Collector's default is 4; OTLP recommends 64.)",
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
    fields.section("keepalive", "Pings, and how long connections live.", |fields| keepalive(fields, &mut server));
    fields
        .no_effect("read_buffer_size", "HTTP/2 windows bound what is read ahead: 512 KiB a stream, 2 MiB a connection");
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
        "Connections at a time. Further ones are closed as soon as they are accepted. Those of all receivers together may take an \
         eighth of the memory limit, which `sluice plan` shows. (Sluice's own option.)",
    )
}

fn keepalive(fields: &mut Fields<'_>, server: &mut ServerOptions) {
    fields.section("server_parameters", "As in gRPC's Go library.", |fields| {
        let any = Duration::from_millis(1)..=Duration::MAX;
        server.max_connection_idle = fields.optional_duration(
            "max_connection_idle",
            any.clone(),
            "A connection without a request for this long is asked to go. Without it, never.",
        );
        server.max_connection_age = fields.optional_duration(
            "max_connection_age",
            any.clone(),
            "A connection is asked to go at this age ± 10 %, so that clients behind a load balancer spread. Without it, never.",
        );
        server.max_connection_age_grace = fields.optional_duration(
            "max_connection_age_grace",
            any.clone(),
            "What a connection that was asked to go may still take before it is cut off. Without it, forever.",
        );
        server.keepalive_time = fields.duration_in(
            "time",
            server.keepalive_time,
            Duration::from_millis(10)..=Duration::MAX,
            "A ping after this long without a sign of life. (The Collector's default is two hours.)",
        );
        server.keepalive_timeout = fields.duration_in(
            "timeout",
            server.keepalive_timeout,
            Duration::from_millis(10)..=Duration::MAX,
            "The connection is closed if the ping is not answered within this time.",
        );
    });
    fields.section("enforcement_policy", "Bounds on clients' pings.", |fields| {
        fields.no_effect("min_time", "clients may ping as often as they like: a ping costs nothing here");
        fields.no_effect("permit_without_stream", "clients may always ping");
    });
}
