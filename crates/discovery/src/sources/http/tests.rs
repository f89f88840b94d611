use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sluice_config::read_text;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::index::Index;
use crate::scrape_config::{ScrapeConfigs, SourceConfig};
use crate::test_server::{self, answer, request, serve};

/// The source that the options describe.
fn config(options: &str) -> HttpSd {
    let text = format!("scrape_configs: [{{job_name: j, http_sd_configs: [{{{options}}}]}}]");
    let (mut configs, diagnostics) = read_text("x", &text, ScrapeConfigs::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    let Some(SourceConfig::Http(config)) = configs.jobs.remove(0).sources.pop() else {
        panic!("{text}")
    };
    *config
}

/// Gives the answers one after the other, and returns the heads of the requests.
async fn give(listener: TcpListener, answers: Vec<String>) -> Vec<String> {
    let mut heads = Vec::new();
    for answer in answers {
        let (mut stream, _) = listener.accept().await.expect("connects");
        heads.push(request(&mut stream).await);
        stream.write_all(answer.as_bytes()).await.expect("is taken");
        stream.shutdown().await.expect("closes");
    }
    heads
}

async fn listener() -> (TcpListener, String) {
    let (listener, url) = test_server::listener().await;
    (listener, format!("{url}/sd"))
}

/// The addresses that one look finds, or why it finds none.
async fn look_once(config: &HttpSd) -> Result<Vec<String>, String> {
    let mut fetcher = Fetcher::new(&config.url, config.http.clone()).expect("a URL");
    let groups = look(config, &mut fetcher).await?;
    let targets = groups.iter().flat_map(|group| group.targets.iter());
    Ok(targets.map(|target| target.get("__address__").to_string()).collect())
}

/// Guarantee: the request is Prometheus', with credentials and headers of the options; the answer
/// becomes groups that know their URL.
#[tokio::test]
async fn groups_come_from_an_answer() {
    let (listener, url) = listener().await;
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "pass\n").expect("is written");
    let file = secret.path().display();
    let config = config(&format!(
        "url: '{url}', refresh_interval: 30s, basic_auth: {{username: me, password_file: {file}}}, \
         http_headers: {{x-team: {{values: [a, b]}}}}"
    ));
    let body = r#"[{"targets": ["a:1", "b:2"], "labels": {"env": "prod"}}, {"targets": []}]"#;
    let server =
        tokio::spawn(give(listener, vec![answer("Application/JSON; charset=\"UTF-8\"", body)]));
    let mut fetcher = Fetcher::new(&config.url, config.http.clone()).expect("a URL");
    let groups = look(&config, &mut fetcher).await.expect("is good");
    assert_eq!((groups.len(), groups[0].targets.len()), (2, 2));
    assert_eq!(&*groups[1].key, format!("{url}:1"));
    assert_eq!(&**groups[0].labels.get("__meta_url"), url);
    let head = server.await.expect("serves").remove(0);
    for line in [
        "GET /sd HTTP/1.1\r\n",
        "accept: application/json\r\n",
        "x-prometheus-refresh-interval-seconds: 30\r\n",
        // me:pass
        "authorization: Basic bWU6cGFzcw==\r\n",
        "x-team: a\r\nx-team: b\r\n",
    ] {
        assert!(head.contains(line), "{line} is not in\n{head}");
    }
}

fn redirect(location: &str) -> String {
    format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n")
}

/// Scenario: a URL leads on within its server and then to another one, or in a circle. Guarantee:
/// the last answer counts, the other server learns no credentials, a circle ends, and without
/// `follow_redirects` none is followed.
#[tokio::test]
async fn redirects_are_followed_as_the_option_says() {
    let (first, url) = listener().await;
    let (second, other) = listener().await;
    let from = [redirect("there?x=1"), redirect(&format!("{other}#part"))];
    let first = tokio::spawn(give(first, from.to_vec()));
    let body = r#"[{"targets": ["a:1"]}]"#;
    let second = tokio::spawn(give(second, vec![answer("application/json", body)]));
    let options = "basic_auth: {username: me}, http_headers: {x-team: {values: [a]}}";
    let found = look_once(&config(&format!("url: '{url}', {options}"))).await;
    assert_eq!(found, Ok(vec!["a:1".to_owned()]));
    let (first, second) = (first.await.expect("serves"), second.await.expect("serves"));
    assert!(first[1].starts_with("GET /there?x=1 "), "{}", first[1]);
    assert!(first[1].contains("authorization: ") && first[1].contains("x-team: a"));
    assert!(second[0].starts_with("GET /sd "), "{}", second[0]);
    assert!(!second[0].contains("authorization: ") && !second[0].contains("x-team"));
    assert!(second[0].contains("x-prometheus-refresh-interval-seconds"), "{}", second[0]);

    let (circle, url) = listener().await;
    let server = serve(circle, |_| redirect("/sd"));
    let error = look_once(&config(&format!("url: '{url}'"))).await.expect_err("a circle");
    assert!(error.contains("more than 10 redirects"), "{error}");
    let refusing = config(&format!("url: '{url}', follow_redirects: false"));
    let error = look_once(&refusing).await.expect_err("is not followed");
    assert!(error.contains("`follow_redirects` is false"), "{error}");
    server.abort();
}

