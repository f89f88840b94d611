//! The formats of text, with all that their parsers in Prometheus take and refuse.

mod support;

use sluice_scrape::{Format, Report, ScrapeError, Scraper};
use support::{START_MS, convert, decode, metrics, numbers_of, take, target, text};

fn expected(pairs: &[(&str, f64)]) -> std::collections::BTreeMap<String, Option<f64>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), Some(*value))).collect()
}

/// Line and reason of the error for a page.
fn mistake(body: &[u8], format: Format) -> (usize, &'static str) {
    let outcome = take(&mut Scraper::new(target()), body, format, START_MS);
    match outcome.result {
        Err(ScrapeError::Line { line, reason, .. }) => (line, reason),
        other => panic!("{other:?}: {}", String::from_utf8_lossy(body)),
    }
}

/// Scenario: the older format with blanks, comments and commas in all places where they may be.
/// Guarantee: each sample has its name, labels and value.
#[test]
fn the_older_format_is_read_as_prometheus_reads_it() {
    let body = "\n# a comment\n#no blank\n#\n# HELPER is no help\n# HELP\n\t # HELP a help\n\
                a 1\n  b{}2\nc{x=\"y\"}\t3 \t4000 \nd { x = \"y\" , } 4\n\ne{x=\"1\"y=\"2\"} 5\n\
                f:g_1{_x=\"\\\"q\\\" \\\\ \\n \\x\"} 6\n{\"h.i\",\"x y\"=\"z\"} 7\n\
                j{x=\"a\nb\"} 8\nk{x=\"{},=\"} 9\nl{x=\"\0\"} 10\nm+11\nn 12";
    let found = numbers_of(body, Format::Text);
    let expected = expected(&[
        ("a{}", 1.0),
        ("b{}", 2.0),
        ("c{x=y}", 3.0),
        ("d{x=y}", 4.0),
        ("e{x=1,y=2}", 5.0),
        ("f:g_1{_x=\"q\" \\ \n \\x}", 6.0),
        ("h.i{x y=z}", 7.0),
        ("j{x=a\nb}", 8.0),
        ("k{x={},=}", 9.0),
        ("l{x=\0}", 10.0),
        ("m{}", 11.0),
        ("n{}", 12.0),
    ]);
    assert_eq!(found, expected);
}

#[test]
fn values_may_be_infinite_or_no_number() {
    let body = "a +Inf\nb -Inf\nc NaN\nd 1e-3\ne .5\nf 5.\ng inf\nh Infinity\n";
    let found = numbers_of(body, Format::Text);
    assert!(found["c{}"].expect("has a value").is_nan());
    let values = ["a{}", "b{}", "d{}", "e{}", "f{}", "g{}", "h{}"].map(|name| found[name]);
    let infinite = f64::INFINITY;
    let expected = [infinite, -infinite, 0.001, 0.5, 5.0, infinite, infinite].map(Some);
    assert_eq!(values, expected);
}

/// Guarantee: times are whole milliseconds in the older format, seconds in the newer one.
#[test]
fn times_are_of_their_format() {
    let time = |body: &str, format| {
        let metrics = metrics(&convert(body, format));
        let Some(opentelemetry_proto::tonic::metrics::v1::metric::Data::Gauge(gauge)) =
            &metrics[0].data
        else {
            panic!("no gauge")
        };
        gauge.data_points[0].time_unix_nano
    };
    assert_eq!(time("a 1 1500\n", Format::Text), 1_500_000_000);
    assert_eq!(time("a 1\n", Format::Text), START_MS as u64 * 1_000_000);
    assert_eq!(time("a 1 1500\n# EOF\n", Format::OpenMetrics), 1_500_000_000_000);
    assert_eq!(time("a 1 1.5\n# EOF\n", Format::OpenMetrics), 1_500_000_000);
    assert_eq!(time("a 1 1.5e0\n# EOF", Format::OpenMetrics), 1_500_000_000);
    assert_eq!(time("a 1 -1\n# EOF\n", Format::OpenMetrics), 0);
}

