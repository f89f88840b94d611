//! A backend rejects some items, or refuses everything for now: only items that it rejects for good
//! become dead letters.

mod gateway;

use std::time::Duration;

use gateway::{
    Gateway, assert_all_accepted, assert_arrives_once, delaying, eventually, fan_out,
    faulty_backend, items_arrive, refusing,
};
use sluice_load_test::{Backend, Code, Ending, Faults, Load, LoadReport};
use sluice_otlp::Signal;

const LIMIT_MIB: u64 = 256;

async fn start(faults: Faults, ack: &str) -> (Backend, Gateway) {
    let backend = faulty_backend(faults).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway =
        Gateway::start(&config.replace("buffer:\n", &format!("buffer:\n  ack: {ack}\n"))).await;
    (backend, gateway)
}

async fn poisoned_load(gateway: &Gateway, items: u64, every: u64) -> LoadReport {
    let load = gateway.load(Signal::Traces).items(items).concurrency(2, 8);
    Load { poison_every: Some(every), ..load }.run().await.expect("a load")
}

/// Scenario: a slow backend, so that many requests are in flight, and a poisonous item in each of
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_in_many_requests_at_once_is_found_in_each() {
    let delay = delaying(Duration::from_millis(10)).delay;
    exactly_the_poison_is_set_aside(Faults { delay, ..Faults::rejecting_poison() }, 30_000, 97)
        .await;
}

/// Guarantee: exactly the poisonous items become dead letters, with the backend's reason; all
/// others arrive once.
async fn exactly_the_poison_is_set_aside(faults: Faults, items: u64, every: u64) {
    let (backend, gateway) = start(faults, "memory").await;
    let report = poisoned_load(&gateway, items, every).await;
    assert_all_accepted(&report);
    let poisonous = items.div_ceil(every);
    let settled = eventually(Duration::from_secs(25), async || {
        report.missing_at(&backend) == poisonous
            && gateway.metric("sluice_delivery_dead_letter_items", &[]).await == poisonous as f64
    });
    let settled = settled.await;
    let dead = gateway.metric("sluice_delivery_dead_letter_items", &[]).await;
    let state = gateway.health().await;
    assert!(
        settled,
        "{} missing, {dead} dead letters of {poisonous} to be; {state:?}",
        report.missing_at(&backend)
    );
    let seen = &backend.store().seen[&report.generator].clone();
    for sequence in 0..items {
        assert_eq!(seen.contains(sequence), !sequence.is_multiple_of(every), "item {sequence}");
    }
    assert_eq!(backend.counts().doubled, 0);
    let letters = gateway.dead_letters().await;
    assert!(letters.contains(&format!("{poisonous} items in {poisonous} letters")), "{letters}");
    assert!(letters.contains("an item that this backend refuses"), "{letters}");
    assert_eq!(dead_for(&gateway, "rejected").await, poisonous as f64, "none for another reason");
    assert!(
        requests(&gateway, "rejected").await >= poisonous as f64,
        "each is refused at least alone"
    );
    assert_eq!(requests(&gateway, "delivered").await, backend.counts().taken_requests as f64);
    let (_, health) = gateway.health().await.expect("a health check");
    assert!(!health.contains("held"), "{health}");
}

/// Scenario: a backend is off while a backlog grows; then it refuses every request with a bad item,
/// of which there are many. Guarantee: it gets all good items, only the bad ones become dead
/// letters, and the delivery is never held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_full_of_poison_is_delivered() {
    for (every, items) in [(20, 20_000), (2, 2_000)] {
        let (backend, gateway) = start(Faults::unavailable(1.0), "memory").await;
        let report = poisoned_load(&gateway, items, every).await;
        assert_all_accepted(&report);
        backend.faults().set(Faults::rejecting_poison());
        let poisonous = items / every;
        let settled = eventually(Duration::from_secs(60), async || {
            report.missing_at(&backend) == poisonous
                && dead_for(&gateway, "rejected").await == poisonous as f64
        });
        assert!(
            settled.await,
            "{} missing of {poisonous} to be; {:?}",
            report.missing_at(&backend),
            gateway.health().await
        );
        assert_eq!(backend.counts().doubled, 0);
        assert_eq!(gateway.count_in_output("delivery held"), 0, "{}", gateway.output());
    }
}

