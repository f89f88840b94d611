use std::time::Duration;

use parking_lot::Mutex;
use sluice_config::read_text;

use super::*;
use crate::http_config::Credentials;
use crate::scrape_config::ScrapeConfigs;
use crate::test_server::{answer, listener, serve};
use crate::{Discovery, Job};

fn read_config(options: &str) -> (AllocatorConfig, Vec<String>) {
    let (config, diagnostics) = read_text("a", options, AllocatorConfig::read);
    (config, diagnostics.items().iter().map(|item| diagnostics.line(item)).collect())
}

/// The configuration that `options` add to.
fn good(url: &str, options: &str) -> AllocatorConfig {
    let text = format!("endpoint: '{url}/'\ninterval: 20ms\ncollector_id: me 1\n{options}");
    let (config, said) = read_config(&text);
    assert_eq!(said, Vec::<String>::new());
    config
}

/// The jobs with the addresses of their targets and the label `x` of the first.
fn shown(jobs: &[Job]) -> String {
    let show = |job: &Job| {
        let targets = &job.targets.targets;
        let addresses = targets.iter().map(|it| it.label("__address__").to_string());
        let x = targets.first().map(|it| it.label("x").to_string()).unwrap_or_default();
        format!("{}: {} {x}", job.config.job, addresses.collect::<Vec<_>>().join(" "))
    };
    let mut jobs: Vec<String> = jobs.iter().map(show).collect();
    jobs.sort_unstable();
    jobs.join("; ")
}

async fn wait_for(discovery: &mut Discovery, expected: &str) {
    let mut last = String::new();
    let waiting = async {
        while last != expected {
            last = shown(discovery.next().await);
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(found.is_ok(), "{expected} is not there, but {last}");
}

/// Scenario: an allocator gives jobs, changes one, breaks another, takes one away, answers garbage.
/// Guarantee: jobs and targets follow; without a good answer those of before stay; a job that stays
/// is not started again.
#[tokio::test]
async fn jobs_follow_the_allocator() {
    const FIRST: &str = r#"{"a": {"job_name": "a", "scrape_interval": "30s",
        "kubernetes_sd_configs": [{"role": "pod"}], "static_configs": [{"targets": ["no:1"]}],
        "relabel_configs": [{"target_label": "x", "replacement": "s$(SHARD)"}]},
        "b c": {"honor_timestamps": true}}"#;
    let (listener, url) = listener().await;
    let jobs = Arc::new(Mutex::new(FIRST.to_owned()));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let server = serve(listener, {
        let (jobs, heads) = (jobs.clone(), heads.clone());
        move |head| {
            heads.lock().push(head.to_owned());
            let path = head.split(' ').nth(1).unwrap_or_default();
            let body = match path {
                "/scrape_configs" => jobs.lock().clone(),
                "/jobs/a/targets?collector_id=me%201" => r#"[{"targets": ["a:1"]}]"#.to_owned(),
                "/jobs/b%20c/targets?collector_id=me%201" => r#"[{"targets": ["b:1"]}]"#.to_owned(),
                _ => return "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
            };
            answer("application/json", &body)
        }
    });
    let options =
        "headers: {x-team: blue}\nhttp_sd_config: {refresh_interval: 20ms, bearer_token: t}";
    let allocator = good(&url, options);
    let (configs, _) = read_text(
        "x",
        "scrape_configs: [{job_name: own, static_configs: [{targets: [o:1]}]}]",
        ScrapeConfigs::read,
    );
    let mut discovery = Discovery::start(configs, Some(allocator), Duration::from_millis(1));
    wait_for(&mut discovery, "a: a:1 s0; b c: b:1 ; own: o:1 ").await;
    let config_of = |jobs: &[Job], name: &str| {
        let job = jobs.iter().find(|job| &*job.config.job == name);
        job.map(|job| job.config.clone()).expect("is there")
    };
    *jobs.lock() = FIRST.replace("s$(SHARD)", "t");
    wait_for(&mut discovery, "a: a:1 t; b c: b:1 ; own: o:1 ").await;

    // Neither garbage nor a job with a mistake takes anything away.
    *jobs.lock() = "[".to_owned();
    tokio::time::sleep(Duration::from_millis(100)).await;
    *jobs.lock() =
        r#"{"a": {"scrape_interval": "x"}, "d": {"scheme": "red"}, "e": {"new": 1}}"#.to_owned();
    wait_for(&mut discovery, "a: a:1 t; e:  ; own: o:1 ").await;
    *jobs.lock() = "{}".to_owned();
    wait_for(&mut discovery, "own: o:1 ").await;
    *jobs.lock() = FIRST.to_owned();
    wait_for(&mut discovery, "a: a:1 s0; b c: b:1 ; own: o:1 ").await;
    let kept = config_of(discovery.jobs(), "b c");
    *jobs.lock() = FIRST.replace("30s", "40s");
    let waiting = async {
        while config_of(discovery.next().await, "a").interval.as_secs() != 40 {}
        config_of(discovery.jobs(), "b c")
    };
    let same = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("changes");
    assert!(Arc::ptr_eq(&kept, &same));
    let heads = heads.lock().concat();
    assert!(heads.contains("x-team: blue\r\n") && heads.contains("authorization: Bearer t\r\n"));
    server.abort();
}