#[test]
fn metadata_describes_its_metric() {
    let body = "# HELP a\\\\b is nothing\n# HELP a First \\\\ and \\n \\\" last\n# TYPE a counter\n\
                a 1\n# HELP \"b.c\"  two blanks\n{\"b.c\"} 2\n# HELP d\n# HELP e \nd 1\ne 1\n";
    let found = metrics(&convert(body, Format::Text));
    let texts: Vec<(&str, &str)> =
        found.iter().map(|metric| (&*metric.name, &*metric.description)).collect();
    let expected =
        [("a", "First \\ and \n \\\" last"), ("b.c", " two blanks"), ("d", ""), ("e", "")];
    assert_eq!(texts, expected);
    let body = "# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds A \\\"b\\\"\n\
                a_seconds 1\n# EOF\n";
    let found = &metrics(&convert(body, Format::OpenMetrics))[0];
    assert_eq!((&*found.description, &*found.unit), ("A \"b\"", "s"));
    assert_eq!(text(&found.metadata), "prometheus.type=gauge");
}

/// Guarantee: a mistake of the older format names its line.
#[test]
fn a_mistake_of_the_older_format_fails_the_page() {
    for (body, line) in [
        ("a", 1),
        ("a\n", 1),
        ("a 1\nb\n", 2),
        ("a 1 2 3\n", 1),
        ("a 1 -2\n", 1),
        ("a 1 2.5\n", 1),
        ("a 1 99999999999999999999\n", 1),
        ("a 1 # a comment\n", 1),
        ("a 1\r\n", 1),
        ("a 0x1p-3\n", 1),
        ("a 1_2\n", 1),
        ("a 0 1_2\n", 1),
        ("a true\n", 1),
        ("a 1e999\n", 1),
        ("a 1{b=\"c\"}\n", 1),
        ("1a 1\n", 1),
        ("-a 1\n", 1),
        ("a-b 1\n", 1),
        ("a{b=\"c\"} 1\na{b='c'} 1\n", 2),
        ("\n\na{b=\n", 3),
        ("a{,b=\"c\"} 1\n", 1),
        ("a{b=\"c\",,} 1\n", 1),
        ("{a=\"b\"} 1\n", 1),
        ("{} 1\n", 1),
        ("a{\"b\"} 1\n", 1),
        ("a\0 1\n", 1),
        ("a 0 1\0\n", 1),
        ("a{b=\"c\n", 1),
        ("# TYPE a\n", 1),
        ("# TYPE a counter \n", 1),
        ("# TYPE a  counter\n", 1),
        ("# TYPE a info\n", 1),
        ("a 1\n# TYPE #\n", 2),
        ("# HELP #\n", 1),
        ("# HELP \n", 1),
    ] {
        assert_eq!(mistake(body.as_bytes(), Format::Text).0, line, "{body:?}");
    }
    for body in [&b"a{b=\"\xff\"} 1\n"[..], b"# HELP a \xff\n", b"a{\xff=\"b\"} 1\n", b"\xff 1\n"] {
        assert_eq!(mistake(body, Format::Text).0, 1);
    }
    let name = take(&mut Scraper::new(target()), b"{\"\xff\"} 1\n", Format::Text, START_MS);
    assert!(matches!(name.result, Err(ScrapeError::Series { .. })), "{name:?}");
}

