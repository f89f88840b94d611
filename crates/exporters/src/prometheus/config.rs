use std::time::Duration;

use sluice_config::Fields;
use sluice_net::server::config::{address, answers, authenticator, or_default};
use sluice_net::server::{Address, Answers, Protocols, ServerOptions};
use sluice_net::tls::TlsOptions;
use sluice_prometheus::Settings;

use crate::sending::Sending;
use crate::translation;

/// Connections of scrapers. The one that is idle or slow longest makes room for another.
pub(super) const PLACES: usize = 32;
const EXPIRATION: Duration = Duration::from_secs(5 * 60);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Clone, Debug)]
pub(super) struct PrometheusConfig {
    pub address: Address,
    pub tls: Option<TlsOptions>,
    pub authenticator: Option<String>,
    pub server: ServerOptions,
    pub answers: Answers,
    pub settings: Settings,
    pub send_timestamps: bool,
    pub open_metrics: bool,
    pub expiration: Duration,
    pub max_series: usize,
    pub sending: Sending,
}

impl PrometheusConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> PrometheusConfig {
        let address = address(fields, "");
        let doc = "TLS. Unset: connections are not encrypted.";
        let tls = fields.section_unless_empty("tls", doc, TlsOptions::read_server);
        let doc = "Authentication of scrapers. Unset: every client that can connect may scrape.";
        let authenticator = authenticator(fields, doc);
        let mut server = ServerOptions {
            max_connections: PLACES,
            evicted_after: Duration::ZERO,
            if_crowded: "this port takes 32 connections: let only its scrapers reach it",
            ..ServerOptions::new(Protocols::Http1AndHttp2)
        };
        let doc = "Time limit for the headers of a request to arrive, from their first byte. 0 \
                   means the default.";
        server.read_header_timeout =
            or_default(fields, "read_header_timeout", server.read_header_timeout, doc);
        let doc = "A connection whose peer takes no byte of an answer for this long is closed. 0 \
                   means the default.";
        server.write_timeout = or_default(fields, "write_timeout", server.write_timeout, doc);
        let answers = answers(fields, &mut server);
        for key in ["read_timeout", "max_request_body_size", "compression_algorithms"] {
            fields.no_effect(key, "scrapes have no body");
        }
        fields.no_effect("include_metadata", "scrapes carry no telemetry");
        fields.not_yet("middlewares", "middleware extensions");
        let settings = read_settings(fields);
        let doc = "Write the times of points. If false, a scraper takes them as of its scrape.";
        let send_timestamps = fields.boolean("send_timestamps", false, doc);
        let doc = "Offer OpenMetrics, which has exemplars in text.";
        let open_metrics = fields.boolean("enable_open_metrics", false, doc);
        let doc = "A series that got no point for this long is no longer on the page.";
        let range = Duration::from_millis(1)..=LONGEST;
        let expiration = fields.duration_in("metric_expiration", EXPIRATION, range, doc);
        let doc = "Points of more series than this are rejected and counted; a histogram is one \
                   series. 0: as many as memory allows, of which an equal part of the memory limit \
                   is kept; `sluice plan` shows it. (Sluice's own option.)";
        let max_series = match fields.integer("max_series", 0, 0..=u64::from(u32::MAX), doc) {
            0 => usize::MAX,
            most => most as usize,
        };
        // Points of a series come in the order of their times.
        let sending = Sending { in_order: true, ..Sending::read_queue(fields) };
        PrometheusConfig {
            address,
            tls,
            authenticator,
            server,
            answers,
            settings,
            send_timestamps,
            open_metrics,
            expiration,
            max_series,
            sending,
        }
    }
}

fn read_settings(fields: &mut Fields<'_>) -> Settings {
    let namespace = translation::namespace(fields);
    let strategy = translation::strategy(fields);
    let doc = "Labels of every series that has none of the same name.";
    let external_labels = translation::labels(fields, "const_labels", strategy, doc);
    let resource_labels = translation::resource_labels(fields);
    let doc = "Leave out the labels `otel_scope_…`.";
    let scope_info = !fields.boolean("without_scope_info", false, doc);
    Settings {
        namespace,
        strategy,
        external_labels,
        resource_labels,
        target_external_labels: false,
        scope_info,
        scope_schema_url: true,
        ..Settings::default()
    }
}
