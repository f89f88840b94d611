use std::time::Duration;

use super::*;
use sluice_otlp::Signal;

use crate::catalog::Kind;
use crate::expand::tests::{Fake, said};
use crate::load::load;

/// A build with a few kinds.
struct Build;

const RECEIVERS: &[Kind] = &[
    Kind::new("otlp", "OTLP over gRPC and HTTP"),
    Kind { signals: &[Signal::Logs], ..Kind::new("file_log", "files").aliases(&["filelog"]) },
];
const PROCESSORS: &[Kind] = &[
    Kind::new("batch", ""),
    Kind::new("memory_limiter", ""),
    Kind::new("resource", ""),
    Kind::new("attributes", ""),
    Kind {
        missing: Some("`k8sattributes` is a Collector component that Sluice does not have yet"),
        ..Kind::new("k8s_attributes", "").aliases(&["k8sattributes"])
    },
];
const EXPORTERS: &[Kind] = &[
    Kind::new("otlp_grpc", "").aliases(&["otlp"]),
    Kind::new("otlp_http", "").aliases(&["otlphttp"]),
    Kind::new("debug", "").aliases(&["logging"]),
];
const EXTENSIONS: &[Kind] = &[Kind::new("health_check", "")];
const CONNECTORS: &[Kind] = &[Kind::new("forward", "")];

impl Catalog for Build {
    fn kinds(&self, class: Class) -> Vec<Kind> {
        let kinds = match class {
            Class::Receiver => RECEIVERS,
            Class::Processor => PROCESSORS,
            Class::Exporter => EXPORTERS,
            Class::Extension => EXTENSIONS,
            Class::Connector => CONNECTORS,
        };
        kinds.to_vec()
    }
}

fn read(text: &str) -> (Document, Vec<String>) {
    let environment = Fake::default().file("c.yaml", text).variable("MY_POD_IP", "127.0.0.1");
    let (document, diagnostics) = load(&["c.yaml".to_owned()], &environment, &Build);
    (document.unwrap_or_else(|| panic!("{:?}", said(&diagnostics))), said(&diagnostics))
}

const DEFINITIONS: &str = "
receivers: {otlp: , filelog: }
processors: {batch: , resource: }
exporters: {otlp: , otlphttp/b: , logging: }
extensions: {health_check: }
connectors: {forward: , forward/2: }
";

/// Reads pipelines (flow style) over a set of definitions and returns the findings, except those
/// about unused definitions.
fn said_of(pipelines: &str) -> Vec<String> {
    let text = format!("{}service:\n  pipelines:\n{pipelines}", DEFINITIONS.trim_start());
    read(&text).1.into_iter().filter(|line| !line.contains("is defined but not used")).collect()
}

/// Scenario: a pipeline names an exporter that is misspelt. Guarantee: the mistake is reported, and
/// not before it that the exporter is unused.
#[test]
fn a_misspelt_reference_is_the_only_finding() {
    let text = "receivers: {otlp: }\nexporters: {otlp/backend: }\n\
                service: {pipelines: {logs: {receivers: [otlp], exporters: [otlp/backned]}}}\n";
    let found = read(text).1;
    assert!(found.len() == 1 && found[0].contains("did you mean `otlp/backend`?"), "{found:?}");
}

/// The configuration of the Kyma metric gateway as its load test used it, up to `k8sattributes`.
const KYMA_METRIC_GATEWAY: &str = include_str!("testdata/kyma-metric-gateway.yaml");

