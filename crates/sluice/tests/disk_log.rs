//! The log on disk from outside: written files, surviving data, refused starts.

mod gateway;

use std::path::Path;
use std::time::{Duration, Instant};

use gateway::{
    Gateway, MIB, Options, SOON, alone, assert_all_accepted, assert_arrives_once, eventually,
    exporter, fan_out, faulty_backend, items_arrive, keeping_backend,
};
use sluice_load_test::subject::{Subject, SubjectError, SubjectSpec};
use sluice_load_test::{Backend, Faults, Load};
use sluice_otlp::Signal;
use tempfile::TempDir;

const LIMIT_MIB: u64 = 192;

fn directory() -> TempDir {
    TempDir::with_prefix("sluice-disk-log-").expect("a directory")
}

/// Pipelines to these backends, with a directory and further lines under `buffer`.
fn config(directory: &Path, backends: &[(&str, &Backend)], buffer: &str) -> String {
    let lines = format!(
        "buffer:\n  directory: {}\n  disk:\n    limit_mib: 1024\n    segment_mib: 1\n{buffer}",
        directory.display()
    );
    fan_out(Signal::Traces, LIMIT_MIB, backends).replace("buffer:\n", &lines)
}

async fn dead_backend() -> Backend {
    faulty_backend(Faults::dead()).await
}

/// Files below the directory, with their contents.
fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => {
                files.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default()))
            }
        }
    }
    files.sort();
    files
}

fn segments(directory: &Path) -> usize {
    files(directory).iter().filter(|(name, _)| name.ends_with(".seg")).count()
}

/// Scenario: the load of the Kyma telemetry trace test, to backends that take everything at once.
/// Guarantee: everything arrives once, and not one frame, cursor or segment is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthy_backends_cost_no_write() {
    let _alone = alone().await;
    let (a, b) = (
        Backend::healthy().await.expect("a backend"),
        Backend::healthy().await.expect("a backend"),
    );
    let directory = directory();
    let config = config(directory.path(), &[("a", &a), ("b", &b)], "  flush_after: 1s\n");
    let gateway = Gateway::start(&config).await;
    let load = gateway
        .load(Signal::Traces)
        .rate(20_000.0)
        .duration(Duration::from_secs(4))
        .concurrency(2, 32);
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &a, SOON).await;
    assert_arrives_once(&report, &b, SOON).await;
    let scrape = gateway.scrape().await;
    for name in [
        "sluice_log_written_frames",
        "sluice_log_syncs",
        "sluice_log_cursor_writes",
        "sluice_log_segments",
    ] {
        assert_eq!(scrape.sum(name, &[]), Some(0.0), "{name}");
    }
    let written: Vec<_> =
        files(directory.path()).into_iter().filter(|(name, _)| !name.ends_with("lock")).collect();
    assert_eq!(written, Vec::new());
}

/// Scenario: one of two backends is dead; SIGTERM, and a new start with the same directory when the
/// backend is well. Guarantee: senders are answered, the process ends soon and reports the data
/// that it keeps, the rest arrives, and the healthy backend gets nothing twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_dead_backend_did_not_take_arrives_after_a_restart() {
    let (healthy, dead) = (Backend::healthy().await.expect("a backend"), dead_backend().await);
    let directory = directory();
    let config = config(directory.path(), &[("healthy", &healthy), ("dead", &dead)], "");
    let mut gateway = Gateway::start(&config).await;
    let report = gateway.accepts(20_000).await;
    assert_arrives_once(&report, &healthy, SOON).await;
    gateway.holds("otlp/dead", 20_000).await;
    let began = Instant::now();
    gateway.terminate();
    assert!(gateway.ended_within(SOON).await.success(), "{}", gateway.output());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let output = gateway.output();
    assert!(
        output.contains("kept on disk") && output.contains("20000") && !output.contains("lost"),
        "{output}"
    );
    drop(gateway);

    dead.faults().clear();
    let gateway = Gateway::start(&config).await;
    assert_arrives_once(&report, &dead, SOON).await;
    assert_arrives_once(&report, &healthy, Duration::ZERO).await;
    let is_empty = async || gateway.metric("sluice_log_segments", &[]).await <= 1.0;
    assert!(eventually(SOON, is_empty).await, "{} segments stay", segments(directory.path()));
}