/// Guarantee: OpenMetrics has one form for all, and an end.
#[test]
fn a_mistake_of_openmetrics_fails_the_page() {
    for (body, line) in [
        ("\n", 1),
        ("a 1", 1),
        ("a 1\n", 2),
        ("a 1 # {b=\"c\"} 4", 1),
        ("a\n# EOF\n", 1),
        (" a 1\n# EOF\n", 1),
        ("9\n# EOF\n", 1),
        ("a 1\n\n# EOF\n", 2),
        ("# TYPE a untyped\n# EOF\n", 1),
        ("# TYPE a counter \n# EOF\n", 1),
        ("# TYPE a  counter\n# EOF\n", 1),
        ("#  TYPE a counter\n# EOF\n", 1),
        ("#\tTYPE a counter\n# EOF\n", 1),
        ("# TYPE \n# EOF\n", 1),
        ("# TYPE a\n# EOF\n", 1),
        ("# UNIT a_b seconds\n# EOF\n", 1),
        ("# UNIT aseconds seconds\n# EOF\n", 1),
        ("# UNIT seconds seconds\n# EOF\n", 1),
        ("# UNIT a\n# EOF\n", 1),
        ("# HELP a\n# EOF\n", 1),
        ("# HELP \n# EOF\n", 1),
        ("# a comment\n# EOF\n", 1),
        ("#\n# EOF\n", 1),
        ("a\t1\n# EOF\n", 1),
        ("a  1\n# EOF\n", 1),
        ("a 1 \n# EOF\n", 1),
        ("a 1\t2\n# EOF\n", 1),
        ("a 1 2 \n# EOF\n", 1),
        ("a 1 2 #\n# EOF\n", 1),
        ("a 1 1z\n# EOF\n", 1),
        ("a 1 1 1\n# EOF\n", 1),
        ("a 1 NaN\n# EOF\n", 1),
        ("a 1 -Inf\n# EOF\n", 1),
        ("a {b=\"c\"} 1\n# EOF\n", 1),
        ("a{ b=\"c\"} 1\n# EOF\n", 1),
        ("a{b=\"c\", d=\"e\"} 1\n# EOF\n", 1),
        ("a{b=\"c\"d=\"e\"} 1\n# EOF\n", 1),
        ("a{b=\"c\nd\"} 1\n# EOF\n", 1),
        ("a{b=\"c\"}1\n# EOF\n", 1),
        (" # EOF\n", 1),
        ("# EOF\na 1", 1),
        ("# EOF\n\n", 1),
        ("# EOFa 1", 1),
        ("a 1 # {b=c} 1\n# EOF\n", 1),
        ("a 1 # {b=\"c\"}\n# EOF\n", 1),
        ("a 1 # {b} 1\n# EOF\n", 1),
        ("a 1 # {\"b\"} 1\n# EOF\n", 1),
        ("a 1 # {b=\"c\",,d=\"e\"} 1\n# EOF\n", 1),
        ("a 1 # {b=\"c\"} 1_2\n# EOF\n", 1),
        ("a 1 # {b=\"c\"} 1 NaN\n# EOF\n", 1),
        ("a 1 # {b=\"c\"} 1 2 3\n# EOF\n", 1),
        ("a 1 # {b=\"c\"} true\n# EOF\n", 1),
        ("a 1 #{b=\"c\"} 1\n# EOF\n", 1),
    ] {
        assert_eq!(mistake(body.as_bytes(), Format::OpenMetrics).0, line, "{body:?}");
    }
}

#[test]
fn openmetrics_is_read_as_prometheus_reads_it() {
    let body = "a 1\nb{} 2\nc{x=\"y\"} 3 4\nd{x=\"y\",} 4\n{\"e.f\",\"x y\"=\"z\"} 5\n\
                g{x=\"\\n\"} 6 # {} 7\nh{x=\"\0\"} 7 8 # {b=\"c\"} 9 10\n# EOF";
    let found = numbers_of(body, Format::OpenMetrics);
    let expected = expected(&[
        ("a{}", 1.0),
        ("b{}", 2.0),
        ("c{x=y}", 3.0),
        ("d{x=y}", 4.0),
        ("e.f{x y=z}", 5.0),
        ("g{x=\n}", 6.0),
        ("h{x=\0}", 7.0),
    ]);
    assert_eq!(found, expected);
    assert_eq!(numbers_of("# EOF", Format::OpenMetrics).len(), 0);
    assert_eq!(numbers_of("# EOF\n", Format::OpenMetrics).len(), 0);
}

#[test]
fn a_zero_byte_ends_a_page_of_the_older_format() {
    assert_eq!(numbers_of("a 1\n\0 rubbish", Format::Text), expected(&[("a{}", 1.0)]));
}

/// Guarantee: an empty page is none, in any format, and no failure.
#[test]
fn an_empty_page_is_no_failure() {
    for format in [Format::Text, Format::OpenMetrics, Format::Protobuf] {
        let mut scraper = Scraper::new(target());
        assert_eq!(take(&mut scraper, b"", format, START_MS).result, Ok(()));
        let request = scraper.finish(&Report::default());
        assert_eq!(request.items, 5);
        assert_eq!(metrics(&decode(&request).resource_metrics), []);
    }
}

#[test]
fn the_content_type_says_the_format() {
    for (content_type, format) in [
        ("text/plain; version=0.0.4; charset=utf-8", Some(Format::Text)),
        ("Text/Plain", Some(Format::Text)),
        ("application/openmetrics-text; version=1.0.0", Some(Format::OpenMetrics)),
        (
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
             encoding=delimited",
            Some(Format::Protobuf),
        ),
        ("text/html", None),
        ("", None),
    ] {
        assert_eq!(Format::of(content_type), format, "{content_type}");
    }
}
