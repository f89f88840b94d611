//! `container`, with the Collector's cases.

use std::time::Duration;

use sluice_otlp::AnyValue;

use super::{map, record, sorted, stage, text};
use crate::operator::Stage;
use crate::parsers::time::rfc3339;
use crate::record::{Origin, Record};

const PATH: &str = concat!(
    "/var/log/pods/some_kube-scheduler-kind-control-plane_49cc7c1fd3702c40b2686ea7486091d3",
    "/kube-scheduler44/1.log"
);
const DOCKER: &str =
    r#"{"log":"INFO: log line here","stream":"stdout","time":"2029-03-30T08:31:20.545192187Z"}"#;

fn line(body: &str, path: Option<&str>) -> Record {
    let mut record = record(text(body));
    let path = path.map(|path| ("log.file.path".to_owned(), text(path)));
    record.attributes.extend(path);
    record
}

/// All records that leave.
fn processed(options: &str, lines: Vec<Record>) -> Result<Vec<Record>, String> {
    let mut stage = stage(options).unwrap_or_else(|why| panic!("{options}: {why}"));
    let mut out = Vec::new();
    for line in lines {
        stage.take(line, &mut out).map_err(|refused| refused.1)?;
    }
    stage.flush(Duration::MAX, &mut out);
    Ok(out
        .into_iter()
        .map(|(place, record)| {
            assert_eq!(place, 0);
            record
        })
        .collect())
}

/// A line at a place of a file.
fn at(stream: u64, start: u64, body: &str) -> Record {
    let origin = Origin { stream, range: start..start + body.len() as u64 };
    Record { origin, ..record(text(body)) }
}

const PLAIN: &str = "add_metadata_from_filepath: false";

#[test]
fn lines_of_docker_are_parsed() {
    for options in [PLAIN, "add_metadata_from_filepath: false\nformat: docker"] {
        let found = processed(options, vec![line(DOCKER, None)]).unwrap();
        let expected = Record {
            time_ns: rfc3339("2029-03-30T08:31:20.545192187Z"),
            attributes: vec![("log.iostream".to_owned(), text("stdout"))],
            ..record(text("INFO: log line here"))
        };
        assert_eq!(found, [expected]);
    }
    let more = r#"{"attrs":{"tag":"a"},"n":1,"log":"x\n","stream":"stderr",
                   "time":"2029-03-30T08:31:20Z"}"#;
    let found = processed(PLAIN, vec![line(more, None)]).unwrap();
    assert_eq!(found[0].body, text("x\n"));
    let expected = map([
        ("attrs", map([("tag", text("a"))])),
        ("log.iostream", text("stderr")),
        ("n", AnyValue::Double(1.0)),
    ]);
    assert_eq!(sorted(AnyValue::Map(found[0].attributes.clone())), expected);
}

#[test]
fn lines_of_crio_and_containerd_are_parsed() {
    let crio =
        "2024-04-13T07:59:37.505201169-10:00 stdout F standalone crio line which is awesome!";
    let containerd =
        "2024-04-13T07:59:37.505201169Z stderr F standalone crio line which is awesome!";
    for (body, format, stream, time) in [
        (crio, "crio", "stdout", "2024-04-13T17:59:37.505201169Z"),
        (containerd, "containerd", "stderr", "2024-04-13T07:59:37.505201169Z"),
    ] {
        for options in [PLAIN.to_owned(), format!("{PLAIN}\nformat: {format}")] {
            let found = processed(&options, vec![line(body, None)]).unwrap();
            let attributes = [("logtag", text("F")), ("log.iostream", text(stream))];
            let expected = Record {
                time_ns: rfc3339(time),
                attributes: attributes.map(|(key, value)| (key.to_owned(), value)).to_vec(),
                ..record(text("standalone crio line which is awesome!"))
            };
            assert_eq!(found, [expected], "{body}");
        }
    }
    for (body, log) in [
        ("2024-04-13T07:59:37Z stdout F", ""),
        ("2024-04-13T07:59:37Z stdout F ", ""),
        ("2024-04-13T07:59:37Z stdout F  two", " two"),
        ("2024-04-13T07:59:37Z stdout F é", "é"),
    ] {
        let found = processed(PLAIN, vec![line(body, None)]).unwrap();
        assert_eq!(found[0].body, text(log), "{body:?}");
    }
}

