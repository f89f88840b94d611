//! A target from scrape to scrape: series that come, go and change, and pages that fail.

mod support;

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::metrics::v1::metric;
use sluice_scrape::{Counts, Format, Limits, Page, Report, ScrapeError, Scraper, Target};
use support::{START_MS, decode, metrics, numbers, take, target};

/// A target that is scraped again and again.
struct Life {
    scraper: Scraper,
    time_ms: i64,
    counts: Counts,
}

impl Life {
    fn new(target: Target) -> Self {
        Life { scraper: Scraper::new(target), time_ms: START_MS, counts: Counts::default() }
    }

    fn page(&mut self, body: &str) -> Result<BTreeMap<String, Option<f64>>, ScrapeError> {
        self.time_ms += 15_000;
        let outcome = take(&mut self.scraper, body.as_bytes(), Format::Text, self.time_ms);
        self.counts = outcome.counts;
        let found = self.finish();
        outcome.result.map(|()| found)
    }

    fn finish(&mut self) -> BTreeMap<String, Option<f64>> {
        let request = self.scraper.finish(&Report::default());
        numbers(&metrics(&decode(&request).resource_metrics))
    }
}

fn found(pairs: &[(&str, Option<f64>)]) -> BTreeMap<String, Option<f64>> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

#[test]
fn a_series_that_is_gone_ends_once() {
    let mut life = Life::new(target());
    let both = found(&[("a{b=c}", Some(1.0)), ("d{}", Some(2.0))]);
    assert_eq!(life.page("a{b=\"c\"} 1\nd 2\n"), Ok(both));
    assert_eq!(life.counts.new_series, 2);
    assert_eq!(life.page("d 3\n"), Ok(found(&[("a{b=c}", None), ("d{}", Some(3.0))])));
    assert_eq!(life.page("d 4\n"), Ok(found(&[("d{}", Some(4.0))])));
    assert_eq!(life.page("a{b=\"c\"} 5\n"), Ok(found(&[("a{b=c}", Some(5.0)), ("d{}", None)])));
    assert_eq!((life.counts.scraped, life.counts.new_series), (1, 1));
}

/// Scenario: the same series in another order, with new ones in between. Guarantee: all have their
/// own values.
#[test]
fn the_order_of_a_page_does_not_matter() {
    let mut life = Life::new(target());
    let names = ["a", "a_b", "ab", "b{x=\"1\"}", "b{x=\"11\"}", "b", "c{y=\"a b\"}"];
    let mut order: Vec<usize> = (0..names.len()).collect();
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..200 {
        random.shuffle(&mut order);
        let count = random.usize(1..=names.len());
        let page: String = order[..count]
            .iter()
            .map(|place| format!("{} {}\n", names[*place], round * 10 + place))
            .collect();
        let found = life.page(&page).expect("is a page");
        let mut values: Vec<f64> = found.values().filter_map(|value| *value).collect();
        values.sort_by(f64::total_cmp);
        let mut expected: Vec<f64> =
            order[..count].iter().map(|place| (round * 10 + place) as f64).collect();
        expected.sort_by(f64::total_cmp);
        assert_eq!(values, expected, "{page}");
    }
}

/// Scenario: a known series without labels is followed by one that has labels behind a blank.
/// Guarantee: they are not taken for one another.
#[test]
fn a_known_name_is_not_the_start_of_another_series() {
    let mut life = Life::new(target());
    assert_eq!(life.page("a 1\n"), Ok(found(&[("a{}", Some(1.0))])));
    let expected = found(&[("a{}", None), ("a{b=c}", Some(2.0))]);
    assert_eq!(life.page("a {b=\"c\"} 2\n"), Ok(expected));
    assert_eq!(life.page("a{b=\"c\"} 3\n"), Ok(found(&[("a{b=c}", Some(3.0))])));
    assert_eq!(life.page("ab 4\n"), Ok(found(&[("a{b=c}", None), ("ab{}", Some(4.0))])));
}

