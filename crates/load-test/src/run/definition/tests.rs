use std::net::SocketAddr;

use super::*;
use crate::generate::Protocol;
use sluice_otlp::Signal;

fn setting(signal: Signal) -> Setting {
    let addr = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    Setting {
        signal,
        protocol: Protocol::Grpc,
        listen: addr(4317),
        listen_other: addr(4318),
        metrics: addr(8888),
        spare: addr(9999),
        backends: vec![addr(1), addr(2)],
        memory_limit_mib: 2000,
        cores: 1,
        scrape_targets: vec![addr(10), addr(11)],
        scrape_interval: Some(Duration::from_millis(500)),
        log_root: Some("/logs".into()),
        k6_file: Some("/k6/samples".into()),
    }
}

fn signal(target: Target) -> Signal {
    match target {
        Target::Traces => Signal::Traces,
        Target::Metrics | Target::MetricAgent | Target::K6 => Signal::Metrics,
        Target::LogsOtel | Target::LogAgent | Target::LogsFluentBit => Signal::Logs,
    }
}

fn folder(description: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(SUBJECT_FILE), description).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn spec(definition: &Definition) -> anyhow::Result<SubjectSpec> {
    definition.spec(Target::Traces, &setting(Signal::Traces), Limits::default(), &[])
}

/// The error of reading a folder, or of using it with `-t traces`.
fn error(description: &str, files: &[(&str, &str)]) -> String {
    let folder = folder(description, files);
    let used = |definition: Definition| {
        spec(&definition).and_then(|_| definition.metrics(Target::Traces, &setting(Signal::Traces)))
    };
    let error = Definition::read(folder.path()).and_then(used).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn all_built_in_subjects_can_be_filled_in_for_all_their_targets_and_no_variable_is_left() {
    for name in BUILT_IN_NAMES {
        let definition = Definition::built_in(name).unwrap();
        assert_eq!(definition.name, *name);
        assert!(definition.about().is_some() && definition.description.install.is_some(), "{name}");
        assert!(!definition.targets().is_empty(), "{name}");
        for target in definition.targets().into_iter().filter(|_| !definition.is_direct()) {
            let setting = setting(signal(target));
            let spec = definition.spec(target, &setting, Limits::default(), &[]).unwrap();
            definition.metrics(target, &setting).unwrap();
            let all = format!("{} {:?} {:?}", spec.config, spec.args, spec.env);
            for (variable, _) in template::all(&setting, Scope::default()) {
                assert!(!all.contains(&format!("@{variable}@")), "{name} {target:?}: {variable}");
            }
            let is_complete = match (target, definition.k6_form()) {
                (Target::K6, K6Form::Lines) => {
                    all.contains("http://127.0.0.1:1\"") || all.contains("http://127.0.0.1:1\n")
                }
                (Target::K6, _) => all.contains("\"/k6/samples\""),
                _ => all.contains("127.0.0.1:2") || all.contains("port: 2"),
            };
            assert!(is_complete, "{name} {target:?}: last backend, or k6's file: {all}");
        }
    }
}

/// Guarantee: only a subject of k6's samples alone may have no program, and each way is as named.
#[test]
fn samples_of_k6_may_go_directly() {
    let way = |name: &str| Definition::built_in(name).unwrap().k6_form();
    let direct = Definition::built_in("direct").unwrap();
    assert!(direct.is_direct() && direct.is_installed() && direct.k6_form() == K6Form::Lines);
    assert_eq!(
        (way("sluice"), way("sluice-json"), way("telegraf-csv")),
        (K6Form::Lines, K6Form::Json, K6Form::Csv)
    );
    assert_eq!(Definition::built_in("telegraf-csv").unwrap().program_name(), "telegraf");
    let description =
        "{\"name\": \"a\", \"command\": [], \"targets\": {\"k6\": {}, \"metrics\": {}}}";
    assert!(error(description, &[]).contains("`command` is empty"));
    let description =
        "{\"name\": \"a\", \"command\": [\"a\"], \"targets\": {\"metrics\": {\"k6\": \"csv\"}}}";
    assert!(error(description, &[]).contains("it belongs to the target `k6`"));
}

#[test]
fn every_pipeline_of_a_gateway_has_its_exporter() {
    let definition = Definition::built_in("sluice").unwrap();
    let spec = spec(&definition).unwrap();
    assert!(spec.config.contains("otlp/1:\n    endpoint: 127.0.0.1:2\n"), "{}", spec.config);
    assert!(
        spec.config.contains("traces/0:") && spec.config.contains("traces/1:"),
        "{}",
        spec.config
    );
    assert_eq!(
        (spec.args.last().unwrap().as_str(), spec.config_file.as_str()),
        ("{config}", "gateway.yaml")
    );
    let metrics = definition.metrics(Target::Traces, &setting(Signal::Traces)).unwrap();
    assert_eq!(metrics.pipelines.len(), 2);
    let queue = metrics.pipelines[1].queue.as_ref().unwrap();
    assert_eq!(
        (queue.name.as_str(), queue.labels[0].1.as_str()),
        ("otelcol_exporter_queue_size", "otlp/1")
    );
}

#[test]
fn lists_and_sections_are_repeated_and_at_signs_of_its_own_are_left_alone() {
    let template = "mail: a@b.c @x@ @timestamp\nall: [@EACH_PIPELINE@p@INDEX@@END@]\n\
                    @EACH_TARGET@\n- @TARGET@ of @TARGET_HOST@\n@END@\nevery: @SCRAPE_INTERVAL_S@ \
                    @SCRAPE_INTERVAL_MS@\n";
    let rendered = template::fill(template, &setting(Signal::Traces), Scope::Whole).unwrap();
    let expected = "mail: a@b.c @x@ @timestamp\nall: [p0,p1]\n- 127.0.0.1:10 of 127.0.0.1\n- \
    127.0.0.1:11 of 127.0.0.1\n\
                    every: 0.5 500\n";
    assert_eq!(rendered, expected);
}

#[test]
fn an_environment_variable_with_an_index_is_there_once_a_pipeline() {
    let folder = folder(
        r#"{"name": "x", "command": ["true", "@LISTEN_PORT@"],
            "env": {"TO_@INDEX@": "@BACKEND@", "FIRST": "@BACKEND_PORT@"},
            "targets": {"traces": {"env": {"FIRST": "mine"}}}}"#,
        &[],
    );
    let spec = spec(&Definition::read(folder.path()).unwrap()).unwrap();
    let env: Vec<_> =
        spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("FIRST", "mine"), ("TO_0", "127.0.0.1:1"), ("TO_1", "127.0.0.1:2")]);
    assert_eq!(spec.args, ["4317"]);
}

