//! Each number that a load test reports, against subjects whose behaviour is known.

#[path = "../../load-test/tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use sluice_load::backend::{Delay, Refuse};
use sluice_load::{Backend, BackendOptions, Code, Ending, Faults, Load, Protocol, Retry};
use sluice_otlp::{Encoding, Signal};
use support::{Action, start_relay};

const NOW: Duration = Duration::ZERO;

async fn faulty_backend(faults: Faults) -> Backend {
    Backend::start(BackendOptions { faults, ..BackendOptions::default() }).await.unwrap()
}

#[tokio::test]
async fn all_signals_and_encodings_arrive_to_the_item() {
    for signal in Signal::ALL {
        for encoding in [Encoding::Identity, Encoding::Gzip, Encoding::Zstd] {
            let backend = Backend::healthy().await.unwrap();
            let load = Load::new(signal, backend.addr()).items(5_000);
            let report = Load { encoding, ..load }.run().await.unwrap();
            let counts = backend.counts();
            let case = format!("{signal} {encoding:?}: {:?}", report.messages);
            assert_eq!(
                (report.offered, report.accepted, report.requests),
                (5_000, 5_000, 50),
                "{case}"
            );
            assert_eq!(
                (counts.items, counts.doubled, counts.unidentified, counts.malformed),
                (5_000, 0, 0, 0),
                "{case}"
            );
            assert_eq!((backend.unique_items(), report.missing_at(&backend)), (5_000, 0), "{case}");
        }
    }
}

#[tokio::test]
async fn http_arrives_to_the_item_too() {
    for encoding in [Encoding::Identity, Encoding::Gzip] {
        let backend = Backend::healthy().await.unwrap();
        let load = Load::new(Signal::Logs, backend.addr()).items(3_000);
        let load = Load { protocol: Protocol::Http, encoding, ..load };
        let report = load.run().await.unwrap();
        assert_eq!(
            (report.accepted, report.missing_at(&backend)),
            (3_000, 0),
            "{:?}",
            report.messages
        );
        assert_eq!((backend.unique_items(), backend.counts().doubled), (3_000, 0));
    }
}

#[tokio::test]
async fn a_black_hole_is_total_loss() {
    let backend = faulty_backend(Faults { discard: true, ..Faults::default() }).await;
    let report = Load::new(Signal::Traces, backend.addr()).items(2_000).run().await.unwrap();
    assert_eq!(report.accepted, 2_000);
    assert_eq!(report.missing_at(&backend), 2_000);
    assert_eq!(backend.unique_items(), 0);
}

#[tokio::test]
async fn a_relay_that_drops_every_seventh_request_loses_exactly_those_items() {
    let backend = Backend::healthy().await.unwrap();
    let drops =
        Arc::new(|n: u64| Action::Forward { times: u32::from(!n.is_multiple_of(7)), after: NOW });
    let relay = start_relay(backend.addr(), drops).await;
    let report =
        Load::new(Signal::Logs, relay).items(2_100).items_per_request(10).run().await.unwrap();
    assert_eq!((report.accepted, report.missing_at(&backend)), (2_100, 300));
    assert_eq!(backend.unique_items(), 1_800);
}

#[tokio::test]
async fn a_relay_that_duplicates_every_tenth_request_doubles_exactly_those_items() {
    for encoding in [Encoding::Identity, Encoding::Gzip] {
        let backend = Backend::healthy().await.unwrap();
        let doubles = Arc::new(|n: u64| Action::Forward {
            times: 1 + u32::from(n.is_multiple_of(10)),
            after: NOW,
        });
        let relay = start_relay(backend.addr(), doubles).await;
        let load = Load::new(Signal::Metrics, relay).items(1_000).items_per_request(5);
        let report = Load { encoding, ..load }.run().await.unwrap();
        let counts = backend.counts();
        assert_eq!((counts.items, counts.doubled, backend.unique_items()), (1_100, 100, 1_000));
        assert_eq!((report.accepted, report.missing_at(&backend)), (1_000, 0));
    }
}

#[tokio::test]
async fn a_relay_that_delays_shows_in_both_latencies() {
    let backend = Backend::healthy().await.unwrap();
    let after = Duration::from_millis(150);
    let relay =
        start_relay(backend.addr(), Arc::new(move |_| Action::Forward { times: 1, after })).await;
    let report =
        Load::new(Signal::Traces, relay).items(320).items_per_request(10).run().await.unwrap();
    for latency in [backend.latency(), report.acknowledged_after] {
        // A bucket of the histogram is a thousandth wide.
        assert!(latency.min >= Duration::from_micros(149_500), "{latency:?}");
        assert!(latency.p50 < Duration::from_secs(5), "{latency:?}");
    }
    assert_eq!((backend.latency().count, report.acknowledged_after.count), (320, 32));
}

