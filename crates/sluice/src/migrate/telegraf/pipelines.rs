//! The parts put together: one pipeline for each input, and more where outputs get other tags.
//!
//! An input has a pipeline of its own because its tags have names of their own, and because
//! receivers that share an `interval` have to feed the same pipelines.

use serde_json::{Map, Value, json};

use super::aggregators::{Aggregation, Interval};
use super::parts::{Agent, Host, Ids, Input, InputKind, Output, delete, insert, rename};
use super::processors::without;
use super::shape::{Named, Shape};
use crate::migrate::report::Report;

pub(super) struct Parts {
    pub agent: Agent,
    pub inputs: Vec<Input>,
    /// Actions on tags, for all inputs.
    pub steps: Vec<Value>,
    pub aggregation: Option<Aggregation>,
    pub outputs: Vec<Output>,
    /// Ids of receivers that are taken.
    pub receivers: Ids,
}

/// The configuration of all parts.
pub(super) fn document(parts: Parts, report: &mut Report) -> Value {
    let Parts { agent, inputs, steps, aggregation, outputs, receivers } = parts;
    let mut builder = Builder { ids: receivers, ..Builder::default() };
    if inputs.is_empty() || outputs.is_empty() {
        let missing = if inputs.is_empty() { "input" } else { "output" };
        let text =
            format!("no {missing} is translated: `sluice validate` wants a pipeline with it");
        report.left_out(1, "file", text);
    }
    for Output { id, config, extensions, .. } in &outputs {
        builder.exporters.insert(id.clone(), config.clone());
        builder.extensions.extend(extensions.iter().cloned());
    }
    let mut routes = Vec::new();
    for input in &inputs {
        builder.extensions.extend(input.extensions.iter().cloned());
        routes.push(builder.route(input, aggregation.as_ref(), &steps, &agent, report));
    }
    let pipelines = builder.pipelines(routes, &outputs);
    builder.document(&agent, pipelines)
}

/// A receiver and the processors that all of its pipelines have.
struct Route {
    receiver: String,
    processors: Vec<String>,
}

#[derive(Default)]
struct Builder {
    ids: Ids,
    receivers: Map<String, Value>,
    processors: Map<String, Value>,
    exporters: Map<String, Value>,
    extensions: Map<String, Value>,
}

impl Builder {
    fn route(
        &mut self,
        input: &Input,
        aggregation: Option<&Aggregation>,
        steps: &[Value],
        agent: &Agent,
        report: &mut Report,
    ) -> Route {
        let shape = match &input.kind {
            InputKind::K6 { shape, .. } => Some(shape),
            _ => None,
        };
        let interval = aggregation.and_then(|it| it.interval(shape, report));
        let receiver = match (&input.kind, &interval) {
            (InputKind::K6 { config, shape }, Some(interval)) if !interval.has_samples => {
                self.receiver("k6", for_statistics(config, shape, &interval.excluded))
            }
            (InputKind::K6 { config, shape }, interval) => {
                names_differ(input, shape, report);
                if interval.as_ref().is_some_and(|it| it.drops) {
                    booleans_pass(input, shape, report);
                }
                self.receiver("k6", for_samples(config, shape))
            }
            (InputKind::Lines(id, config) | InputKind::Others(id, config), _) => {
                self.receivers.insert(id.clone(), config.clone());
                id.clone()
            }
        };
        let mut processors = Vec::new();
        let mut excluded = Vec::new();
        if let Some(interval) = interval {
            order_differs(&interval, steps, report);
            if shape.is_none() && !interval.excluded.is_empty() {
                let actions = json!(without(&interval.excluded));
                processors.push(self.processor("attributes", json!({"actions": actions})));
                if let InputKind::Others(..) = input.kind {
                    processors.push(self.processor("resource", json!({"attributes": actions})));
                }
            }
            if let InputKind::Others(..) = input.kind {
                let text = "aggregators have statistics of gauges and of sums of deltas only: of \
                            this input's counters and histograms the last point of each period is \
                            sent";
                report.left_out(input.line, &input.name, text);
            }
            processors.push(self.unshared("interval", interval.config));
            excluded = interval.excluded;
        }
        let mut actions = shape.map_or_else(Vec::new, |shape| renames(input, shape, report));
        actions.extend(steps.iter().cloned());
        if !actions.is_empty() {
            processors.push(self.processor("attributes", json!({"actions": actions})));
        }
        self.resource(input, agent, &excluded, &mut processors);
        Route { receiver, processors }
    }

