//! k6's summary at the end of a test, in the three forms that it has.
//!
//! | form | written by |
//! |---|---|
//! | `metrics` by name, figures beside each other | `--summary-export` |
//! | `metrics` by name, with `type` and `values` | the data of `handleSummary` |
//! | `results.metrics`, a list, with `checks` apart | `--new-machine-readable-summary`, in both |

use anyhow::{Result, bail};
use serde_json::{Map, Value};

/// A summary's figures of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Told {
    /// A counter: the sum of its samples.
    Sum(f64),
    /// A rate or a trend: the number of its samples.
    Count(f64),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Expected {
    pub measurement: String,
    pub told: Told,
}

/// A metric that is not compared, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skipped {
    pub metric: String,
    pub why: &'static str,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    /// By name.
    pub expected: Vec<Expected>,
    pub skipped: Vec<Skipped>,
}

const PART: &str = "a part of another metric: give its tags with --tag to count such points";
const GAUGE: &str = "a gauge: a summary has no number of its samples";
const TREND: &str = "a trend without `count`: run k6 with --summary-trend-stats 'count,avg,p(95)', \
    and without --new-machine-readable-summary";
const UNKNOWN: &str = "of a type that is not known";

impl Summary {
    /// # Errors
    /// The text is no JSON, or none of the forms of a summary, and which one it may be.
    pub(super) fn parse(text: &[u8]) -> Result<Summary> {
        let json: Value = serde_json::from_slice(text)
            .map_err(|error| anyhow::anyhow!("it is no JSON: {error}"))?;
        let mut summary = Summary::default();
        if let Some(Value::Array(metrics)) = json.pointer("/results/metrics") {
            for metric in metrics {
                let name = metric["name"].as_str().unwrap_or_default();
                summary.add(name, &metric["values"], metric["type"].as_str());
            }
            summary.add_checks(&json["results"]["checks"]["metrics"]);
        } else if let Some(Value::Object(metrics)) = json.get("metrics") {
            for (name, metric) in metrics {
                match metric.get("values") {
                    Some(values) => summary.add(name, values, metric["type"].as_str()),
                    None => summary.add(name, metric, None),
                }
            }
        } else if json["type"].is_string() && json["metric"].is_string() {
            bail!(
                "it has samples, as of `--out json`: a summary comes from `--summary-export FILE`"
            );
        } else {
            bail!(
                "it has neither `metrics` nor `results.metrics`: see `k6 run --summary-export FILE`"
            );
        }
        if summary.expected.is_empty() {
            bail!("it has no metric with a sum or a number of samples");
        }
        summary.expected.sort_by(|one, other| one.measurement.cmp(&other.measurement));
        summary.skipped.sort_by(|one, other| one.metric.cmp(&other.metric));
        Ok(summary)
    }

    fn add(&mut self, name: &str, values: &Value, kind: Option<&str>) {
        let told = match values {
            _ if name.contains('{') => Err(PART),
            Value::Object(values) => told(values, kind),
            _ => Err(UNKNOWN),
        };
        match told {
            Ok(told) => self.expected.push(Expected { measurement: name.to_owned(), told }),
            Err(why) => self.skipped.push(Skipped { metric: name.to_owned(), why }),
        }
    }

    /// The newest form has the rate of checks as three metrics that k6 itself has not.
    fn add_checks(&mut self, metrics: &Value) {
        let mut metrics = metrics.as_array().into_iter().flatten();
        let total = metrics.rfind(|metric| metric["name"] == "checks_total");
        if let Some(count) = total.and_then(|metric| metric["values"]["count"].as_f64()) {
            let measurement = "checks".to_owned();
            self.expected.push(Expected { measurement, told: Told::Count(count) });
        }
    }
}

