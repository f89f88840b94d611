//! Reads a subject's own metrics: counters and gauges in Prometheus' text format.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Deserializer;
use tokio::time::timeout;

/// A longer body is an error.
const BODY_LIMIT_BYTES: usize = 16 << 20;
pub(crate) const SCRAPE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    pub samples: Vec<Sample>,
}

impl Scrape {
    /// Reads `http://ADDR` and this path, for instance `/metrics`.
    pub async fn fetch(addr: SocketAddr, path: &str) -> anyhow::Result<Scrape> {
        let url = format!("http://{addr}{path}");
        let answer = http_get(&url, SCRAPE_WITHIN).await;
        let (status, body) = answer.map_err(|reason| anyhow!("{url}: {reason}"))?;
        ensure!(status == StatusCode::OK, "{url} answers {status}");
        Ok(Scrape::parse(&String::from_utf8_lossy(&body)))
    }

    /// Reads a page and skips lines that are no samples.
    pub fn parse(page: &str) -> Scrape {
        Scrape { samples: page.lines().filter_map(parse_line).collect() }
    }

    /// The sum of all samples with this name (with or without `_total`) and these labels, if any.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let base = name.strip_suffix("_total").unwrap_or(name);
        let matching = self.samples.iter().filter(|sample| {
            let has = |(name, value): &(&str, &str)| {
                sample.labels.iter().any(|(n, v)| n == name && v == value)
            };
            sample.name.strip_suffix("_total").unwrap_or(&sample.name) == base
                && labels.iter().all(has)
        });
        matching.map(|sample| sample.value).reduce(|sum, value| sum + value)
    }
}

fn parse_line(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.split_at(line.find(['{', ' ', '\t'])?);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => parse_labels(inside)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// Reads `a="b",c="d"}`: the labels, and what follows.
pub(crate) fn parse_labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, quoted) = rest.split_once('=')?;
        // Label values are escaped as in JSON.
        let mut values = Deserializer::from_str(quoted).into_iter();
        labels.push((name.trim().to_owned(), values.next()?.ok()?));
        rest = quoted[values.byte_offset()..].trim_start();
        rest = rest.strip_prefix(',').or(rest.starts_with('}').then_some(rest))?;
    }
}

/// GET over HTTP/1.1 without TLS: the status and the body. The connection is closed afterwards.
pub(crate) async fn http_get(url: &str, within: Duration) -> anyhow::Result<(StatusCode, Bytes)> {
    http_request(Method::GET, url, within).await
}

/// The same for a request of this method, which has no body.
pub(crate) async fn http_request(
    method: Method,
    url: &str,
    within: Duration,
) -> anyhow::Result<(StatusCode, Bytes)> {
    let exchange = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let request = Request::builder().method(method).uri(url).body(Empty::new())?;
        let (head, body) = client.request(request).await?.into_parts();
        let body = Limited::new(body, BODY_LIMIT_BYTES).collect().await;
        anyhow::Ok((head.status, body.map_err(|error| anyhow!(error))?.to_bytes()))
    };
    let answer = timeout(within, exchange).await;
    let answer = answer.unwrap_or_else(|_| bail!("no answer within {} s", within.as_secs()));
    // Clients wrap an error several times; the innermost says what happened.
    answer.map_err(|error| anyhow!("{}", error.root_cause()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP otelcol_exporter_queue_size Current size of the retry queue (in batches)
# TYPE otelcol_exporter_queue_size gauge
otelcol_exporter_queue_size{exporter="otlp/dead",service_name="a \"b\" \\ c,}d"} 512
otelcol_exporter_queue_size{data_type="traces",exporter="otlp/healthy"} 3 1700000000000
otelcol_receiver_accepted_spans_total{receiver="otlp",transport="grpc"} 1e+06
otelcol_receiver_accepted_spans_total{receiver="otlp",transport="http"} 5
otelcol_process_uptime 12.5
broken{a="b
"#;

    #[test]
    fn samples_are_found_by_name_and_label_with_or_without_the_suffix() {
        let scrape = Scrape::parse(PAGE);
        assert_eq!(scrape.samples.len(), 5);
        assert_eq!(scrape.samples[0].labels[1].1, "a \"b\" \\ c,}d");
        assert_eq!(
            scrape.sum("otelcol_exporter_queue_size", &[("exporter", "otlp/dead")]),
            Some(512.0)
        );
        assert_eq!(scrape.sum("otelcol_exporter_queue_size", &[]), Some(515.0));
        for name in ["otelcol_receiver_accepted_spans", "otelcol_receiver_accepted_spans_total"] {
            assert_eq!(scrape.sum(name, &[("receiver", "otlp")]), Some(1_000_005.0));
        }
        assert_eq!(scrape.sum("otelcol_process_uptime", &[]), Some(12.5));
        assert_eq!(scrape.sum("otelcol_exporter_queue_size", &[("exporter", "otlp/other")]), None);
    }
}
