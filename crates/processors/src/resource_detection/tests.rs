use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue as Any, KeyValue};
use opentelemetry_proto::tonic::logs::v1::ResourceLogs;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use sluice_config::read_text;

use super::*;

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn on_of(yaml: &str) -> Result<Put, String> {
    let (on, diagnostics) = read_text("processors.resource_detection", yaml, read);
    if diagnostics.has_errors() { Err(diagnostics.render(false)) } else { Ok(on) }
}

/// The attributes of a resource with `a=old`, and of a request's resource that is missing.
fn run(processor: &ResourceDetection) -> Vec<Vec<(String, String)>> {
    let value = Some(Any { value: Some(Value::StringValue("old".to_owned())) });
    let attributes = vec![KeyValue { key: "a".to_owned(), value, ..KeyValue::default() }];
    let resource = Some(Resource { attributes, ..Resource::default() });
    let resource_logs = vec![
        ResourceLogs { resource, ..ResourceLogs::default() },
        ResourceLogs { schema_url: "s".to_owned(), ..ResourceLogs::default() },
    ];
    let request = Bytes::from(ExportLogsServiceRequest { resource_logs }.encode_to_vec());
    let edited = processor.process(Signal::Logs, &request, &Metadata::default(), usize::MAX);
    let edited = edited.expect("is valid").expect("is within").unwrap_or(request);
    let decoded = ExportLogsServiceRequest::decode(edited).expect("is valid");
    let resources = decoded.resource_logs.into_iter().map(|it| it.resource.unwrap_or_default());
    let shown = |attribute: KeyValue| match attribute.value.and_then(|it| it.value) {
        Some(Value::StringValue(text)) => (attribute.key, text),
        other => panic!("{other:?}"),
    };
    resources.map(|it| it.attributes.into_iter().map(shown).collect()).collect()
}

#[test]
fn detected_attributes_replace_others_unless_override_is_off() {
    let detected = || env::parse("a=new,b=,c=x%2Cy+z");
    let rest = [("b", ""), ("c", "x,y z")];
    for (yaml, a) in [("{}", "new"), ("override: false", "old")] {
        let processor = ResourceDetection::new(on_of(yaml).unwrap(), detected());
        let [first, second] = &run(&processor)[..] else { panic!("two resources") };
        assert_eq!(*first, pairs(&[("a", a), rest[0], rest[1]]), "{yaml}");
        assert_eq!(*second, pairs(&[("a", "new"), rest[0], rest[1]]), "{yaml}");
    }
}

#[test]
fn attributes_and_override_are_part_of_the_fingerprint() {
    let of = |on, text| ResourceDetection::new(on, env::parse(text)).fingerprint();
    assert_eq!(of(Put::Upsert, "a=b"), of(Put::Upsert, " a = b ,"));
    assert_ne!(of(Put::Upsert, "a=b"), of(Put::Insert, "a=b"));
    assert_ne!(of(Put::Upsert, "a=b"), of(Put::Upsert, "a=c"));
}

#[test]
fn the_variable_is_read_as_the_collector_reads_it() {
    let ok = |text: &str| env::parse(text).unwrap();
    let text = r#" example.org/test-1 =  test $ %3A \" ,  Abc=Def  "#;
    assert_eq!(ok(text), pairs(&[("example.org/test-1", r#"test $ : \""#), ("Abc", "Def")]));
    assert_eq!(ok("a=1,b=2,a=3"), pairs(&[("a", "3"), ("b", "2")]));
    assert_eq!(ok("a,b=c=d"), pairs(&[("a,b", "c=d")]));
    assert_eq!(ok(&format!("{}=v", "k".repeat(256))).len(), 1);
}

#[test]
fn a_variable_that_cannot_be_read_fails_the_start_and_says_where() {
    let long = format!("{}=v", "k".repeat(257));
    for (text, part) in [
        ("invalid=url-%3-encoding", r#"invalid escape "%3-""#),
        ("a=%", r#"invalid escape "%""#),
        ("a=%ff", "not UTF-8"),
        ("invalid-char-ü=test", r#""invalid-char-ü=test""#),
        ("invalid-char=ü-test", r#""invalid-char=ü-test""#),
        ("extra=chars, a", r#"" a""#),
        ("key=value,key", r#""key""#),
        ("invalid=char,übetween=attributes", r#""ü""#),
        ("no pair", r#""no pair""#),
        ("=v", r#""=v""#),
        (&long, r#""k""#),
    ] {
        let processor = ResourceDetection::new(Put::Upsert, env::parse(text));
        let failure = run_to_end(processor.start()).expect_err(text);
        assert!(failure.contains(part), "{text}: {failure}");
    }
    let processor = ResourceDetection::new(Put::Upsert, env::parse(""));
    assert_eq!(run_to_end(processor.start()), Ok(()));
}

fn run_to_end<T>(future: BoxFuture<'static, T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

#[test]
fn detectors_of_the_collector_alone_are_refused_by_name() {
    assert!(on_of("detectors: [env]").is_ok());
    for (yaml, part) in [
        ("detectors: [env, ec2]", "`ec2`, which is not in this build"),
        ("detectors: [vultr]", "`vultr`, which is not in this build"),
        ("detectors: [en]", "`en`, which is no detector"),
        ("detectors: []", "is empty"),
        ("detectors: ''", "is empty"),
    ] {
        let error = on_of(yaml).expect_err(yaml);
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn options_of_detectors_that_ask_a_service_have_no_effect_and_say_so() {
    let yaml = "{timeout: 2s, retry: {enabled: false}, system: {hostname_sources: [os]}}";
    let (_, diagnostics) = read_text("processors.resource_detection", yaml, read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let shown = diagnostics.render(false);
    for key in ["timeout", "retry", "system"] {
        assert!(shown.contains(&format!("resource_detection.{key}` has no effect")), "{shown}");
    }
}
