//! Reads a subject's own metrics: counters and gauges in Prometheus' text format.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use http::StatusCode;

use crate::http_get;

/// A page of metrics longer than this is not read.
const PAGE_LIMIT_BYTES: usize = 16 << 20;
const SCRAPE_WITHIN: Duration = Duration::from_secs(5);

/// One line of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// All samples of one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scrape {
    pub samples: Vec<Sample>,
}

impl Scrape {
    /// Reads `http://ADDR/metrics`.
    pub async fn fetch(addr: SocketAddr) -> anyhow::Result<Scrape> {
        Scrape::fetch_from(addr, "/metrics").await
    }

    /// Reads `http://ADDR` and this path.
    pub(crate) async fn fetch_from(addr: SocketAddr, path: &str) -> anyhow::Result<Scrape> {
        let answer = get(addr, path).await;
        let (status, body) = answer.map_err(|reason| anyhow!("{addr}{path}: {reason}"))?;
        ensure!(status == StatusCode::OK, "{addr}{path} answers {status}");
        Ok(Scrape::parse(&String::from_utf8_lossy(&body)))
    }

    /// Reads a page and skips lines that are no samples.
    pub fn parse(page: &str) -> Scrape {
        Scrape { samples: page.lines().filter_map(parse_line).collect() }
    }

    /// The sum of the samples that have this name, with or without `_total`, and these labels.
    /// `None`: there are none.
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

/// Whether GET is answered with 200.
pub(crate) async fn get_ok(addr: SocketAddr, path: &str) -> bool {
    matches!(get(addr, path).await, Ok((StatusCode::OK, _)))
}

async fn get(addr: SocketAddr, path: &str) -> Result<(StatusCode, Bytes), String> {
    http_get::get(&format!("http://{addr}{path}"), PAGE_LIMIT_BYTES, SCRAPE_WITHIN).await
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
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = quoted.char_indices();
        rest = loop {
            match characters.next()? {
                (at, '"') => break quoted[at + 1..].trim_start(),
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    escaped => escaped,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.trim().to_owned(), value));
        rest = rest.strip_prefix(',').or(rest.starts_with('}').then_some(rest))?;
    }
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