#[test]
fn names_come_from_the_path_of_the_file() {
    let windows = PATH.replace('/', "\\");
    let rotated = format!("{PATH}.20250219-233547");
    let compressed = format!("{rotated}.gz");
    for path in [PATH, &windows, &rotated, &compressed] {
        let found = processed("", vec![line(DOCKER, Some(path))]).unwrap();
        let expected = map([
            ("k8s.container.name", text("kube-scheduler44")),
            ("k8s.container.restart_count", text("1")),
            ("k8s.namespace.name", text("some")),
            ("k8s.pod.name", text("kube-scheduler-kind-control-plane")),
            ("k8s.pod.uid", text("49cc7c1fd3702c40b2686ea7486091d3")),
        ]);
        assert_eq!(sorted(AnyValue::Map(found[0].resource.clone())), expected, "{path}");
        assert_eq!(found[0].attributes[0], ("log.file.path".to_owned(), text(path)));
    }
    let other = PATH.replace("44/1.log", "45/2.log");
    let lines =
        vec![line(DOCKER, Some(PATH)), line(DOCKER, Some(&other)), line(DOCKER, Some(PATH))];
    let containers: Vec<AnyValue> = processed("", lines)
        .unwrap()
        .into_iter()
        .map(|record| record.resource[3].1.clone())
        .collect();
    assert_eq!(containers, ["kube-scheduler44", "kube-scheduler45", "kube-scheduler44"].map(text));
}

#[test]
fn paths_of_another_form_are_refused() {
    for path in [
        "",
        "/var/log/x.log",
        "/a_b_c/d/1",
        "/a_b/d/1.log",
        "/a_b_c_d/e/1.log",
        "a_b_c/d/1.log",
        "/a_b_xyz/d/1.log",
        "/a_b_c/d.e/1.log",
        "/a_b_c/d/x.log",
        "/a_b_c/d/1.log.gz",
        "/a_b_c/d/.log",
        "/_b_c/d/1.log",
        "/a_b_c//1.log",
        "/a_b_c/d/1.log.2025-1",
        "/a_b_c/d/1.log.20250219-233547.gz.gz",
        "/a_b_c/d/1.log.20250219-233547.tmp",
    ] {
        let error = processed("", vec![line(DOCKER, Some(path))]).unwrap_err();
        assert!(error.contains("is no path of a container's log"), "{path}: {error}");
    }
    assert!(processed("", vec![line(DOCKER, Some("/a_b_c/d/1.log"))]).is_ok());
    let error = processed("", vec![line(DOCKER, None)]).unwrap_err();
    assert!(error.contains("include_file_path: true"), "{error}");
}