#[tokio::test]
async fn refusals_are_counted_by_code_and_are_not_losses() {
    let faults = Faults::unavailable(1.0);
    let backend = faulty_backend(faults).await;
    let report = Load::new(Signal::Traces, backend.addr()).items(1_000).run().await.unwrap();
    assert_eq!((report.accepted, report.refused, report.failed), (0, 1_000, 0));
    assert_eq!(report.endings[&Ending::Grpc(Code::Unavailable)], 10);
    assert_eq!(
        (report.missing_at(&backend), backend.counts().refused[&Code::Unavailable]),
        (0, 10)
    );

    let refuse = Refuse { share: 1.0, code: Code::PermissionDenied, retry_delay: None };
    backend.faults().set(Faults { refuse: Some(refuse), ..Faults::default() });
    let report = Load::new(Signal::Traces, backend.addr()).items(1_000).run().await.unwrap();
    assert_eq!((report.accepted, report.refused, report.failed), (0, 0, 1_000));
}

#[tokio::test]
async fn a_retrying_sender_gets_through_a_backend_that_refuses_most() {
    for is_http in [false, true] {
        let delay = Duration::from_millis(if is_http { 0 } else { 1 });
        let refuse = Refuse { share: 0.7, code: Code::Unavailable, retry_delay: Some(delay) };
        let faults = Faults { refuse: Some(refuse), ..Faults::default() };
        let backend = faulty_backend(faults).await;
        let mut load = Load::new(Signal::Logs, backend.addr()).items(2_000).retry(Retry::SDK);
        if is_http {
            load.protocol = Protocol::Http;
        }
        let report = load.run().await.unwrap();
        assert_eq!(
            (report.accepted, report.missing_at(&backend)),
            (2_000, 0),
            "{:?}",
            report.messages
        );
        let refused = backend.counts().refused[&Code::Unavailable];
        assert!(refused > 0);
        assert_eq!(report.retries, refused);
        assert_eq!(backend.counts().doubled, 0);
    }
}

#[tokio::test]
async fn a_stalled_backend_leaves_requests_unanswered_and_takes_none() {
    let backend = faulty_backend(Faults::stalled()).await;
    let mut load = Load::new(Signal::Traces, backend.addr()).items(800).concurrency(1, 8);
    load.timeout = Duration::from_millis(100);
    let report = load.clone().run().await.unwrap();
    assert_eq!((report.accepted, report.unanswered), (0, 800));
    assert_eq!(report.endings[&Ending::TimedOut], 8);
    // The backend learns by resets which requests were given up, and could take them until then.
    tokio::time::sleep(Duration::from_millis(100)).await;
    backend.faults().clear();
    let report = load.run().await.unwrap();
    assert_eq!(
        (report.accepted, backend.counts().items),
        (800, 800),
        "what was given up is not taken afterwards"
    );
}

#[tokio::test]
async fn a_dead_backend_comes_back_on_its_port() {
    let backend = faulty_backend(Faults::dead()).await;
    let load = Load::new(Signal::Traces, backend.addr()).items(400).concurrency(1, 4);
    // The accepting task closes the port as soon as it runs.
    while tokio::net::TcpStream::connect(backend.addr()).await.is_ok() {}
    let report = load.clone().run().await.unwrap();
    assert_eq!((report.accepted, report.unanswered), (0, 400));
    assert_eq!(report.endings[&Ending::Transport], 4);
    backend.faults().clear();
    let report = load.retry(Retry::SDK).run().await.unwrap();
    assert_eq!((report.accepted, report.missing_at(&backend)), (400, 0));
}

#[tokio::test]
async fn resets_are_counted_and_other_streams_live() {
    let faults = Faults { reset_share: 0.5, ..Faults::default() };
    let backend = faulty_backend(faults).await;
    let report = Load::new(Signal::Traces, backend.addr())
        .items(4_000)
        .items_per_request(10)
        .run()
        .await
        .unwrap();
    let resets = backend.counts().resets;
    assert!(resets > 0 && resets < 400, "{resets}");
    assert_eq!(report.endings[&Ending::Transport], resets);
    assert_eq!((report.accepted, report.unanswered), (4_000 - 10 * resets, 10 * resets));
    assert_eq!(report.missing_at(&backend), 0);
}

#[tokio::test]
async fn partial_success_counts_as_rejected() {
    let partial =
        sluice_load::backend::Partial { share: 1.0, rejected_items: 3, message: "no".to_owned() };
    let faults = Faults { partial: Some(partial), ..Faults::default() };
    let backend = faulty_backend(faults).await;
    let report = Load::new(Signal::Traces, backend.addr())
        .items(1_000)
        .items_per_request(10)
        .run()
        .await
        .unwrap();
    assert_eq!((report.accepted, report.rejected, backend.unique_items()), (700, 300, 700));
}