/// Scenario: SIGKILL in the middle of a load while a backend is dead, with each `ack`. Guarantee:
/// everything that was acknowledged arrives after the next start.
async fn what_was_acknowledged_survives_a_kill(ack: &str) {
    let (healthy, dead) = (Backend::healthy().await.expect("a backend"), dead_backend().await);
    let directory = directory();
    let config = config(
        directory.path(),
        &[("healthy", &healthy), ("dead", &dead)],
        &format!("  ack: {ack}\n"),
    );
    let gateway = Gateway::start(&config).await;
    let mut load = gateway
        .load(Signal::Traces)
        .rate(5_000.0)
        .duration(Duration::from_secs(4))
        .concurrency(2, 32);
    load.grace = Duration::from_millis(100);
    let mut running = load.start().expect("a load");
    tokio::time::sleep(Duration::from_secs(2)).await;
    gateway.kill().await;
    let report = running.finish().await.expect("a load");
    assert!(report.accepted > 1_000, "{report:?}");
    dead.faults().clear();
    let _gateway = Gateway::start(&config).await;
    for backend in [&healthy, &dead] {
        let arrived = eventually(SOON, async || report.missing_at(backend) == 0).await;
        assert!(arrived, "{} of {} are lost", report.missing_at(backend), report.accepted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_on_demand_survives_a_kill() {
    what_was_acknowledged_survives_a_kill("delivered_or_durable").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_as_durable_survives_a_kill() {
    what_was_acknowledged_survives_a_kill("durable").await;
}

/// Scenario: a pipeline is renamed between two runs, then named as before. Guarantee: its backlog
/// stays, is listed in metrics, in `plan`, in the log and at `/log`, and goes out when the name is
/// back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_backlog_of_a_renamed_pipeline_is_kept_and_listed() {
    let dead = dead_backend().await;
    let directory = directory();
    let first = config(directory.path(), &[("a", &dead)], "");
    let mut gateway = Gateway::start(&first).await;
    let report = gateway.accepts(1_000).await;
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);

    dead.faults().clear();
    let mut gateway = Gateway::start(&config(directory.path(), &[("b", &dead)], "")).await;
    let labels = [("delivery", "traces/a → otlp/a")];
    assert_eq!(gateway.metric("sluice_log_orphan_items", &labels).await, 1_000.0);
    gateway.wait_for_output("traces/a → otlp/a", 1).await;
    let (_, listed) = gateway::get(gateway.metrics, "/log").await.expect("an answer");
    assert!(listed.contains("traces/a → otlp/a") && listed.contains("1000 items"), "{listed}");
    let planned = plan(&config(directory.path(), &[("b", &dead)], ""));
    assert!(planned.contains("traces/a → otlp/a") && planned.contains("1000 items"), "{planned}");
    assert_eq!(dead.unique_items(), 0, "the new name starts at the head");
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);

    let _gateway = Gateway::start(&first).await;
    assert_arrives_once(&report, &dead, SOON).await;
}

/// Scenario: between two runs the receiver of a backlog goes, and the options of its processor
/// change. Guarantee: the backlog still goes to its delivery, keeps the changes made before, and
/// passes the new step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_outlives_its_receiver_and_its_processors() {
    let dead = keeping_backend(1).await;
    dead.faults().set(Faults::dead());
    let directory = directory();
    let with_steps = |value: &str| {
        let step = |name: &str, key: &str, value: &str| {
            format!(
                "  resource/{name}:\n    attributes: [{{key: {key}, value: {value}, action: insert}}]\n"
            )
        };
        let steps = step("kept", "kept.step", "same") + &step("changed", value, "yes");
        config(directory.path(), &[("a", &dead)], "")
            .replace("exporters:\n  otlp/a", &format!("processors:\n{steps}exporters:\n  otlp/a"))
            .replace(
                "receivers: [otlp]\n",
                "receivers: [otlp]\n      processors: [resource/kept, resource/changed]\n",
            )
    };
    let mut gateway = Gateway::start(&with_steps("changed.before")).await;
    let report = gateway.accepts(500).await;
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);
    dead.faults().clear();
    let other =
        "receivers:\n  otlp/other:\n    protocols:\n      http:\n        endpoint: 127.0.0.1:0\n";
    let second =
        with_steps("changed.after").replace("receivers: [otlp]", "receivers: [otlp/other]");
    let _gateway = Gateway::start(&format!("{other}{second}")).await;
    assert_arrives_once(&report, &dead, SOON).await;
    let kept = dead.kept();
    let body = String::from_utf8_lossy(&kept[0].body);
    for key in ["kept.step", "changed.before", "changed.after"] {
        assert!(body.contains(key), "{key} in {body}");
    }
}

