//! The test data of the Collector's `intervalprocessor`: what its tests send, what passes at once
//! (`next.yaml`), and what is written (`output.yaml`). Without the data the tests pass over it,
//! unless SLUICE_TEST_REQUIRE_COMPONENTS=1.

#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use component::component;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message as _;
use serde_json::{Value as Json, json};
use sluice_config::{Node, ScalarValue, Value, read_text};
use sluice_flow::Metadata;
use sluice_otlp::Signal;
use sluice_otlp::json::from_json;
use sluice_processors::{Emission, PROCESSORS, Processor, ProcessorConfig};

const LIMIT_BYTES: usize = 1 << 20;
const PASSING: &str = "pass_through: {gauge: true, summary: true}";

/// Its cases, and the options with which each does the same here as there.
const CASES: [(&str, &str); 8] = [
    ("basic_aggregation", ""),
    ("histograms_are_aggregated", ""),
    ("exp_histograms_are_aggregated", ""),
    ("gauges_are_aggregated", ""),
    ("summaries_are_aggregated", ""),
    // Sums of deltas are added up unless this is set, which the Collector does not have.
    ("all_delta_metrics_are_passed_through", "pass_through: {delta_sum: true}"),
    ("gauges_are_passed_through", PASSING),
    ("summaries_are_passed_through", PASSING),
];
/// The case that Sluice treats otherwise.
const OTHERWISE: &str = "non_monotonic_sums_are_passed_through";

type Metrics = ExportMetricsServiceRequest;

fn data() -> Option<PathBuf> {
    let folder = component("SLUICE_TEST_COLLECTOR_TESTDATA")?;
    Some(folder.join("intervalprocessor/testdata"))
}

fn to_json(node: &Node) -> Json {
    match &node.value {
        Value::List(nodes) => nodes.iter().map(to_json).collect(),
        Value::Mapping(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), to_json(&entry.value))).collect()
        }
        Value::Scalar(scalar) => match scalar.value {
            ScalarValue::Null => Json::Null,
            ScalarValue::Boolean(value) => value.into(),
            ScalarValue::Integer(value) => i64::try_from(value).expect("is small").into(),
            ScalarValue::Float(value) => value.into(),
            ScalarValue::String => scalar.text.clone().into(),
        },
    }
}

/// OTLP/JSON that is written as YAML.
fn read(path: &Path) -> Bytes {
    let text = std::fs::read_to_string(path).expect("a file");
    let (metrics, diagnostics) = read_text("data", &text, |fields| {
        fields.node("resourceMetrics", "list", "").map_or(Json::Null, to_json)
    });
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let json = json!({ "resourceMetrics": metrics }).to_string();
    from_json(Signal::Metrics, json.as_bytes(), LIMIT_BYTES).expect("is OTLP").into()
}

fn decode(request: &[u8]) -> Metrics {
    Metrics::decode(request).expect("metrics")
}

fn processor(yaml: &str) -> Box<dyn Processor> {
    let (settings, diagnostics) =
        read_text("processors.test", yaml, |fields| PROCESSORS.read("interval", fields));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let Some(ProcessorConfig::Edits(build)) = settings else { panic!("edits") };
    build(Signal::Metrics).expect("fits metrics").processor
}

/// Metrics that pass, and those that are written at the end.
fn run(options: &str, input: &Bytes) -> (Metrics, Metrics) {
    let processor = processor(&format!("{{interval: 1s, {options}}}"));
    let memory = processor.series().expect("remembers");
    let left = processor.process(Signal::Metrics, input, &Metadata::default(), usize::MAX);
    let left = left.expect("is valid").expect("fits").unwrap_or_else(|| input.clone());
    memory.keep();
    let emitter = processor.emitter().expect("emits");
    let mut written = Metrics::default();
    while let Some((request, _)) = emitter.emit(Emission::All, LIMIT_BYTES) {
        memory.keep();
        written.resource_metrics.extend(decode(&request).resource_metrics);
    }
    (decode(&left), written)
}

/// Guarantee: what the Collector lets pass passes, and what it writes is written, to the byte, in
/// every case of its tests but one; there is no case that this list does not have.
#[test]
fn the_collectors_cases_come_out_as_there() {
    let Some(data) = data() else { return };
    for (case, options) in CASES {
        let file = |name: &str| read(&data.join(case).join(name));
        let (passed, written) = run(options, &file("input.yaml"));
        assert_eq!(passed, decode(&file("next.yaml")), "{case}: passes");
        assert_eq!(written, decode(&file("output.yaml")), "{case}: is written");
    }
    let mut cases: Vec<&str> = CASES.iter().map(|(case, _)| *case).chain([OTHERWISE]).collect();
    cases.sort_unstable();
    let entries = std::fs::read_dir(data).expect("a folder");
    let mut found: Vec<_> = entries.map(|it| it.expect("an entry").file_name()).collect();
    found.sort_unstable();
    assert_eq!(found, cases);
}

/// Scenario: a cumulative sum that may fall, which the Collector lets pass. Guarantee: its newest
/// point is written, and the others are gone, as the README says.
#[test]
fn a_sum_that_may_fall_is_aggregated() {
    let Some(data) = data() else { return };
    let input = read(&data.join(OTHERWISE).join("input.yaml"));
    let mut newest = decode(&input);
    let metric = &mut newest.resource_metrics[0].scope_metrics[0].metrics[0];
    let Some(Data::Sum(sum)) = &mut metric.data else { panic!("{metric:?}") };
    sum.data_points.retain(|point| point.time_unix_nano == 80);
    assert_eq!(sum.data_points.len(), 1);
    assert_eq!(run("", &input), (Metrics::default(), newest));
}
