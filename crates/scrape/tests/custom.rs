//! Classic histograms of text pages as native ones with custom buckets.

mod support;

use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, metric};
use sluice_scrape::{Counts, Format, Limits, Outcome, Report, ScrapeError, Scraper, Target};
use support::{START_MS, decode, metrics, numbers, take, target};

const PAGE: &str = "# HELP h Help.\n# TYPE h histogram\n\
                    h_bucket{a=\"b\",le=\"1\"} 2\nh_bucket{a=\"b\",le=\"2\"} 3\n\
                    h_bucket{a=\"b\",le=\"+Inf\"} 4\nh_sum{a=\"b\"} 7.5\nh_count{a=\"b\"} 4\n\
                    h_bucket{le=\"1\",a=\"c\"} 0\nh_count{a=\"c\"} 1\nh_sum{a=\"c\"} 9\n\
                    # TYPE g gauge\ng 5\n";

fn custom() -> Target {
    Target { custom_histograms: true, ..target() }
}

fn scrape(scraper: &mut Scraper, body: &str) -> (Outcome, Vec<Metric>) {
    let format = match body.ends_with("# EOF\n") {
        true => Format::OpenMetrics,
        false => Format::Text,
    };
    let outcome = take(scraper, body.as_bytes(), format, START_MS);
    let request = scraper.finish(&Report::default());
    (outcome, metrics(&decode(&request).resource_metrics))
}

fn points(metric: &Metric) -> &[HistogramDataPoint] {
    match metric.data.as_ref() {
        Some(metric::Data::Histogram(histogram)) => &histogram.data_points,
        other => panic!("no histogram: {other:?}"),
    }
}

/// The counts of a page's only histogram, by bounds.
fn buckets(body: &str) -> Option<(Vec<f64>, Vec<u64>)> {
    let (outcome, found) = scrape(&mut Scraper::new(custom()), body);
    assert_eq!(outcome.result, Ok(()), "{body}");
    let point = points(found.first()?).first()?;
    Some((point.explicit_bounds.clone(), point.bucket_counts.clone()))
}

/// Guarantee: converted or not, a histogram is the same in OTLP. It is one sample if it is
/// converted, from the first scrape on, also if its series are taken too.
#[test]
fn a_converted_histogram_is_one_sample() {
    let (_, expected) = scrape(&mut Scraper::new(target()), PAGE);
    assert_eq!((expected.len(), points(&expected[0]).len()), (2, 2));
    for (always_classic_histograms, samples) in [(false, 3), (true, 11)] {
        let mut scraper = Scraper::new(Target { always_classic_histograms, ..custom() });
        for new_series in [samples, 0] {
            let (outcome, found) = scrape(&mut scraper, PAGE);
            let (scraped, kept) = (samples, samples);
            let counts = Counts { scraped, kept, new_series, ..Counts::default() };
            assert_eq!((outcome.counts, outcome.result), (counts, Ok(())));
            assert_eq!(found, expected);
        }
    }
}

/// Guarantee: rules for metrics see a converted histogram by its own name, without bounds.
#[test]
fn relabelling_sees_the_histogram() {
    let mut seen = Vec::new();
    let page =
        sluice_scrape::Page { body: PAGE.as_bytes(), format: Format::Text, time_ms: START_MS };
    let outcome = Scraper::new(custom()).scrape(page, &mut |labels| {
        seen.push(format!("{}{{{}}}{}", labels.get("__name__"), labels.get("a"), labels.get("le")));
        true
    });
    assert_eq!(outcome.result, Ok(()));
    assert_eq!(seen, ["h{b}", "h{c}", "g{}"]);
}

