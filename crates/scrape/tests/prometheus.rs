//! Pages of Prometheus' own tests, read as its parsers read them.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
#[path = "support/go_source.rs"]
mod go_source;

use std::path::Path;

use component::component;
use go_source::{Value, after, function, table, text_variable};
use sluice_scrape::{Format, Outcome, Page, Scraper, Target};

type Pairs = Vec<(String, String)>;

/// The labels of a page's series, and what came of it.
fn read(body: &[u8], format: Format) -> (Outcome, Vec<Pairs>) {
    read_with(Target::default(), body, format)
}

fn read_with(target: Target, body: &[u8], format: Format) -> (Outcome, Vec<Pairs>) {
    let mut all = Vec::new();
    let page = Page { body, format, time_ms: 1_700_000_000_000 };
    let outcome = Scraper::new(target).scrape(page, &mut |labels| {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        all.push(labels.iter().map(pair).collect());
        true
    });
    (outcome, all)
}

fn source(data: &Path, name: &str) -> String {
    std::fs::read_to_string(data.join("model/textparse").join(name)).expect("is there")
}

/// A page with the end that OpenMetrics wants, so that only the mistake is at fault.
fn with_end(input: &[u8], error: &str, format: Format) -> Vec<u8> {
    let text = input.to_vec();
    if format != Format::OpenMetrics || error.is_empty() || error.contains("EOF") {
        return text;
    }
    let mut text: Vec<u8> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| *line != b"#EOF")
        .collect::<Vec<_>>()
        .join(&b'\n');
    if !text.ends_with(b"# EOF\n") {
        text.extend_from_slice(if text.ends_with(b"\n") { b"# EOF\n" } else { b"\n# EOF\n" });
    }
    text
}

/// Zero bytes are welcome in an exemplar's labels, too.
const ACCEPTED: [&[u8]; 1] = [b"custom_metric_total 1 # {b=\"\x00ss\"} 1\n"];

/// Guarantee: what Prometheus' parsers refuse, Sluice refuses; what they take, it takes.
#[test]
fn mistakes_of_pages_are_those_of_prometheus() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let (mut wrong, mut judged) = (Vec::new(), 0);
    for (file, name, format) in [
        ("promparse_test.go", "TestPromParseErrors", Format::Text),
        ("promparse_test.go", "TestPromNullByteHandling", Format::Text),
        ("openmetricsparse_test.go", "TestOpenMetricsParseErrors", Format::OpenMetrics),
        ("openmetricsparse_test.go", "TestOMNullByteHandling", Format::OpenMetrics),
    ] {
        for row in table(function(&source(&data, file), name)) {
            let input = row.get("input").expect("a page").bytes();
            // A page without a byte is no failure: it never comes to a parser.
            if input.is_empty() {
                continue;
            }
            let error = row.get("err").map(Value::text).unwrap_or_default();
            let whole = with_end(input, &error, format);
            let (outcome, _) = read(&whole, format);
            let is_wanted = error.is_empty() || error == "EOF" || ACCEPTED.contains(&input);
            if outcome.result.is_ok() != is_wanted {
                let shown = String::from_utf8_lossy(&whole).into_owned();
                wrong.push(format!("{name}: {shown:?}: {:?}, not `{error}`", outcome.result));
            }
            judged += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {judged}: {wrong:#?}", wrong.len());
    assert!(judged >= 100, "{judged}");
}

/// The labels of a row that a series is read from, without those that only a feature adds.
fn labels_of(row: &Value) -> Option<Pairs> {
    let mut value = row.get("lset")?;
    if let Value::Call(name, arguments) = value {
        value = match name.as_str() {
            "typeAndUnitLabels" => &arguments[2],
            "todoDetectFamilySwitch" => &arguments[1],
            _ => value,
        };
    }
    let texts: Vec<String> = value.items().iter().map(Value::text).collect();
    let mut pairs: Pairs = texts.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    pairs.sort();
    Some(pairs)
}

/// Guarantee: the labels of each series are those that Prometheus' parsers find.
#[test]
fn labels_of_pages_are_those_of_prometheus() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let nhcb = "nhcbparse_test.go";
    for (file, name, format, least) in [
        ("promparse_test.go", "TestPromParse", Format::Text, 20),
        ("promparse_test.go", "TestUTF8PromParse", Format::Text, 8),
        ("openmetricsparse_test.go", "TestOpenMetricsParse", Format::OpenMetrics, 50),
        ("openmetricsparse_test.go", "TestOpenMetricsParse_UTF8", Format::OpenMetrics, 8),
        (nhcb, "TestNHCBParserOnOMParser", Format::OpenMetrics, 40),
        (nhcb, "TestNHCBParserOMParser_MultipleHistograms", Format::OpenMetrics, 2),
        (nhcb, "TestNHCBParserErrorHandling", Format::OpenMetrics, 1),
    ] {
        let target = Target { custom_histograms: file == nhcb, ..Target::default() };
        let source = source(&data, file);
        let text = function(&source, name);
        let rows = after(text, "exp := ");
        let mut expected: Vec<Pairs> = rows.items().iter().filter_map(labels_of).collect();
        expected.dedup();
        let input = text_variable(text, "input");
        let (outcome, mut found) = read_with(target, &input, format);
        assert_eq!(outcome.result, Ok(()), "{name}");
        // The parser keeps the lines of start times to itself.
        let is_created = |pairs: &Pairs| {
            pairs.iter().any(|(name, value)| name == "__name__" && value.ends_with("_created"))
        };
        found.iter_mut().for_each(|pairs| pairs.sort());
        found.retain(|pairs| expected.contains(pairs) || !is_created(pairs));
        found.dedup();
        assert_eq!(found, expected, "{name}");
        assert!(expected.len() >= least, "{name}: {}", expected.len());
    }
}

/// Guarantee: of the pages of its benchmarks no sample is lost.
#[test]
fn pages_of_prometheus_benchmarks_are_read_as_a_whole() {
    let Some(data) = component("SLUICE_TEST_PROMETHEUS_TESTDATA") else { return };
    let mut pages = 0;
    for entry in std::fs::read_dir(data.join("model/textparse/testdata")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let body = std::fs::read_to_string(&path).expect("a page");
        let is_open_metrics = path.to_string_lossy().ends_with(".om.txt");
        let format = if is_open_metrics { Format::OpenMetrics } else { Format::Text };
        let samples = body.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let (outcome, _) = read(body.as_bytes(), format);
        assert_eq!(outcome.result, Ok(()), "{}", path.display());
        assert_eq!(outcome.counts.scraped, samples.count() as u64, "{}", path.display());
        pages += 1;
    }
    assert!(pages >= 4, "{pages}");
}