/// Guarantee: a real gateway's file is read as it stands, but for the one component that is not
/// there yet.
#[test]
fn reads_the_kyma_metric_gateway() {
    let (document, said) = read(KYMA_METRIC_GATEWAY);
    let errors: Vec<&String> = said.iter().filter(|line| line.contains(": error:")).collect();
    assert_eq!(
        errors,
        [
            "c.yaml:44:5: error: `k8sattributes` is a Collector component that Sluice does not have yet"
        ]
    );
    let unset = "c.yaml:70:22: warning: the environment variable `KUBERNETES_SERVICE_HOST` is not \
                 set and is taken as empty";
    let warnings: Vec<&String> = said.iter().filter(|line| line.contains(": warning:")).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().any(|line| line.starts_with(unset)), "{warnings:?}");

    let ids: Vec<&str> = document.pipelines.iter().map(|pipeline| pipeline.id.as_str()).collect();
    assert_eq!(ids, ["metrics/2", "metrics"]);
    let exporters: Vec<String> =
        document.pipelines[0].exporters.iter().map(|reference| reference.id.to_string()).collect();
    assert_eq!(exporters, ["otlp/2", "logging"]);
    let kinds: Vec<&str> = document.exporters.iter().map(|component| component.kind).collect();
    assert_eq!(kinds, ["otlp_grpc", "otlp_grpc", "debug"]);
    let reader = &document.telemetry.readers[0];
    assert_eq!(
        (reader.host.as_str(), reader.port, reader.has_suffixes),
        ("127.0.0.1", 8888, false)
    );
    assert_eq!(document.started_extensions[0].id.to_string(), "health_check");

    let mut diagnostics = Diagnostics::default();
    let Component { path, node, span, .. } = &document.exporters[0];
    let elapsed = Fields::read(path, node, *span, &mut diagnostics, |fields| {
        fields.section("retry_on_failure", "", |fields| {
            fields.duration("max_elapsed_time", std::time::Duration::ZERO, "")
        })
    });
    assert_eq!(elapsed, Some(std::time::Duration::from_secs(300)));
}

/// Guarantee: without that component the same file has no error.
#[test]
fn reads_the_kyma_metric_gateway_without_its_missing_component() {
    let mut text = String::new();
    let mut is_skipping = false;
    for line in KYMA_METRIC_GATEWAY.lines() {
        is_skipping = line == "    k8sattributes:" || (is_skipping && line.starts_with("      "));
        if !is_skipping && line.trim() != "- k8sattributes" {
            text.push_str(line);
            text.push('\n');
        }
    }
    let (document, said) = read(&text);
    assert!(!said.iter().any(|line| line.contains(": error:")), "{said:?}");
    assert_eq!(document.processors.len(), 3);
    assert_eq!(document.pipelines[1].processors.len(), 3);
}

