//! Answers that a real API server gives seldom, by a server that follows a script.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use http::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::access::{Access, BoxFuture, Credentials, Server, ServerSource};
use crate::objects::Partial;
use crate::resource::Resource;

const AUTHORIZATION: &str = "Bearer secret-of-tests-1";

#[derive(Debug)]
struct At(String);

impl ServerSource for At {
    fn server(&self) -> BoxFuture<'_, Result<Server, String>> {
        let server = Server {
            url: self.0.clone(),
            authorities: None,
            identity: None,
            insecure_skip_verify: true,
            server_name: None,
            credentials: Credentials::Header(HeaderValue::from_static(AUTHORIZATION)),
            headers: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(server)))
    }
}

/// A sink that keeps lines of all that it is told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn say(&self, line: String) {
        self.0.lock().expect("no panic").push(line);
    }

    fn has(&self, line: &str) -> bool {
        self.0.lock().expect("no panic").iter().any(|told| told.contains(line))
    }
}

impl Sink<Partial> for Told {
    fn event(&mut self, event: Event<Partial>) {
        self.say(match event {
            Event::Restarted => "restarted".to_owned(),
            Event::Added(object) => format!("added {}", object.metadata.name),
            Event::Modified(object) => format!("modified {}", object.metadata.name),
            Event::Deleted(object) => format!("deleted {}", object.metadata.name),
            Event::Listed => "listed".to_owned(),
        });
    }

    fn failed(&mut self, reason: String) {
        self.say(format!("failed: {reason}"));
    }

    fn works(&mut self) {
        self.say("works".to_owned());
    }
}

/// All lines but those that say that it works.
fn without_works(told: &[String]) -> Vec<&str> {
    told.iter().map(String::as_str).filter(|line| *line != "works").collect()
}

const TIMING: Timing = Timing {
    first_pause: Duration::from_millis(1),
    longest_pause: Duration::from_millis(2),
    watch: Duration::from_secs(240),
    idle: Duration::from_secs(90),
};

async fn follow_script(script: Vec<String>, last: &str) -> (Vec<String>, Vec<String>) {
    follow_timed(script, last, TIMING).await
}

/// Follows the answers of a script, one a request, until the sink was told `last`. Returns the
/// queries of the requests, and what the sink was told. An answer that says `HANGS` does not end.
async fn follow_timed(
    script: Vec<String>,
    last: &str,
    timing: Timing,
) -> (Vec<String>, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let told = Told::default();
    let client = Client::new(Access::Server(Arc::new(At(url))));
    let query = Query::all(Resource::Pods, "tests");
    let task = tokio::spawn(follow::<Partial>(client, query, timing, told.clone()));
    let (mut queries, mut hanging) = (Vec::new(), Vec::new());
    let served = async {
        for answer in script {
            let (mut stream, _) = listener.accept().await.expect("connects");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.expect("reads") > 0 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            queries.push(path.split_once('?').map_or(path, |(_, query)| query).to_owned());
            let _ = stream.write_all(answer.replace(HANGS, "").as_bytes()).await;
            if answer.contains(HANGS) {
                hanging.push(stream);
            } else {
                let _ = stream.shutdown().await;
            }
        }
        while !told.has(last) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let limit = Duration::from_secs(30);
    let is_served = tokio::time::timeout(limit, served).await.is_ok();
    task.abort();
    let lines = told.0.lock().expect("no panic").clone();
    assert!(is_served, "not told {last:?}: {lines:?}");
    (queries, lines)
}

const HANGS: &str = "x-hangs: true\r\n";

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n{body}")
}

fn object(name: &str, version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

fn page(names: &[&str], version: u32, next: &str) -> String {
    let items: Vec<String> = names.iter().map(|name| object(name, 1)).collect();
    let items = items.join(",");
    let body = format!(
        r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{items}]}}"#
    );
    answer("200 OK", "", &body)
}