    fn receiver(&mut self, kind: &str, config: Value) -> String {
        let id = self.ids.next(kind);
        self.receivers.insert(id.clone(), config);
        id
    }

    /// The processor with these options, which may be there already.
    fn processor(&mut self, kind: &str, config: Value) -> String {
        let is_of_kind = |id: &str| id.split('/').next() == Some(kind);
        let same = self.processors.iter().find(|(id, it)| is_of_kind(id) && **it == config);
        match same {
            Some((id, _)) => id.clone(),
            None => self.unshared(kind, config),
        }
    }

    fn unshared(&mut self, kind: &str, config: Value) -> String {
        let id = self.ids.next(kind);
        self.processors.insert(id.clone(), config);
        id
    }

    /// Tags that are the same for all metrics of an input, but those that aggregators exclude.
    fn resource(
        &mut self,
        input: &Input,
        agent: &Agent,
        excluded: &[String],
        processors: &mut Vec<String>,
    ) {
        let stays = |tag: &str| !excluded.iter().any(|it| it == tag);
        let has_host = stays("host");
        let tags = input.tags.iter().chain(&agent.tags).filter(|(key, _)| stays(key));
        let mut actions: Vec<Value> = tags.map(|(key, value)| insert(key, value)).collect();
        match &agent.host {
            Host::Named(name) if has_host => actions.push(insert("host", name)),
            Host::Detected if has_host => {
                let config = json!({
                    "detectors": ["system"],
                    "override": false,
                    "system": {
                        "hostname_sources": ["os"],
                        "resource_attributes": {"os.type": {"enabled": false}},
                    },
                });
                processors.push(self.processor("resource_detection", config));
                let from = "host.name";
                let host = json!({"key": "host", "from_attribute": from, "action": "insert"});
                actions.push(host);
                if !matches!(input.kind, InputKind::Others(..)) {
                    actions.push(delete(from));
                }
            }
            _ => {}
        }
        if !actions.is_empty() {
            processors.push(self.processor("resource", json!({"attributes": actions})));
        }
    }

    /// One pipeline for each route, and for each set of tags that outputs do not get.
    fn pipelines(&mut self, routes: Vec<Route>, outputs: &[Output]) -> Map<String, Value> {
        let mut groups: Vec<(&[String], Vec<&str>)> = Vec::new();
        for Output { id, excluded, .. } in outputs {
            match groups.iter_mut().find(|(tags, _)| tags == excluded) {
                Some((_, ids)) => ids.push(id),
                None => groups.push((excluded.as_slice(), vec![id.as_str()])),
            }
        }
        let is_alone = routes.len() * groups.len() == 1;
        let (mut pipelines, mut names) = (Map::new(), Ids::default());
        for Route { receiver, processors } in routes {
            for (excluded, exporters) in &groups {
                let mut processors = processors.clone();
                if !excluded.is_empty() {
                    let actions = json!(without(excluded));
                    processors.push(self.processor("attributes", json!({"actions": actions})));
                    processors.push(self.processor("resource", json!({"attributes": actions})));
                }
                let name = match is_alone {
                    true => "metrics".to_owned(),
                    false => names.next(&format!("metrics/{}", receiver.replace('/', "_"))),
                };
                let mut pipeline = json!({"receivers": [receiver]});
                if !processors.is_empty() {
                    pipeline["processors"] = json!(processors);
                }
                pipeline["exporters"] = json!(exporters);
                pipelines.insert(name, pipeline);
            }
        }
        pipelines
    }