#[test]
fn checks_references() {
    for (pipelines, expected) in [
        ("    traces: {receivers: [otlp], processors: [batch], exporters: [otlp]}", &[][..]),
        (
            "    traces: {receivers: [otlp], exporters: [otlphttp]}",
            &[
                "c.yaml:8:45: error: `service.pipelines.traces.exporters` names the exporter `otlphttp`, which is not defined (did you mean `otlphttp/b`?)",
            ],
        ),
        (
            "    traces: {receivers: [otlp], processors: [resorce], exporters: [otlp]}",
            &[
                "c.yaml:8:46: error: `service.pipelines.traces.processors` names the processor `resorce`, which is not defined (did you mean `resource`?)",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporters: [batch]}",
            &[
                "c.yaml:8:45: error: `service.pipelines.traces.exporters` names the exporter `batch`, which is not defined (it is one of the `processors`)",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporters: [kafka]}",
            &[
                "c.yaml:8:45: error: `service.pipelines.traces.exporters` names the exporter `kafka`, which is not defined (define it under `exporters`)",
            ],
        ),
        (
            "    traces: {receivers: [filelog], exporters: [otlp]}",
            &[
                "c.yaml:8:26: error: `service.pipelines.traces.receivers`: the receiver `filelog` does not support traces (it supports logs)",
            ],
        ),
        (
            "    traces: {receivers: [otlp, otlp], exporters: [otlp, otlp]}",
            &[
                "c.yaml:8:32: warning: `service.pipelines.traces.receivers` names `otlp` twice: it counts once; first here: c.yaml:8:26",
                "c.yaml:8:57: warning: `service.pipelines.traces.exporters` names `otlp` twice: it counts once; first here: c.yaml:8:51",
            ],
        ),
        (
            "    traces: {receivers: [otlp], processors: [batch, batch], exporters: [otlp]}",
            &[
                "c.yaml:8:53: error: `service.pipelines.traces.processors` names `batch` twice; first here: c.yaml:8:46",
            ],
        ),
        (
            "    traces: {receivers: otlp, exporters: [otlp]}",
            &[
                "c.yaml:8:25: error: `service.pipelines.traces.receivers` must be a list of ids, not a string (write `[a, b]`, or one `- a` a line)",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporters: [[a]]}",
            &[
                "c.yaml:8:45: error: `service.pipelines.traces.exporters` must be a list of ids; this is a list",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporters: [a b]}",
            &[
                "c.yaml:8:45: error: `service.pipelines.traces.exporters`: `a b` is not a component id: the type `a b` may only have letters, digits and `_`, and starts with a letter",
            ],
        ),
        (
            "    traces: {exporters: [otlp]}",
            &[
                "c.yaml:8:5: error: `service.pipelines.traces` must have at least one of `receivers`",
            ],
        ),
        (
            "    traces:",
            &[
                "c.yaml:8:5: error: `service.pipelines.traces` must have at least one of `receivers`",
                "c.yaml:8:5: error: `service.pipelines.traces` must have at least one of `exporters`",
            ],
        ),
        (
            "    trace: {receivers: [otlp], exporters: [otlp]}",
            &[
                "c.yaml:8:5: error: `service.pipelines.trace` must be called `traces`, `metrics` or `logs`, with `/name` if there are several (did you mean `traces`?)",
            ],
        ),
        (
            "    profiles: {receivers: [otlp], exporters: [otlp]}",
            &[
                "c.yaml:8:5: error: `service.pipelines.profiles` carries profiles, which Sluice does not have yet",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporter: [otlp]}",
            &[
                "c.yaml:8:5: error: `service.pipelines.traces` must have at least one of `exporters`",
                "c.yaml:8:33: error: `service.pipelines.traces` has no option `exporter` (did you mean `exporters`?)",
            ],
        ),
        ("    {}", &["c.yaml:8:5: error: `service.pipelines` must not be empty"]),
    ] {
        assert_eq!(said_of(pipelines), expected, "{pipelines}");
    }
}

#[test]
fn checks_connectors() {
    let good = "    traces/a: {receivers: [otlp], exporters: [forward]}\n    traces/b: \
                {receivers: [forward], exporters: [otlp]}";
    assert_eq!(said_of(good), Vec::<String>::new());
    for (pipelines, expected) in [
        (
            "    traces/a: {receivers: [otlp], exporters: [forward]}",
            &[
                "c.yaml:8:47: error: the connector `forward` is an exporter of `traces/a` but no receiver of any traces pipeline",
            ][..],
        ),
        (
            "    traces/a: {receivers: [forward], exporters: [otlp]}",
            &[
                "c.yaml:8:28: error: the connector `forward` is a receiver of `traces/a` but no exporter of any traces pipeline",
            ],
        ),
        (
            "    traces: {receivers: [otlp], exporters: [forward]}\n    logs: {receivers: [forward], exporters: [otlp]}",
            &[
                "c.yaml:8:45: error: the connector `forward` is an exporter of `traces` but no receiver of any traces pipeline",
                "c.yaml:9:24: error: the connector `forward` is a receiver of `logs` but no exporter of any logs pipeline",
            ],
        ),
        (
            "    traces: {receivers: [forward], exporters: [forward]}",
            &["c.yaml:8:5: error: data would circulate for ever: traces → forward → traces"],
        ),
        (
            "    logs: {receivers: [otlp, forward/2], exporters: [forward]}\n    logs/b: {receivers: [forward], exporters: [forward/2, otlp]}",
            &[
                "c.yaml:8:5: error: data would circulate for ever: logs → forward → logs/b → forward/2 → logs",
            ],
        ),
    ] {
        assert_eq!(said_of(pipelines), expected, "{pipelines}");
    }
}