/// Guarantee: an answer that is not as Prometheus wants it is refused with the reason.
#[tokio::test]
async fn other_answers_are_refused() {
    for (given, reason) in [
        (answer("text/plain", "[]"), "content type is not application/json"),
        (answer("application/json; charset=latin1", "[]"), "content type is not"),
        (answer("application/json", "{}"), "cannot be understood"),
        (answer("application/json", "[null]"), "group 0 is null"),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "the status 204"),
        ("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_owned(), "the status 500"),
        ("HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n".to_owned(), "the status 302"),
        (redirect("ftp://x/"), "a redirect cannot be followed"),
        ("garbage\r\n\r\n".to_owned(), ""),
    ] {
        let (listener, url) = listener().await;
        let server = tokio::spawn(give(listener, vec![given.clone()]));
        let error = look_once(&config(&format!("url: '{url}'"))).await.expect_err(&given);
        assert!(error.contains(reason), "{given}: {error}");
        server.await.expect("serves");
    }
    let (_, url) = listener().await;
    let missing = config(&format!("url: '{url}', bearer_token_file: /nowhere/token"));
    let error = look_once(&missing).await.expect_err("no file");
    assert!(error.contains("cannot read /nowhere/token"), "{error}");
}

/// Scenario: a server answers without end, with a million targets, or not at all. Guarantee: memory
/// and time are bounded.
#[tokio::test]
async fn hostile_answers_are_bounded() {
    let (endless, url) = listener().await;
    let server = tokio::spawn(async move {
        let (mut stream, _) = endless.accept().await.expect("connects");
        request(&mut stream).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("is taken");
        let mut written = 0usize;
        while stream.write_all(&[b' '; 65536]).await.is_ok() {
            written += 65536;
        }
        written
    });
    let error = look_once(&config(&format!("url: '{url}'"))).await.expect_err("endless");
    assert!(error.contains("exceeds 16777216 bytes"), "{error}");
    assert!(server.await.expect("serves") < 64 << 20);

    let (listener_of_many, url) = listener().await;
    let body = format!("[{{\"targets\": [\"a\"{}]}}]", ",\"a\"".repeat(1_000_001));
    let server = tokio::spawn(give(listener_of_many, vec![answer("application/json", &body)]));
    let error = look_once(&config(&format!("url: '{url}'"))).await.expect_err("too many");
    assert!(error.contains("more than 1000000 items"), "{error}");
    server.await.expect("serves");

    let (_silent, url) = listener().await;
    let config = config(&format!("url: '{url}', refresh_interval: 50ms"));
    let error = look_once(&config).await.expect_err("silent");
    assert!(error.contains("no answer within 50ms"), "{error}");
}

/// Scenario: the server goes away and comes back with other groups. Guarantee: the groups of before
/// stay until then.
#[tokio::test]
async fn a_restarted_server_is_asked_again() {
    let (first, url) = listener().await;
    let address = first.local_addr().expect("an address");
    let index = Index::new(Arc::default());
    let outlet = Outlet::new("j".into(), index.reporter());
    let config = config(&format!("url: '{url}', refresh_interval: 50ms"));
    let task = tokio::spawn(run(config, outlet));
    let body = r#"[{"targets": ["a:1"]}, {"targets": ["b:1"]}]"#;
    let server = serve(first, move |_| answer("application/json", body));
    let seen = |expected: &'static str| {
        let index = index.clone();
        async move {
            let shown = || {
                let (groups, _) = index.groups();
                let targets = groups.iter().flat_map(|group| group.targets.iter());
                targets.map(|it| it.get("__address__").to_string()).collect::<Vec<_>>().join(" ")
            };
            let waiting = async {
                while shown() != expected {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let found = tokio::time::timeout(Duration::from_secs(60), waiting).await;
            found.unwrap_or_else(|_| panic!("{expected} is not there, but {}", shown()));
        }
    };
    seen("a:1 b:1").await;
    server.abort();
    assert!(server.await.expect_err("is stopped").is_cancelled());
    tokio::time::sleep(Duration::from_millis(200)).await;
    seen("a:1 b:1").await;
    let second = TcpListener::bind(address).await.expect("binds again");
    let asked = Arc::new(AtomicUsize::new(0));
    let server = serve(second, {
        let asked = asked.clone();
        move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            answer("application/json", r#"[{"targets": ["c:1"]}]"#)
        }
    });
    seen("c:1").await;
    assert!(asked.load(Ordering::Relaxed) >= 1);
    task.abort();
    server.abort();
}