    fn document(self, agent: &Agent, pipelines: Map<String, Value>) -> Value {
        let mut service = Map::new();
        if !self.extensions.is_empty() {
            let ids: Vec<&String> = self.extensions.keys().collect();
            service.insert("extensions".to_owned(), json!(ids));
        }
        if let Some(level) = agent.log_level {
            service.insert("telemetry".to_owned(), json!({"logs": {"level": level}}));
        }
        if !pipelines.is_empty() {
            service.insert("pipelines".to_owned(), Value::Object(pipelines));
        }
        let mut document = Map::new();
        for (key, part) in [
            ("extensions", self.extensions),
            ("receivers", self.receivers),
            ("processors", self.processors),
            ("exporters", self.exporters),
            ("service", service),
        ] {
            if !part.is_empty() {
                document.insert(key.to_owned(), Value::Object(part));
            }
        }
        Value::Object(document)
    }
}

/// Statistics are of the tags that the aggregator has, and of fields that are numbers.
fn for_statistics(config: &Value, shape: &Shape, excluded: &[String]) -> Value {
    let mut shape = shape.clone();
    shape.tags.retain(|tag| !excluded.contains(&tag.theirs));
    shape.fields.retain(Named::is_number);
    for_samples(config, &shape)
}

fn for_samples(config: &Value, shape: &Shape) -> Value {
    let mut config = config.clone();
    let fields = shape.fields.iter().map(|field| match field.kind {
        "string" => field.ours.clone(),
        kind => format!("{}:{kind}", field.ours),
    });
    config["tags"] = shape.tags.iter().chain(&shape.fields).map(|tag| json!(tag.ours)).collect();
    config["tags_as_fields"] = fields.map(Value::from).collect();
    config
}

/// The actions that give tags the names that Telegraf gave them.
fn renames(input: &Input, shape: &Shape, report: &mut Report) -> Vec<Value> {
    let others: Vec<_> = shape.tags.iter().filter(|tag| tag.ours != tag.theirs).collect();
    let is_taken = |name: &str| {
        shape.tags.iter().chain(&shape.fields).any(|tag| tag.ours == name && tag.theirs != name)
    };
    if let Some(tag) = others.iter().find(|tag| is_taken(&tag.theirs)) {
        let text =
            format!("`{}` is the name of another tag of k6: tags keep k6's names", tag.theirs);
        report.left_out(input.line, &input.name, text);
        return Vec::new();
    }
    others.iter().flat_map(|tag| rename(&tag.ours, &tag.theirs)).collect()
}

/// Tags are excluded before the aggregation, and renamed behind it: Telegraf renames them first.
fn order_differs(interval: &Interval, steps: &[Value], report: &mut Report) {
    let is_changed = |tag: &&String| steps.iter().any(|step| step["key"] == **tag);
    for tag in interval.excluded.iter().filter(is_changed) {
        let text = format!(
            "a processor sets or renames `{tag}`, here after the aggregation: exclude the tag by \
             the name that it comes with"
        );
        report.left_out(interval.excluded_line, "aggregators: tagexclude", text);
    }
}

/// Where some samples are dropped and others sent, the receiver makes the fields of all.
fn booleans_pass(input: &Input, shape: &Shape, report: &mut Report) {
    for field in shape.fields.iter().filter(|field| field.kind == "bool") {
        let text = format!(
            "the boolean `{}` of samples that `drop_original` drops is sent all the same, as \
             `interval` lets booleans pass: make it a tag",
            field.theirs
        );
        report.left_out(input.line, &input.name, text);
    }
}

/// Samples that are not aggregated have k6's names of fields.
fn names_differ(input: &Input, shape: &Shape, report: &mut Report) {
    if shape.field != "value" {
        let text = format!(
            "the field `{}` of a sample that is not aggregated is `value`, as in k6's own output \
             for InfluxDB: change it in queries",
            shape.field
        );
        report.left_out(input.line, &input.name, text);
    }
    let differ = shape.fields.iter().filter(|field| field.ours != field.theirs);
    let names: Vec<String> =
        differ.map(|field| format!("`{}` is `{}`", field.theirs, field.ours)).collect();
    if !names.is_empty() {
        let text = format!("fields have k6's names: {}", names.join(", "));
        report.left_out(input.line, &input.name, text);
    }
}
