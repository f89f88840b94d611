//! SIGHUP and changed files: another configuration takes effect under load, and no frame is lost.

mod gateway;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway::{
    Gateway, Options, SOON, assert_all_accepted, assert_arrives_once, delaying, eventually,
    fan_out, faulty_backend, items_arrive, keeping_backend,
};
use sluice_load_test::subject::free_addr;
use sluice_load_test::{Backend, Faults, Load, Retry, RunningLoad};
use sluice_otlp::{Encoding, Signal};
use tokio::io::AsyncReadExt;

const LIMIT_MIB: u64 = 256;

fn start_load(gateway: &Gateway, duration: Duration) -> RunningLoad {
    let load = gateway.load(Signal::Traces).rate(2_000.0).duration(duration).concurrency(2, 16);
    load.start().expect("a load")
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

fn with_resource_attribute(config: &str, value: &str) -> String {
    let processors = format!(
        "processors:\n  resource:\n    attributes:\n      - {{action: upsert, key: test.reload, value: {value}}}\n"
    );
    processors
        + &config
            .replace("receivers: [otlp]\n", "receivers: [otlp]\n      processors: [resource]\n")
}

/// Scenario: under load, a pipeline is added, an exporter's compression changes, a processor is
/// added and changed. Guarantee: every span is accepted and arrives once; the backends see the
/// changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_under_load_lose_nothing() {
    let first = keeping_backend(1).await;
    let second = Backend::healthy().await.expect("a backend");
    let alone = fan_out(Signal::Traces, LIMIT_MIB, &[("first", &first)]);
    let both = fan_out(Signal::Traces, LIMIT_MIB, &[("first", &first), ("second", &second)]);
    let compressed = both.replace("compression: none", "compression: zstd");
    let gateway = Gateway::start(&alone).await;
    let mut running = start_load(&gateway, Duration::from_secs(6));
    pause(700).await;
    gateway.reload(&both).await;
    let before_second = running.report().offered;
    pause(700).await;
    gateway.reload(&compressed).await;
    pause(700).await;
    gateway.reload(&with_resource_attribute(&compressed, "one")).await;
    pause(700).await;
    gateway.reload(&with_resource_attribute(&compressed, "two")).await;
    let report = running.finish().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &first, SOON).await;
    // The new pipeline starts with data that comes after it.
    assert!(
        items_arrive(&second, report.accepted - before_second, SOON).await,
        "{:?}",
        second.counts()
    );
    assert_eq!(second.counts().doubled, 0);
    let last = first.kept().pop().expect("a request");
    assert_eq!(last.encoding, Encoding::Zstd);
    let has = |text: &[u8]| last.body.windows(text.len()).any(|window| window == text);
    assert!(
        has(b"test.reload") && has(b"two") && !has(b"one"),
        "the last processor runs, and it alone"
    );
}

/// Guarantee: an invalid configuration is refused with the reason, and the old one stays in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_file_leaves_the_old_configuration_running() {
    let backend = Backend::healthy().await.expect("a backend");
    let good = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway = Gateway::start(&good).await;
    let mut running = start_load(&gateway, Duration::from_secs(4));
    // A misspelt option, an undefined component, not YAML at all, an address that another process
    // has.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let elsewhere = taken.local_addr().expect("an address");
    let receiver = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {elsewhere}\n"
    );
    let bad = [
        (good.replace("compression: none", "compresion: none"), "compression"),
        (good.replace("exporters: [otlp/backend]", "exporters: [otlp/backed]"), "otlp/backend"),
        ("exporters: [".to_owned(), "gateway.yaml"),
        (receiver + &good, "listens there already"),
    ];
    for (index, (config, hint)) in bad.iter().enumerate() {
        pause(300).await;
        gateway.reconfigure(config);
        gateway.wait_for_output("not reloaded, the old configuration goes on", index + 1).await;
        assert!(gateway.output().contains(hint), "no `{hint}` in {}", gateway.output());
        assert_eq!(gateway.health().await.map(|(status, _)| status), Some(200));
    }
    running.stop();
    let report = running.finish().await.expect("a load");
    assert_arrives_once(&report, &backend, SOON).await;
    assert_eq!((report.failed, report.refused), (0, 0), "{:?}", report.messages);
    let again = start_load(&gateway, Duration::from_secs(1)).finish().await.expect("a load");
    assert_all_accepted(&again);
    assert_arrives_once(&again, &backend, SOON).await;
    assert_eq!(
        gateway.count_in_output("reloaded"),
        bad.len(),
        "none was taken: {}",
        gateway.output()
    );
}

