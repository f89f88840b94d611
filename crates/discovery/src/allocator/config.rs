//! The options of `target_allocator`.

use std::time::Duration;

use http::HeaderValue;
use sluice_config::{Fields, Secret};
use sluice_net::client::{Origin, read_headers};
use sluice_net::tls::ClientTlsOptions;

use crate::http_config::{Credentials, HttpConfig, ProxyConfig, SecretSource};
use crate::scrape_config::duration;

const INTERVAL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(30);
const TARGETS_INTERVAL: Duration = Duration::from_secs(30);

/// A target allocator of the OpenTelemetry operator, which divides jobs' targets among collectors.
#[derive(Clone, Debug)]
pub struct AllocatorConfig {
    /// Without a slash at its end.
    pub endpoint: String,
    /// Between two looks at the jobs.
    pub interval: Duration,
    pub timeout: Duration,
    pub collector_id: String,
    /// For the jobs.
    pub(super) http: HttpConfig,
    /// For the targets of each job.
    pub(super) targets: HttpConfig,
    pub(super) targets_interval: Duration,
    /// For scrapes, instead of what the jobs say.
    pub(super) scrapes: Option<HttpConfig>,
}

impl AllocatorConfig {
    /// Reads the section `target_allocator`.
    pub fn read(fields: &mut Fields<'_>) -> AllocatorConfig {
        let doc = "URL of the target allocator.";
        let endpoint = fields.required_string("endpoint", doc);
        if !endpoint.is_empty()
            && let Err(reason) = Origin::of(&endpoint)
        {
            fields.error_at("endpoint", &format!("cannot be used: {reason}"));
        }
        let doc = "Time from one look at the jobs to the next.";
        let range = Duration::from_millis(1)..=Duration::MAX;
        let interval = fields.duration_in("interval", INTERVAL, range, doc);
        let doc = "Which collector we are, as the allocator knows us: a pod's name.";
        let collector_id = fields.required_string("collector_id", doc);
        let doc = "Time limit for one request. 0: 30s.";
        let timeout = fields.duration("timeout", TIMEOUT, doc);
        let tls = ClientTlsOptions::read(fields);
        let headers = read_headers(fields);
        let proxy = fields.secret("proxy_url", "Proxy for requests to the allocator.");
        let proxy = ProxyConfig::of(fields, proxy);
        let doc = "How the targets of each job are asked for.";
        let (targets, targets_interval) =
            fields.section_or_default("http_sd_config", doc, |fields| {
                let http = HttpConfig::read(fields);
                if matches!(http.credentials, Some(Credentials::OAuth2(_))) {
                    let message = "is not in this build of Sluice for service discovery";
                    fields.error_at("oauth2", message);
                }
                fields.no_effect("url", "it is that of the target allocator");
                let doc = "Time from one look at a job's targets to the next.";
                let interval = duration(fields, "refresh_interval", Some(TARGETS_INTERVAL), doc);
                (http, interval.unwrap_or(TARGETS_INTERVAL))
            });
        let doc = "How targets are scraped, instead of what the allocator's jobs say.";
        let scrapes = fields.section_unless_empty("http_scrape_config", doc, HttpConfig::read);
        fields.not_yet("auth", "authentication at the target allocator by an extension");
        fields.not_yet("middlewares", "middleware extensions");
        let one = "one connection is kept";
        for key in [
            "max_idle_conns",
            "max_idle_conns_per_host",
            "max_conns_per_host",
            "idle_conn_timeout",
            "disable_keep_alives",
            "force_attempt_http2",
            "http2_read_idle_timeout",
            "http2_ping_timeout",
            "read_buffer_size",
            "write_buffer_size",
            "cookies",
        ] {
            fields.no_effect(key, one);
        }
        fields.no_effect("compression", "requests have no body");
        fields.no_effect("compression_params", "requests have no body");

        let secret = |value: &HeaderValue| {
            let text = value.to_str().unwrap_or_default();
            SecretSource::Inline(Secret::new(text))
        };
        let headers = headers.iter().map(|(name, value)| (name.clone(), secret(value)));
        let http = HttpConfig {
            tls: tls.clone(),
            proxy: proxy.clone(),
            headers: headers.collect(),
            ..HttpConfig::default()
        };
        AllocatorConfig {
            endpoint: endpoint.trim_end_matches('/').to_owned(),
            interval,
            timeout: if timeout.is_zero() { TIMEOUT } else { timeout },
            collector_id,
            http,
            targets: HttpConfig { tls, proxy, ..targets },
            targets_interval,
            scrapes,
        }
    }
}
