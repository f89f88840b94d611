//! Figures through PromQL: the Kyma load test's queries to a Prometheus that scrapes the subject.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::definition::{Metrics, Selector};
use crate::prometheus::{PrometheusUrl, Series};
use crate::report::{Kpis, PrometheusReading, Query, Warning};

/// Port at which subjects serve metrics for a Prometheus by default: the Collector's own.
pub const METRICS_PORT: u16 = 8888;
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time until the scrapes of the load's end are in the database.
const SETTLE: Duration = Duration::from_secs(1);
/// Suffixes that a subject may append to a name.
const SUFFIXES: &str = "(_bytes|_seconds)?(_total)?";
/// With fewer scrapes under load, rates are coarse.
const ENOUGH_SCRAPES: u64 = 5;

/// The Prometheus that gives the figures.
#[derive(Clone, Debug)]
pub struct PrometheusPlan {
    pub url: PrometheusUrl,
    /// Label matchers of the subject's series, without braces; `None`: by its `instance`'s port.
    pub selector: Option<String>,
    /// The longest wait for the first scrape of a subject.
    pub within: Duration,
}

/// Name of a figure, its series, the query around them, and the place of the value.
type Question<'a> =
    (&'static str, &'a Option<Selector>, fn(&str, &str) -> String, fn(&mut Kpis, Option<f64>));