/// Scenario: Kubernetes mounts a configuration through a symbolic link to a folder, and exchanges
/// that link. Guarantee: with `--watch` the new content takes effect; the same content again
/// changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_sees_an_exchanged_symlink() {
    let [old, new] = [
        Backend::healthy().await.expect("a backend"),
        Backend::healthy().await.expect("a backend"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let volume = |version: &str, backend: &Backend| {
        let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", backend)]);
        std::fs::create_dir(folder.path().join(version)).expect("a folder");
        std::fs::write(folder.path().join(version).join("gateway.yaml"), config).expect("a file");
    };
    volume("..v1", &old);
    volume("..v2", &new);
    volume("..v3", &new);
    exchange_symlink(folder.path(), "..v1");
    std::os::unix::fs::symlink("..data/gateway.yaml", folder.path().join("gateway.yaml"))
        .expect("a symlink");
    let path = folder.path().join("gateway.yaml").display().to_string();
    let options =
        Options { args: vec!["--watch".into(), "--config".into(), path], ..Options::default() };
    let gateway = Gateway::start_with("buffer: {ack: memory}\n", options).await;
    let first = start_load(&gateway, Duration::from_millis(500)).finish().await.expect("a load");
    assert_arrives_once(&first, &old, SOON).await;

    exchange_symlink(folder.path(), "..v2");
    gateway.wait_for_output("reloaded", 1).await;
    let second = start_load(&gateway, Duration::from_millis(500)).finish().await.expect("a load");
    assert_all_accepted(&second);
    assert_arrives_once(&second, &new, SOON).await;
    assert_eq!(old.unique_items(), first.accepted, "nothing goes to the old backend any more");

    exchange_symlink(folder.path(), "..v3");
    pause(2_500).await;
    assert_eq!(
        gateway.count_in_output("reloaded"),
        1,
        "the content is the same: {}",
        gateway.output()
    );
}

/// Scenario: the backend's address is in a file that `${file:…}` names; then the configuration
/// names another file, which is created later. Guarantee: with `--watch` each change takes effect,
/// also that of the file that was missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_sees_what_the_configuration_refers_to() {
    let [old, new] = [
        Backend::healthy().await.expect("a backend"),
        Backend::healthy().await.expect("a backend"),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name).display().to_string();
    let points_to = |name: &str, backend: &Backend| {
        std::fs::write(file(name), format!("{}\n", backend.addr())).expect("a file");
    };
    let refers_to = |name: &str| {
        let address = format!("endpoint: {}", old.addr());
        let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &old)]);
        config.replace(&address, &format!("endpoint: ${{file:{}}}", file(name)))
    };
    points_to("first", &old);
    let options = Options { args: vec!["--watch".into()], ..Options::default() };
    let gateway = Gateway::start_with(&refers_to("first"), options).await;
    let arrives_at = async |backend: &Backend| {
        let report =
            start_load(&gateway, Duration::from_millis(300)).finish().await.expect("a load");
        assert_all_accepted(&report);
        assert_arrives_once(&report, backend, SOON).await;
    };
    points_to("first", &new);
    gateway.wait_for_output(" reloaded", 1).await;
    arrives_at(&new).await;
    std::fs::write(gateway.config_path(), refers_to("second"))
        .expect("the configuration can be written");
    gateway.wait_for_output("not reloaded", 1).await;
    points_to("second", &old);
    gateway.wait_for_output(" reloaded", 3).await;
    arrives_at(&old).await;
}