#[tokio::test]
async fn only_requests_with_poison_are_refused() {
    let backend = faulty_backend(Faults::rejecting_poison()).await;
    let load = Load::new(Signal::Logs, backend.addr()).items(1_000).items_per_request(10);
    let report = Load { poison_every: Some(50), ..load }.run().await.unwrap();
    assert_eq!((report.accepted, report.failed), (800, 200));
    assert_eq!(backend.counts().refused[&Code::InvalidArgument], 20);
}

#[tokio::test]
async fn messages_beyond_four_mebibytes_are_refused_as_real_backends_do() {
    let backend = Backend::healthy().await.unwrap();
    for (body_bytes, items, accepted) in [(3_900_000, 1, 1), (2_000, 4_000, 0)] {
        let mut load = Load::new(Signal::Logs, backend.addr()).items(items);
        load.shape.body_bytes = body_bytes;
        load.shape.items_per_request = items as u32;
        let report = load.run().await.unwrap();
        assert_eq!(
            (report.accepted, report.failed),
            (accepted, items - accepted),
            "{:?}",
            report.messages
        );
        if accepted == 0 {
            let message = &report.messages[&Ending::Grpc(Code::ResourceExhausted)];
            assert!(message.starts_with("grpc: received message larger than max ("), "{message}");
        }
    }
}

#[tokio::test]
async fn an_open_loop_keeps_its_rate_and_says_what_it_could_not_send() {
    let backend = Backend::healthy().await.unwrap();
    let second = Duration::from_secs(1);
    let load = Load::new(Signal::Metrics, backend.addr()).rate(5_000.0).duration(second);
    let report = load.clone().run().await.unwrap();
    assert_eq!(
        (report.offered, report.accepted + report.never_sent),
        (5_000, 5_000),
        "{:?}",
        report.messages
    );

    // One stream that is answered every 200 ms cannot send 50 requests a second.
    let delay = Delay { share: 1.0, by: Duration::from_millis(200) };
    backend.faults().set(Faults { delay: Some(delay), ..Faults::default() });
    let report = load.concurrency(1, 1).run().await.unwrap();
    assert_eq!(report.offered, 5_000);
    assert!(report.accepted <= 600 && report.never_sent >= 4_400, "{} accepted", report.accepted);
    assert!(report.late_requests >= 2, "{} late", report.late_requests);
}

#[tokio::test]
async fn light_counting_agrees_with_verifying() {
    for signal in Signal::ALL {
        for encoding in [Encoding::Identity, Encoding::Gzip] {
            let load = Load::new(signal, ([127, 0, 0, 1], 1).into()).items(3_000);
            let load = Load { encoding, ..load };
            let counting =
                sluice_load::Counting::Light { bytes_per_item: load.shape.bytes_per_item() };
            let backend = Backend::start(BackendOptions { counting, ..BackendOptions::default() })
                .await
                .unwrap();
            let report = Load { target: backend.addr(), ..load }.run().await.unwrap();
            assert_eq!(
                (report.accepted, backend.counts().items),
                (3_000, 3_000),
                "{signal} {encoding:?}"
            );
        }
    }
}

#[tokio::test]
async fn scheduled_faults_come_and_go() {
    let backend = Backend::healthy().await.unwrap();
    let begin = (Duration::from_millis(200), Faults::unavailable(1.0));
    let end = (Duration::from_millis(500), Faults::default());
    let schedule = tokio::spawn(backend.faults().schedule(vec![begin, end]));
    let load = Load::new(Signal::Metrics, backend.addr())
        .rate(10_000.0)
        .duration(Duration::from_millis(900));
    let report = load.run().await.unwrap();
    schedule.await.unwrap();
    assert!(report.refused > 0 && report.accepted > 0, "{report:?}");
    assert_eq!(report.refused / 100, backend.counts().refused[&Code::Unavailable]);
    assert_eq!(*backend.faults().current(), Faults::default());
}

#[tokio::test]
async fn the_last_requests_are_kept_inflated() {
    let options = BackendOptions { keep_requests: 2, ..BackendOptions::default() };
    let backend = Backend::start(options).await.unwrap();
    let mut load = Load::new(Signal::Traces, backend.addr()).items(500);
    load.encoding = Encoding::Gzip;
    load.headers.append("x-tenant", http::HeaderValue::from_static("blue"));
    load.run().await.unwrap();
    let kept = backend.kept();
    assert_eq!(kept.len(), 2);
    assert_eq!(
        (kept[0].encoding, &kept[0].headers["x-tenant"]),
        (Encoding::Gzip, &http::HeaderValue::from_static("blue"))
    );
    assert!(kept[0].body.len() > 100 * 1_800);
}