/// `kind`: as written; without it, the figures tell.
fn told(values: &Map<String, Value>, kind: Option<&str>) -> Result<Told, &'static str> {
    let number = |key: &str| values.get(key).and_then(Value::as_f64);
    let kind = kind.unwrap_or_else(|| match () {
        () if values.contains_key("passes") => "rate",
        () if values.contains_key("count") && values.contains_key("rate") => "counter",
        () if values.contains_key("value") => "gauge",
        // Which figures a trend has is an option of k6.
        () => "trend",
    });
    match kind {
        "counter" => number("count").map(Told::Sum).ok_or(UNKNOWN),
        "rate" => {
            let both = number("passes").zip(number("fails")).map(|(passes, fails)| passes + fails);
            number("total").or(both).map(Told::Count).ok_or(UNKNOWN)
        }
        "trend" => number("count").map(Told::Count).ok_or(TREND),
        "gauge" => Err(GAUGE),
        _ => Err(UNKNOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"{"root_group": {"name": ""}, "metrics": {
        "http_reqs": {"rate": 1367.6, "count": 20},
        "http_reqs{status:204}": {"count": 0, "rate": 0, "thresholds": {"count>1": true}},
        "data_sent": {"count": 0, "rate": 0},
        "http_req_failed": {"passes": 18, "fails": 2, "value": 0.9},
        "checks": {"passes": 0, "fails": 20, "value": 0},
        "http_req_duration": {"avg": 1.5, "count": 20},
        "iteration_duration": {"avg": 1.5, "p(95)": 2},
        "vus": {"value": 1, "min": 1, "max": 1}}}"#;

    const DATA: &str = r#"{"state": {"testRunDurationMs": 10.1}, "metrics": {
        "http_reqs": {"type": "counter", "contains": "default", "values": {"count": 20, "rate": 1}},
        "http_reqs{status:204}": {"type": "counter", "values": {"count": 0, "rate": 0}},
        "data_sent": {"type": "counter", "values": {"count": 0, "rate": 0}},
        "http_req_failed": {"type": "rate", "values": {"rate": 0.9, "passes": 18, "fails": 2}},
        "checks": {"type": "rate", "values": {"rate": 0, "passes": 0, "fails": 20}},
        "http_req_duration": {"type": "trend", "values": {"avg": 1.5, "count": 20}},
        "iteration_duration": {"type": "trend", "values": {"avg": 1.5}},
        "vus": {"type": "gauge", "values": {"value": 1, "min": 1, "max": 1}}}}"#;

    const NEW: &str = r#"{"config": {}, "metadata": {"k6_version": "1.8.1"}, "results": {
        "checks": {"metrics": [
            {"name": "checks_total", "type": "counter", "values": {"count": 20}},
            {"name": "checks_failed", "type": "rate", "values": {"matches": 20, "total": 20}}],
            "results": [{"name": "is up", "passes": 0, "fails": 20}]},
        "metrics": [
            {"name": "http_reqs{status:204}", "type": "counter", "values": {"count": 0}},
            {"name": "http_reqs", "type": "counter", "values": {"count": 20}},
            {"name": "data_sent", "type": "counter", "values": {"count": 0}},
            {"name": "http_req_failed", "type": "rate", "values": {"matches": 18, "total": 20}},
            {"name": "http_req_duration", "type": "trend", "values": {"avg": 1.5, "count": 20}},
            {"name": "iteration_duration", "type": "trend", "values": {"avg": null}},
            {"name": "vus", "type": "gauge", "values": {"value": 1}}]}, "version": "1.0.0"}"#;

    /// Guarantee: the forms that k6 1.8.1 writes say the same of a test.
    #[test]
    fn all_forms_say_the_same() {
        let expected = [
            ("checks", Told::Count(20.0)),
            ("data_sent", Told::Sum(0.0)),
            ("http_req_duration", Told::Count(20.0)),
            ("http_req_failed", Told::Count(20.0)),
            ("http_reqs", Told::Sum(20.0)),
        ];
        let expected = expected.map(|(measurement, told)| {
            let measurement = measurement.to_owned();
            Expected { measurement, told }
        });
        let skipped =
            [("http_reqs{status:204}", PART), ("iteration_duration", TREND), ("vus", GAUGE)];
        let skipped = skipped.map(|(metric, why)| Skipped { metric: metric.to_owned(), why });
        for text in [OLD, DATA, NEW] {
            let summary = Summary::parse(text.as_bytes()).expect("is a summary");
            assert_eq!(summary.expected, expected, "{text}");
            assert_eq!(summary.skipped, skipped, "{text}");
        }
    }

    #[test]
    fn a_trend_with_nothing_but_its_count_is_no_counter() {
        let text = r#"{"metrics": {"tr": {"count": 20}, "own": {"count": 4, "rate": 1}}}"#;
        let summary = Summary::parse(text.as_bytes()).expect("is a summary");
        let told: Vec<Told> = summary.expected.iter().map(|it| it.told).collect();
        assert_eq!(told, [Told::Sum(4.0), Told::Count(20.0)]);
    }

    #[test]
    fn other_files_are_told_from_summaries() {
        for (text, words) in [
            ("", "no JSON"),
            ("metric_name,timestamp\n", "no JSON"),
            (r#"{"type": "Point", "metric": "http_reqs", "data": {}}"#, "--summary-export"),
            ("{}", "neither"),
            ("[1]", "neither"),
            (r#"{"metrics": {}}"#, "no metric"),
            (r#"{"metrics": {"a": 1, "b": {"type": "new", "values": {}}}}"#, "no metric"),
        ] {
            let error = Summary::parse(text.as_bytes()).expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
