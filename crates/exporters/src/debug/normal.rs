//! Verbosity `normal`: a line an item.

use std::fmt::Write;

use serde_json::Value;
use sluice_otlp::Signal;

use super::text::{
    any_value, attribute, double, exponential_buckets, integer, list, members, shortest, text,
};

pub(super) fn render(signal: Signal, request: &Value) -> String {
    let [resources, scopes, entries] = members(signal);
    let title = match signal {
        Signal::Traces => "Traces",
        Signal::Metrics => "Metrics",
        Signal::Logs => "Log",
    };
    let mut out = String::new();
    for (index, resource) in list(request, resources).iter().enumerate() {
        let schema = bracketed(text(resource, "schemaUrl"));
        let attributes = prefixed(&resource["resource"]);
        let _ = writeln!(out, "Resource{title} #{index}{schema}{attributes}");
        for (index, scope) in list(resource, scopes).iter().enumerate() {
            let (details, attributes) = (scope_details(scope), prefixed(&scope["scope"]));
            let _ = writeln!(out, "Scope{title} #{index}{details}{attributes}");
            list(scope, entries).iter().for_each(|entry| write_entry(signal, entry, &mut out));
        }
    }
    out
}

fn bracketed(schema: &str) -> String {
    if schema.is_empty() { String::new() } else { format!(" [{schema}]") }
}

fn scope_details(scope: &Value) -> String {
    let (name, version) = (text(&scope["scope"], "name"), text(&scope["scope"], "version"));
    let version = if version.is_empty() { String::new() } else { format!("@{version}") };
    let details = format!("{name}{version}");
    let space = if details.is_empty() { "" } else { " " };
    format!("{space}{details}{}", bracketed(text(scope, "schemaUrl")))
}

fn pairs(owner: &Value) -> Vec<String> {
    let attributes = list(owner, "attributes").iter().map(attribute);
    attributes.map(|(key, _, value)| format!("{key}={value}")).collect()
}

fn prefixed(owner: &Value) -> String {
    pairs(owner).into_iter().map(|pair| format!(" {pair}")).collect()
}

fn write_entry(signal: Signal, entry: &Value, out: &mut String) {
    match signal {
        Signal::Traces => {
            let [name, trace, id] = ["name", "traceId", "spanId"].map(|key| text(entry, key));
            let _ = writeln!(out, "{name} {trace} {id}{}", prefixed(entry));
        }
        Signal::Logs => {
            let (_, body) = any_value(&entry["body"]);
            let _ = writeln!(out, "{body} {}", pairs(entry).join(" "));
        }
        Signal::Metrics => points(entry, out),
    }
}

fn points(metric: &Value, out: &mut String) {
    let name = text(metric, "name");
    for (kind, describe) in [
        ("gauge", number as fn(&Value) -> String),
        ("sum", number),
        ("histogram", histogram),
        ("exponentialHistogram", exponential_histogram),
        ("summary", summary),
    ] {
        for point in list(&metric[kind], "dataPoints") {
            let _ = writeln!(out, "{name}{{{}}} {}", pairs(point).join(","), describe(point));
        }
    }
}

fn number(point: &Value) -> String {
    match (point.get("asInt"), point.get("asDouble")) {
        (Some(value), _) => integer(value).to_string(),
        (None, Some(value)) => shortest(double(value)),
        (None, None) => String::new(),
    }
}

fn totals(point: &Value) -> String {
    let mut out = format!("count={}", integer(&point["count"]));
    for key in ["sum", "min", "max"] {
        if let Some(value) = point.get(key) {
            let _ = write!(out, " {key}={}", shortest(double(value)));
        }
    }
    out
}

fn histogram(point: &Value) -> String {
    let mut out = totals(point);
    let bounds = list(point, "explicitBounds");
    for (index, count) in list(point, "bucketCounts").iter().enumerate() {
        let bound = bounds.get(index).map(|bound| format!("le{}=", shortest(double(bound))));
        let bound = bound.unwrap_or_default();
        let _ = write!(out, " {bound}{}", integer(count));
    }
    out
}

fn exponential_histogram(point: &Value) -> String {
    let mut out = totals(point);
    for (lower, _, count) in exponential_buckets(point, "negative").rev() {
        let _ = write!(out, " le{}={count}", -lower);
    }
    if integer(&point["zeroCount"]) != 0 {
        let _ = write!(out, " zero={}", integer(&point["zeroCount"]));
    }
    for (_, upper, count) in exponential_buckets(point, "positive") {
        let _ = write!(out, " le{upper}={count}");
    }
    out
}

fn summary(point: &Value) -> String {
    let sum = double(&point["sum"]);
    let mut out = format!("count={} sum={sum:.6}", integer(&point["count"]));
    for quantile in list(point, "quantileValues") {
        let [quantile, value] = ["quantile", "value"].map(|key| double(&quantile[key]));
        let _ = write!(out, " q{quantile}={value}");
    }
    out
}