#[test]
fn a_failed_page_ends_all_series_and_takes_none() {
    let mut life = Life::new(target());
    life.page("a 1\nb 2\n").expect("is a page");
    let error = life.page("a 3\nb 4\nc 5\n!\n").expect_err("fails");
    assert_eq!(error.to_string(), "line 4: the name of a metric is expected: !");
    assert_eq!(life.counts.scraped, 3);
    life.time_ms += 1;
    let mut again = Life::new(target());
    again.page("a 1\nb 2\n").expect("is a page");
    let outcome = take(&mut again.scraper, b"a 3\nb 4\nc 5\n!\n", Format::Text, START_MS * 2);
    assert!(outcome.result.is_err());
    assert_eq!(again.finish(), found(&[("a{}", None), ("b{}", None)]));
    // They end once, and come back.
    let outcome = take(&mut again.scraper, b"a 3\n!\n", Format::Text, START_MS * 2);
    assert!(outcome.result.is_err());
    assert_eq!(again.finish(), found(&[]));
    assert_eq!(again.page("a 6\n"), Ok(found(&[("a{}", Some(6.0))])));
    assert_eq!(again.counts.new_series, 0);
}

#[test]
fn a_target_that_does_not_answer_ends_all_series() {
    let mut life = Life::new(target());
    life.page("a 1\n").expect("is a page");
    life.scraper.absent(START_MS + 20_000);
    assert_eq!(life.finish(), found(&[("a{}", None)]));
    life.scraper.absent(START_MS + 30_000);
    assert_eq!(life.finish(), found(&[]));
    life.page("a 1\n").expect("is a page");
    assert_eq!(life.page(""), Ok(found(&[("a{}", None)])));
}

/// Guarantee: at the end of a target its series and the report end, and nothing of it is kept.
#[test]
fn the_end_of_a_target_ends_its_report() {
    let mut life = Life::new(target());
    life.page("target_info{a=\"b\"} 1\na 1\nb 2\n").expect("is a page");
    let request = life.scraper.end(START_MS + 60_000);
    let resources = decode(&request).resource_metrics;
    let all: Vec<_> = resources[0].scope_metrics[0].metrics.clone();
    let ended = numbers(&all);
    assert_eq!(ended.len(), 7);
    assert!(ended.values().all(Option::is_none));
    assert!(ended.contains_key("up{}"));
    let never_scraped = Scraper::new(target()).end(START_MS);
    assert_eq!((never_scraped.items, never_scraped.bytes.len()), (0, 0));
}

#[test]
fn series_with_times_end_only_if_that_is_wanted() {
    for wanted in [false, true] {
        let mut life = Life::new(Target { track_timestamps_staleness: wanted, ..target() });
        life.page("a 1 1000\n").expect("is a page");
        let expected = if wanted { found(&[("a{}", None)]) } else { found(&[]) };
        assert_eq!(life.page("# nothing\n"), Ok(expected));
    }
}

/// Guarantee: a histogram that has lost all its series is stale, one that lost a bucket is not.
#[test]
fn histograms_end_as_a_whole() {
    let histogram = |life: &mut Life, body: &str| {
        let body = format!("# TYPE h histogram\n{body}");
        life.time_ms += 1000;
        let outcome = take(&mut life.scraper, body.as_bytes(), Format::Text, life.time_ms);
        assert_eq!(outcome.result, Ok(()));
        let request = life.scraper.finish(&Report::default());
        let found = metrics(&decode(&request).resource_metrics);
        match found.first().and_then(|metric| metric.data.clone()) {
            Some(metric::Data::Histogram(histogram)) => histogram.data_points[0].clone(),
            other => panic!("no histogram: {other:?}"),
        }
    };
    let mut life = Life::new(target());
    let whole = "h_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 2\nh_bucket{le=\"+Inf\"} 3\n\
                 h_sum 4\nh_count 3\n";
    assert_eq!(histogram(&mut life, whole).bucket_counts, [1, 1, 1]);
    let less = whole.replace("h_bucket{le=\"2\"} 2\n", "");
    let point = histogram(&mut life, &less);
    assert_eq!((&*point.bucket_counts, point.flags), (&[1, 2][..], 0));
    let point = histogram(&mut life, "");
    assert_eq!((&*point.explicit_bounds, point.flags), (&[1.0][..], 1));
    assert_eq!((point.count, point.sum, &*point.bucket_counts), (0, None, &[0, 0][..]));
}