/// The output of `sluice plan`.
fn plan(config: &str) -> String {
    let base = "receivers:\n  otlp:\n    protocols:\n      grpc:\n";
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(["plan", "--config", &format!("yaml:{base}"), "--config", &format!("yaml:{config}")])
        .output()
        .expect("sluice runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Starts a gateway that is expected to end at once; returns its output.
async fn refused(config: &str) -> String {
    let [grpc, health] =
        [(); 2].map(|()| sluice_load_test::subject::free_addr().expect("a free port"));
    let base = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        endpoint: {grpc}\nservice:\n  telemetry:\n    metrics:\n      level: none\n"
    );
    let args =
        ["run", "--config", "env:GATEWAY_BASE", "--config", "{config}"].map(str::to_owned).to_vec();
    let spec = SubjectSpec {
        name: "sluice".to_owned(),
        binary: env!("CARGO_BIN_EXE_sluice").into(),
        args,
        config: config.to_owned(),
        config_file: "gateway.yaml".to_owned(),
        env: vec![("GATEWAY_BASE".to_owned(), base)],
        cpus: Vec::new(),
        limits: Default::default(),
        ready: Some(health.into()),
        ..SubjectSpec::default()
    };
    match Subject::start(spec).await {
        Err(SubjectError::Ended { status, output, .. }) => {
            assert!(!status.success());
            output
        }
        other => panic!("it was to refuse: {other:?}"),
    }
}

/// Guarantee: a second process on the same directory ends at once, names the first, and disturbs it
/// in nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_is_refused() {
    let dead = dead_backend().await;
    let directory = directory();
    let config = config(directory.path(), &[("a", &dead)], "");
    let gateway = Gateway::start(&config).await;
    let report = gateway.accepts(500).await;
    let output = refused(&config).await;
    assert!(output.contains("in use by the process"), "{output}");
    dead.faults().clear();
    assert_arrives_once(&report, &dead, SOON).await;
}

/// Guarantee: files of a newer release are refused with both versions, an invalid configuration
/// too, and every file stays as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_used_leaves_the_files_untouched() {
    let dead = dead_backend().await;
    let directory = directory();
    let config = config(directory.path(), &[("a", &dead)], "");
    let mut gateway = Gateway::start(&config).await;
    let report = gateway.accepts(500).await;
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);
    let before = files(directory.path());
    refused(&config.replace("exporters: [otlp/a]", "exporters: [otlp/unknown]")).await;
    assert!(files(directory.path()) == before, "an invalid configuration touches nothing");

    let newer = TempDir::with_prefix("sluice-disk-log-").expect("a directory");
    let traces = directory.path().join("traces");
    let copied = std::process::Command::new("cp").arg("-a").arg(traces).arg(newer.path()).status();
    assert!(copied.expect("cp runs").success());
    let (segment, mut bytes) = files(newer.path())
        .into_iter()
        .find(|(name, _)| name.ends_with(".seg"))
        .expect("a segment");
    make_newer(&mut bytes);
    std::fs::write(&segment, bytes).expect("a file");
    let before: Vec<_> = files(newer.path());
    let output = refused(
        &config
            .replace(&directory.path().display().to_string(), &newer.path().display().to_string()),
    )
    .await;
    assert!(
        output.contains("format version") && output.contains("nothing was changed"),
        "{output}"
    );
    let after: Vec<_> =
        files(newer.path()).into_iter().filter(|(name, _)| !name.ends_with("/lock")).collect();
    assert!(after == before, "files of a newer release are left alone");

    dead.faults().clear();
    let _gateway = Gateway::start(&config).await;
    assert_arrives_once(&report, &dead, SOON).await;
}

/// Raises the major version in a segment's header, as a later release would write it.
fn make_newer(segment: &mut [u8]) {
    use sluice_log::format::{SegmentHeader, VERSION, Version};
    let mut header = SegmentHeader::decode(segment).expect("a header of this release");
    header.version = Version { major: VERSION.major + 1, ..VERSION };
    let encoded = header.encode();
    segment[..encoded.len()].copy_from_slice(&encoded);
}