/// Guarantee: series of one histogram in another order, with others between them, or without some
/// parts make a histogram as in Prometheus.
#[test]
fn series_of_a_histogram_are_put_together() {
    let of = |lines: &str| buckets(&format!("# TYPE h histogram\n{lines}"));
    let whole = Some((vec![1.0], vec![2, 1]));
    assert_eq!(of("h_count 3\nh_bucket{le=\"+Inf\"} 3\nh_bucket{le=\"1.0\"} 2\nh_sum 4\n"), whole);
    assert_eq!(of("h_bucket{le=\"1\"} 2\nh_created 5\nh_bucket{le=\"+Inf\"} 3\n"), whole);
    assert_eq!(of("h_bucket{le=\"1\"} 2\n# a comment\nh_count 3\n"), whole);
    assert_eq!(of("h_bucket{le=\"1\"} 2\nh_bucket{le=\"1\"} 9\nh_count 3\n"), whole);
    assert_eq!(of("h_bucket{le=\"1\"} 2\nh_bucket{le=\"x\"} 9\nh_count 3\n"), whole);
    assert_eq!(of("h_count 3\n"), Some((vec![], vec![3])));
    // A series that is no part of it stays as it is.
    let (_, found) = scrape(
        &mut Scraper::new(custom()),
        "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_total 7\n# TYPE s summary\ns_count 3\n\
         # TYPE g gauge\ng_bucket{le=\"1\"} 4\n",
    );
    let names: Vec<&str> = found.iter().map(|metric| &*metric.name).collect();
    assert_eq!(names, ["h", "h_total", "s", "g_bucket"]);
    assert_eq!(numbers(&found)["g_bucket{le=1}"], Some(4.0));
}

/// Guarantee: a histogram that contradicts itself is left out and counted, and costs no other one.
#[test]
fn histograms_that_contradict_themselves_are_discarded() {
    let good = "h_bucket{a=\"b\",le=\"1\"} 2\nh_count{a=\"b\"} 3\n";
    for bad in [
        "h_bucket{le=\"1\"} 2\nh_bucket{le=\"2\"} 1\n",
        "h_bucket{le=\"1\"} 2\nh_count 1\n",
        "h_count -1\n",
        "h_sum 1\n",
    ] {
        let body = format!("# TYPE h histogram\n{bad}{good}");
        let (outcome, found) = scrape(&mut Scraper::new(custom()), &body);
        assert_eq!((outcome.counts.discarded, outcome.result), (1, Ok(())), "{body}");
        assert_eq!((found.len(), points(&found[0]).len()), (1, 1), "{body}");
    }
}

#[test]
fn a_converted_histogram_that_is_gone_is_stale() {
    let mut scraper = Scraper::new(custom());
    scrape(&mut scraper, PAGE);
    let (_, found) = scrape(&mut scraper, "# TYPE g gauge\ng 5\n");
    let histogram = found.iter().find(|metric| metric.name == "h").expect("ends");
    let ends: Vec<(u32, u64)> =
        points(histogram).iter().map(|point| (point.flags, point.count)).collect();
    assert_eq!(ends, [(1, 0), (1, 0)]);
    let (_, found) = scrape(&mut scraper, "# TYPE g gauge\ng 5\n");
    assert_eq!(found.len(), 1);
}

/// Guarantee: a histogram has a start, and those exemplars that have a time.
#[test]
fn starts_and_exemplars_are_kept() {
    let body = "# TYPE h histogram\nh_bucket{le=\"1.0\"} 2 # {a=\"b\"} 0.5 7.5\n\
                h_bucket{le=\"+Inf\"} 3 # {a=\"c\"} 5\nh_count 3\nh_created 1.5\n# EOF\n";
    for (always_classic_histograms, exemplars) in [(false, 1), (true, 2)] {
        let mut scraper = Scraper::new(Target { always_classic_histograms, ..custom() });
        let (outcome, found) = scrape(&mut scraper, body);
        assert_eq!(outcome.result, Ok(()));
        let point = &points(&found[0])[0];
        assert_eq!((point.count, point.start_time_unix_nano), (3, 1_500_000_000));
        assert_eq!(point.exemplars.len(), exemplars);
        assert_eq!(point.exemplars[0].time_unix_nano, 7_500_000_000);
    }
}

/// Guarantee: the resolution of custom buckets cannot be lowered: too many of them fail the page.
#[test]
fn custom_buckets_have_a_limit() {
    let limited = |native_buckets| {
        let limits = Limits { native_buckets, ..Limits::default() };
        take(&mut Scraper::new(Target { limits, ..custom() }), PAGE.as_bytes(), Format::Text, 1)
    };
    assert_eq!(limited(3).result, Ok(()));
    let outcome = limited(2);
    assert_eq!(outcome.result, Err(ScrapeError::Buckets { metric: "h".to_owned(), limit: 2 }));
    let counts = Counts { scraped: 3, kept: 3, ..Counts::default() };
    assert_eq!(outcome.counts, counts);
}
