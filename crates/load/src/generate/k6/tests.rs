//! The generator against a server of its own, and into files.

use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::backend::influx::Influx;

fn at(output: Output, requests_per_s: f64) -> Samples {
    Samples { output, requests_per_s }
}

/// Generates for this long.
async fn run(samples: Samples, lasts: Duration) -> Written {
    let written = Arc::default();
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(samples.run(stopped, Arc::clone(&written)));
    tokio::time::sleep(lasts).await;
    stop.send_replace(true);
    running.await.expect("ends").expect("is written");
    Written::clone(&written.lock())
}

/// Scenario: samples of two and a half seconds are sent to a sink. Guarantee: there is a request
/// each second and one at the end, and the sink has the generator's own sums.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_generated_is_what_arrives() {
    let sink = Influx::start(&COUNTERS).await.unwrap();
    let lasts = Duration::from_millis(2_500);
    let written = run(at(Output::Influx(sink.addr()), 2_000.0), lasts).await;
    assert!((3..=4).contains(&written.flushes), "{written:?}");
    assert!(written.requests >= 4_000 && written.sums[0] == written.requests, "{written:?}");
    assert_eq!((written.flushes_failed, written.requests_dropped), (0, 0), "{written:?}");
    assert!(written.samples >= written.requests * SAMPLES_PER_REQUEST + 4, "{written:?}");
    for (name, sum) in COUNTERS.iter().zip(written.sums) {
        assert_eq!(sink.sum(name), Some(sum as f64), "{name}");
    }
}

/// Scenario: nothing listens. Guarantee: each flush fails with its reason, all requests are dropped
/// as k6 drops them, and the generator goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_that_fails_drops_its_samples() {
    let gone = Influx::start(&COUNTERS).await.unwrap().addr();
    let written = run(at(Output::Influx(gone), 100.0), Duration::from_millis(1_500)).await;
    assert!(written.requests >= 100 && written.flushes_failed == written.flushes, "{written:?}");
    assert_eq!(written.requests_dropped, written.requests, "{written:?}");
    assert!(written.failure.is_some(), "{written:?}");
}

/// Guarantee: a file has all samples when the generator has ended, below its head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    for form in [Form::Json, Form::Csv] {
        let path = folder.path().join("k6.out");
        let output = Output::File(form, path.clone());
        let written = run(at(output, 1_000.0), Duration::from_millis(700)).await;
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.len() as u64, written.bytes, "{written:?}");
        let samples = text.lines().filter(|line| match form {
            Form::Json => line.contains("\"Point\""),
            _ => !line.starts_with("metric_name"),
        });
        assert_eq!(samples.count() as u64, written.samples, "{written:?}");
        assert!(written.requests >= 500 && text.ends_with('\n'), "{written:?}");
    }
}

/// Guarantee: no rate that cannot be had is accepted, and a file that cannot be made is named.
#[tokio::test]
async fn what_cannot_be_generated_is_said() {
    let path = PathBuf::from("/nonexistent/k6.csv");
    for rate in [0.0, -1.0, f64::NAN, 1e7] {
        let error = at(Output::File(Form::Csv, path.clone()), rate).check().unwrap_err();
        assert!(error.to_string().contains("give a rate above 0"), "{error}");
    }
    let samples = at(Output::File(Form::Csv, path), 1.0);
    let (_stop, stopped) = watch::channel(false);
    let error = samples.run(stopped, Arc::default()).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent/k6.csv"), "{error:#}");
}

/// Guarantee: what InfluxDB says is the reason of a failure.
#[tokio::test]
async fn an_answer_is_the_reason() {
    let sink = Influx::start(&COUNTERS).await.unwrap();
    let written = Arc::new(Mutex::new(Written::default()));
    let mut flusher =
        Flusher::open(&Output::Influx(sink.addr()), Arc::clone(&written)).await.unwrap();
    flusher.flush(Bytes::from_static(b"no line").to_vec(), 3).await.unwrap();
    flusher.finish().await;
    let written = written.lock();
    assert!(written.failure.as_ref().unwrap().starts_with("400 Bad Request"), "{written:?}");
    assert_eq!(written.requests_dropped, 3);
}