fn watch(lines: &[(&str, String)]) -> String {
    let lines: Vec<String> = lines
        .iter()
        .map(|(kind, object)| format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
        .collect();
    answer("200 OK", "", &lines.concat())
}

fn status(code: u16, message: &str) -> String {
    format!(r#"{{"kind":"Status","message":"{message}","code":{code}}}"#)
}

fn version_of(query: &str) -> &str {
    let rest = query.split_once("resourceVersion=").map_or("", |(_, rest)| rest);
    rest.split('&').next().unwrap_or_default()
}

/// Guarantee: a watch goes on from the last version that an event or a bookmark had; when the API
/// server no longer has it, in the stream or at once, everything is listed again.
#[tokio::test]
async fn watches_resume_and_lists_follow_gone_versions() {
    let gone = || watch(&[("ERROR", status(410, "too old resource version"))]);
    let script = vec![
        page(&["a"], 5, ""),
        watch(&[("ADDED", object("b", 7)), ("BOOKMARK", object("", 9))]),
        watch(&[("MODIFIED", object("b", 11)), ("DELETED", object("a", 12))]),
        gone(),
        page(&["b"], 20, ""),
        answer("410 Gone", "", &status(410, "expired")),
        page(&["c"], 30, ""),
    ];
    let (queries, told) = follow_script(script, "added c").await;
    let versions: Vec<&str> = queries.iter().map(|query| version_of(query)).collect();
    assert_eq!(versions, ["", "5", "9", "12", "", "20", ""]);
    let lists = ["restarted", "added a", "listed", "added b", "modified b", "deleted a"];
    let told = without_works(&told);
    assert_eq!(told[..6], lists);
    assert_eq!(told[6..9], ["restarted", "added b", "listed"]);
    assert!(!told.iter().any(|line| line.starts_with("failed")), "{told:?}");
}

/// Guarantee: pages follow one another, a list that expires half-way begins again, and a page that
/// is too large is asked for as a smaller one.
#[tokio::test]
async fn lists_are_read_page_by_page() {
    let large = answer("200 OK", "", &" ".repeat((32 << 20) + 1));
    let script = vec![
        page(&["a"], 5, "next=="),
        answer("410 Gone", "", &status(410, "the continue parameter is too old")),
        large,
        page(&["a"], 6, "more"),
        page(&["b"], 6, ""),
        answer("410 Gone", "", ""),
        page(&["c"], 7, ""),
    ];
    let (queries, told) = follow_script(script, "added c").await;
    let expected = [
        "limit=250",
        "limit=250&continue=next%3D%3D",
        "limit=250",
        "limit=125",
        "limit=125&continue=more",
        "",
        "limit=250",
    ];
    let is_list = |query: &String| !query.contains("watch=true");
    let shown = |query: String| if is_list(&query) { query } else { String::new() };
    let queries: Vec<String> = queries.into_iter().map(shown).collect();
    assert_eq!(queries, expected);
    assert_eq!(without_works(&told)[3..7], ["restarted", "added a", "added b", "listed"]);
}

/// Scenario: in the middle of a list the API server throttles, fails, and closes a connection.
/// Guarantee: the page is asked for again, and nothing is listed twice.
#[tokio::test]
async fn a_page_that_fails_is_asked_for_again() {
    let more = "limit=250&continue=more";
    let script = vec![
        page(&["a"], 5, "more"),
        answer("429 Too Many Requests", "retry-after: 0\r\n", "slow down"),
        answer("503 Service Unavailable", "", "no leader"),
        String::new(),
        page(&["b"], 5, "last"),
        answer("500 Internal Server Error", "", "etcd is away"),
        page(&["c"], 5, ""),
    ];
    let (queries, told) = follow_script(script, "listed").await;
    let last = "limit=250&continue=last";
    assert_eq!(queries, ["limit=250", more, more, more, more, last, last]);
    let told: Vec<&str> =
        without_works(&told).into_iter().filter(|line| !line.starts_with("failed")).collect();
    assert_eq!(told, ["restarted", "added a", "added b", "added c", "listed"]);
}

/// Scenario: each watch from a version meets an error of the API server, or an event that cannot be
/// read. Guarantee: after a few attempts everything is listed again; meanwhile an answer does not
/// count as a watch that works.
#[tokio::test]
async fn events_that_fail_for_good_lead_to_a_list() {
    let failed = watch(&[("ERROR", status(500, "etcd event received with PrevKv=nil"))]);
    let unreadable = watch(&[("MODIFIED", r#"{"metadata":{"labels":7}}"#.to_owned())]);
    for bad in [failed, unreadable] {
        let script = vec![
            page(&["a"], 5, ""),
            bad.clone(),
            bad.clone(),
            bad.clone(),
            page(&["b"], 9, ""),
            bad,
            watch(&[("ADDED", object("c", 10))]),
        ];
        let (queries, told) = follow_script(script, "added c").await;
        let versions: Vec<&str> = queries.iter().map(|query| version_of(query)).collect();
        assert_eq!(versions, ["", "5", "5", "5", "", "9", "9"]);
        let first = told.iter().position(|line| line.starts_with("failed")).expect("it fails");
        let added = told.iter().position(|line| line == "added c").expect("it works");
        let works = told[first..added].iter().filter(|line| *line == "works").count();
        assert_eq!(works, 0, "{told:?}");
    }
}

/// Scenario: watches are lost before their first event. Guarantee: it is not told that they work,
/// and nothing is listed again.
#[tokio::test]
async fn watches_that_are_lost_at_once_do_not_work() {
    let lost = || answer("200 OK", "content-length: 100\r\n", "");
    let script = vec![
        page(&["a"], 5, ""),
        lost(),
        lost(),
        lost(),
        lost(),
        watch(&[("ADDED", object("b", 6))]),
    ];
    let (queries, told) = follow_script(script, "added b").await;
    let versions: Vec<&str> = queries.iter().map(|query| version_of(query)).collect();
    assert_eq!(versions, ["", "5", "5", "5", "5", "5"]);
    let first = told.iter().position(|line| line.starts_with("failed")).expect("it fails");
    let added = told.iter().position(|line| line == "added b").expect("it works");
    assert!(!told[first..added].contains(&"works".to_owned()), "{told:?}");
}

/// Scenario: a watch stays silent: its connection may be dead. Guarantee: it is made again from the
/// last version, without a list and without a failure.
#[tokio::test]
async fn a_silent_watch_is_made_again() {
    let script =
        vec![page(&["a"], 5, ""), answer("200 OK", HANGS, ""), watch(&[("ADDED", object("b", 6))])];
    let timing = Timing { idle: Duration::from_millis(50), ..TIMING };
    let (queries, told) = follow_timed(script, "added b", timing).await;
    let versions: Vec<&str> = queries.iter().map(|query| version_of(query)).collect();
    assert_eq!(versions, ["", "5", "5"]);
    assert_eq!(without_works(&told), ["restarted", "added a", "listed", "added b"]);
}

/// Guarantee: a page of more objects than a page may have is refused, not read.
#[tokio::test]
async fn pages_have_a_limit_of_objects() {
    let objects = |count: usize| {
        let items = vec!["{}"; count].join(",");
        let body = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#);
        answer("200 OK", "", &body)
    };
    let script = vec![objects(PAGE_ITEMS_LIMIT + 1), objects(PAGE_ITEMS_LIMIT)];
    let (_, told) = follow_script(script, "listed").await;
    assert_eq!(told.iter().filter(|line| line.starts_with("added")).count(), PAGE_ITEMS_LIMIT);
    let failed = told.iter().find(|line| line.starts_with("failed")).expect("it fails");
    assert!(failed.contains("a page has more than 10000 objects"), "{failed}");
}

/// Scenario: answers name our credentials. Guarantee: no reason has them.
#[tokio::test]
async fn reasons_have_no_credentials() {
    let said = format!("token not accepted: {AUTHORIZATION}, secret-of-tests-1");
    let script = vec![
        answer("401 Unauthorized", "", &status(401, &said)),
        answer("500 Internal Server Error", "", &said),
        page(&["a"], 5, ""),
    ];
    let (_, told) = follow_script(script, "listed").await;
    let failures: Vec<&String> = told.iter().filter(|line| line.starts_with("failed")).collect();
    assert_eq!(failures.len(), 2);
    for failure in failures {
        assert!(failure.contains("token not accepted"), "{failure}");
        assert!(!failure.contains("secret-of-tests"), "{failure}");
    }
}

/// Guarantee: an API server that has no time is left alone for as long as it says, and for no less
/// than the pause; answers that cannot be understood are failures with a reason, and the watch goes
/// on.
#[tokio::test]
async fn failures_are_told_and_waited_for() {
    let began = Instant::now();
    let throttled = answer("429 Too Many Requests", "retry-after: 0\r\n", "Too many requests");
    let script = vec![throttled, page(&["a"], 5, "")];
    let pause = Duration::from_millis(200);
    let timing = Timing { first_pause: pause, longest_pause: pause, ..TIMING };
    follow_timed(script, "listed", timing).await;
    assert!(began.elapsed() >= pause);
    let began = Instant::now();
    let script = vec![
        answer("429 Too Many Requests", "retry-after: 1\r\n", "Too many requests"),
        answer("200 OK", "", "{]"),
        answer("500 Internal Server Error", "", &status(500, "etcd is away")),
        page(&["a"], 5, ""),
        watch(&[("ADDED", object("b", 6)), ("SURPRISE", object("c", 7))]),
        watch(&[("ADDED", object("d", 8))]),
    ];
    let (queries, told) = follow_script(script, "added d").await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    let failures: Vec<&String> = told.iter().filter(|line| line.starts_with("failed")).collect();
    let reasons = [
        "the API server has no time (Too many requests)",
        "the answer cannot be understood",
        "the API server answers 500: etcd is away",
        "the answer cannot be understood: unknown variant `SURPRISE`",
    ];
    assert_eq!(failures.len(), reasons.len(), "{failures:?}");
    for (failure, reason) in failures.iter().zip(reasons) {
        assert!(failure.contains(reason), "{failure}");
    }
    assert_eq!(version_of(queries.last().expect("requests")), "6");
}
