use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use prost::Message as _;
use sluice_config::load::read_text;
use sluice_influx::{Builder, Limits, Precision, Reader, Settings};
use sluice_otlp::AnyValue;
use sluice_tail::{FileId, Line};

use super::*;
use crate::files::{Attributes, HEADER_TEXT, Records as _};

const HEADER: &str = "metric_name,timestamp,metric_value,check,error,group,method,name,status,url,\
                      extra_tags,metadata";

fn samples(options: &str) -> (Samples, Arc<K6Counters>) {
    let text = format!("{{include: [/a], {options}}}");
    let (config, diagnostics) = read_text("receivers.k6", &text, K6Config::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let counters = Arc::<K6Counters>::default();
    (Samples::new(&config, Arc::clone(&counters)), counters)
}

fn attributes(header: &str) -> Attributes {
    vec![(HEADER_TEXT.to_owned(), AnyValue::String(header.to_owned()))]
}

/// The request of these lines, and how many of them were at fault.
fn made(options: &str, header: &str, lines: &[&str]) -> (ExportMetricsServiceRequest, u64) {
    let (mut samples, counters) = samples(options);
    samples.begin(FileId(1), &attributes(header));
    for (number, text) in (1..).zip(lines) {
        samples.push(Line { text: text.as_bytes(), offset: 0, number });
    }
    let items = samples.items();
    let request = ExportMetricsServiceRequest::decode(samples.finish()).expect("is OTLP");
    let metrics = request.resource_metrics.iter().flat_map(|it| &it.scope_metrics);
    let points = metrics.flat_map(|it| &it.metrics).map(|metric| match &metric.data {
        Some(Data::Gauge(data)) => data.data_points.len(),
        Some(Data::Sum(data)) => data.data_points.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(points.sum::<usize>(), items as usize);
    (request, counters.faults())
}

/// The request that these lines of line protocol become.
fn written(sums: &[&str], lines: &str) -> ExportMetricsServiceRequest {
    let sums = sums.iter().map(|name| (*name).to_owned());
    let settings = Settings { sums: Settings::default().sums.into_iter().chain(sums).collect() };
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    let mut builder = Builder::new(&settings);
    reader.read(lines.as_bytes(), |line| builder.add(line, 0));
    assert_eq!(reader.faults().count, 0);
    ExportMetricsServiceRequest::decode(&builder.take(&[])[..]).expect("is OTLP")
}

/// The line that defines a counter.
fn counter(name: &str) -> String {
    format!(r#"{{"type":"Metric","data":{{"name":"{name}","type":"counter","contains":"default","#)
        + &format!(r#""thresholds":[],"submetrics":null}},"metric":"{name}"}}"#)
}

/// The line of a sample. `value`, `tags`, and what is behind them are JSON.
fn point(name: &str, time: &str, value: &str, tags: &str) -> String {
    format!(r#"{{"metric":"{name}","type":"Point","data":{{"time":"{time}","#)
        + &format!(r#""value":{value},"tags":{tags}}}}}"#)
}

/// Guarantee: a sample of JSON or of CSV becomes what k6's output for InfluxDB would have become.
#[test]
fn samples_are_those_of_the_output_for_influxdb() {
    let tags = r#"{"error":"","group":"::a b","method":"GET","name":"http://x/a,b?c=\"d\"","#
        .to_owned()
        + r#""status":"0","url":"http://x/a,b?c=\"d\""}"#;
    let first = "2026-11-29T11:04:07.75Z";
    let json = [
        counter("http_reqs"),
        point("http_reqs", first, "1", &tags),
        point("http_req_duration", first, "1.5e-3", &tags),
        counter("my_counter"),
        point("my_counter", "2026-11-29T12:04:08+01:00", "2", r#"{"vu":"7","who":"a=b,c d"}"#),
        // Another order, and more than a sample has.
        r#"{"data":{"tags":null,"value":3,"time":"2026-11-29T11:04:09Z","#.to_owned()
            + r#""metadata":{"trace":"x"}},"metric":"vus","type":"Point"}"#,
        point("vus", "2026-11-29T11:04:10Z", "4", r#"{"a":"b"},"metadata":{"trace":"x"}"#),
    ];
    let json: Vec<&str> = json.iter().map(String::as_str).collect();
    let tags = r#",group=::a\ b,method=GET,name=http://x/a\,b?c\="d",status=0"#;
    let url = r#"url="http://x/a,b?c=\"d\"""#;
    let expected = |times: [&str; 3]| {
        let [first, second, third] = times;
        format!(
            "http_reqs{tags} {url},value=1 {first}\nhttp_req_duration{tags} {url},value=0.0015 \
             {first}\nmy_counter,who=a\\=b\\,c\\ d vu=7i,value=2 {second}\nvus value=3 {third}\n"
        )
    };
    let nanoseconds = ["1795950247750000000", "1795950248000000000", "1795950249000000000"];
    let (request, faults) = made("", "", &json[..6]);
    assert_eq!(faults, 0);
    assert_eq!(request, written(&["my_counter"], &expected(nanoseconds)));
    let (request, _) = made("", "", &json[6..]);
    assert_eq!(request, written(&[], "vus,a=b value=4 1795950250000000000\n"));

    let url = r#""http://x/a,b?c=""d""""#;
    let rows = |times: [&str; 3]| {
        let [first, second, third] = times;
        [
            HEADER.to_owned(),
            format!("http_reqs,{first},1.000000,,,::a b,GET,{url},0,{url},,"),
            format!("http_req_duration,{first},0.0015,,,::a b,GET,{url},0,{url},,trace=x"),
            format!("my_counter,{second},2.000000,,,,,,,,\"who=a=b,c d&vu=7\","),
            format!("vus,{third},3"),
        ]
    };
    for (options, times) in [
        ("", nanoseconds),
        ("time_format: unix_nano", nanoseconds),
        ("", ["1795950247750", "1795950248000", "1795950249000"]),
        ("time_format: unix_milli", ["1795950247750", "1795950248000", "1795950249000"]),
        ("time_format: unix_micro", ["1795950247750000", "1795950248000000", "1795950249000000"]),
        (
            "time_format: rfc3339_nano",
            ["2026-11-29T11:04:07.75Z", "2026-11-29T11:04:08Z", "2026-11-29T11:04:09Z"],
        ),
    ] {
        let rows = rows(times);
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let options = format!("counters: [my_counter], {options}");
        let (request, faults) = made(&options, HEADER, &rows);
        assert_eq!(faults, 0, "{options}");
        // In a row, the tags of a script come last.
        let expected = expected(nanoseconds);
        assert_eq!(request, written(&["my_counter"], &expected), "{options} {times:?}");
    }
}

/// Guarantee: samples of rows whose times are the same are told apart by their offsets, within the
/// unit of the times; those whose times are in nanoseconds keep them, as those of JSON do.
#[test]
fn rows_of_one_time_are_told_apart() {
    let times = |text: &str| {
        let (mut samples, _) = samples("");
        samples.begin(FileId(1), &attributes(HEADER));
        for (number, offset) in (1..).zip([3_000_000_007, 3_000_000_090]) {
            samples.push(Line { text: text.as_bytes(), offset, number });
        }
        let request = ExportMetricsServiceRequest::decode(samples.finish()).expect("is OTLP");
        let Some(Data::Gauge(data)) = &request.resource_metrics[0].scope_metrics[0].metrics[0].data
        else {
            panic!("{request:?}")
        };
        data.data_points.iter().map(|point| point.time_unix_nano).collect::<Vec<_>>()
    };
    let second = 1_795_950_248_000_000_000;
    for (time, expected) in [
        ("1795950248", [7, 90]),
        ("2026-11-29T11:04:08Z", [7, 90]),
        ("1795950248000", [7, 90]),
        ("1795950248000000", [7, 90]),
        ("1795950248000000000", [0, 0]),
    ] {
        let found = times(&format!("vus,{time},3"));
        assert_eq!(found, expected.map(|it| second + it), "{time}");
    }
    let json = times(&point("vus", "2026-11-29T11:04:08Z", "3", "{}"));
    assert_eq!(json, [second; 2]);
}

/// Guarantee: of JSON and of rows, only the tags that are named stay, as fields too.
#[test]
fn only_the_tags_that_are_named_are_kept() {
    let options = "tags: [method, url, absent]";
    let tags = r#"{"group":"::a","method":"GET","url":"u","vu":"7"}"#;
    let json = point("http_reqs", "2026-11-29T11:04:08Z", "1", tags);
    let row = "http_reqs,1795950248,1,,,::a,GET,n,0,u,vu=7,";
    for line in [json.as_str(), row] {
        let (request, faults) = made(options, HEADER, &[line]);
        let expected = "http_reqs,method=GET url=\"u\",value=1 1795950248000000000\n";
        assert_eq!((request, faults), (written(&[], expected), 0), "{line}");
    }
    let (request, _) = made("tags: []", HEADER, &[row]);
    assert_eq!(request, written(&[], "http_reqs value=1 1795950248000000000\n"));
}

/// Guarantee: a row with a line break in a quote is one sample.
#[test]
fn a_row_may_have_line_breaks_in_quotes() {
    let rows = ["checks,5,1,\"a\nb\",,,,,,,,", "checks,6,0,c,,,,,,,,"];
    let (request, faults) = made("", HEADER, &rows);
    assert_eq!(faults, 0);
    let lines = "checks,check=a\\ b value=1 5000000000\nchecks,check=c value=0 6000000000\n";
    assert_eq!(request, written(&[], lines));
}

/// Scenario: files have turns. Guarantee: each is searched for definitions once.
#[test]
fn files_have_turns() {
    let folder = tempfile::tempdir().expect("a folder");
    let path_of = |file: u64| folder.path().join(file.to_string());
    let (mut samples, counters) = samples("");
    let mut push = |file: u64, text: &str| {
        let mut attributes = attributes(HEADER);
        let path = AnyValue::String(path_of(file).display().to_string());
        attributes.push(("log.file.path".to_owned(), path));
        samples.begin(FileId(file), &attributes);
        samples.push(Line { text: text.as_bytes(), offset: 0, number: 2 });
    };
    push(1, "checks,5,1,a,,,,,,,,");
    push(2, "late,6,1");
    // Lines that come later say it themselves.
    std::fs::write(path_of(1), counter("late") + "\n").expect("is written");
    push(1, "late,9,1");
    assert_eq!(counters.faults(), 0);
    let request = ExportMetricsServiceRequest::decode(samples.finish()).expect("is OTLP");
    let lines = "checks,check=a value=1 5000000000\nlate value=1 6000000000\nlate value=1 \
                 9000000000\n";
    assert_eq!(request, written(&[], lines));
}

/// Guarantee: a line that is no sample is counted and left out, and all others are taken.
#[test]
fn what_is_no_sample_is_left_out() {
    let time = "2026-11-29T11:04:09Z";
    let good = &point("vus", time, "3", "{}");
    let bad = [
        "{".to_owned(),
        "{}".to_owned(),
        r#"{"metric":"vus","type":"Other","data":{}}"#.to_owned(),
        point("vus", time, "null", "{}"),
        point("vus", "yesterday", "3", "{}"),
        point("vus", time, "x", "{}"),
        point("vus", time, "3", r#"{"a"}"#),
        point("", time, "3", "{}"),
        point("vus", time, "3", "{").trim_end_matches('}').to_owned(),
        "vus,5,3,,,,,,,,,".to_owned(),
        "checks,5,1,\"a".to_owned(),
    ];
    let lines: Vec<&str> = bad.iter().flat_map(|bad| [good.as_str(), bad]).collect();
    let (request, faults) = made("", "", &lines);
    assert_eq!(faults, bad.len() as u64);
    let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
    let Some(Data::Gauge(data)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!(data.data_points.len(), bad.len());

    let rows =
        ["vus,5,3", "vus,5,", "vus,5,NaN", ",5,3", "vus,,3", "vus,x,3", "vus", "", "vus,6,1"];
    let (request, faults) = made("", HEADER, &rows);
    assert_eq!(faults, 7);
    let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
    let Some(Data::Gauge(data)) = &metric.data else { panic!("{metric:?}") };
    assert_eq!(data.data_points.len(), 2);
}

/// Guarantee: counters that a file defined before a restart are known after it, also behind a line
/// that is longer than a definition.
#[test]
fn definitions_are_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("k6.json");
    let long =
        point("vus", "2026-11-29T11:04:09Z", "2", &format!("{{\"a\":\"{}\"}}", "x".repeat(99_999)));
    std::fs::write(&path, long + "\n" + &counter("my_counter") + "\n").expect("is written");
    let (mut samples, _) = samples("");
    let path = AnyValue::String(path.display().to_string());
    samples.begin(FileId(1), &vec![("log.file.path".to_owned(), path)]);
    let text = point("my_counter", "2026-11-29T11:04:09Z", "2", "{}");
    samples.push(Line { text: text.as_bytes(), offset: 500, number: 7 });
    let request = ExportMetricsServiceRequest::decode(samples.finish()).expect("is OTLP");
    assert_eq!(request, written(&["my_counter"], "my_counter value=2 1795950249000000000\n"));
}

#[test]
fn options_that_are_wrong_are_told() {
    for (options, told) in [
        ("{}", "include"),
        ("{include: [/a], tags_as_fields: ['vu:number']}", "`vu:number`: want a name"),
        ("{include: [/a], time_format: seconds}", "time_format"),
        ("{include: [/a], delete_after_read: true, start_at: end}", "start_at: beginning"),
    ] {
        let (_, diagnostics) = read_text("receivers.k6", options, K6Config::read);
        let text = diagnostics.render(false);
        assert!(diagnostics.has_errors() && text.contains(told), "{options}: {text}");
    }
}
