//! Objects as the API server gives them, requests, and the attributes that come out.

mod containers;
mod extraction;
mod memory;
mod options;
mod recognition;

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use serde_json::{Value as Json, json};
use sluice_config::read_text;
use sluice_flow::Metadata;
use sluice_kubernetes::Event;
use sluice_otlp::edit_resources_within;

use super::association::address_of;
use super::cluster::{Known, queries};
use super::config::Options;
use super::enrich::Enricher;
use super::rules::From;

/// A processor with what it knows, without watches.
struct Processor {
    options: Options,
    known: Known,
}

impl Processor {
    fn new(yaml: &str) -> Processor {
        let (options, diagnostics) = read_text("processors.k8s_attributes", yaml, Options::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let known = Known::new(&options, queries(&options).iter().map(|(from, _)| *from));
        Processor { options, known }
    }

    fn pod(self, pod: Json) -> Processor {
        self.pod_event(Event::Added(pod));
        self
    }

    fn pod_event(&self, event: Event<Json>) {
        let read = |pod: Json| serde_json::from_value(pod).expect("a pod");
        self.known.pod_event(event.map(read));
    }

    fn related(self, from: From, object: Json) -> Processor {
        let object = serde_json::from_value(object).expect("an object");
        self.known.related_event(from, Event::Added(object));
        self
    }

    /// The attributes of a resource of a sender, afterwards, as lines in their order.
    fn enrich(&self, peer: Option<&str>, attributes: &[(&str, &str)]) -> Vec<String> {
        let value = |text: &str| Value::StringValue(text.to_owned());
        let attributes = attributes.iter().map(|(key, text)| ((*key).to_owned(), value(text)));
        self.enrich_values(peer, attributes.collect())
    }

    fn enrich_values(&self, peer: Option<&str>, attributes: Vec<(String, Value)>) -> Vec<String> {
        let attribute = |(key, value)| KeyValue {
            key,
            value: Some(AnyValue { value: Some(value) }),
            ..KeyValue::default()
        };
        let attributes = attributes.into_iter().map(attribute).collect();
        let resource = Some(Resource { attributes, ..Resource::default() });
        let resource_logs = vec![ResourceLogs { resource, ..ResourceLogs::default() }];
        let request = Bytes::from(ExportLogsServiceRequest { resource_logs }.encode_to_vec());
        let metadata = Metadata { peer: peer.map(str::to_owned), headers: Vec::new() };
        let known = Some(&self.known).filter(|_| !self.options.passthrough);
        let mut enricher = Enricher::new(&self.options, known, address_of(&metadata));
        let edited = edit_resources_within(&request, usize::MAX, |it| enricher.enrich(it));
        let edited = edited.expect("is valid").expect("is within").unwrap_or(request);
        let decoded = ExportLogsServiceRequest::decode(edited).expect("is valid");
        let resource = decoded.resource_logs[0].resource.clone().unwrap_or_default();
        resource.attributes.iter().map(shown).collect()
    }
}

fn shown(attribute: &KeyValue) -> String {
    let value = attribute.value.as_ref().and_then(|it| it.value.as_ref());
    let value = match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::ArrayValue(array)) => {
            let texts = array.values.iter().map(|it| match &it.value {
                Some(Value::StringValue(text)) => text.as_str(),
                _ => "?",
            });
            format!("[{}]", texts.collect::<Vec<_>>().join(","))
        }
        other => format!("{other:?}"),
    };
    format!("{}={value}", attribute.key)
}

/// A pod of a deployment.
fn web_pod() -> Json {
    json!({
        "metadata": {
            "name": "web-6c45f8d6f6-x7k2p", "namespace": "shop", "uid": "uid-web",
            "creationTimestamp": "2026-11-28T07:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "6c45f8d6f6", "tier/kind": "front"},
            "annotations": {"team": "blue", "resource.opentelemetry.io/service.version": "7"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-6c45f8d6f6", "uid": "uid-rs",
                                 "controller": true}]
        },
        "spec": {"nodeName": "node-1", "hostname": "web-host"},
        "status": {"podIP": "10.1.2.3", "startTime": "2026-11-28T07:00:05Z"}
    })
}
