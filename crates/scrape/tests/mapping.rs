//! The mapping of each type to OTLP.

mod support;

use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, HistogramDataPoint, Metric, Sum, metric,
};
use sluice_scrape::{Format, Report, Scraper, Target};
use support::{START_MS, convert, decode, metrics, numbers, owned, take, target, text};

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

fn openmetrics(body: &str) -> Vec<Metric> {
    metrics(&convert(&format!("{body}# EOF\n"), Format::OpenMetrics))
}

fn sum(metric: &Metric) -> &Sum {
    match metric.data.as_ref() {
        Some(metric::Data::Sum(sum)) => sum,
        other => panic!("no sum: {other:?}"),
    }
}

fn histogram(metric: &Metric) -> &HistogramDataPoint {
    match metric.data.as_ref() {
        Some(metric::Data::Histogram(histogram)) => {
            assert_eq!(histogram.aggregation_temporality, CUMULATIVE);
            &histogram.data_points[0]
        }
        other => panic!("no histogram: {other:?}"),
    }
}

/// Guarantee: names, texts, monotony and start are those of the Collector.
#[test]
fn a_counter_is_a_monotonic_sum_since_its_creation() {
    let found = openmetrics(
        "# TYPE a_seconds counter\n# UNIT a_seconds seconds\n# HELP a_seconds Help.\n\
         a_seconds_total{b=\"c\"} 1\na_seconds_created{b=\"c\"} 1.5\na_seconds_total 2\n",
    );
    assert_eq!(found.len(), 1);
    let metric = &found[0];
    assert_eq!((&*metric.name, &*metric.description), ("a_seconds_total", "Help."));
    assert_eq!((&*metric.unit, &*text(&metric.metadata)), ("s", "prometheus.type=counter"));
    let sum = sum(metric);
    assert_eq!((sum.is_monotonic, sum.aggregation_temporality), (true, CUMULATIVE));
    let points: Vec<(String, u64)> = sum
        .data_points
        .iter()
        .map(|point| (text(&point.attributes), point.start_time_unix_nano))
        .collect();
    assert_eq!(points, [("b=c".to_owned(), 1_500_000_000), (String::new(), 0)]);
    let old = metrics(&convert("# TYPE a_total counter\na_total 1\n", Format::Text));
    assert_eq!((&*old[0].name, self::sum(&old[0]).is_monotonic), ("a_total", true));
}

#[test]
fn suffixes_are_trimmed_if_that_is_wanted() {
    let mut scraper = Scraper::new(Target { trim_suffixes: true, ..target() });
    let body = b"# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n# EOF\n";
    take(&mut scraper, body, Format::OpenMetrics, START_MS);
    let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
    assert_eq!(&*found[0].name, "a");
}

#[test]
fn other_numbers_are_gauges_or_plain_sums() {
    let found = openmetrics(
        "# TYPE a gauge\na 1\nb 2\n# TYPE c unknown\nc 3\n# TYPE d info\nd_info{v=\"1\"} 1\n\
         # TYPE e stateset\ne{e=\"on\"} 1\ne{e=\"off\"} 0\n# TYPE f gaugehistogram\n\
         f_bucket{le=\"+Inf\"} 4\nf_gcount 4\n",
    );
    let kinds: Vec<(&str, bool, String)> = found
        .iter()
        .map(|metric| {
            let is_sum = matches!(metric.data, Some(metric::Data::Sum(_)));
            (&*metric.name, is_sum, text(&metric.metadata))
        })
        .collect();
    let kinds: Vec<(&str, bool, &str)> =
        kinds.iter().map(|(name, is_sum, kind)| (*name, *is_sum, &kind[16..])).collect();
    let expected = [
        ("a", false, "gauge"),
        ("b", false, "unknown"),
        ("c", false, "unknown"),
        ("d", true, "info"),
        ("e", true, "stateset"),
        ("f", false, "gaugehistogram"),
        ("f_gcount", false, "unknown"),
    ];
    assert_eq!(kinds, expected);
    assert!(!sum(&found[3]).is_monotonic);
    assert_eq!(numbers(&found)["f{le=+Inf}"], Some(4.0));
}

/// Guarantee: buckets are sorted and not cumulative, whatever their order on the page; `le` is no
/// attribute.
#[test]
fn a_histogram_has_its_buckets_in_order() {
    let found = openmetrics(
        "# TYPE h histogram\nh_bucket{a=\"b\",le=\"+Inf\"} 10\nh_bucket{a=\"b\",le=\"2\"} 7\n\
         h_bucket{a=\"b\",le=\"1\"} 3\nh_sum{a=\"b\"} 12.5\nh_count{a=\"b\"} 10\n\
         h_created{a=\"b\"} 2\n",
    );
    assert_eq!((found.len(), &*found[0].name), (1, "h"));
    let point = histogram(&found[0]);
    assert_eq!(text(&point.attributes), "a=b");
    assert_eq!((point.count, point.sum), (10, Some(12.5)));
    assert_eq!(point.explicit_bounds, [1.0, 2.0]);
    assert_eq!(point.bucket_counts, [3, 4, 3]);
    assert_eq!(point.start_time_unix_nano, 2_000_000_000);
    assert_eq!(point.time_unix_nano, START_MS as u64 * 1_000_000);
}