/// Guarantee: a reload changes the level of the process's own log; other changes of its options are
/// reported as needing a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_of_the_log_that_need_a_restart_are_named() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let logs = |options: &str| {
        config.replace("service:\n", &format!("service:\n  telemetry:\n    logs: {options}\n"))
    };
    let gateway = Gateway::start(&config).await;
    gateway.reload(&logs("{level: debug}")).await;
    assert_eq!(gateway.count_in_output("need a restart"), 0, "{}", gateway.output());
    gateway.reload(&logs("{encoding: json, sampling: {enabled: false}}")).await;
    assert_eq!(gateway.count_in_output("need a restart"), 1, "{}", gateway.output());
    assert!(gateway.output().contains("encoding, sampling"), "{}", gateway.output());
}

/// Guarantee: if a reload leaves less memory for dead letters, the oldest are deleted until they
/// fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_that_are_kept_shrink_to_a_lower_limit() {
    let backend = faulty_backend(Faults::rejecting_poison()).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway = Gateway::start(&config).await;
    let load = gateway.load(Signal::Traces).items(1_000);
    Load { poison_every: Some(100), ..load }.run().await.expect("a load");
    let kept = async || gateway.metric("sluice_delivery_dead_letters", &[]).await;
    assert!(
        eventually(SOON, async || kept().await == 10.0).await,
        "{}",
        gateway.dead_letters().await
    );
    gateway
        .reload(&config.replace("buffer:\n", "buffer:\n  dead_letters:\n    limit_mib: 0\n"))
        .await;
    assert_eq!(
        (kept().await, gateway.metric("sluice_delivery_dead_letter_evicted_items", &[]).await),
        (0.0, 10.0)
    );
}

/// As the kubelet does it: a new link beside the old one, renamed over it.
fn exchange_symlink(folder: &Path, target: &str) {
    std::os::unix::fs::symlink(target, folder.join("..data_tmp")).expect("a symlink");
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("a rename");
}

/// Scenario: a pipeline whose slow backend has a backlog is removed from the configuration.
/// Guarantee: accepted data still arrives at that backend, and the other pipeline is not affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_pipeline_delivers_what_it_has() {
    let faults = delaying(Duration::from_millis(700));
    let slow = faulty_backend(faults).await;
    let kept = Backend::healthy().await.expect("a backend");
    let gateway =
        Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &[("kept", &kept), ("slow", &slow)]))
            .await;
    let before = start_load(&gateway, Duration::from_secs(2)).finish().await.expect("a load");
    assert!(before.missing_at(&slow) > 0, "a backlog was wanted");
    gateway.reload(&fan_out(Signal::Traces, LIMIT_MIB, &[("kept", &kept)])).await;
    let after = start_load(&gateway, Duration::from_secs(1)).finish().await.expect("a load");
    assert_all_accepted(&after);
    assert_arrives_once(&after, &kept, SOON).await;
    assert_arrives_once(&before, &kept, SOON).await;
    assert_arrives_once(&before, &slow, Duration::from_secs(10)).await;
    assert_eq!(slow.unique_items(), before.accepted, "nothing new goes to the removed pipeline");
    assert!(!gateway.output().contains("lost"), "{}", gateway.output());
}

/// Scenario: SIGTERM comes right after a reload that has removed a pipeline. Guarantee: the process
/// ends only when the removed pipeline has delivered its backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_a_removed_pipeline() {
    let faults = delaying(Duration::from_millis(700));
    let slow = faulty_backend(faults).await;
    let kept = Backend::healthy().await.expect("a backend");
    let both = [("kept", &kept), ("slow", &slow)];
    let mut gateway = Gateway::start(&fan_out(Signal::Traces, LIMIT_MIB, &both)).await;
    let before = start_load(&gateway, Duration::from_secs(2)).finish().await.expect("a load");
    assert!(before.missing_at(&slow) > 0, "a backlog was wanted");
    gateway.reload(&fan_out(Signal::Traces, LIMIT_MIB, &both[..1])).await;
    gateway.terminate();
    assert!(gateway.ended_within(Duration::from_secs(20)).await.success());
    assert_arrives_once(&before, &slow, Duration::from_secs(1)).await;
    assert!(!gateway.output().contains("lost"), "{}", gateway.output());
}