#[test]
fn what_is_wrong_is_named_with_file_line_and_the_nearest_valid_name() {
    let with = |more: &str| format!("{{\n\"name\": \"x\",\n\"command\": [\"true\"],\n{more}\n}}");
    let template = |text: &'static str| error(&with("\"config\": \"c.yaml\""), &[("c.yaml", text)]);
    for (found, expected) in [
        (
            error(&with("\"metrix\": {}"), &[]),
            "subject.json:4: unknown field `metrix`: did you mean `metrics`?",
        ),
        (
            error(&with("\"metrics\": {\"recieved\": \"a\"}"), &[]),
            "subject.json:4: unknown field `recieved`: did you mean `received`?",
        ),
        (
            error(&with("\"targets\": {\"trace\": {}}"), &[]),
            "subject.json:4: unknown variant `trace`: did you mean `traces`?",
        ),
        (
            error(&with("\"env\": {\"A\": \"@BACKENDS@\"}"), &[]),
            "subject.json:4: no variable `@BACKENDS@`: did you mean `BACKEND`?",
        ),
        (
            error(&with("\"metrics\": {\"queue\": \"q{\"}"), &[]),
            "subject.json:4: `q{` is no metric",
        ),
        (
            error(&with("\"ready\": {\"connect\": \"localhost\"}"), &[]),
            "subject.json:4: `localhost` is no address",
        ),
        (
            error(&with("\"ready_within_s\": \"long\""), &[]),
            "subject.json:4: invalid type: string \"long\", expected u64",
        ),
        (error("{\"name\": \"x\"}", &[]), "subject.json:1: missing field `command`"),
        (error("{\"name\": \"x\", \"command\": []}", &[]), "`command` is empty"),
        (error(&with("\"config\": \"none.yaml\""), &[]), "none.yaml: No such file"),
        (template("a\nb: @LISTN@\n"), "c.yaml:2: no variable `@LISTN@`: did you mean `LISTEN`?"),
        (template("a: @INDEX@\n"), "c.yaml:1: `@INDEX@` has no value outside a section"),
        (template("@EACH_PIPELINE@\na: @LISTN@\n@END@\n"), "c.yaml:2: no variable `@LISTN@`"),
        (template("a\n@EACH_PIPELINE@\nb\n"), "c.yaml:2: `@EACH_PIPELINE@` without `@END@`"),
        (template("@END@\n"), "c.yaml:1: `@END@` without"),
        (
            template("@EACH_PIPELINE@\n@EACH_TARGET@\n@END@\n@END@\n"),
            "c.yaml:2: `@EACH_TARGET@` within a section",
        ),
    ] {
        assert!(
            found.starts_with(expected) || found.contains("command") && found.contains(expected),
            "{found}\n{expected}"
        );
    }
    let empty = tempfile::tempdir().unwrap();
    assert!(Definition::read(empty.path()).unwrap_err().to_string().contains("needs subject.json"));
}

