//! Generated pages, read by an independent parser, too; and bytes that are no pages.

mod support;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sluice_scrape::{Format, Limits, Report, Scraper, Target};
use support::{START_MS, all_numbers, decode, metrics, numbers, take, target};

/// A sample of a generated page.
#[derive(Clone, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

fn samples() -> impl Strategy<Value = Vec<Sample>> {
    // None of them is `job`, which is the target's.
    let label = ("[a-i]{1,3}", "[ -~\u{e9}\n]{1,6}");
    let value = prop_oneof![any::<i32>().prop_map(f64::from), any::<f64>()];
    let sample = ("[a-f_:][a-f0-9_:]{0,2}", prop::collection::vec(label, 0..4), value);
    let sample = sample.prop_map(|(name, mut labels, value)| {
        labels.sort();
        labels.dedup_by(|left, right| left.0 == right.0);
        Sample { name, labels, value: if value.is_nan() { 0.5 } else { value } }
    });
    prop::collection::vec(sample, 0..30)
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn page(samples: &[Sample], format: Format) -> String {
    let mut page = String::new();
    for Sample { name, labels, value } in samples {
        page += name;
        if !labels.is_empty() {
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let _ = write!(page, "{{{}}}", labels.join(","));
        }
        let value = match *value {
            f64::INFINITY => "+Inf".to_owned(),
            f64::NEG_INFINITY => "-Inf".to_owned(),
            value => format!("{value:?}"),
        };
        let _ = writeln!(page, " {value}");
    }
    if format == Format::OpenMetrics {
        page += "# EOF\n";
    }
    page
}

/// Names with labels, and values, of the lines of a generated page. The first of several counts.
fn read_simply(page: &str) -> BTreeMap<String, Option<f64>> {
    let mut found = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut rest = labels;
        let mut texts = Vec::new();
        while let Some((label, after)) = rest.split_once("=\"") {
            let mut value = String::new();
            let mut chars = after.chars();
            loop {
                match chars.next().expect("a quote") {
                    '"' => break,
                    '\\' => value.push(match chars.next().expect("an escape") {
                        'n' => '\n',
                        other => other,
                    }),
                    other => value.push(other),
                }
            }
            texts.push(format!("{label}={value}"));
            rest = chars.as_str().trim_start_matches(',');
        }
        let value: f64 = value.replace("Inf", "inf").parse().expect("a number");
        found.entry(format!("{name}{{{}}}", texts.join(","))).or_insert(Some(value));
    }
    found
}

/// The numbers of a page in a scraper that may know it, without those of series that ended.
fn numbers_in(scraper: &mut Scraper, body: &str, format: Format) -> BTreeMap<String, Option<f64>> {
    let outcome = take(scraper, body.as_bytes(), format, START_MS);
    assert_eq!(outcome.result, Ok(()), "{body}");
    let request = scraper.finish(&Report::default());
    let mut found = numbers(&metrics(&decode(&request).resource_metrics));
    found.retain(|_, value| value.is_some());
    found
}

/// Pieces of pages, put together without sense.
const TOKENS: &str = "([a-b{}\",= \\\\\n\t#0-9.+\u{0}:]|# (TYPE|HELP|UNIT|EOF) | # \\{|\
                      _bucket|le=|histogram|summary|NaN){0,40}";