#[test]
fn histograms_that_lack_parts_are_taken_if_they_have_a_count() {
    let one = |body: &str| openmetrics(&format!("# TYPE h histogram\n{body}"));
    assert_eq!(one("h_sum 1\nh_bucket{le=\"1\"} 1\n"), []);
    let found = one("h_count 4\n");
    let bare = histogram(&found[0]);
    assert_eq!((bare.count, bare.sum, &*bare.bucket_counts), (4, None, &[4][..]));
    assert!(bare.explicit_bounds.is_empty());
    let found = one("h_count 4\nh_bucket{le=\"1\"} 1\n");
    let open = histogram(&found[0]);
    assert_eq!((&*open.explicit_bounds, &*open.bucket_counts), (&[1.0][..], &[1, 3][..]));
    // Counts that do not grow give no wild numbers; a bound twice counts once.
    let found = one("h_count 2\nh_bucket{le=\"1\"} 5\nh_bucket{le=\"1.0\"} 4\n");
    let wrong = histogram(&found[0]);
    assert_eq!((&*wrong.explicit_bounds, &*wrong.bucket_counts), (&[1.0][..], &[4, 0][..]));
    let found = one("h_count 2\nh_bucket 5\nh_bucket{le=\"x\"} 4\nh_bucket{le=\"NaN\"} 4\n");
    assert_eq!(histogram(&found[0]).bucket_counts, [2]);
}

#[test]
fn a_summary_has_its_quantiles_in_order() {
    let body = "# TYPE s summary\ns{quantile=\"0.9\"} 2\ns{quantile=\"0.5\"} 1\ns_sum 30\n\
                s_count 20\n";
    let found = metrics(&convert(body, Format::Text));
    let Some(metric::Data::Summary(summary)) = &found[0].data else { panic!("no summary") };
    let point = &summary.data_points[0];
    assert_eq!((point.count, point.sum), (20, 30.0));
    let quantiles: Vec<(f64, f64)> =
        point.quantile_values.iter().map(|value| (value.quantile, value.value)).collect();
    assert_eq!(quantiles, [(0.5, 1.0), (0.9, 2.0)]);
    assert_eq!(point.attributes, []);
}

#[test]
fn exemplars_have_their_ids_and_their_time() {
    let found = openmetrics(
        "# TYPE a counter\na_total 1 # {trace_id=\"00112233445566778899aabbccddeeff\",\
         span_id=\"0011223344556677\",b=\"\\\"c\\\"\"} 0.5 1.5\n\
         a_total{d=\"e\"} 1 2 # {Trace_ID=\"zz\",span_id=\"ab\"} 1\n\
         # TYPE h histogram\nh_count 1\nh_bucket{le=\"+Inf\"} 1 # {f=\"g\"} 7\n",
    );
    let sum = sum(&found[0]);
    let first = &sum.data_points[0].exemplars[0];
    assert_eq!(first.trace_id[..2], [0, 0x11]);
    assert_eq!((first.trace_id.len(), first.span_id.len()), (16, 8));
    assert_eq!(text(&first.filtered_attributes), "b=\"c\"");
    assert_eq!(first.time_unix_nano, 1_500_000_000);
    let second = &sum.data_points[1].exemplars[0];
    assert_eq!(text(&second.filtered_attributes), "Trace_ID=zz");
    assert_eq!(
        (second.span_id.as_slice(), second.trace_id.len()),
        (&[0, 0, 0, 0, 0, 0, 0, 0xab][..], 0)
    );
    assert_eq!(second.time_unix_nano, 2_000_000_000);
    assert_eq!(histogram(&found[1]).exemplars.len(), 1);
}

/// Guarantee: the report's texts are the Collector's, and `up` follows the result.
#[test]
fn the_report_is_of_the_target() {
    let mut scraper = Scraper::new(Target {
        labels: owned(&[("job", "j"), ("instance", "i"), ("zone", "z")]),
        external_labels: owned(&[("cluster", "c")]),
        ..target()
    });
    let outcome = take(&mut scraper, b"a 1\n", Format::Text, START_MS);
    let report = Report {
        healthy: true,
        duration: std::time::Duration::from_millis(1500),
        counts: outcome.counts,
        extra: Some(sluice_scrape::Extra {
            timeout: std::time::Duration::from_secs(10),
            sample_limit: 7,
            body_bytes: None,
        }),
    };
    let request = scraper.finish(&report);
    assert_eq!(request.items, 9);
    let resources = decode(&request).resource_metrics;
    let all = &resources[0].scope_metrics[0].metrics;
    let of_target = "cluster=c,zone=z";
    let values: Vec<(String, Option<f64>)> = numbers(all).into_iter().collect();
    let expected = [
        ("a", 1.0),
        ("scrape_body_size_bytes", -1.0),
        ("scrape_duration_seconds", 1.5),
        ("scrape_sample_limit", 7.0),
        ("scrape_samples_post_metric_relabeling", 1.0),
        ("scrape_samples_scraped", 1.0),
        ("scrape_series_added", 1.0),
        ("scrape_timeout_seconds", 10.0),
        ("up", 1.0),
    ];
    let expected = expected.map(|(name, value)| (format!("{name}{{{of_target}}}"), Some(value)));
    assert_eq!(values, expected);
    let duration = all.iter().find(|metric| metric.name == "scrape_duration_seconds");
    let duration = duration.expect("is reported");
    assert_eq!((&*duration.description, &*duration.unit), ("Duration of the scrape", "s"));
}

