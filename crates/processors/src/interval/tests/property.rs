//! Any order of samples, sizes of requests, pauses and refusals, against a computation that knows
//! nothing of them.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const INTERVAL: u64 = 10 * SECOND;

#[derive(Clone, Debug)]
struct Sample {
    series: u8,
    /// Nanoseconds since the base.
    time: u64,
    value: i32,
}

#[derive(Clone, Debug)]
enum Step {
    /// A request with so many of the samples that are left, which is refused first.
    Request {
        samples: usize,
        is_refused_first: bool,
    },
    Pause {
        millis: u64,
    },
    /// The engine looks at what is due, and may have no room for it.
    Look {
        is_refused_first: bool,
    },
    /// A reload with other options cuts all buckets short.
    Cut,
}

fn sample() -> impl Strategy<Value = Sample> {
    (0..4_u8, 0..50 * SECOND, -1000..1000).prop_map(|(series, time, value)| {
        // Some have the same times.
        let time = if value % 3 == 0 { time / SECOND * SECOND } else { time };
        Sample { series, time, value }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_usize, any::<bool>()).prop_map(|(samples, is_refused_first)| {
            Step::Request { samples, is_refused_first }
        }),
        2 => (0..8000_u64).prop_map(|millis| Step::Pause { millis }),
        2 => any::<bool>().prop_map(|is_refused_first| Step::Look { is_refused_first }),
        1 => Just(Step::Cut),
    ]
}

fn metrics(samples: &[Sample]) -> Bytes {
    let points = || {
        let point = |it: &Sample| {
            point(&it.series.to_string(), BASE + it.time, Number::AsInt(it.value.into()))
        };
        samples.iter().map(point).collect::<Vec<_>>()
    };
    request(vec![gauge("g", points()), sum("s", DELTA, points())])
}

fn drain(pipe: &mut Pipe, is_refused_first: bool, limit_bytes: usize, out: &mut Vec<Out>) {
    if is_refused_first {
        let _ = pipe.aggregator.take(limit_bytes);
        pipe.aggregator.undo_to(0);
    }
    while let Some((bytes, items)) = pipe.aggregator.take(limit_bytes) {
        assert_eq!(count(Signal::Metrics, &bytes), Ok(items));
        pipe.aggregator.keep();
        out.extend(numbers_of(&bytes));
    }
}

/// A bucket is from behind its start to its end for the points that are written.
fn bucket_of(time: u64) -> u64 {
    (time - BASE - 1) / INTERVAL
}

fn play(samples: &[Sample], steps: &[Step], limit_bytes: usize, quantile_values: usize) {
    let all = "statistics: [sum, count, min, max, last], quantiles: [0, 0.5, 0.9, 1]";
    let text = |lateness: &str| {
        format!(
            "{{interval: 10s, allowed_lateness: {lateness}, quantile_values: {quantile_values}, \
             rules: [{{metrics: [.], match_type: regexp, {all}}}]}}"
        )
    };
    let both = [options(&text("2s")), options(&text("3s"))];
    let mut pipe = Pipe::new(&text("2s"));
    pipe.now = BASE + 40 * SECOND;
    pipe.aggregator = Aggregator::new(both[0].clone(), pipe.now);
    let (mut left, mut out, mut cuts) = (samples, Vec::new(), 0);
    let rest = [Step::Request { samples: samples.len(), is_refused_first: false }];
    for step in steps.iter().chain(&rest) {
        match step {
            Step::Request { samples, is_refused_first } => {
                let (these, others) = left.split_at((*samples).min(left.len()));
                left = others;
                let request = metrics(these);
                if *is_refused_first {
                    pipe.pass(&request, false);
                }
                assert!(numbers_of(&pipe.pass(&request, true)).is_empty());
            }
            Step::Pause { millis } => pipe.now += millis * 1_000_000,
            Step::Look { is_refused_first } => {
                pipe.aggregator.seal(pipe.now);
                drain(&mut pipe, *is_refused_first, limit_bytes, &mut out);
            }
            Step::Cut => {
                cuts += 1;
                pipe.options = both[cuts % 2].clone();
            }
        }
    }
    pipe.now += 100 * SECOND;
    pipe.aggregator.seal(pipe.now);
    drain(&mut pipe, true, limit_bytes, &mut out);
    assert_eq!(pipe.aggregator.usage(), (0, 0), "all is written");
    let mut known = BTreeSet::new();
    for it in &out {
        let key = (it.name.clone(), it.series.clone(), it.time);
        assert!(known.insert(key), "one time twice: {it:?}");
    }
    compare(samples, &out, quantile_values);
}