/// Scenario: reloads that remove a delivery with a backlog and bring it back, and that ask for a
/// change that needs a restart. Guarantee: the backlog stays listed meanwhile and goes out then; a
/// change of the directory leaves the old one in use, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_keeps_the_backlog_of_what_it_removes() {
    let (a, b) = (Backend::healthy().await.expect("a backend"), dead_backend().await);
    let directory = directory();
    let both = config(directory.path(), &[("a", &a), ("b", &b)], "");
    let gateway = Gateway::start(&both).await;
    let report = gateway.accepts(2_000).await;
    gateway.reload(&config(directory.path(), &[("a", &a)], "")).await;
    let listed = async || {
        gateway.metric("sluice_log_orphan_items", &[("delivery", "traces/b → otlp/b")]).await
            == 2_000.0
    };
    assert!(eventually(SOON, listed).await);
    let more = gateway.accepts(100).await;
    let elsewhere = TempDir::with_prefix("sluice-disk-log-").expect("a directory");
    gateway.reload(&config(elsewhere.path(), &[("a", &a), ("b", &b)], "")).await;
    assert!(gateway.output().contains("needs a restart"), "{}", gateway.output());
    assert_eq!(files(elsewhere.path()), Vec::new());
    b.faults().clear();
    assert_arrives_once(&report, &b, SOON).await;
    assert_arrives_once(&more, &a, SOON).await;
    assert_eq!(b.unique_items(), 2_000, "what came while it was away is not for it");

    gateway.reconfigure(&fan_out(Signal::Traces, LIMIT_MIB, &[("a", &a)]));
    gateway.wait_for_output("no longer has a directory", 1).await;
    gateway.accepts(100).await;
}

/// Scenario: a dead backend whose pipeline has a small budget, beside a healthy one. Guarantee: no
/// sender is refused; the dead delivery keeps its newest data; dropped and kept data are all that
/// was sent, also after a restart; memory and disk stay within their limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spent_budget_drops_the_oldest_on_disk() {
    let _alone = alone().await;
    let (healthy, dead) = (Backend::healthy().await.expect("a backend"), dead_backend().await);
    let directory = directory();
    let config = config(directory.path(), &[("healthy", &healthy), ("dead", &dead)], "")
        + "      buffer:\n        disk:\n          limit_mib: 6\n";
    let mut gateway = Gateway::start(&config).await;
    let load = gateway
        .load(Signal::Traces)
        .rate(10_000.0)
        .duration(Duration::from_secs(6))
        .concurrency(2, 32);
    let report = load.run().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &healthy, SOON).await;
    let of_dead = [("exporter", "otlp/dead")];
    let all_told = async || {
        let scrape = gateway.scrape().await;
        let sum = |name| scrape.sum(name, &of_dead).expect(name);
        let held = sum("sluice_delivery_backlog_bytes") <= 7.0 * MIB as f64;
        held && sum("sluice_delivery_backlog_items") + sum("sluice_delivery_dropped_items")
            == report.accepted as f64
    };
    assert!(
        eventually(SOON, all_told).await,
        "{:?}",
        gateway.scrape().await.sum("sluice_delivery_dropped_items", &of_dead)
    );
    let dropped = gateway.metric("sluice_delivery_dropped_items", &of_dead).await;
    assert!(dropped > 0.0);
    let disk_bytes = async || gateway.metric("sluice_log_disk_bytes", &[]).await;
    assert!(
        eventually(SOON, async || disk_bytes().await <= 10.0 * MIB as f64).await,
        "{}",
        disk_bytes().await
    );
    gateway.assert_memory_within(LIMIT_MIB);
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);
    dead.faults().clear();
    let _gateway = Gateway::start(&config).await;
    let expected = report.accepted - dropped as u64;
    assert!(items_arrive(&dead, expected, SOON).await, "{} of {expected}", dead.unique_items());
    assert_eq!(report.missing_at(&dead), dropped as u64);
}