/// Scenario: good requests are delivered; then a thousand come that are all refused, then good
/// ones again. Or the backend is off until all have come. Guarantee: all good ones arrive within
/// seconds, and refused ones become dead letters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_data_behind_a_run_of_poison_arrives() {
    for is_off in [false, true] {
        let faults = if is_off { Faults::unavailable(1.0) } else { Faults::rejecting_poison() };
        let (backend, gateway) = start(faults, "memory").await;
        let load = |items| gateway.load(Signal::Traces).items(items).items_per_request(1);
        let poison = Load { poison_every: Some(1), ..load(1_000) };
        let mut good = Vec::new();
        for load in [load(500), poison, load(500)] {
            let is_good = load.poison_every.is_none();
            let report = load.concurrency(1, 8).run().await.expect("a load");
            assert_all_accepted(&report);
            good.extend(is_good.then_some(report));
        }
        backend.faults().set(Faults::rejecting_poison());
        let missing = || good.iter().map(|it| it.missing_at(&backend)).sum::<u64>();
        let arrived = eventually(Duration::from_secs(20), async || {
            missing() == 0 && dead_for(&gateway, "rejected").await >= 64.0
        });
        assert!(
            arrived.await,
            "{} missing of a backend that was off ({is_off}); {:?}; {}",
            missing(),
            gateway.health().await,
            gateway.output()
        );
        assert_eq!((backend.unique_items(), backend.counts().doubled), (1_000, 0));
    }
}

/// Scenario: the place of dead letters is no directory. Guarantee: the health check and a metric
/// say so until it is mended; then the letters are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_cannot_be_stored_are_told() {
    let folder = tempfile::TempDir::with_prefix("sluice-letters-").expect("a folder");
    let place = folder.path().join("traces/dead-letters");
    std::fs::create_dir_all(folder.path().join("traces")).expect("a folder");
    std::fs::write(&place, "a file").expect("a file");
    let backend = faulty_backend(Faults::rejecting_poison()).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let buffer = format!("buffer:\n  directory: {}\n", folder.path().display());
    let gateway = Gateway::start(&config.replace("buffer:\n", &buffer)).await;
    let report = poisoned_load(&gateway, 1_000, 100).await;
    assert_all_accepted(&report);
    let trouble = async || gateway.metric("sluice_delivery_dead_letter_trouble", &[]).await;
    assert!(eventually(gateway::SOON, async || trouble().await == 1.0).await);
    let (status, health) = gateway.health().await.expect("a health check");
    let is_told = health.contains("dead letters cannot be stored") && health.contains("directory");
    assert!(status == 200 && is_told && health.contains("otlp/backend"), "{health}");

    std::fs::remove_file(&place).expect("a file");
    let stored = async || gateway.metric("sluice_delivery_dead_letters", &[]).await == 10.0;
    assert!(eventually(Duration::from_secs(20), stored).await, "{}", gateway.output());
    assert_eq!(trouble().await, 0.0);
    let (_, health) = gateway.health().await.expect("a health check");
    assert!(!health.contains("dead letters"), "{health}");
}

/// Requests to the backend with this outcome.
async fn requests(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("sluice_delivery_requests", &[("outcome", outcome)]).await
}

async fn dead_for(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("sluice_delivery_dead_letter_items", &[("reason", reason)]).await
}

/// Starts a gateway whose backend is down.
async fn start_out_of_order(retry: &str, ack: &str) -> (Backend, Gateway) {
    let backend = faulty_backend(Faults::unavailable(1.0)).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let config = config.replace(
        "    compression: none\n",
        &format!("    compression: none\n    retry_on_failure: {retry}\n"),
    );
    let gateway =
        Gateway::start(&config.replace("buffer:\n", &format!("buffer:\n  ack: {ack}\n"))).await;
    (backend, gateway)
}

/// Scenario: the same, and senders wait for the delivery. Guarantee: they get a retryable refusal
/// with the backend's reason, because the backend may take their data later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_sender_comes_back_with_what_is_not_sent_again() {
    for retry in
        ["{enabled: false}", "{initial_interval: 100ms, max_interval: 200ms, max_elapsed_time: 1s}"]
    {
        let (_backend, gateway) = start_out_of_order(retry, "delivered").await;
        let report =
            gateway.load(Signal::Traces).items(500).concurrency(2, 8).run().await.expect("a load");
        assert_eq!((report.refused, report.failed), (500, 0), "{retry}: {:?}", report.messages);
        assert_eq!(report.refusals_without_delay, 0, "{retry}");
        assert_eq!(gateway.metric("sluice_delivery_returned_items", &[]).await, 500.0, "{retry}");
    }
}