#[test]
fn options_are_read() {
    let scrapes = "http_scrape_config: {basic_auth: {username: u}}";
    let config = good("http://ta:80", scrapes);
    assert_eq!((&*config.endpoint, &*config.collector_id), ("http://ta:80", "me 1"));
    assert_eq!((config.timeout.as_secs(), config.targets_interval.as_secs()), (30, 30));
    let credentials = config.scrapes.clone().and_then(|http| http.credentials);
    assert!(matches!(credentials, Some(Credentials::Basic { .. })));
    let (jobs, problems) =
        read_jobs(b"a: {bearer_token: x}", &config, &Global::default(), &Jobs::new())
            .expect("is read");
    assert!(problems.is_empty(), "{problems}");
    let http = &jobs["a"].config.http;
    assert!(matches!(http.credentials, Some(Credentials::Basic { .. })), "{http:?}");
    for (text, reason) in [
        ("collector_id: a", "`a.endpoint` is required"),
        ("endpoint: 'ta:80'\ncollector_id: a", "`a.endpoint` cannot be used: it must start with"),
        ("endpoint: 'http://ta'", "`a.collector_id` is required"),
        ("endpoint: 'http://ta'\ncollector_id: a\ninterval: 0s", "`a.interval` must be 1ms"),
        (
            "endpoint: 'http://ta'\ncollector_id: a\nauth: {authenticator: x}",
            "is not in this build",
        ),
        (
            "endpoint: 'http://ta'\ncollector_id: a\n\
             http_sd_config: {oauth2: {client_id: a, token_url: b}}",
            "`a.http_sd_config.oauth2` is not in this build",
        ),
    ] {
        let (_, said) = read_config(text);
        assert!(said.len() == 1 && said[0].contains(reason), "{text}: {said:?}");
    }
}

/// Guarantee: mistakes of an answer are told with their job.
#[test]
fn mistakes_of_an_answer_are_named() {
    let config = good("http://ta:80", "");
    let read = |text: &str| read_jobs(text.as_bytes(), &config, &Global::default(), &Jobs::new());
    for (text, reason) in [
        ("[a]", "must be a mapping, not a list"),
        ("{", "cannot be understood"),
        ("a: &a [*a]", "cannot be understood"),
    ] {
        let error = read(text).map(|_| ()).expect_err(text);
        assert!(error.contains(reason), "{text}: {error}");
    }
    let (jobs, problems) = read("{a: {scheme: red}, b: {colour: red}, c: 1}").expect("is read");
    assert!(jobs.len() == 1 && jobs.contains_key("b"), "an option of a newer allocator");
    for part in ["`scrape_configs[a].scheme`", "`scrape_configs[c]` must be a map"] {
        assert!(problems.contains(part), "{problems}");
    }
    assert!(read("").expect("is read").0.is_empty());
}
