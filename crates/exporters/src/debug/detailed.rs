//! Verbosity `detailed`: every field.

use serde_json::Value;
use sluice_otlp::Signal;

use super::text::{
    any_value, attribute, double, exponential_buckets, fixed, integer, list, members, text,
    timestamp,
};

pub(super) fn render(signal: Signal, request: &Value) -> String {
    let [resources, scopes, entries] = members(signal);
    let (resource_title, scope_title) = match signal {
        Signal::Traces => ("ResourceSpans", "ScopeSpans"),
        Signal::Metrics => ("ResourceMetrics", "ScopeMetrics"),
        Signal::Logs => ("ResourceLog", "ScopeLogs"),
    };
    let mut out = Out::default();
    for (index, resource) in list(request, resources).iter().enumerate() {
        out.line(format!("{resource_title} #{index}"));
        out.line(format!("Resource SchemaURL: {}", text(resource, "schemaUrl")));
        out.attributes("Resource attributes", &resource["resource"], "");
        for (index, scope) in list(resource, scopes).iter().enumerate() {
            out.line(format!("{scope_title} #{index}"));
            out.line(format!("{scope_title} SchemaURL: {}", text(scope, "schemaUrl")));
            let own = &scope["scope"];
            let [name, version] = ["name", "version"].map(|key| text(own, key));
            out.line(format!("InstrumentationScope {name} {version}"));
            out.attributes("InstrumentationScope attributes", own, "");
            for (index, entry) in list(scope, entries).iter().enumerate() {
                match signal {
                    Signal::Traces => out.span(index, entry),
                    Signal::Logs => out.record(index, entry),
                    Signal::Metrics => out.metric(index, entry),
                }
            }
        }
    }
    out.0
}

#[derive(Default)]
struct Out(String);