#[test]
fn checks_definitions() {
    let rest = "\nservice: {pipelines: {logs: {receivers: [otlp], exporters: [debug]}}}\n";
    for (definitions, expected) in [
        (
            "receivers: {otlp: , nop/1: }\nexporters: {debug: }",
            &["c.yaml:1:21: error: `nop` is a Collector component that Sluice does not have yet"][..],
        ),
        (
            "receivers: {otlp: , oltp: }\nexporters: {debug: }",
            &["c.yaml:1:21: error: there is no receiver of type `oltp` (did you mean `otlp`?)"],
        ),
        (
            "receivers: {otlp: , health_check: }\nexporters: {debug: }",
            &[
                "c.yaml:1:21: error: there is no receiver of type `health_check` (`health_check` is one of the `extensions`)",
            ],
        ),
        (
            "receivers: {otlp: , whatever: }\nexporters: {debug: }",
            &[
                "c.yaml:1:21: error: there is no receiver of type `whatever` (`sluice components` lists the receivers of this build)",
            ],
        ),
        (
            "receivers: {otlp: , ot-lp: }\nexporters: {debug: }",
            &[
                "c.yaml:1:21: error: `ot-lp` cannot be the id of a receiver: the type `ot-lp` may only have letters, digits and `_`, and starts with a letter",
            ],
        ),
        (
            "receivers: {otlp/a: , otlp / a: , otlp: }\nexporters: {debug: }",
            &[
                "c.yaml:1:23: error: the receiver `otlp/a` is defined twice; first here: c.yaml:1:13",
            ],
        ),
        (
            "receivers: {otlp: }\nexporters: {debug: }\nextensions: {health_check: }",
            &[
                "c.yaml:3:14: warning: the extension `health_check` is defined but not used (name it under `service.extensions`)",
            ],
        ),
        (
            "receivers: [otlp]\nexporters: {debug: }",
            &[
                "c.yaml:1:12: error: `receivers` must be a mapping, not a list",
                "c.yaml:3:42: error: `service.pipelines.logs.receivers` names the receiver `otlp`, which is not defined (define it under `receivers`)",
            ],
        ),
        (
            "receivers: {otlp: }\nexporters: {debug: }\nexportes: {}",
            &[
                "c.yaml:3:1: error: there is no top-level option `exportes` (did you mean `exporters`?)",
            ],
        ),
        (
            "receivers: {otlp: }\nexporters: {debug: , forward: }\nconnectors: {debug: }",
            &[
                "c.yaml:2:22: error: there is no exporter of type `forward` (`forward` is one of the `connectors`)",
                "c.yaml:3:14: error: there is no connector of type `debug` (`debug` is one of the `exporters`)",
                "c.yaml:4:61: error: `service.pipelines.logs.exporters`: `debug` is both an exporter and a connector; exporter: c.yaml:2:13; connector: c.yaml:3:14",
            ],
        ),
    ] {
        assert_eq!(read(&format!("{definitions}{rest}")).1, expected, "{definitions}");
    }
}

/// Scenario: only `${…}` that is unset, or nothing. Guarantee: precise errors, no panic.
#[test]
fn says_what_an_empty_file_lacks() {
    assert_eq!(read("").1, ["c.yaml:1:1: error: `service.pipelines` is required"]);
    assert_eq!(read("service:").1, ["c.yaml:1:1: error: `service.pipelines` is required"]);
}

/// Reads `service.telemetry` and `buffer` beside a pipeline that is right.
fn read_rest(rest: &str) -> (Document, Vec<String>) {
    read(&format!(
        "receivers: {{otlp: }}\nexporters: {{debug: }}\nservice:\n  pipelines: {{logs: {{receivers: [otlp], exporters: [debug]}}}}\n{rest}"
    ))
}

mod telemetry;

#[test]
fn reads_the_levels_of_the_collector() {
    for (level, expected) in
        [("warning", "warn"), ("''", "info"), ("panic", "error"), ("Error", "error")]
    {
        let (document, _) = read_rest(&format!("  telemetry: {{logs: {{level: {level}}}}}"));
        assert_eq!(document.telemetry.logs.level, expected, "{level}");
    }
}