/// Scenario: a reload changes receiver and exporters while two backends answer no request; then
/// SIGTERM comes, with another SIGHUP before it. Guarantee: the process ends within its drain
/// timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_does_not_wait_for_a_reload() {
    let first = faulty_backend(delaying(Duration::from_secs(60))).await;
    let second = faulty_backend(delaying(Duration::from_secs(60))).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("first", &first), ("second", &second)])
        .replace("compression: none", "compression: none\n    timeout: 60s");
    let args = vec!["--drain-timeout".to_owned(), "2".to_owned()];
    let mut gateway = Gateway::start_with(&config, Options { args, ..Options::default() }).await;
    let mut load = gateway.load(Signal::Traces).items(800).concurrency(1, 8);
    load.timeout = Duration::from_secs(30);
    let mut running = load.start().expect("a load");
    let in_flight = async || first.counts().requests > 0 && second.counts().requests > 0;
    assert!(eventually(SOON, in_flight).await, "requests are in flight");
    let compressed = config.replace("compression: none", "compression: zstd");
    gateway.reconfigure(
        &(grpc_receiver(gateway.grpc, "        max_connections: 100\n") + &compressed),
    );
    pause(500).await;
    gateway.signal(rustix::process::Signal::HUP);
    gateway.terminate();
    let status = gateway.ended_within(Duration::from_secs(2) + Duration::from_secs(3)).await;
    assert_eq!(status.code(), Some(0), "{}", gateway.output());
    running.finish().await.expect("a load");
}

/// Scenario: a reload changes an exporter that has requests in flight, and another one.
/// Guarantee: the configuration is in force before the first is answered, and each item arrives
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_does_not_wait_for_requests_in_flight() {
    let faults = delaying(Duration::from_secs(6));
    let slow = faulty_backend(faults).await;
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("slow", &slow)])
        .replace("compression: none", "compression: none\n    timeout: 60s");
    let gateway = Gateway::start(&config).await;
    let report = gateway.load(Signal::Traces).items(800).run().await.expect("a load");
    assert!(eventually(SOON, async || slow.counts().requests > 0).await, "a request is in flight");
    gateway.reload(&config.replace("compression: none", "compression: zstd")).await;
    assert!(report.missing_at(&slow) > 0, "the reload came after the answer");
    assert_arrives_once(&report, &slow, SOON).await;
}

/// Scenario: a backend takes requests and answers none; a reload replaces it. Guarantee: the other
/// one gets all, although the requests in flight do not end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_a_replaced_backend_does_not_answer_go_to_the_other_one() {
    let faults = delaying(Duration::from_secs(60));
    let mute = faulty_backend(faults).await;
    let other = Backend::healthy().await.expect("a backend");
    let config = |backend| {
        fan_out(Signal::Traces, LIMIT_MIB, &[("backend", backend)])
            .replace("compression: none", "compression: none\n    timeout: 60s")
    };
    let gateway = Gateway::start(&config(&mute)).await;
    let report = gateway.load(Signal::Traces).items(800).run().await.expect("a load");
    assert!(eventually(SOON, async || mute.counts().requests > 0).await, "a request is in flight");
    gateway.reload(&config(&other)).await;
    assert_arrives_once(&report, &other, 2 * SOON).await;
}

/// Guarantee: a receiver moves to another port; connections to the old one end in order, and their
/// data is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_moves_to_another_port() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway = Gateway::start(&config).await;
    let mut running = start_load(&gateway, Duration::from_secs(3));
    pause(800).await;
    let moved = free_addr().expect("a port");
    gateway
        .reload(&format!(
            "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {moved}\n{config}"
        ))
        .await;
    let mut load = gateway.load(Signal::Traces).items(2_000);
    load.target = moved;
    let at_new = load.run().await.expect("a load");
    assert_all_accepted(&at_new);
    assert_arrives_once(&at_new, &backend, SOON).await;
    running.stop();
    let at_old = running.finish().await.expect("a load");
    assert!(at_old.accepted > 0);
    assert_arrives_once(&at_old, &backend, SOON).await;
    let closed = async || tokio::net::TcpStream::connect(gateway.grpc).await.is_err();
    assert!(eventually(SOON, closed).await, "the old port is closed");
}