#[test]
fn lines_of_another_form_are_handed_back_unchanged() {
    let containerd = "format: containerd\nadd_metadata_from_filepath: false";
    let crio = "format: crio\nadd_metadata_from_filepath: false";
    for (options, body, expected) in [
        (PLAIN, "hello", "is no line of a container"),
        (PLAIN, "", "is no line of a container"),
        (PLAIN, "2024-04-13T07:59:37Z stdlog F x", "is no line of a container"),
        (PLAIN, "2024-04-13T07:59:37Z stdout F x\ny", "is no line of a container"),
        (PLAIN, "2024-04-13T07:59:3Z stdout F x", "`2024-04-13T07:59:3Z` is not a time"),
        (PLAIN, "{\"log\":\"x\"", "is not JSON"),
        (PLAIN, "{\"log\":\"x\",\"stream\":\"stdout\"}", "has no `time`"),
        (PLAIN, "{\"time\":\"2029-03-30T08:31:20Z\",\"stream\":\"stdout\"}", "has no `log`"),
        (PLAIN, "{\"time\":1,\"stream\":\"stdout\",\"log\":\"x\"}", "is not a time"),
        (containerd, "2024-04-13T07:59:37+01:00 stdout F x", "is no line of containerd"),
        (crio, "2024-04-13T07:59:37Z stdout F x", "is no line of CRI-O"),
        (crio, DOCKER, "is no line of CRI-O"),
    ] {
        let mut stage = stage(options).unwrap();
        let given = line(body, None);
        let (record, error) = *stage.take(given.clone(), &mut Vec::new()).unwrap_err();
        assert_eq!(record, given);
        assert!(error.contains(expected), "{body}: {error}");
    }
    let mut stage = stage(PLAIN).unwrap();
    let (_, error) = *stage.take(record(AnyValue::Int(1)), &mut Vec::new()).unwrap_err();
    assert_eq!(error, "`body` is an integer, not a line of a container");
}

#[test]
fn the_line_may_lie_in_another_field() {
    let options = "parse_from: attributes.line\nadd_metadata_from_filepath: false";
    let mut given = record(text("old"));
    given.attributes.push(("line".into(), text("2024-04-13T07:59:37Z stdout F new")));
    let found = processed(options, vec![given]).unwrap();
    assert_eq!(found[0].body, text("new"));
    assert_eq!(found[0].attributes.len(), 3);
}

/// The parts of a log are joined; the first part's time and tag count.
#[test]
fn cut_lines_are_joined() {
    let lines = vec![
        at(1, 0, "2024-04-13T07:59:37.505201169Z stdout P standalone line which i"),
        at(1, 100, "2024-04-13T07:59:38Z stdout P s awe"),
        at(1, 200, "2024-04-13T07:59:39Z stdout F some!"),
        at(1, 300, "2024-04-13T07:59:40Z stdout F next"),
    ];
    let found = processed(PLAIN, lines).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].body, text("standalone line which is awesome!"));
    assert_eq!(found[0].time_ns, rfc3339("2024-04-13T07:59:37.505201169Z"));
    assert_eq!(found[0].attributes[0], ("logtag".to_owned(), text("P")));
    assert_eq!(found[0].origin, Origin { stream: 1, range: 0..235 });
    assert_eq!(found[1].body, text("next"));
}

/// Parts of `stdout` and `stderr`, and of several files, alternate.
#[test]
fn files_and_streams_are_joined_apart() {
    let lines = vec![
        at(1, 0, "2024-04-13T07:59:37Z stdout P a"),
        at(1, 40, "2024-04-13T07:59:37Z stderr P b"),
        at(2, 0, "2024-04-13T07:59:37Z stdout P c"),
        at(1, 80, "2024-04-13T07:59:37Z stderr F B"),
        at(2, 40, "2024-04-13T07:59:37Z stdout F C"),
        at(1, 120, "2024-04-13T07:59:37Z stdout F A"),
    ];
    let found = processed(PLAIN, lines).unwrap();
    let bodies: Vec<AnyValue> = found.into_iter().map(|record| record.body).collect();
    assert_eq!(bodies, ["bB", "cC", "aA"].map(text));
}