impl PrometheusPlan {
    /// Checks that a Prometheus answers, before anything starts.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        self.url.query("vector(1)", unix_s()).await.map(drop)
    }

    fn matchers(&self, metrics: SocketAddr) -> String {
        self.selector.clone().unwrap_or_else(|| format!("instance=~\".+:{}\"", metrics.port()))
    }

    pub(super) async fn wait_until_scraped(&self, metrics: SocketAddr) -> anyhow::Result<()> {
        let (began, began_unix_s) = (Instant::now(), unix_s());
        let (url, selector) = (&self.url, self.matchers(metrics));
        loop {
            let now = unix_s();
            let up = url.query(&format!("up{{{selector}}}"), now).await?;
            if up.len() > 1 {
                let instance = |one: &Series| one.labels.get("instance").cloned();
                let instances = up.iter().map(|one| instance(one).unwrap_or("?".to_owned()));
                let instances = instances.collect::<Vec<_>>().join(", ");
                bail!(
                    "{url} has {} targets with {selector} ({instances}): say with \
                     --prometheus-selector which is the subject",
                    up.len()
                );
            }
            // The value of a subject that has ended stays for a while.
            let scraped_at = url.query(&format!("timestamp(up{{{selector}}})"), now).await?;
            let is_new = scraped_at.first().is_some_and(|series| series.value >= began_unix_s);
            if is_new && up.first().is_some_and(|series| series.value == 1.0) {
                return Ok(());
            }
            if began.elapsed() >= self.within {
                bail!(
                    "{url} has not scraped the subject at {metrics} within {} s \
                     (`up{{{selector}}}` is not 1): add `targets: ['{metrics}']` to its \
                     scrape_configs, or say with --prometheus-selector which series are the \
                     subject's, or allow it more time with --prometheus-within",
                    self.within.as_secs()
                );
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Replaces the subject's own figures by those of Prometheus, for a load that ended at this
    /// time. A figure without a value becomes unknown: no other source stands in for it.
    pub(super) async fn replace(
        &self,
        kpis: &mut Kpis,
        metrics: SocketAddr,
        selectors: &Metrics,
        load_s: f64,
        ended_unix_s: f64,
    ) -> (PrometheusReading, Vec<Warning>) {
        let rest = ended_unix_s + SETTLE.as_secs_f64() - unix_s();
        tokio::time::sleep(Duration::from_secs_f64(rest.clamp(0.0, SETTLE.as_secs_f64()))).await;
        let window_s = load_s.round().max(1.0);
        let (range, matchers) = (format!("{window_s}s"), self.matchers(metrics));
        let url = self.url.to_string();
        let mut reading = PrometheusReading { url, window_s, ..PrometheusReading::default() };
        // After the first failure no query is sent any more.
        let mut failure = None;
        let mut ask = async |promql: &str| {
            if failure.is_some() {
                return None;
            }
            let answer = self.url.query(promql, ended_unix_s).await;
            answer.map_err(|error| failure = Some(error)).ok()?.first().map(|series| series.value)
        };
        for (figure, selector, promql, put) in questions(selectors) {
            let mut value = None;
            if let Some(selector) = selector {
                let promql = promql(&selector.promql(&matchers), &range);
                value = ask(&promql).await;
                reading.queries.push(Query { figure: figure.to_owned(), promql, value });
            }
            put(kpis, value);
        }
        let scrapes = format!("sum(count_over_time(up{{{matchers}}}[{range}]))");
        reading.scrapes = ask(&scrapes).await.unwrap_or(0.0) as u64;
        let warnings = failure.map_or_else(
            || doubts(&reading),
            |error| vec![Warning::new(format!("{error}: what was asked for is not known"), "")],
        );
        (reading, warnings)
    }
}

/// The queries of the Kyma load test. A figure that the subject does not report has no query.
fn questions(names: &Metrics) -> [Question<'_>; 9] {
    let rate = |series: &str, window: &str| format!("sum(rate({series}[{window}]))");
    let now = |series: &str, _: &str| format!("avg(sum({series}))");
    let mean = |series: &str, window: &str| format!("sum(avg_over_time({series}[{window}]))");
    let resets = |series: &str, window: &str| format!("sum(resets({series}[{window}]))");
    [
        ("received/s", &names.received, rate, |kpis, value| kpis.received_per_s = value),
        ("exported/s", &names.exported, rate, |kpis, value| kpis.exported_per_s = value),
        ("queue", &names.queue, now, |kpis, value| kpis.queue = value),
        ("received bytes/s", &names.received_bytes, rate, |kpis, value| {
            kpis.received_bytes_per_s = value
        }),
        ("exported bytes/s", &names.exported_bytes, rate, |kpis, value| {
            kpis.exported_bytes_per_s = value
        }),
        ("buffer bytes", &names.buffer_bytes, now, |kpis, value| kpis.buffer_bytes = value),
        ("memory bytes", &names.memory_bytes, mean, |kpis, value| kpis.memory_bytes = value),
        ("CPU cores", &names.cpu_seconds, rate, |kpis, value| kpis.cpu_cores = value),
        ("restarts", &names.uptime_s, resets, |kpis, value| {
            kpis.restarts = value.map(|count| count as u64);
        }),
    ]
}

impl Selector {
    /// With and without the suffixes of units and counters, as the exposition has it.
    fn promql(&self, matchers: &str) -> String {
        let base = self.name.strip_suffix("_total").unwrap_or(&self.name);
        let mut all = vec![format!("__name__=~\"{base}{SUFFIXES}\"")];
        all.extend(self.labels.iter().map(|(label, value)| {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            format!("{label}=\"{escaped}\"")
        }));
        all.push(matchers.to_owned());
        format!("{{{}}}", all.join(","))
    }
}

fn doubts(reading: &PrometheusReading) -> Vec<Warning> {
    let PrometheusReading { url, window_s, scrapes, queries } = reading;
    let few = format!(
        "Prometheus scraped it {scrapes} times in the {window_s} s of the load: rates are coarse \
         or not known"
    );
    let longer = "lengthen the load with -d, or set a shorter scrape_interval";
    let unknown: Vec<&str> = queries
        .iter()
        .filter(|query| query.value.is_none())
        .map(|query| query.figure.as_str())
        .collect();
    let none = format!("{url} has no series for {}: they are not known", unknown.join(", "));
    let look = "see the queries in the record (--json), and --prometheus-selector";
    let few = (*scrapes < ENOUGH_SCRAPES).then(|| Warning::new(few, longer));
    few.into_iter().chain((!unknown.is_empty()).then(|| Warning::new(none, look))).collect()
}

pub(super) fn unix_s() -> f64 {
    crate::unix_ns() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selectors() -> Metrics {
        let selector = |name: &str| Some(Selector { name: name.to_owned(), ..Selector::default() });
        let labels = vec![("service".to_owned(), "a\"b".to_owned())];
        Metrics {
            received: selector("otelcol_receiver_accepted_spans_total"),
            queue: Some(Selector { labels, ..selector("otelcol_exporter_queue_size").unwrap() }),
            uptime_s: selector("otelcol_process_uptime"),
            ..Metrics::default()
        }
    }

    #[test]
    fn queries_are_those_of_the_kyma_load_test_with_a_window_as_long_as_the_load() {
        let plan = PrometheusPlan {
            url: "http://a:9090".parse().unwrap(),
            selector: None,
            within: Duration::from_secs(1),
        };
        let matchers = plan.matchers("127.0.0.1:8888".parse().unwrap());
        let selectors = selectors();
        let asked: Vec<_> = questions(&selectors)
            .into_iter()
            .filter_map(|(figure, selector, promql, _)| {
                Some((figure, promql(&selector.as_ref()?.promql(&matchers), "1200s")))
            })
            .collect();
        let all = "instance=~\".+:8888\"";
        assert_eq!(
            asked,
            [
                (
                    "received/s",
                    format!(
                        "sum(rate({{__name__=~\"otelcol_receiver_accepted_spans(_bytes|_seconds)?(_total)?\",{all}}}[1200s]))"
                    )
                ),
                (
                    "queue",
                    format!(
                        "avg(sum({{__name__=~\"otelcol_exporter_queue_size(_bytes|_seconds)?(_total)?\",service=\"a\\\"b\",{all}}}))"
                    )
                ),
                (
                    "restarts",
                    format!(
                        "sum(resets({{__name__=~\"otelcol_process_uptime(_bytes|_seconds)?(_total)?\",{all}}}[1200s]))"
                    )
                ),
            ]
        );
    }

    #[test]
    fn few_scrapes_and_unknown_figures_are_doubted_and_nothing_else() {
        let query =
            |figure: &str, value| Query { figure: figure.to_owned(), promql: String::new(), value };
        let mut reading = PrometheusReading {
            url: "http://a:9090".to_owned(),
            window_s: 8.0,
            scrapes: 8,
            queries: vec![query("received/s", Some(1.0)), query("queue", Some(0.0))],
        };
        assert_eq!(doubts(&reading), []);
        reading.scrapes = 1;
        reading.queries[1].value = None;
        let told: Vec<String> = doubts(&reading).into_iter().map(|doubt| doubt.message).collect();
        assert!(
            told[0].contains("1 times in the 8 s") && told[1].contains("no series for queue"),
            "{told:?}"
        );
    }
}