/// Scenario: the page has an `up` of its own, with a time of its own. Guarantee: the report's wins.
#[test]
fn a_page_cannot_hide_the_report() {
    let found = convert("up 7 1000\n", Format::Text);
    let metrics = &found[0].scope_metrics[0].metrics;
    assert_eq!(numbers(metrics)["up{}"], Some(0.0));
}

#[test]
fn labels_of_scopes_and_targets_are_no_attributes() {
    let found = convert(
        "target_info{version=\"6\"} 1\ntarget_info{version=\"7\",url_scheme=\"x\",job=\"\"} 1\na{otel_scope_name=\"s\",\
         otel_scope_version=\"1\",otel_scope_schema_url=\"u\",otel_scope_x=\"y\",b=\"c\"} 1\n\
         d{e=\"\"} 2\na{otel_scope_name=\"s\",otel_scope_version=\"2\",b=\"c\"} 3\n",
        Format::Text,
    );
    assert_eq!(found.len(), 1);
    let resource = found[0].resource.as_ref().expect("a resource");
    let expected = "service.name=test,server.address=example.com,\
                    service.instance.id=example.com:80,server.port=80,url.scheme=http,\
                    url_scheme=x,version=7";
    assert_eq!(text(&resource.attributes), expected);
    let scopes: Vec<(String, Vec<String>)> = found[0]
        .scope_metrics
        .iter()
        .map(|scope| {
            let its = scope.scope.as_ref().expect("a scope");
            let attributes = text(&its.attributes);
            let scope_text =
                [&its.name, &its.version, &scope.schema_url, &attributes].map(|s| &**s);
            (scope_text.join("/"), numbers(&scope.metrics).into_keys().collect())
        })
        .collect();
    assert_eq!(scopes.len(), 3);
    assert_eq!(scopes[0].0, "receiver/1.0//");
    assert!(scopes[0].1.contains(&"d{}".to_owned()));
    assert_eq!(scopes[1], ("s/1/u/x=y".to_owned(), vec!["a{b=c}".to_owned()]));
    assert_eq!(scopes[2], ("s/2//".to_owned(), vec!["a{b=c}".to_owned()]));
}

/// Scenario: a page of federation, whose labels are honored. Guarantee: each job's instance is a
/// resource.
#[test]
fn honored_labels_make_resources() {
    let honoring = Target { honor_labels: true, ..target() };
    let mut scraper = Scraper::new(honoring);
    let body = b"a{job=\"x\",instance=\"h:1\"} 1\na 2\na{job=\"x\",instance=\"h:2\"} 3\n\
                 b{job=\"x\",instance=\"h:1\"} 4\n";
    assert_eq!(take(&mut scraper, body, Format::Text, START_MS).result, Ok(()));
    let found = decode(&scraper.finish(&Report::default())).resource_metrics;
    let resources: Vec<(String, usize)> = found
        .iter()
        .map(|resource| {
            let attributes = &resource.resource.as_ref().expect("a resource").attributes;
            (text(&attributes[2..3]), metrics(std::slice::from_ref(resource)).len())
        })
        .collect();
    let expected = [("example.com:80", 1), ("h:1", 2), ("h:2", 1)]
        .map(|(instance, metrics)| (format!("service.instance.id={instance}"), metrics));
    assert_eq!(resources, expected);
}

#[test]
fn times_of_a_page_count_if_they_are_honored() {
    let time = |honor_timestamps| {
        let mut scraper = Scraper::new(Target { honor_timestamps, ..target() });
        take(&mut scraper, b"a 1 1000\n", Format::Text, START_MS);
        let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
        let Some(metric::Data::Gauge(gauge)) = &found[0].data else { panic!("no gauge") };
        gauge.data_points[0].time_unix_nano
    };
    assert_eq!(time(true), 1_000_000_000);
    let mut scraper = Scraper::new(target());
    let ahead = START_MS + 600_000;
    let body = format!("a 1 {ahead}\nb 1 {}\nc 1 {}\n", ahead + 1, i64::MAX);
    let outcome = take(&mut scraper, body.as_bytes(), Format::Text, START_MS);
    assert_eq!((outcome.counts.kept, outcome.counts.discarded), (3, 2));
    let found = metrics(&decode(&scraper.finish(&Report::default())).resource_metrics);
    assert_eq!(numbers(&found).into_keys().collect::<Vec<_>>(), ["a{}"]);
    assert_eq!(time(false), START_MS as u64 * 1_000_000);
}