#[test]
fn reads_the_buffer() {
    let (document, said) = read_rest(
        "buffer: {ack: durable, linger: 10ms, memory: {limit_mib: 256}, policy: drop_oldest, dead_letters: {limit_mib: 1}, directory: /d, flush_after: 1s, disk: {limit_mib: 100, segment_mib: 2}}",
    );
    assert_eq!(said, Vec::<String>::new());
    let buffer = document.buffer;
    assert_eq!(buffer.ack.map(|placed| placed.value), Some(Acknowledge::Durable));
    assert_eq!(buffer.directory.map(|placed| placed.value), Some("/d".to_owned()));
    assert_eq!(buffer.flush_after.map(|placed| placed.value), Some(Duration::from_secs(1)));
    assert_eq!(
        buffer.disk_limit_mib.map(|placed| (placed.value, placed.span.line)),
        Some((100, 5))
    );
    assert_eq!(buffer.segment_mib.map(|placed| placed.value), Some(2));
    assert_eq!((buffer.linger, buffer.memory_limit_mib), (Duration::from_millis(10), Some(256)));
    assert_eq!(
        (buffer.policy, buffer.dead_letters_limit_mib),
        (Some(OverflowPolicy::DropOldest), Some(1))
    );
    let (document, _) = read_rest("buffer: {}");
    let unsaid = Buffer { linger: Buffer::LINGER, ..Buffer::default() };
    assert_eq!(document.buffer, unsaid, "nothing said is told from defaults said");
    let (document, said) = read(
        "receivers: {otlp: }\nexporters: {debug: }\nservice: {pipelines: {logs: {receivers: [otlp], exporters: [debug], buffer: {policy: backpressure, memory: {limit_mib: 5}, disk: {limit_mib: 7}}}}}",
    );
    assert_eq!(said, Vec::<String>::new());
    let buffer = &document.pipelines[0].buffer;
    assert_eq!(buffer.memory_limit_mib.as_ref().map(|placed| placed.value), Some(5));
    assert_eq!(buffer.policy, Some(OverflowPolicy::Backpressure));
    assert_eq!(buffer.disk_limit_mib.as_ref().map(|placed| placed.value), Some(7));
}

#[test]
fn says_what_is_wrong_beside_pipelines() {
    for (rest, expected) in [
        ("buffer: {directory: ''}", "c.yaml:5:21: error: `buffer.directory` must not be empty"),
        (
            "buffer: {ack: sometimes}",
            "c.yaml:5:15: error: `buffer.ack` must be one of `memory`, `delivered`, `delivered_or_durable`, `durable`, not `sometimes`",
        ),
        (
            "buffer: {flush_after: 0s}",
            "c.yaml:5:23: error: `buffer.flush_after` must be between 1ms and 1m, not `0s`",
        ),
        (
            "buffer: {policy: drop_newest}",
            "c.yaml:5:18: error: `buffer.policy` must be one of `backpressure`, `drop_oldest`, `isolate`, not `drop_newest` (did you mean `drop_oldest`?)",
        ),
        (
            "buffer: {memory: {limit_mib: 0}}",
            "c.yaml:5:30: error: `buffer.memory.limit_mib` must be between 1 and 16777216, not `0`",
        ),
        (
            "  telemetry: {traces: {level: basic}}",
            "c.yaml:5:23: warning: `service.telemetry.traces` has no effect: Sluice does not trace itself",
        ),
        (
            "  telemetry: {metrics: {address: localhost}}",
            "c.yaml:5:34: error: `service.telemetry.metrics.address`: `localhost` is not an address `host:port`: the port is missing",
        ),
        (
            "  telemetry: {metrics: {address: '1:2:3'}}",
            "c.yaml:5:34: error: `service.telemetry.metrics.address`: `1:2:3` is not an address `host:port`: an IPv6 address needs brackets",
        ),
        (
            "  telemetry: {metrics: {readers: []}}",
            "c.yaml:5:34: error: `service.telemetry.metrics.readers` must not be empty: `level: none` turns own metrics off",
        ),
        (
            "  telemetry: {metrics: {level: detailed}}",
            "c.yaml:5:32: warning: `service.telemetry.metrics.level` makes no difference: the metrics are the same at every level but `none`",
        ),
        (
            "  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: }}}, {pull: {exporter: {prometheus: }}}]}}",
            "c.yaml:5:34: warning: `service.telemetry.metrics.readers` has more than one `pull`: only the first is served",
        ),
        (
            "  telemetry: {logs: {output_paths: [stderr, /tmp/log]}}",
            "c.yaml:5:36: warning: `service.telemetry.logs.output_paths` has more than one: only the first is written to",
        ),
        (
            "  telemetry: {logs: {initial_fields: {a: b}}}",
            "c.yaml:5:38: warning: `service.telemetry.logs.initial_fields` has no effect: log lines have a fixed set of fields",
        ),
        (
            "  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {without_scope_info: false}}}}]}}",
            "c.yaml:5:87: warning: `service.telemetry.metrics.readers[0].pull.exporter.prometheus.without_scope_info` has no effect: there are no labels `otel_scope_*`",
        ),
        (
            "  telemetry: {logs: {level: fatal}}",
            "c.yaml:5:29: warning: `service.telemetry.logs.level` counts as `error`, which is Sluice's highest level",
        ),
        (
            "  telemetry: {logs: {level: inf}}",
            "c.yaml:5:29: error: `service.telemetry.logs.level` must be one of `debug`, `info`, `warn`, `error`, `warning`, `dpanic`, `panic`, `fatal`, not `inf` (did you mean `info`?)",
        ),
        (
            "  extension: [health_check]",
            "c.yaml:5:3: error: `service` has no option `extension` (did you mean `extensions`?)",
        ),
        (
            "  extensions: [health_check]",
            "c.yaml:5:16: error: `service.extensions` names the extension `health_check`, which is not defined (define it under `extensions`)",
        ),
    ] {
        assert_eq!(read_rest(rest).1, [expected], "{rest}");
    }
}

