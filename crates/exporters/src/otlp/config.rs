use std::time::Duration;

use http::HeaderValue;
use sluice_config::Fields;
use sluice_net::client::{Balancer, ChannelOptions, Endpoint, Keepalive, Target};
use sluice_otlp::Encoding;

use crate::client_options::{
    ClientOptions, GZIP_LEVELS, ZSTD_LEVELS, check_proxy, declare_unsupported,
};

const COMPRESSIONS: [(&str, Encoding); 5] = [
    ("gzip", Encoding::Gzip),
    ("zstd", Encoding::Zstd),
    ("snappy", Encoding::Snappy),
    ("none", Encoding::Identity),
    ("", Encoding::Identity),
];

const BALANCERS: [(&str, Balancer); 3] = [
    ("round_robin", Balancer::RoundRobin),
    ("pick_first", Balancer::PickFirst),
    ("", Balancer::PickFirst),
];

const TIMEOUT: Duration = Duration::from_secs(5);

/// gRPC clients may not ping more often.
const KEEPALIVE_TIME_LEAST: Duration = Duration::from_secs(10);

/// The default limit of gRPC servers.
const REQUEST_LIMIT_BYTES: u64 = 4 * 1024 * 1024;

/// Every gRPC client asks `HTTPS_PROXY`, also without TLS: a proxy makes a tunnel either way.
pub(super) const ASKS_HTTPS_PROXY: bool = true;

#[derive(Clone)]
pub(crate) struct OtlpConfig {
    /// `host:port` with or without `http://`, `https://`, `dns:///`, or `unix:/path`.
    pub endpoint: String,
    pub compression: Encoding,
    pub client: ClientOptions,
    pub user_agent: Option<HeaderValue>,
    /// Without settings that depend on the endpoint.
    pub channel: ChannelOptions,
}

impl OtlpConfig {
    /// With the defaults for all other options. `is_packed`: with gzip.
    pub(crate) fn plain(endpoint: String, is_packed: bool, client: ClientOptions) -> OtlpConfig {
        let compression = if is_packed { Encoding::Gzip } else { Encoding::Identity };
        let channel = ChannelOptions::default();
        OtlpConfig { endpoint, compression, client, user_agent: None, channel }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> OtlpConfig {
        let doc = "The backend: `host:port`, `https://host:port` (TLS), `http://host:port` (no \
                   TLS), `dns:///host:port` or `unix:/path`.";
        let endpoint = fields.required_string("endpoint", doc);
        let parsed = Endpoint::parse(&endpoint);
        if let (Err(error), false) = (&parsed, endpoint.is_empty()) {
            fields.error_at("endpoint", &format!("cannot be used: {error}"));
            if endpoint.contains('@') {
                fields.hide("endpoint");
            }
        }
        let doc = "Compression of requests.";
        let compression = fields.choice("compression", Encoding::Gzip, &COMPRESSIONS, doc);
        let levels = match compression {
            Encoding::Gzip => GZIP_LEVELS,
            Encoding::Zstd => ZSTD_LEVELS,
            Encoding::Identity | Encoding::Snappy => None,
        };
        let mut client = ClientOptions::read(fields, TIMEOUT, levels, REQUEST_LIMIT_BYTES);
        client.read_idempotent(fields);
        let doc = "`user-agent` of requests.";
        let user_agent = fields.non_empty_string("user_agent", doc).and_then(|agent| {
            let value = HeaderValue::from_str(&agent);
            value.inspect_err(|_| fields.error_at("user_agent", "cannot be a header's value")).ok()
        });
        let doc = "`:authority` of requests, instead of the endpoint's host and port. Its host is \
                   also the name that the backend's certificate must have, unless \
                   `tls.server_name_override` is set.";
        let authority = fields.non_empty_string("authority", doc);
        let keepalive = keepalive(fields);
        let doc = "A request waits for a connection until its deadline, instead of failing when \
                   the first attempt to connect fails.";
        let wait_for_ready = fields.boolean("wait_for_ready", false, doc);
        let doc = "`round_robin` uses all addresses of the endpoint's name in turn, `pick_first` \
                   the first that works.";
        let balancer = fields.choice("balancer_name", Balancer::RoundRobin, &BALANCERS, doc);
        let connections = fields.integer("connections", 1, 1..=64, "Connections to each address.");
        declare_unsupported(fields);
        let channel = ChannelOptions {
            authority,
            connections,
            balancer,
            keepalive,
            wait_for_ready,
            ..ChannelOptions::default()
        };
        let config = OtlpConfig { endpoint, compression, client, user_agent, channel };
        if let Ok(endpoint) = parsed {
            config.check(fields, &endpoint);
        }
        config
    }

    /// Authorities ask for TLS also beside `insecure`, as in the Collector: who names them does not
    /// mean plain text.
    pub(super) fn has_tls(&self, endpoint: &Endpoint) -> bool {
        let tls = &self.client.tls;
        endpoint.tls.unwrap_or(!tls.insecure || tls.common.authorities.is_some())
    }

    /// Reports mistakes that only the endpoint shows.
    fn check(&self, fields: &mut Fields<'_>, endpoint: &Endpoint) {
        check_proxy(fields, "endpoint", &endpoint.target, ASKS_HTTPS_PROXY);
        let name = self.client.authenticator.as_deref().unwrap_or_default();
        let kind = name.split('/').next().unwrap_or_default();
        let is_open = !self.has_tls(endpoint) && !matches!(endpoint.target, Target::Unix(_));
        // The Collector lets only the headers of this one out in plain text.
        if is_open && !matches!(kind, "" | "headers_setter") {
            let message = format!(
                "sends the credentials of `{name}` without encryption: use TLS, without \
                 `tls.insecure` and without `http://` in the endpoint"
            );
            fields.warn_at("auth", &message);
        }
    }
}

fn keepalive(fields: &mut Fields<'_>) -> Option<Keepalive> {
    let doc = "HTTP/2 pings. They detect a dead backend and keep middleboxes from dropping the \
               connection.";
    fields.section("keepalive", doc, |fields| {
        let default = Duration::from_secs(10);
        let doc = "Time between two pings, at least 10 s as in every gRPC client.";
        let time = fields.duration("time", default, doc).max(KEEPALIVE_TIME_LEAST);
        let timeout = fields.duration("timeout", default, "Time limit for the answer to a ping.");
        let doc = "Send pings also while no request is in flight.";
        let permit_without_stream = fields.boolean("permit_without_stream", false, doc);
        Keepalive { time, timeout, permit_without_stream }
    })
}
