//! Verbosity `normal`: a line an item.

use std::fmt::Write;

use serde_json::Value;
use sluice_otlp::Signal;

use super::text::{any_value, attribute, double, integer, integer_of, list, text};

pub(super) fn render(signal: Signal, request: &Value) -> String {
    let (resources, scopes, resource_title, scope_title) = match signal {
        Signal::Traces => ("resourceSpans", "scopeSpans", "ResourceTraces", "ScopeTraces"),
        Signal::Metrics => ("resourceMetrics", "scopeMetrics", "ResourceMetrics", "ScopeMetrics"),
        Signal::Logs => ("resourceLogs", "scopeLogs", "ResourceLog", "ScopeLog"),
    };
    let mut out = String::new();
    for (index, resource) in list(request, resources).iter().enumerate() {
        let schema = bracketed(text(resource, "schemaUrl"));
        let attributes = prefixed(&resource["resource"]);
        let _ = writeln!(out, "{resource_title} #{index}{schema}{attributes}");
        for (index, scope) in list(resource, scopes).iter().enumerate() {
            let _ = writeln!(out, "{scope_title} #{index}{}{}", scope_details(scope), prefixed(&scope["scope"]));
            items(signal, scope, &mut out);
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
    list(owner, "attributes").iter().map(attribute).map(|(key, _, value)| format!("{key}={value}")).collect()
}

fn prefixed(owner: &Value) -> String {
    pairs(owner).into_iter().map(|pair| format!(" {pair}")).collect()
}

fn items(signal: Signal, scope: &Value, out: &mut String) {
    match signal {
        Signal::Traces => {
            for span in list(scope, "spans") {
                let (name, trace, id) = (text(span, "name"), text(span, "traceId"), text(span, "spanId"));
                let _ = writeln!(out, "{name} {trace} {id}{}", prefixed(span));
            }
        }
        Signal::Logs => {
            for record in list(scope, "logRecords") {
                let body = record.get("body").map(|body| any_value(body).1).unwrap_or_default();
                let _ = writeln!(out, "{body} {}", pairs(record).join(" "));
            }
        }
        Signal::Metrics => list(scope, "metrics").iter().for_each(|metric| points(metric, out)),
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
        for point in metric.get(kind).map_or(&[][..], |data| list(data, "dataPoints")) {
            let _ = writeln!(out, "{name}{{{}}} {}", pairs(point).join(","), describe(point));
        }
    }
}

fn number(point: &Value) -> String {
    match (point.get("asInt"), point.get("asDouble")) {
        (Some(value), _) => integer_of(value).to_string(),
        (None, Some(value)) => double(value).to_string(),
        (None, None) => String::new(),
    }
}

fn totals(point: &Value) -> String {
    let mut out = format!("count={}", integer(point, "count"));
    for key in ["sum", "min", "max"] {
        if let Some(value) = point.get(key) {
            let _ = write!(out, " {key}={}", double(value));
        }
    }
    out
}

fn histogram(point: &Value) -> String {
    let mut out = totals(point);
    let bounds = list(point, "explicitBounds");
    for (index, count) in list(point, "bucketCounts").iter().enumerate() {
        let bound = bounds.get(index).map(|bound| format!("le{}=", double(bound))).unwrap_or_default();
        let _ = write!(out, " {bound}{}", integer_of(count));
    }
    out
}

fn exponential_histogram(point: &Value) -> String {
    let mut out = totals(point);
    let factor = std::f64::consts::LN_2 * (-(integer(point, "scale") as f64)).exp2();
    let (negative, positive) = (&point["negative"], &point["positive"]);
    let offset = integer(negative, "offset") as f64;
    for (index, count) in list(negative, "bucketCounts").iter().enumerate().rev() {
        let _ = write!(out, " le{}={}", -((offset + index as f64) * factor).exp(), integer_of(count));
    }
    if integer(point, "zeroCount") != 0 {
        let _ = write!(out, " zero={}", integer(point, "zeroCount"));
    }
    let offset = integer(positive, "offset") as f64;
    for (index, count) in list(positive, "bucketCounts").iter().enumerate() {
        let _ = write!(out, " le{}={}", ((offset + index as f64 + 1.0) * factor).exp(), integer_of(count));
    }
    out
}

fn summary(point: &Value) -> String {
    let sum = point.get("sum").map_or(0.0, double);
    let mut out = format!("count={} sum={sum:.6}", integer(point, "count"));
    for quantile in list(point, "quantileValues") {
        let value = |key: &str| quantile.get(key).map_or(0.0, double);
        let _ = write!(out, " q{}={}", value("quantile"), value("value"));
    }
    out
}