/// Lines, most of which are of both formats, with few names.
const LINES: &str = "([a-c](\\{[a-b]=\"[a-c]\"\\})? [0-9]{1,2}\n|# TYPE [a-c] (gauge|counter)\n|\
                     [a-c] \\{[a-b]=\"[a-c]\"\\} [0-9]\n|[a-c]\\{?\n){0,5}";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 300 } else { 3000 }))]

    /// Guarantee: a page is read as a simple parser reads it, whatever was scraped before.
    #[test]
    fn a_simple_parser_reads_the_same(
        pages in prop::collection::vec(samples(), 1..4),
    ) {
        for format in [Format::Text, Format::OpenMetrics] {
            let mut scraper = Scraper::new(target());
            for samples in &pages {
                let page = page(samples, format);
                let expected = read_simply(&page);
                for _ in 0..2 {
                    let found = numbers_in(&mut scraper, &page, format);
                    prop_assert_eq!(&found, &expected, "{}", page);
                }
            }
        }
    }

    /// Guarantee: a scraper that has seen other pages says the same of a page as a new one.
    #[test]
    fn what_is_known_changes_nothing(
        known in LINES,
        page in LINES,
        format in prop_oneof![Just(Format::Text), Just(Format::OpenMetrics)],
    ) {
        let end = if format == Format::OpenMetrics { "# EOF\n" } else { "" };
        let (known, page) = (known + end, page + end);
        let mut experienced = Scraper::new(target());
        take(&mut experienced, known.as_bytes(), format, START_MS);
        experienced.finish(&Report::default());
        take(&mut experienced, b"", format, START_MS);
        experienced.finish(&Report::default());
        let mut new = Scraper::new(target());
        let outcomes = [&mut experienced, &mut new].map(|scraper| {
            take(scraper, page.as_bytes(), format, START_MS).result
        });
        prop_assert_eq!(&outcomes[0], &outcomes[1]);
        // Metadata outlives its page: only numbers are compared, and only of series without a type.
        if !known.contains("TYPE") {
            let [old, new] = [experienced, new].map(|mut scraper| {
                let request = scraper.finish(&Report::default());
                all_numbers(&metrics(&decode(&request).resource_metrics))
            });
            prop_assert_eq!(old, new);
        }
    }

    /// Guarantee: bytes that are no page give an error or a valid request, and no panic.
    #[test]
    fn no_bytes_panic(
        pages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..4),
        texts in prop::collection::vec(TOKENS, 1..4),
    ) {
        for format in [Format::Text, Format::OpenMetrics, Format::Protobuf] {
            let mut scraper = Scraper::new(target());
            let texts = texts.iter().map(|text| text.as_bytes());
            for page in pages.iter().map(Vec::as_slice).chain(texts) {
                take(&mut scraper, page, format, START_MS);
                decode(&scraper.finish(&Report::default()));
            }
            decode(&scraper.end(START_MS));
        }
    }
}

/// Scenario: pages that are made to take time or memory. Guarantee: none takes long, and all limits
/// that are set hold.
#[test]
fn hostile_pages_are_bounded() {
    let limits = Limits { memory_bytes: 64 << 20, ..Limits::default() };
    let many_labels: String = (0..1_000_000).map(|label| format!("a{label}=\"b\",")).collect();
    let started = Instant::now();
    for page in [
        "a".repeat(10_000_000),
        "a".repeat(10_000_000) + " 1\n",
        "a{b=\"".to_owned() + &"c".repeat(10_000_000),
        "a{b=\"".to_owned() + &"\\\\".repeat(5_000_000) + "\"} 1\n",
        "\n".repeat(10_000_000),
        "#".repeat(10_000_000),
        "# HELP a ".to_owned() + &"\\n".repeat(5_000_000),
        "{".repeat(10_000_000),
        format!("a{{{many_labels}}} 1\n"),
        "a 1\n".repeat(1_000_000),
        "# TYPE a counter\na 1\n# TYPE a gauge\na 2\n".repeat(100_000),
    ] {
        for format in [Format::Text, Format::OpenMetrics] {
            let mut scraper = Scraper::new(Target { limits, ..target() });
            for _ in 0..2 {
                take(&mut scraper, page.as_bytes(), format, START_MS);
                scraper.finish(&Report::default());
                assert!(scraper.memory() < (64 << 20) + page.len() * 4);
            }
        }
    }
    assert!(started.elapsed() < Duration::from_secs(120), "{:?}", started.elapsed());
}