/// Guarantee: relabelling is asked once for each series, and its answer holds.
#[test]
fn relabelling_is_asked_once() {
    let mut scraper = Scraper::new(target());
    let mut asked = Vec::new();
    for round in 0..3 {
        let body = b"a{b=\"c\"} 1\ndrop 2\ne 3\n";
        let page = Page { body, format: Format::Text, time_ms: START_MS + round };
        let outcome = scraper.scrape(page, &mut |labels| {
            let name = labels.get("__name__").to_owned();
            asked.push(name.clone());
            assert_eq!(labels.get("job"), "test");
            if name == "a" {
                labels.set("__name__", "renamed");
                labels.set("b", "");
                labels.set("f", "g".to_owned());
            }
            name != "drop"
        });
        assert_eq!((outcome.counts.scraped, outcome.counts.kept), (3, 2));
        let found_numbers =
            numbers(&metrics(&decode(&scraper.finish(&Report::default())).resource_metrics));
        assert_eq!(found_numbers, found(&[("e{}", Some(3.0)), ("renamed{f=g}", Some(1.0))]));
    }
    assert_eq!(asked, ["a", "drop", "e"]);
}

/// Scenario: the type of a metric changes. Guarantee: its series move to the metric of that type.
#[test]
fn a_change_of_type_moves_the_series() {
    let is_sum = |life: &mut Life, kind: &str, times: &str| {
        let body = format!("# TYPE a {kind}\na{{b=\"c\"}} 1{times}\n");
        life.time_ms += 1000;
        take(&mut life.scraper, body.as_bytes(), Format::Text, life.time_ms);
        let found = metrics(&decode(&life.scraper.finish(&Report::default())).resource_metrics);
        assert_eq!(found.len(), 1, "{found:?}");
        matches!(found[0].data, Some(metric::Data::Sum(_)))
    };
    let mut life = Life::new(target());
    for _ in 0..3 {
        assert!(is_sum(&mut life, "counter", ""));
        assert!(!is_sum(&mut life, "gauge", ""));
    }
    // A type that comes late counts from the next page on.
    let mut life = Life::new(target());
    life.page("a{b=\"c\"} 1\n# TYPE a counter\n").expect("is a page");
    assert!(is_sum(&mut life, "counter", ""));
}

/// Scenario: a metric without a type gets a description only after its first page. Guarantee: it
/// has it from then on.
#[test]
fn a_description_may_come_late() {
    let mut life = Life::new(target());
    life.page("a 1\n").expect("is a page");
    for body in ["# HELP a text\na 2\n", "a 3\n"] {
        take(&mut life.scraper, body.as_bytes(), Format::Text, START_MS);
        let found = metrics(&decode(&life.scraper.finish(&Report::default())).resource_metrics);
        assert_eq!((found.len(), &*found[0].description), (1, "text"));
    }
}

#[test]
fn a_series_twice_is_discarded() {
    let mut life = Life::new(target());
    for _ in 0..2 {
        assert_eq!(
            life.page("a 1\na 2\nb 3\n"),
            Ok(found(&[("a{}", Some(1.0)), ("b{}", Some(3.0))]))
        );
        assert_eq!((life.counts.scraped, life.counts.kept, life.counts.discarded), (3, 3, 1));
    }
    // With times, the first one of a point counts.
    assert_eq!(life.page("c 1 1000\nc 2 2000\n").map(|found| found["c{}"]), Ok(Some(1.0)));
    assert_eq!(life.counts.discarded, 1);
    let error = life.page("a{b=\"1\",b=\"2\"} 1\n").expect_err("fails");
    assert_eq!(error.to_string(), "the series a has a label twice");
}

#[test]
fn each_limit_fails_the_page() {
    let limited = |limits: Limits, body: &str| {
        let mut life = Life::new(Target { limits, ..target() });
        let result = life.page(body).map(|found| found.len());
        (result.map_err(|error| error.to_string()), life.counts)
    };
    let none = Limits::default();
    let (result, _) = limited(Limits { body_bytes: 4, ..none }, "a 1\n");
    assert_eq!(result, Ok(1));
    let (result, counts) = limited(Limits { body_bytes: 3, ..none }, "a 1\n");
    assert!(result.expect_err("fails").contains("3 bytes"));
    assert_eq!(counts.scraped, 0);
    assert_eq!(limited(Limits { samples: 2, ..none }, "a 1\nb 2\n").0, Ok(2));
    let (result, counts) = limited(Limits { samples: 2, ..none }, "a 1\nb 2\nc 3\nd 4\n");
    assert_eq!(result.expect_err("fails"), "the page has 4 samples, sample_limit allows 2");
    assert_eq!((counts.scraped, counts.kept, counts.new_series), (4, 4, 2));
    let (result, _) = limited(Limits { labels: 3, ..none }, "a 1\nb{c=\"d\"} 1\n");
    assert_eq!(result.expect_err("fails"), "the series b exceeds label_limit: 4, at most 3");
}

