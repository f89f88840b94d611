//! `protocols.grpc`: the Collector's `configgrpc` server settings.

use sluice_config::Fields;
use sluice_net::server::config::{address, or_default, or_never};
use sluice_net::server::{Protocols, ServerOptions};

use super::{DEFAULT_LIMIT_BYTES, SharedConfig};

pub(super) fn read(fields: &mut Fields<'_>) -> SharedConfig {
    let address = address(fields, "localhost:4317");
    let mut config = SharedConfig::read(fields, address, Protocols::Http2);
    let doc = "Largest request in MiB, before and after decompression. Larger ones are answered \
               RESOURCE_EXHAUSTED. 0 means the default. (The Collector's default is 4; OTLP \
               recommends 64.)";
    let limit_mib =
        fields.integer("max_recv_msg_size_mib", DEFAULT_LIMIT_BYTES >> 20, 0..=2047, doc);
    if limit_mib > 0 {
        config.limit_bytes = limit_mib << 20;
    }
    let doc = "Maximum number of requests in flight on one connection. While there are many \
               connections, new ones may have fewer, down to 16. 0 means the default.";
    let default = u64::from(config.server.max_concurrent_streams);
    let most = u64::from(u32::MAX);
    let streams = fields.integer("max_concurrent_streams", default, 0..=most, doc);
    if streams > 0 {
        config.server.max_concurrent_streams = streams as u32;
    }
    config.read_connections(fields);
    let doc = "Pings, and the lifetime of connections.";
    fields.section("keepalive", doc, |fields| keepalive(fields, &mut config.server));
    fields.no_effect(
        "read_buffer_size",
        "HTTP/2 windows limit the data that is read ahead: 512 KiB a stream, at most 2 MiB a \
         connection",
    );
    fields.no_effect("write_buffer_size", "answers are a few bytes");
    fields.not_yet("middlewares", "middleware extensions");
    config
}

fn keepalive(fields: &mut Fields<'_>, server: &mut ServerOptions) {
    fields.section("server_parameters", "As in gRPC's Go library.", |fields| {
        let doc = "A connection without a request for this long is asked to close (GOAWAY). 0 or \
                   unset: never.";
        server.max_connection_idle = or_never(fields, "max_connection_idle", doc);
        let doc = "A connection of this age, ± 10 %, is asked to close, so that a load balancer \
                   distributes clients anew. 0 or unset: never.";
        server.max_connection_age = or_never(fields, "max_connection_age", doc);
        let doc = "Time for the requests in flight after a connection was asked to close. Then it \
                   is closed. 0 or unset: no limit.";
        server.max_connection_age_grace = or_never(fields, "max_connection_age_grace", doc);
        let doc = "A ping is sent if nothing arrives for this long, at least 10 ms. 0: the \
                   default. (The Collector's default is two hours.)";
        server.keepalive_time = or_default(fields, "time", server.keepalive_time, doc);
        let doc = "The connection is closed if the ping is not answered within this time, at least \
                   10 ms. 0: the default.";
        server.keepalive_timeout = or_default(fields, "timeout", server.keepalive_timeout, doc);
    });
    fields.section("enforcement_policy", "Bounds on clients' pings.", |fields| {
        let why = "clients may ping as often as they like: a ping costs nothing here";
        fields.no_effect("min_time", why);
        fields.no_effect("permit_without_stream", "clients may always ping");
    });
}