impl Out {
    fn line(&mut self, line: impl AsRef<str>) {
        self.0.push_str(line.as_ref());
        self.0.push('\n');
    }

    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        self.line(format!("    {name:<15}: {value}"));
    }

    fn arrow(&mut self, name: &str, value: impl std::fmt::Display) {
        self.line(format!("     -> {name}: {value}"));
    }

    fn time(&mut self, name: &str, owner: &Value, key: &str) {
        self.line(format!("{name}: {}", timestamp(integer(&owner[key]))));
    }

    fn attributes(&mut self, header: &str, owner: &Value, indent: &str) {
        self.pairs(header, list(owner, "attributes"), indent);
    }

    fn pairs(&mut self, header: &str, pairs: &[Value], indent: &str) {
        if pairs.is_empty() {
            return;
        }
        self.line(format!("{header}:"));
        for (key, kind, value) in pairs.iter().map(attribute) {
            self.line(format!("{indent}     -> {key}: {kind}({value})"));
        }
    }

    fn span(&mut self, index: usize, span: &Value) {
        const KINDS: [&str; 6] =
            ["Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"];
        const CODES: [&str; 3] = ["Unset", "Ok", "Error"];
        self.line(format!("Span #{index}"));
        self.field("Trace ID", text(span, "traceId"));
        self.field("Parent ID", text(span, "parentSpanId"));
        self.field("ID", text(span, "spanId"));
        self.field("Name", text(span, "name"));
        self.field("Kind", name_of(&KINDS, integer(&span["kind"])));
        if !text(span, "traceState").is_empty() {
            self.field("TraceState", text(span, "traceState"));
        }
        self.field("Start time", timestamp(integer(&span["startTimeUnixNano"])));
        self.field("End time", timestamp(integer(&span["endTimeUnixNano"])));
        self.field("Status code", name_of(&CODES, integer(&span["status"]["code"])));
        self.field("Status message", text(&span["status"], "message"));
        self.field("DroppedAttributesCount", integer(&span["droppedAttributesCount"]));
        self.field("DroppedEventsCount", integer(&span["droppedEventsCount"]));
        self.field("DroppedLinksCount", integer(&span["droppedLinksCount"]));
        self.attributes("Attributes", span, "");
        self.numbered("Events:", "SpanEvent", list(span, "events"), Out::event);
        self.numbered("Links:", "SpanLink", list(span, "links"), Out::link);
    }

    /// A list under a title, if it is not empty.
    fn numbered(&mut self, title: &str, name: &str, list: &[Value], each: fn(&mut Out, &Value)) {
        if !list.is_empty() {
            self.line(title);
        }
        for (index, entry) in list.iter().enumerate() {
            self.line(format!("{name} #{index}"));
            each(self, entry);
        }
    }

    fn event(&mut self, event: &Value) {
        self.arrow("Name", text(event, "name"));
        self.arrow("Timestamp", timestamp(integer(&event["timeUnixNano"])));
        self.arrow("DroppedAttributesCount", integer(&event["droppedAttributesCount"]));
        self.attributes("     -> Attributes:", event, "     ");
    }

    fn link(&mut self, link: &Value) {
        self.arrow("Trace ID", text(link, "traceId"));
        self.arrow("ID", text(link, "spanId"));
        self.arrow("TraceState", text(link, "traceState"));
        self.arrow("DroppedAttributesCount", integer(&link["droppedAttributesCount"]));
        self.attributes("     -> Attributes:", link, "     ");
    }

    fn record(&mut self, index: usize, record: &Value) {
        self.line(format!("LogRecord #{index}"));
        self.time("ObservedTimestamp", record, "observedTimeUnixNano");
        self.time("Timestamp", record, "timeUnixNano");
        self.line(format!("SeverityText: {}", text(record, "severityText")));
        let severity = integer(&record["severityNumber"]);
        self.line(format!("SeverityNumber: {}({severity})", severity_name(severity)));
        if !text(record, "eventName").is_empty() {
            self.line(format!("EventName: {}", text(record, "eventName")));
        }
        let (kind, body) = any_value(&record["body"]);
        self.line(format!("Body: {kind}({body})"));
        self.attributes("Attributes", record, "");
        self.line(format!("Trace ID: {}", text(record, "traceId")));
        self.line(format!("Span ID: {}", text(record, "spanId")));
        self.line(format!("Flags: {}", integer(&record["flags"])));
    }

    fn metric(&mut self, index: usize, metric: &Value) {
        const KINDS: [(&str, &str, &str); 5] = [
            ("gauge", "Gauge", "NumberDataPoints"),
            ("sum", "Sum", "NumberDataPoints"),
            ("histogram", "Histogram", "HistogramDataPoints"),
            ("exponentialHistogram", "ExponentialHistogram", "ExponentialHistogramDataPoints"),
            ("summary", "Summary", "SummaryDataPoints"),
        ];
        let found =
            KINDS.iter().find_map(|(key, name, title)| Some((metric.get(key)?, *name, *title)));
        self.line(format!("Metric #{index}"));
        self.line("Descriptor:");
        self.arrow("Name", text(metric, "name"));
        self.arrow("Description", text(metric, "description"));
        self.arrow("Unit", text(metric, "unit"));
        self.arrow("DataType", found.map_or("Empty", |(_, name, _)| name));
        self.pairs("     -> Metadata", list(metric, "metadata"), "     ");
        let Some((data, kind, title)) = found else { return };
        if kind == "Sum" {
            self.arrow("IsMonotonic", data["isMonotonic"].as_bool().unwrap_or(false));
        }
        if !matches!(kind, "Gauge" | "Summary") {
            let names = ["Unspecified", "Delta", "Cumulative"];
            let temporality = name_of(&names, integer(&data["aggregationTemporality"]));
            self.arrow("AggregationTemporality", temporality);
        }
        for (index, point) in list(data, "dataPoints").iter().enumerate() {
            self.line(format!("{title} #{index}"));
            self.point(kind, point);
        }
    }

    fn point(&mut self, kind: &str, point: &Value) {
        self.attributes("Data point attributes", point, "");
        self.time("StartTimestamp", point, "startTimeUnixNano");
        self.time("Timestamp", point, "timeUnixNano");
        if matches!(kind, "Gauge" | "Sum") {
            self.value("", point);
        } else {
            self.line(format!("Count: {}", integer(&point["count"])));
        }
        if kind.ends_with("Histogram") {
            self.totals(point);
        }
        match kind {
            "Histogram" => {
                for (index, bound) in list(point, "explicitBounds").iter().enumerate() {
                    self.line(format!("ExplicitBounds #{index}: {}", fixed(double(bound))));
                }
                for (index, count) in list(point, "bucketCounts").iter().enumerate() {
                    self.line(format!("Buckets #{index}, Count: {}", integer(count)));
                }
            }
            "ExponentialHistogram" => self.exponential_buckets(point),
            "Summary" => self.quantiles(point),
            _ => {}
        }
        self.numbered("Exemplars:", "Exemplar", list(point, "exemplars"), Out::exemplar);
    }

    fn value(&mut self, prefix: &str, owner: &Value) {
        match (owner.get("asInt"), owner.get("asDouble")) {
            (Some(value), _) => self.line(format!("{prefix}Value: {}", integer(value))),
            (None, Some(value)) => self.line(format!("{prefix}Value: {}", fixed(double(value)))),
            (None, None) => {}
        }
    }

    fn totals(&mut self, point: &Value) {
        for (key, name) in [("sum", "Sum"), ("min", "Min"), ("max", "Max")] {
            if let Some(value) = point.get(key) {
                self.line(format!("{name}: {}", fixed(double(value))));
            }
        }
    }

    fn exponential_buckets(&mut self, point: &Value) {
        for (lower, upper, count) in exponential_buckets(point, "negative").rev() {
            self.line(format!("Bucket [{:.6}, {:.6}), Count: {count}", -upper, -lower));
        }
        if integer(&point["zeroCount"]) != 0 {
            self.line(format!("Bucket [0, 0], Count: {}", integer(&point["zeroCount"])));
        }
        for (lower, upper, count) in exponential_buckets(point, "positive") {
            self.line(format!("Bucket ({lower:.6}, {upper:.6}], Count: {count}"));
        }
    }

    fn quantiles(&mut self, point: &Value) {
        self.line(format!("Sum: {:.6}", double(&point["sum"])));
        for (index, quantile) in list(point, "quantileValues").iter().enumerate() {
            let [quantile, value] = ["quantile", "value"].map(|key| double(&quantile[key]));
            self.line(format!("QuantileValue #{index}: Quantile {quantile:.6}, Value {value:.6}"));
        }
    }

    fn exemplar(&mut self, exemplar: &Value) {
        self.arrow("Trace ID", text(exemplar, "traceId"));
        self.arrow("Span ID", text(exemplar, "spanId"));
        self.arrow("Timestamp", timestamp(integer(&exemplar["timeUnixNano"])));
        self.value("     -> ", exemplar);
        self.pairs("     -> FilteredAttributes", list(exemplar, "filteredAttributes"), "     ");
    }
}

fn name_of<'a>(names: &[&'a str], index: i128) -> &'a str {
    usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or("")
}

fn severity_name(number: i128) -> String {
    const NAMES: [&str; 6] = ["Trace", "Debug", "Info", "Warn", "Error", "Fatal"];
    match usize::try_from(number) {
        Ok(0) => "Unspecified".to_owned(),
        Ok(number @ 1..=24) => {
            let (name, step) = (NAMES[(number - 1) / 4], (number - 1) % 4 + 1);
            if step == 1 { name.to_owned() } else { format!("{name}{step}") }
        }
        _ => String::new(),
    }
}