/// Scenario: each page has other series. Guarantee: memory does not grow from page to page, a limit
/// fails the page, and a small page is taken after that.
#[test]
fn memory_is_bounded() {
    let page = |round: usize, series: usize| -> String {
        (0..series)
            .map(|place| format!("m_{round}_{place}{{a=\"{round}\",b=\"some text\"}} 1\n"))
            .collect()
    };
    let mut life = Life::new(target());
    let mut most = 0;
    for round in 0..30 {
        life.page(&page(round, 1000)).expect("is a page");
        if round == 2 {
            most = life.scraper.memory();
        }
    }
    assert!(life.scraper.memory() <= most + most / 4, "{} {most}", life.scraper.memory());
    let limits = Limits { memory_bytes: 300_000, ..Limits::default() };
    let mut life = Life::new(Target { limits, ..target() });
    life.page(&page(0, 10)).expect("is a page");
    for round in 0..3 {
        let error = life.page(&page(round, 10_000)).expect_err("fails");
        assert_eq!(error, ScrapeError::Memory { limit: 300_000 });
        assert!(life.scraper.memory() < 310_000);
        life.page(&page(round, 10)).expect("is a page");
    }
    assert!(life.scraper.memory() < 60_000, "{}", life.scraper.memory());
    // Pages that fail for other reasons do not fill it either.
    let mut life = Life::new(target());
    for round in 0..50 {
        life.page(&(page(round, 1000) + "!\n")).expect_err("fails");
    }
    assert!(life.scraper.memory() < 4_000_000, "{}", life.scraper.memory());
}

/// Scenario: pages that fail, each with other metadata; then one that is metadata only, and more
/// than a target may take. Guarantee: memory does not grow from page to page, the limit counts
/// metadata, and what filled it does not stand in the way of the next page.
#[test]
fn metadata_is_bounded() {
    let page = |round: usize, names: usize| -> String {
        (0..names).map(|name| format!("# HELP m_{round:03}_{name} some help\n")).collect()
    };
    let mut life = Life::new(target());
    let mut most = [0, 0];
    for round in 0..100 {
        life.page(&(page(round, 100) + "!\n")).expect_err("fails");
        let most = &mut most[usize::from(round > 20)];
        *most = life.scraper.memory().max(*most);
    }
    assert!(most[1] <= most[0], "{most:?}");
    for round in 0..3 {
        life.page(&(page(round, 10_000) + "!\n")).expect_err("fails");
        assert!(life.scraper.memory() < most[0], "{} {most:?}", life.scraper.memory());
    }
    let limits = Limits { memory_bytes: 100_000, ..Limits::default() };
    let mut life = Life::new(Target { limits, ..target() });
    for round in 0..2 {
        let error = life.page(&page(round, 2000)).expect_err("fails");
        assert_eq!(error, ScrapeError::Memory { limit: 100_000 });
        let expected = found(&[("a{}", Some(1.0))]);
        assert_eq!(life.page("# HELP a help\na 1\n"), Ok(expected));
    }
}

/// Scenario: rules remove all labels of a series, or only its name. Guarantee: the first is as if
/// it had been dropped, the second fails the page, as in Prometheus.
#[test]
fn a_series_without_labels_is_none() {
    let mut scraper = Scraper::new(target());
    let page = Page { body: b"a 1\nb 2\n", format: Format::Text, time_ms: START_MS };
    let outcome = scraper.scrape(page, &mut |labels| {
        if labels.get("__name__") == "a" {
            labels.replace([("", ""); 0]);
        }
        true
    });
    assert_eq!((outcome.result, outcome.counts.scraped, outcome.counts.kept), (Ok(()), 2, 1));
    let outcome = Scraper::new(target()).scrape(page, &mut |labels| {
        labels.set("__name__", "");
        true
    });
    assert_eq!(outcome.result.expect_err("fails").to_string(), "the series  has no name");
}