/// Guarantee: as in the Collector, an extension that is named twice is started once.
#[test]
fn an_extension_that_is_named_twice_counts_once() {
    let (document, said) = read(
        "receivers: {otlp: }\nexporters: {debug: }\nextensions: {health_check: }\nservice:\n  \
         extensions: [health_check, health_check]\n  \
         pipelines: {logs: {receivers: [otlp], exporters: [debug]}}\n",
    );
    assert_eq!(document.started_extensions.len(), 1);
    assert_eq!(
        said,
        [
            "c.yaml:5:30: warning: `service.extensions` names `health_check` twice: it counts once; first here: c.yaml:5:16"
        ]
    );
}

#[test]
fn describes_its_options() {
    let options = Document::describe();
    for path in [
        "buffer.ack",
        "service.pipelines.<name>.buffer.policy",
        "service.telemetry.metrics.readers[].pull.exporter.prometheus.port",
    ] {
        assert!(options.iter().any(|option| option.path == path), "{path}");
    }
}

/// Guarantee: the whole report, as a person sees it in a file and in a terminal without colours.
#[test]
fn renders_errors_with_the_lines_they_are_about() {
    let text = "receivers:\n  otlp:\nexporters:\n  oltp:\nservice:\n  pipelines:\n    \
                logs:\n      receivers: [otlp]\n      exporters: [oltp, oltp]\n";
    let environment = Fake::default().file("c.yaml", text);
    let (_, diagnostics) = load(&["c.yaml".to_owned()], &environment, &Build);
    let expected = "\
warning: `service.pipelines.logs.exporters` names `oltp` twice: it counts once
 --> c.yaml:9:25
  |
9 |       exporters: [oltp, oltp]
  |                         ^^^^
  |
 ::: c.yaml:9:19
  |
9 |       exporters: [oltp, oltp]
  |                   ---- first here

error: there is no exporter of type `oltp`
 --> c.yaml:4:3
  |
4 |   oltp:
  |   ^^^^
  |
  = help: did you mean `otlp`?";
    assert_eq!(diagnostics.render(false), expected);
}

/// Guarantee: the examples have neither errors nor warnings, apart from the options of components.
#[test]
fn reads_the_examples() {
    for name in ["gateway", "kyma-metric-gateway", "tls", "fan-out", "forward-connector"] {
        let path = format!("{}/../../examples/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
        let (document, said) = read(&std::fs::read_to_string(&path).unwrap());
        assert_eq!(said, Vec::<String>::new(), "{name}");
        assert!(!document.pipelines.is_empty(), "{name}");
    }
}