/// Connects again and again until it is stopped. Returns how often it succeeded, and how often it
/// was refused.
async fn knock(address: SocketAddr, stop: Arc<AtomicBool>) -> (u32, u32) {
    let mut counts = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        match tokio::net::TcpStream::connect(address).await {
            Ok(_) => counts.0 += 1,
            Err(_) => counts.1 += 1,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    counts
}

fn grpc_receiver(endpoint: impl std::fmt::Display, more: &str) -> String {
    format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {endpoint}\n{more}"
    )
}

/// Scenario: a reload moves the receiver, and then the metrics endpoint, to a port that another
/// process has. Guarantee: no connection to the old port is refused, and those that are open stay
/// open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_costs_the_old_one_nothing() {
    let backend = Backend::healthy().await.expect("a backend");
    let good = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway = Gateway::start(&good).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let elsewhere = taken.local_addr().expect("an address");
    let mut open = tokio::net::TcpStream::connect(gateway.grpc).await.expect("is open");
    let stop = Arc::new(AtomicBool::new(false));
    let knocking = [gateway.grpc, gateway.http, gateway.metrics]
        .map(|port| tokio::spawn(knock(port, stop.clone())));
    let metrics = format!(
        "    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {}}}}}}}}}]}}\n",
        elsewhere.port()
    );
    let bad = [
        grpc_receiver(elsewhere, "") + &good,
        good.replace("service:\n", &format!("service:\n  telemetry:\n{metrics}")),
    ];
    for (index, config) in bad.iter().enumerate() {
        pause(200).await;
        gateway.reconfigure(config);
        gateway.wait_for_output("not reloaded, the old configuration goes on", index + 1).await;
        pause(200).await;
    }
    let remedy = "choose another address with `host` and `port` of the reader \
                  `service.telemetry.metrics.readers[].pull.exporter.prometheus`";
    assert!(gateway.output().contains(remedy), "{}", gateway.output());
    stop.store(true, Ordering::Relaxed);
    for knocking in knocking {
        let (came_through, refused) = knocking.await.expect("ends");
        assert!(
            came_through > 10 && refused == 0,
            "{came_through} came through, {refused} were refused"
        );
    }
    let end = tokio::time::timeout(Duration::from_millis(300), open.read(&mut [0; 64])).await;
    assert!(!matches!(end, Ok(Ok(0) | Err(_))), "the open connection was closed");
}

/// Guarantee: a receiver whose options change and whose address stays is replaced without refusing
/// one connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_with_other_options_keeps_its_port_open() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)]);
    let gateway = Gateway::start(&config).await;
    let stop = Arc::new(AtomicBool::new(false));
    let knocking = tokio::spawn(knock(gateway.grpc, stop.clone()));
    // Connections are asked to close: a request that was not sent yet goes over the next one, as in
    // any gRPC client.
    let load = gateway
        .load(Signal::Traces)
        .rate(2_000.0)
        .duration(Duration::from_secs(2))
        .concurrency(2, 16);
    let mut running = load.retry(Retry::SDK).start().expect("a load");
    for connections in [100, 200, 300] {
        pause(300).await;
        gateway
            .reload(
                &(grpc_receiver(
                    gateway.grpc,
                    &format!("        max_connections: {connections}\n"),
                ) + &config),
            )
            .await;
    }
    let report = running.finish().await.expect("a load");
    assert_eq!(report.accepted, report.offered, "{:?}", report.messages);
    assert_arrives_once(&report, &backend, SOON).await;
    stop.store(true, Ordering::Relaxed);
    let (came_through, refused) = knocking.await.expect("ends");
    assert!(
        came_through > 10 && refused == 0,
        "{came_through} came through, {refused} were refused"
    );
}