/// Each bucket of each series, computed from the samples alone.
fn compare(samples: &[Sample], out: &[Out], quantile_values: usize) {
    let mut buckets: BTreeMap<(u64, String), Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        let key = (sample.time / INTERVAL, sample.series.to_string());
        buckets.entry(key).or_default().push(sample);
    }
    for prefix in ["g", "s"] {
        let sum_name = if prefix == "g" { "g_sum" } else { "s" };
        let total = |name: &str| -> f64 {
            out.iter().filter(|it| it.name == name).map(|it| it.value).sum()
        };
        assert_eq!(total(&format!("{prefix}_count")), samples.len() as f64);
        let wanted: f64 = samples.iter().map(|it| f64::from(it.value)).sum();
        assert_eq!(total(sum_name), wanted);
        for ((bucket, series), of_bucket) in &buckets {
            let named = |name: String| -> Vec<f64> {
                let is_own = |it: &&Out| {
                    it.name == name && it.series == *series && bucket_of(it.time) == *bucket
                };
                out.iter().filter(is_own).map(|it| it.value).collect()
            };
            let mut sorted: Vec<i32> = of_bucket.iter().map(|it| it.value).collect();
            sorted.sort_unstable();
            let (least, most) = (f64::from(sorted[0]), f64::from(sorted[sorted.len() - 1]));
            let lowest = named(format!("{prefix}_min")).into_iter().fold(f64::MAX, f64::min);
            let highest = named(format!("{prefix}_max")).into_iter().fold(f64::MIN, f64::max);
            assert_eq!((lowest, highest), (least, most));
            assert_eq!(named(format!("{prefix}_count")).iter().sum::<f64>(), sorted.len() as f64);
            if named(format!("{prefix}_count")).len() > 1 {
                continue;
            }
            let newest = of_bucket.iter().max_by_key(|it| it.time).expect("has some").time;
            let may_be_last = of_bucket.iter().filter(|it| it.time == newest);
            let mut may_be_last = may_be_last.map(|it| f64::from(it.value));
            let last_name = if prefix == "g" { "g" } else { "s_last" };
            let last = named(last_name.to_owned())[0];
            // The last of those that came: samples are in the order of their arrival.
            assert_eq!(may_be_last.next_back(), Some(last));
            for (ending, share) in [("p0", 0.0), ("p50", 0.5), ("p90", 0.9), ("p100", 1.0)] {
                let rank = ((share * sorted.len() as f64).ceil() as usize).max(1);
                let right = f64::from(sorted[rank - 1]);
                let near = named(format!("{prefix}_{ending}"))[0];
                let error = if sorted.len() <= quantile_values { 0.0 } else { 0.0101 };
                assert!((near - right).abs() <= right.abs() * error, "{near} for {right}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any samples, requests, pauses and refusals: sums of sums and counts of counts are those
    /// of the samples, the least, greatest and last value and quantiles are those of the same
    /// buckets, and no two points of a series have one time.
    #[test]
    fn what_goes_in_comes_out(
        samples in prop::collection::vec(sample(), 0..300),
        steps in prop::collection::vec(step(), 0..30),
        limit_bytes in prop_oneof![Just(1_usize), Just(2000), Just(1 << 20)],
        quantile_values in prop_oneof![Just(0_usize), Just(10), Just(2048)],
    ) {
        play(&samples, &steps, limit_bytes, quantile_values);
    }
}