#[test]
fn an_unknown_subject_or_one_that_cannot_do_a_target_is_refused_with_what_there_is() {
    let folder = folder(
        r#"{"name": "x", "command": ["true"], "targets": {"metrics": {}, "logs-otel": {}}}"#,
        &[],
    );
    let error = spec(&Definition::read(folder.path()).unwrap()).unwrap_err().to_string();
    assert!(
        error.starts_with("x cannot be tested with -t traces")
            && error.ends_with("names metrics, logs-otel only"),
        "{error}"
    );
    let error = Definition::built_in("otelcoll").unwrap_err().to_string();
    assert!(error.contains("did you mean `otelcol`?") && error.contains("df_engine"), "{error}");
}

#[test]
fn one_that_is_never_told_where_requests_over_http_go_is_refused() {
    let over_http = |name: &str| {
        let setting = Setting { protocol: Protocol::Http, ..setting(Signal::Metrics) };
        Definition::built_in(name).unwrap().spec(Target::Metrics, &setting, Limits::default(), &[])
    };
    let error = over_http("telegraf").unwrap_err().to_string();
    assert!(
        error.starts_with("telegraf takes no OTLP over HTTP: subjects/telegraf/subject.json"),
        "{error}"
    );
    let takes_metrics =
        |name: &&&str| Definition::built_in(name).unwrap().targets().contains(&Target::Metrics);
    for name in BUILT_IN_NAMES.iter().filter(takes_metrics).filter(|name| **name != "telegraf") {
        over_http(name).unwrap();
    }
}

#[test]
fn a_missing_program_is_said_with_all_ways_to_give_it() {
    let described = |command: &str| {
        folder(
            &format!(r#"{{"name": "my-engine", "command": ["{command}"], "install": "build it"}}"#),
            &[],
        )
    };
    let folder = described("no-such-engine");
    let error = Definition::read(folder.path()).unwrap().find_program().unwrap_err().to_string();
    assert_eq!(
        error,
        "my-engine: no program `no-such-engine` in PATH: build it, or give its path with \
         --subject-binary \
         my-engine=PATH or \
         SLUICE_TEST_MY_ENGINE"
    );
    let folder = described("./engine");
    let mut definition = Definition::read(folder.path()).unwrap();
    let error = definition.find_program().unwrap_err().to_string();
    assert!(
        error.contains("no program at") && error.contains("--subject-binary my-engine=PATH"),
        "{error}"
    );
    fs::write(folder.path().join("engine"), "").unwrap();
    definition.find_program().unwrap();
    assert_eq!(spec(&definition).unwrap().binary, folder.path().join("engine"));
}

/// docs/load-test.md has a row for every field and every variable.
#[test]
fn the_guide_explains_every_field_and_variable() {
    let guide =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/load-test.md"))
            .unwrap();
    for (name, _) in template::all(&setting(Signal::Traces), Scope::default()) {
        let name = name.trim_end_matches("_HOST").trim_end_matches("_PORT");
        assert!(guide.contains(&format!("@{name}@")), "{name}");
    }
    // serde names the known fields when it meets an unknown one.
    for (json, fields) in [
        ("{\"?\":1}", 12),
        ("{\"metrics\":{\"?\":1}}", 12),
        ("{\"targets\":{\"traces\":{\"?\":1}}}", 5),
    ] {
        let error = serde_json::from_str::<Description>(json).unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        assert!(known.len() >= fields, "{error}");
        for field in known {
            assert!(guide.contains(&format!("`{field}`")), "{field}");
        }
    }
}
