use std::fs;

use sluice_config::read_text;

use super::*;
use crate::labels::Text;

const LONG: Duration = Duration::from_secs(60);

fn discovery(text: &str) -> Discovery {
    let (configs, diagnostics) = read_text("x", text, ScrapeConfigs::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Discovery::start(configs, None, Duration::from_millis(1))
}

/// The jobs with the addresses of their targets.
fn shown(jobs: &[Job]) -> String {
    let show = |job: &Job| {
        let addresses = job.targets.targets.iter().map(|it| it.label("__address__").to_string());
        format!("{}: {}", job.config.job, addresses.collect::<Vec<_>>().join(" "))
    };
    jobs.iter().map(show).collect::<Vec<_>>().join("; ")
}

/// Waits until the jobs are as expected.
async fn wait_for(discovery: &mut Discovery, expected: &str) {
    let mut last = String::new();
    let waiting = async {
        while last != expected {
            last = shown(discovery.next().await);
        }
    };
    let found = tokio::time::timeout(LONG, waiting).await;
    assert!(found.is_ok(), "{expected} is not there, but {last}");
}

/// Guarantee: targets of the configuration are there at once, and a job without any, too; after
/// that nothing is returned without a change.
#[tokio::test]
async fn targets_of_the_configuration_are_there_at_once() {
    let mut discovery = discovery(
        "scrape_configs:\n- {job_name: a, static_configs: [{targets: [a:1, b:1]}, {targets: [a:1]}]}\n\
         - {job_name: b}",
    );
    assert_eq!(shown(discovery.next().await), "a: a:1 b:1; b: ");
    let again = tokio::time::timeout(Duration::from_millis(100), discovery.next()).await;
    assert!(again.is_err());
}

/// Scenario: a job has targets from the configuration and from a file that changes. Guarantee: it
/// has both; the targets that stay are the same allocation, and other jobs stay what they are.
#[tokio::test]
async fn sources_of_a_job_are_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.json");
    let file = path.display();
    let write = |addresses: &str| {
        let beside = path.with_extension("new");
        fs::write(&beside, format!(r#"[{{"targets": [{addresses}]}}]"#)).expect("is written");
        fs::rename(beside, &path).expect("is renamed");
    };
    write(r#""f:1", "a:1""#);
    let mut discovery = discovery(&format!(
        "scrape_configs:\n- {{job_name: a, static_configs: [{{targets: [a:1]}}], \
         file_sd_configs: [{{files: ['{file}'], refresh_interval: 20ms}}], \
         relabel_configs: [{{regex: __meta_.*, action: labeldrop}}]}}\n\
         - {{job_name: b, static_configs: [{{targets: [b:1]}}]}}"
    ));
    wait_for(&mut discovery, "a: a:1 f:1; b: b:1").await;
    let before: Vec<_> = discovery.jobs.iter().map(|job| job.targets.clone()).collect();
    write(r#""f:2", "f:1""#);
    wait_for(&mut discovery, "a: a:1 f:2 f:1; b: b:1").await;
    let after: Vec<_> = discovery.jobs.iter().map(|job| job.targets.clone()).collect();
    assert!(Arc::ptr_eq(&before[0].targets[0], &after[0].targets[0]));
    assert!(Arc::ptr_eq(&before[0].targets[1], &after[0].targets[2]));
    assert!(Arc::ptr_eq(&before[1], &after[1]));
    write("");
    wait_for(&mut discovery, "a: a:1; b: b:1").await;
}

/// Scenario: calls of `next` are dropped whenever they wait. Guarantee: no change is lost.
#[tokio::test]
async fn dropped_calls_lose_nothing() {
    let mut discovery = discovery("scrape_configs: [{job_name: a}]");
    discovery.next().await;
    let reporter = discovery.jobs[0].index.reporter();
    let mut seen = String::new();
    for number in 0..200 {
        let address = Text::from(format!("a:{number}"));
        let labels = crate::labels::Labels::default();
        let group = crate::group::Group::new("g".into(), [address], labels);
        reporter.replace(vec![Arc::new(group)]).expect("fits");
        for micros in [0, 1, 50, 300] {
            let short = Duration::from_micros(micros);
            if let Ok(jobs) = tokio::time::timeout(short, discovery.next()).await {
                seen = shown(jobs);
            }
        }
    }
    if seen != "a: a:199" {
        wait_for(&mut discovery, "a: a:199").await;
    }
}