#[test]
fn held_parts_leave_after_their_time_and_are_known_until_then() {
    let mut stage = stage(PLAIN).unwrap();
    let mut out = Vec::new();
    for (stream, body) in [(1, "one"), (2, "two")] {
        let part = format!("2024-04-13T07:59:37Z stdout P {body}");
        stage.take(at(stream, 7, &part), &mut out).unwrap();
    }
    let held = |stage: &dyn Stage| {
        let mut origins = Vec::new();
        stage.held(&mut origins);
        origins.sort_by_key(|origin| origin.stream);
        origins
    };
    let origin = |stream| Origin { stream, range: 7..40 };
    assert_eq!(held(stage.as_ref()), [origin(1), origin(2)]);
    stage.flush(Duration::from_secs(100), &mut out);
    stage.flush(Duration::from_millis(104_999), &mut out);
    assert_eq!(out, []);
    stage.forget(2);
    assert_eq!(held(stage.as_ref()), [origin(1)]);
    stage.flush(Duration::from_secs(105), &mut out);
    assert_eq!(out.len(), 1);
    assert_eq!(out[0].1.body, text("one"));
    assert_eq!(held(stage.as_ref()), []);
    stage.take(at(2, 7, "2024-04-13T07:59:37Z stdout F two"), &mut out).unwrap();
    assert_eq!(out[1].1.body, text("two"), "what was forgotten is not joined");
}

#[test]
fn a_log_that_is_too_long_leaves_without_its_end() {
    let options = "max_log_size: 5\nadd_metadata_from_filepath: false";
    let part =
        |tag: &str, body: &str| at(1, 0, &format!("2024-04-13T07:59:37Z stdout {tag} {body}"));
    let lines = vec![
        part("P", "abc"),
        part("P", "def"),
        part("P", "ghi"),
        part("F", "j"),
        part("P", "123456"),
    ];
    let found = processed(options, lines).unwrap();
    let bodies: Vec<AnyValue> = found.into_iter().map(|record| record.body).collect();
    assert_eq!(bodies, ["abcdef", "ghij", "123456"].map(text));
}

#[test]
fn without_a_limit_a_log_is_joined_to_its_end() {
    let options = "max_log_size: 0\nadd_metadata_from_filepath: false";
    let piece = "x".repeat(700 << 10);
    let line = |tag: &str| at(1, 0, &format!("2024-04-13T07:59:37Z stdout {tag} {piece}"));
    let found = processed(options, vec![line("P"), line("P"), line("F")]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].body, text(&piece.repeat(3)));
}

/// Many files do not make it hold more logs than its bound; the oldest leave in parts.
#[test]
fn held_parts_are_bounded_in_number_and_memory() {
    let mut stage = stage(PLAIN).unwrap();
    let mut out = Vec::new();
    for stream in 0..1010 {
        let part = format!("2024-04-13T07:59:37Z stdout P {stream}");
        stage.take(at(stream, 0, &part), &mut out).unwrap();
    }
    let bodies: Vec<AnyValue> = out.drain(..).map(|(_, record)| record.body).collect();
    assert_eq!(bodies, (0..10).map(|stream| text(&stream.to_string())).collect::<Vec<_>>());
    let before = stage.held_bytes();
    let long = format!("2024-04-13T07:59:37Z stdout P {}", "x".repeat(1 << 20));
    stage.take(at(2000, 0, &long), &mut out).unwrap();
    assert_eq!(stage.held_bytes(), before + (1 << 20) - "10".len());
    for _ in 0..999 {
        stage.let_go_oldest(&mut out);
    }
    assert_eq!(stage.held_bytes(), (1 << 20) + 256);
    let mut held = Vec::new();
    stage.held(&mut held);
    assert_eq!(held.iter().map(|origin| origin.stream).collect::<Vec<_>>(), [2000]);
    assert_eq!(out.len(), 1000);
}

#[test]
fn options_of_parsers_that_it_lacks_are_errors() {
    for (options, expected) in [
        ("format: podman", "must be one of `docker`, `containerd`, `crio`"),
        ("max_log_size: 2GiB", "must be between 0 and 1GiB"),
        ("timestamp: {parse_from: body}", "`operators[0].timestamp` is not in this build"),
        ("parse_to: body", "`operators[0].parse_to` is not in this build"),
        ("formt: crio", "has no option `formt`"),
    ] {
        let error = stage(options).err().unwrap_or_default();
        assert!(error.contains(expected), "{error}");
    }
}
