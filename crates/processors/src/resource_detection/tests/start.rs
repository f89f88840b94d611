//! When detectors run, and what becomes of failures.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

const SOON: Duration = Duration::from_secs(10);

fn with(variables: &[(&str, &str)]) -> Surroundings {
    Surroundings::of(Path::new("/nowhere"), variables, "http://127.0.0.1:9")
}

/// An instance of Azure with this name.
fn azure(name: &str) -> (u16, String) {
    (200, format!(r#"{{"name": "{name}"}}"#))
}

/// Options that have only `host.name` of Azure's attributes.
fn named(more: &str) -> String {
    const OFF: [&str; 9] = [
        "azure.resourcegroup.name",
        "azure.vm.name",
        "azure.vm.scaleset.name",
        "azure.vm.size",
        "cloud.account.id",
        "cloud.platform",
        "cloud.provider",
        "cloud.region",
        "host.id",
    ];
    let off = OFF.map(|name| format!("{name}: {{enabled: false}}")).join(", ");
    format!("{{detectors: [azure], azure: {{resource_attributes: {{{off}}}}}, {more}}}")
}

async fn eventually(condition: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < end, "it does not come");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Guarantee: detected attributes replace those of a resource unless `override` is off; a resource
/// without a schema gets that of the detectors, another keeps its own.
#[tokio::test]
async fn resources_get_attributes_and_the_schema() {
    let around =
        with(&[("OTEL_RESOURCE_ATTRIBUTES", "a=new,b="), ("AWS_LAMBDA_FUNCTION_NAME", "f")]);
    let found = ["b=", "cloud.provider=aws", "cloud.platform=aws_lambda", "faas.name=f"];
    for (more, a) in [("", "a=new"), ("override: false", "a=old")] {
        let processor = processor(&format!("{{detectors: [env, lambda], {more}}}"), &around);
        let [first, second] = &run(&processor)[..] else { panic!("two resources") };
        assert_eq!((&first.0[..], second.0.len()), (&lines(&["a=old"])[..], 0), "not started");
        processor.start().await.expect("starts");
        let [first, second] = &run(&processor)[..] else { panic!("two resources") };
        assert_eq!(*first, ([lines(&[a]), lines(&found)].concat(), SCHEMA.to_owned()));
        assert_eq!(*second, ([lines(&["a=new"]), lines(&found)].concat(), "s".to_owned()));
    }
}

/// Guarantee: of attributes that several detectors find, that of the first in the list counts.
#[tokio::test]
async fn the_first_detector_counts() {
    let around = with(&[
        ("OTEL_RESOURCE_ATTRIBUTES", "cloud.provider=env,x=y"),
        ("HEROKU_APP_ID", "id"),
        ("AWS_LAMBDA_FUNCTION_NAME", "f"),
    ]);
    for (detectors, provider, schema) in [
        ("env, heroku, lambda", "env", SCHEMA),
        ("heroku, env", "heroku", SCHEMA),
        ("lambda, heroku", "aws", SCHEMA),
        ("env", "env", ""),
        ("env, docker", "env", ""),
    ] {
        let (found, url) = detected(&format!("detectors: [{detectors}]"), &around).await.unwrap();
        assert!(found.contains(&format!("cloud.provider={provider}")), "{detectors}: {found:?}");
        assert_eq!(url, schema, "{detectors}");
    }
}

/// Scenario: a service answers the third time. Guarantee: it is asked until then.
#[tokio::test]
async fn a_detector_that_fails_is_tried_again() {
    let times = AtomicUsize::new(0);
    let (url, asked) = service(move |_| match times.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => (503, String::new()),
        _ => azure("vm"),
    })
    .await;
    let around = Surroundings::of(Path::new("/nowhere"), &[], &url);
    let retry = "fail_on_missing_metadata: true, retry: {initial_interval: 1ms}";
    let (found, _) = detected(&named(retry), &around).await.expect("in the end");
    assert_eq!(found, ["host.name=vm"]);
    assert_eq!(asked.lock().len(), 3);
    let once = "fail_on_missing_metadata: true, retry: {enabled: false}";
    let (url, asked) = service(|_| (503, String::new())).await;
    let around = Surroundings::of(Path::new("/nowhere"), &[], &url);
    let failure = detected(&named(once), &around).await.expect_err("fails");
    assert!(failure.contains("`azure`: ") && failure.contains("503"), "{failure}");
    assert_eq!(asked.lock().len(), 1);
}

/// Scenario: services that are not there. Guarantee: nothing is detected, unless that is an error:
/// then all of them are named within the time, with what can be done.
#[tokio::test]
async fn missing_metadata_is_nothing_or_an_error_with_a_remedy() {
    let yaml = |more: &str| {
        let detectors = "docker, ec2, gcp, azure, ecs, lambda, heroku, elastic_beanstalk";
        format!("{{detectors: [{detectors}], timeout: 1500ms, {more}}}")
    };
    assert_eq!(detected(&yaml(""), &nothing()).await.map(|it| it.0), Ok(Vec::new()));
    let started = Instant::now();
    let strict = yaml("fail_on_missing_metadata: true");
    let failure = detected(&strict, &nothing()).await.expect_err("is an error");
    for part in [
        "within 1.5s",
        "`docker`: /nowhere/var/run/docker.sock",
        "`ec2`: ",
        "`gcp`: ",
        "`azure`: ",
        "`ecs`: ECS_CONTAINER_METADATA_URI_V4 or ECS_CONTAINER_METADATA_URI is not set",
        "`lambda`: AWS_LAMBDA_FUNCTION_NAME is not set",
        "`heroku`: HEROKU_DYNO_ID and HEROKU_APP_ID are not set",
        "`elastic_beanstalk`: there is no /var/elasticbeanstalk/xray/environment.conf",
        "take those out of `detectors`",
    ] {
        assert!(failure.contains(part), "{part}: {failure}");
    }
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

/// Scenario: a service that takes connections and says nothing. Guarantee: it is missing when the
/// time is over; nothing waits longer.
#[tokio::test]
async fn a_service_that_hangs_holds_the_start_up_no_longer_than_the_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let around = Surroundings::of(Path::new("/nowhere"), &[], &url);
    let started = Instant::now();
    for detector in ["azure", "ec2", "gcp"] {
        let yaml = format!("{{detectors: [{detector}], timeout: 300ms}}");
        assert_eq!(detected(&yaml, &around).await.map(|it| it.0), Ok(Vec::new()), "{detector}");
    }
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
}

/// Scenario: the machine gets another name; then its service fails; then it is back. Guarantee:
/// requests get the new name, and keep it meanwhile, whether a service that is not there is an
/// error or not.
#[tokio::test]
async fn a_refresh_changes_attributes_and_a_failed_one_keeps_them() {
    for is_strict in [true, false] {
        refreshed(is_strict).await;
    }
}

async fn refreshed(is_strict: bool) {
    let step = Arc::new(AtomicUsize::new(0));
    let seen = step.clone();
    let (url, asked) = service(move |_| match seen.load(Ordering::Relaxed) {
        0 => azure("one"),
        1 => azure("two"),
        2 => (404, String::new()),
        _ => azure("three"),
    })
    .await;
    let around = Surroundings::of(Path::new("/nowhere"), &[], &url);
    let more = format!(
        "fail_on_missing_metadata: {is_strict}, refresh_interval: 20ms, retry: {{enabled: false}}"
    );
    let processor = processor(&named(&more), &around);
    processor.start().await.expect("starts");
    assert!(!processor.is_repeatable());
    let name = || run(&processor)[1].0.clone();
    assert_eq!(name(), ["host.name=one"]);
    step.store(1, Ordering::Relaxed);
    eventually(|| name() == ["host.name=two"]).await;
    step.store(2, Ordering::Relaxed);
    let before = asked.lock().len();
    eventually(|| asked.lock().len() > before + 3).await;
    assert_eq!(name(), ["host.name=two"]);
    step.store(3, Ordering::Relaxed);
    eventually(|| name() == ["host.name=three"]).await;
    // Refreshes end with the processor.
    drop(processor);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let last = asked.lock().len();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(asked.lock().len(), last);
}

/// Scenario: several pipelines start a processor; then reloads, one that changes it. Guarantee: it
/// detects once for all pipelines, and again only if it is another one.
#[tokio::test]
async fn pipelines_and_reloads_share_what_is_detected() {
    let (url, asked) = service(|_| azure("vm")).await;
    let around = Surroundings::of(Path::new("/nowhere"), &[], &url);
    let first = processor(&named(""), &around);
    assert!(first.is_repeatable());
    let second = ResourceDetection(first.0.clone());
    let (one, other) = tokio::join!(first.start(), second.start());
    assert_eq!((one, other), (Ok(()), Ok(())));
    assert_eq!(asked.lock().len(), 1);
    let unchanged = processor(&named(""), &around);
    unchanged.take_over(first.running().expect("runs"), true);
    unchanged.start().await.expect("starts");
    assert_eq!(run(&unchanged)[1].0, ["host.name=vm"]);
    assert_eq!(asked.lock().len(), 1);
    let changed = processor(&named("override: false"), &around);
    changed.take_over(first.running().expect("runs"), false);
    changed.start().await.expect("starts");
    assert_eq!(asked.lock().len(), 2);
}