/// Scenario: the backend is down, and `retry_on_failure` is disabled or lasts for a second.
/// Guarantee: all items become dead letters under that reason, and every refused request is
/// counted as retryable.
async fn what_is_not_sent_again_is_dead(retry: &str, reason: &str) {
    let (backend, gateway) = start_out_of_order(retry, "memory").await;
    let report = gateway.load(Signal::Traces).items(500).run().await.expect("a load");
    assert_all_accepted(&report);
    let dead = async || dead_for(&gateway, reason).await == 500.0;
    assert!(eventually(Duration::from_secs(25), dead).await, "{}", gateway.dead_letters().await);
    assert_eq!(
        gateway.metric("sluice_delivery_dead_letter_items", &[]).await,
        500.0,
        "none for another reason"
    );
    let refused: u64 = backend.counts().refused.values().sum();
    assert_eq!(
        (requests(&gateway, "retry").await, requests(&gateway, "delivered").await),
        (refused as f64, 0.0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_not_be_retried_is_dead_at_once() {
    what_is_not_sent_again_is_dead("{enabled: false}", "not_retried").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_retried_for_too_long_is_dead() {
    what_is_not_sent_again_is_dead(
        "{initial_interval: 100ms, max_interval: 200ms, max_elapsed_time: 1s}",
        "given_up",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_few_poisonous_items_become_dead_letters_alone() {
    exactly_the_poison_is_set_aside(Faults::rejecting_poison(), 8_000, 997).await;
}

/// Scenario: every request has a poisonous item, so that every first attempt is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_poisonous_item_in_every_request_is_found_in_each() {
    exactly_the_poison_is_set_aside(Faults::rejecting_poison(), 6_000, 97).await;
}

/// Scenario: senders wait for the delivery, and the backend rejects some requests for good.
/// Guarantee: the senders of those get that answer; the data of all other senders is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_sender_is_told_of_its_poisonous_item() {
    let (backend, gateway) = start(Faults::rejecting_poison(), "delivered").await;
    let report = poisoned_load(&gateway, 4_000, 1_000).await;
    assert_eq!((report.accepted, report.failed), (3_600, 400), "{:?}", report.messages);
    let message = &report.messages[&Ending::Grpc(Code::InvalidArgument)];
    assert!(message.contains("an item that this backend refuses"), "{message}");
    assert_arrives_once(&report, &backend, gateway::SOON).await;
    assert_eq!(backend.unique_items(), 3_600);
    assert_eq!(gateway.metric("sluice_delivery_returned_items", &[]).await, 400.0);
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);
}

/// Scenario: the backend refuses the sender as a whole, until that is repaired. Guarantee: the
/// delivery is held and reported, nothing is dropped, and all data arrives afterwards.
async fn a_misconfiguration_holds_the_delivery(code: Code) {
    let (backend, gateway) = start(refusing(1.0, code), "memory").await;
    let load = gateway.load(Signal::Traces).rate(2_000.0).duration(Duration::from_secs(2));
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    let held = eventually(gateway::SOON, async || {
        gateway.health().await.is_some_and(|(status, body)| status == 200 && body.contains("held"))
    });
    assert!(held.await, "{:?}", gateway.health().await);
    let (_, health) = gateway.health().await.expect("a health check");
    assert!(health.contains("otlp/backend") && health.contains(&code.to_string()), "{health}");
    assert_eq!(gateway.metric("sluice_delivery_held", &[]).await, 1.0);
    let probes = backend.counts().requests;
    assert!(probes < 40, "a held delivery probes now and then: {probes} requests");
    assert!(requests(&gateway, "misconfigured").await > 0.0);
    assert_eq!(gateway.metric("sluice_delivery_dead_letter_items", &[]).await, 0.0);

    backend.faults().clear();
    assert_arrives_once(&report, &backend, Duration::from_secs(20)).await;
    let (_, health) = gateway.health().await.expect("a health check");
    assert!(!health.contains("held"), "{health}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_denied_holds_the_delivery_until_it_is_granted() {
    a_misconfiguration_holds_the_delivery(Code::PermissionDenied).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unimplemented_service_holds_the_delivery_until_it_is_there() {
    a_misconfiguration_holds_the_delivery(Code::Unimplemented).await;
}

/// Scenario: the backend rejects all data alike, as after a change of its schema. Guarantee: at
/// most a few items become dead letters; the rest waits and arrives when the schema is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_rejects_everything_alike_gets_it_when_it_is_mended() {
    let (backend, gateway) = start(refusing(1.0, Code::InvalidArgument), "memory").await;
    let load = gateway.load(Signal::Traces).rate(2_000.0).duration(Duration::from_secs(2));
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    let held = async || gateway.metric("sluice_delivery_held", &[]).await == 1.0;
    assert!(eventually(gateway::SOON, held).await, "{:?}", gateway.health().await);
    backend.faults().clear();
    let dead = gateway.metric("sluice_delivery_dead_letter_items", &[]).await as u64;
    assert!(dead <= 12, "{dead} items were thrown away");
    assert!(
        items_arrive(&backend, report.accepted - dead, Duration::from_secs(40)).await,
        "{:?}",
        backend.counts()
    );
    assert_eq!((report.missing_at(&backend), backend.counts().doubled), (dead, 0));
}