/// Scenario: the backend refuses some items for good; then a restart. Guarantee: the sender was
/// answered OK; the dead letters are on disk with their reasons, also after the restart (those of
/// the last second may be refused once more); the other items arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_survive_a_kill() {
    let backend = faulty_backend(Faults::rejecting_poison()).await;
    let directory = directory();
    let config = config(directory.path(), &[("a", &backend)], "");
    let gateway = Gateway::start(&config).await;
    let load = gateway.load(Signal::Traces).items(1_000);
    let load = Load { poison_every: Some(100), ..load };
    let report = load.run().await.expect("a load");
    assert_eq!(report.accepted, 1_000, "{:?}", report.messages);
    let buried = async || gateway.metric("sluice_delivery_dead_letters", &[]).await == 10.0;
    assert!(eventually(SOON, buried).await, "{}", gateway.dead_letters().await);
    let before = gateway.dead_letters().await;
    assert!(
        before.contains("10 items in 10 letters"),
        "{before}\n{report:?}\n{:?}\n{}",
        backend.counts(),
        gateway.output()
    );
    gateway.kill().await;
    let gateway = Gateway::start(&config).await;
    let all_there = async || gateway.metric("sluice_delivery_dead_letters", &[]).await >= 10.0;
    assert!(eventually(SOON, all_there).await, "{}", gateway.dead_letters().await);
    let after = gateway.dead_letters().await;
    assert!(after.contains("refuses"), "{after}");
    assert!(
        eventually(SOON, async || report.missing_at(&backend) == 10).await,
        "{}",
        report.missing_at(&backend)
    );
}

/// Scenario: an upgrade is undone, and the newer release has stored dead letters. Guarantee: the
/// older one starts and delivers, names their file, and leaves it as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_newer_release_end_no_start() {
    let backend = faulty_backend(Faults::rejecting_poison()).await;
    let directory = directory();
    let config = config(directory.path(), &[("a", &backend)], "");
    let mut gateway = Gateway::start(&config).await;
    let load = gateway.load(Signal::Traces).items(1_000);
    Load { poison_every: Some(100), ..load }.run().await.expect("a load");
    let buried = async || gateway.metric("sluice_delivery_dead_letters", &[]).await == 10.0;
    assert!(eventually(SOON, buried).await, "{}", gateway.dead_letters().await);
    gateway.terminate();
    gateway.ended_within(SOON).await;
    drop(gateway);
    let letters = || {
        let files = files(&directory.path().join("traces/dead-letters")).into_iter();
        files.filter(|(name, _)| name.ends_with(".seg")).collect::<Vec<_>>()
    };
    let (segment, mut bytes) = letters().remove(0);
    make_newer(&mut bytes);
    std::fs::write(&segment, bytes).expect("a file");
    let before = letters();

    let gateway = Gateway::start(&config).await;
    let page = gateway.dead_letters().await;
    assert!(page.contains(&format!("{segment}: format version ")), "{page}");
    let report = gateway.accepts(500).await;
    assert!(eventually(SOON, async || report.missing_at(&backend) == 0).await);
    assert!(letters() == before, "it stays as it is");
}

/// Guarantee: a Collector's `file_storage` is where the log lives, and two that disagree are an
/// error naming both places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_storage_of_a_collector_chooses_the_directory() {
    let dead = dead_backend().await;
    let directory = directory();
    let with_storage = |storage: &str| {
        let exporter =
            exporter("a", &dead) + &format!("    sending_queue:\n      storage: {storage}\n");
        format!(
            "extensions:\n  file_storage:\n    directory: {0}\n  file_storage/other:\n    directory: {0}/other\n    create_directory: true\nexporters:\n{exporter}\
             service:\n  extensions: [health_check, file_storage, file_storage/other]\n  \
             pipelines:\n    traces:\n      receivers: [otlp]\n      exporters: [otlp/a]\n",
            directory.path().display()
        )
    };
    let mut gateway = Gateway::start_with(&with_storage("file_storage"), Options::default()).await;
    let report = gateway.accepts(500).await;
    gateway.terminate();
    gateway.ended_within(SOON).await;
    assert!(segments(directory.path()) > 0, "{}", gateway.output());
    drop(gateway);
    let contradicts = with_storage("file_storage/other") + "buffer:\n  directory: /elsewhere\n";
    let output = refused(&contradicts.replace("health_check, ", "")).await;
    assert!(
        output.contains("exporters.otlp/a.sending_queue.storage")
            && output.contains("buffer.directory"),
        "{output}"
    );
    dead.faults().clear();
    let _gateway = Gateway::start(&with_storage("file_storage")).await;
    assert_arrives_once(&report, &dead, SOON).await;
}
