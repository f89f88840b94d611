//! Figures through PromQL: `--prometheus`, and the address of the subjects' metrics.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use sluice_load_test::PrometheusUrl;
use sluice_load_test::run::{METRICS_PORT, PrometheusPlan};

use crate::values::seconds;

#[derive(Debug, Args)]
pub(super) struct PrometheusArguments {
    /// Take rates, queue, memory, CPU and restarts from this Prometheus, which scrapes the subject
    /// at --metrics-listen
    #[arg(long, value_name = "URL", long_help = PROMETHEUS_HELP)]
    prometheus: Option<PrometheusUrl>,
    /// Label matchers that select the subject's series in Prometheus, for instance 'job="gateway"'
    /// [default: by the port]
    #[arg(long, value_name = "MATCHERS", requires = "prometheus", value_parser = matchers)]
    prometheus_selector: Option<String>,
    /// Time limit for Prometheus to scrape a subject that has started [default: 75]
    #[arg(long, value_name = "SECONDS", requires = "prometheus", value_parser = seconds)]
    prometheus_within: Option<Duration>,
    /// Address at which every subject serves its metrics [default: a free port; with --prometheus
    /// 8888]
    #[arg(long, value_name = "[IP:]PORT", value_parser = address)]
    metrics_listen: Option<SocketAddr>,
}

const PROMETHEUS_HELP: &str = "\
Take received/s, exported/s, queue, memory, CPU and restarts from this Prometheus by the queries \
of the Kyma load \
test, with a rate window as \
long as the load. It has to scrape the subject, which serves its metrics at --metrics-listen:

  scrape_configs:
    - job_name: load-test
      scrape_interval: 1s
      static_configs: [{targets: ['127.0.0.1:8888']}]";

impl PrometheusArguments {
    pub(super) fn plan(&self) -> Option<PrometheusPlan> {
        let url = self.prometheus.clone()?;
        let within = self.prometheus_within.unwrap_or(Duration::from_secs(75));
        Some(PrometheusPlan { url, selector: self.prometheus_selector.clone(), within })
    }

    /// `None`: any free port.
    pub(super) fn metrics_listen(&self) -> Option<SocketAddr> {
        let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT));
        self.metrics_listen.or(self.prometheus.as_ref().map(|_| usual))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().ok().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let address = port.or_else(|| text.parse().ok()).filter(|address| address.port() > 0);
    address.ok_or_else(|| {
        "give a port, or an IP address and a port, for instance 8888 or 0.0.0.0:8888".to_owned()
    })
}

/// Refuses only what would change the query around the matchers. Prometheus checks the rest.
fn matchers(text: &str) -> Result<String, String> {
    let text = text.trim().trim_start_matches('{').trim_end_matches('}').trim();
    if text.contains('=') && !text.contains(['{', '}']) {
        Ok(text.to_owned())
    } else {
        Err("give label matchers, for instance 'job=\"gateway\",pod=~\"a.*\"'".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_of_the_loopback_interface() {
        assert_eq!(address("8888").unwrap(), "127.0.0.1:8888".parse().unwrap());
        assert_eq!(address("0.0.0.0:9000").unwrap(), "0.0.0.0:9000".parse().unwrap());
        for text in ["0", "0.0.0.0:0", "70000", "localhost:1", ""] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn matchers_may_have_their_braces_and_nothing_beyond() {
        assert_eq!(matchers("{job=\"a\"}").unwrap(), "job=\"a\"");
        assert!(matchers("job").is_err() && matchers("a=\"b\"} or {c=\"d\"").is_err());
    }
}