/// Guarantee: two receivers exchange their ports; a listener that is widened to all interfaces
/// takes over its own port; so does a health check with another path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ports_are_handed_over_between_own_listeners() {
    let backend = Backend::healthy().await.expect("a backend");
    let second = free_addr().expect("a port");
    let all = fan_out(Signal::Traces, LIMIT_MIB, &[("backend", &backend)])
        .replace("receivers: [otlp]", "receivers: [otlp, otlp/second]");
    let two = |first: &str, other: &str| {
        let other =
            format!("  otlp/second:\n    protocols:\n      grpc:\n        endpoint: {other}\n");
        grpc_receiver(first, &other) + &all
    };
    let gateway = Gateway::start(&two("127.0.0.1:0", &second.to_string())).await;
    let first = gateway.grpc;
    let serves = async |port: SocketAddr, expected: &str| {
        let mut load = gateway.load(Signal::Traces).items(500);
        load.target = port;
        let before =
            gateway.metric("otelcol_receiver_accepted_spans", &[("receiver", expected)]).await;
        assert_all_accepted(&load.run().await.expect("a load"));
        let after =
            gateway.metric("otelcol_receiver_accepted_spans", &[("receiver", expected)]).await;
        assert_eq!(after - before, 500.0, "{port} belongs to {expected}");
    };
    gateway.reload(&two(&first.to_string(), &second.to_string())).await;
    serves(first, "otlp").await;
    gateway.reload(&two(&second.to_string(), &first.to_string())).await;
    serves(first, "otlp/second").await;
    serves(second, "otlp").await;
    gateway.reload(&two(&format!("0.0.0.0:{}", second.port()), &first.to_string())).await;
    serves(second, "otlp").await;
    serves(first, "otlp/second").await;
    let path = format!(
        "extensions:\n  health_check:\n    endpoint: {}\n    path: /healthy\n",
        gateway.health
    );
    gateway.reload(&(path + &two(&second.to_string(), &first.to_string()))).await;
    assert_eq!(gateway::get(gateway.health, "/healthy").await.map(|(status, _)| status), Some(200));
    serves(second, "otlp").await;
}

/// Scenario: a reload changes a `file` exporter and adds a second one for the same file; the next
/// reload is refused, because a port is taken; then the gateway is restarted. Guarantee: nothing
/// that a process wrote is lost before the next process has written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_keeps_what_the_process_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("traces.json");
    std::fs::write(&path, "of an earlier process\n").expect("a file");
    let file = format!("    path: {}\n", path.display());
    let good = format!(
        "exporters:\n  file:\n{file}service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [file]\n"
    );
    let changed = good.replace(
        "  file:\n",
        "  file:\n    create_directory: true\n    directory_permissions: '0700'\n",
    );
    let two = changed
        .replace("service:\n", &format!("  file/second:\n{file}service:\n"))
        .replace("exporters: [file]", "exporters: [file, file/second]");
    let gateway = Gateway::start(&good).await;
    let arrives = async |gateway: &Gateway, in_all: usize| {
        assert_all_accepted(&gateway.load(Signal::Traces).items(200).run().await.expect("a load"));
        let content = || std::fs::read_to_string(&path).expect("reads");
        let spans = || content().matches("\"spanId\"").count();
        assert!(
            eventually(SOON, async || spans() == in_all).await,
            "{} of {in_all} spans",
            spans()
        );
        assert!(!content().contains("of an earlier process"));
    };
    arrives(&gateway, 200).await;
    gateway.reload(&two).await;
    arrives(&gateway, 600).await;
    gateway.reload(&good).await;
    arrives(&gateway, 800).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let elsewhere = taken.local_addr().expect("an address");
    gateway.reconfigure(&(grpc_receiver(elsewhere, "") + &changed));
    gateway.wait_for_output("not reloaded, the old configuration goes on", 1).await;
    arrives(&gateway, 1_000).await;
    drop(gateway);
    arrives(&Gateway::start(&good).await, 200).await;
}
