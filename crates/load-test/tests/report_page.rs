//! The report's page in a real headless Chromium. Where it is missing the test passes over it,
//! unless SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sluice_load_test::report::{RunRecord, to_html};

fn chromium() -> Option<PathBuf> {
    let found =
        std::env::var_os("SLUICE_TEST_CHROMIUM").map(PathBuf::from).filter(|path| path.exists());
    let required =
        std::env::var_os("SLUICE_TEST_REQUIRE_COMPONENTS").is_some_and(|value| value == "1");
    assert!(
        found.is_some() || !required,
        "SLUICE_TEST_CHROMIUM names no file: run tests/components/install"
    );
    if found.is_none() {
        eprintln!("passed over: SLUICE_TEST_CHROMIUM names no file");
    }
    found
}

/// A proxy that answers nothing useful and reports the request lines that it receives.
fn proxy() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, requests) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut buffer = [0; 2048];
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let length = stream.read(&mut buffer).unwrap_or(0);
            let head = String::from_utf8_lossy(&buffer[..length]);
            let _ = stream.write_all(
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
            if sender.send(head.lines().next().unwrap_or_default().to_owned()).is_err() {
                return;
            }
        }
    });
    (port, requests)
}

/// The page's DOM after its scripts ran, and every request that left the browser for this test's
/// own names.
fn open(chromium: &Path, html: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    std::fs::write(&page, html).unwrap();
    let (port, requests) = proxy();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "120"])
        .arg(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--proxy-server=http://127.0.0.1:{port}"))
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    // Requests of the browser itself go to its maker's hosts.
    let is_the_pages = |request: &String| !request.contains("google") && !request.contains("gvt1");
    (dom, requests.try_iter().filter(is_the_pages).collect())
}

fn record() -> RunRecord {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/report/run.json");
    RunRecord::read(&path).unwrap()
}

#[test]
fn the_page_draws_every_plot_and_asks_nobody() {
    let Some(chromium) = chromium() else { return };
    let page = to_html(&[record()]);
    // For inspection by hand.
    std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("report.html"), &page).unwrap();
    let (dom, requests) = open(&chromium, &page);
    assert!(
        dom.contains("data-drawn=\"6\""),
        "six plots are drawn: {}",
        &dom[dom.len().saturating_sub(2000)..]
    );
    for title in ["Throughput", "Latency, end to end", "On their way", "Queue", "Memory", "CPU"] {
        assert!(
            dom.contains(&format!(">{title} over time, ")),
            "{title} has a name for those who hear the page"
        );
    }
    // Two subjects, two turns: throughput has two curves of each, the rest one.
    assert_eq!(dom.matches("data-subject=").count(), 4 * 7);
    assert_eq!(
        dom.matches("class=\"fault\"").count(),
        6,
        "the window of faults is shaded in every plot"
    );
    assert_eq!(dom.matches("aria-pressed=\"true\"").count(), 2, "a legend with both subjects");
    assert_eq!(requests, Vec::<String>::new(), "no request left the page");
}

#[test]
fn a_request_that_leaves_a_page_is_seen_here_and_the_reports_policy_stops_it() {
    let Some(chromium) = chromium() else { return };
    let image = "<img src=\"http://elsewhere.test/x.png\">";
    let (_, requests) = open(&chromium, &format!("<!doctype html><body>{image}"));
    assert!(requests.iter().any(|request| request.contains("elsewhere.test")), "{requests:?}");
    let page = to_html(&[record()]).replacen("<main>", &format!("<main>{image}"), 1);
    let (dom, requests) = open(&chromium, &page);
    assert!(dom.contains("elsewhere.test"), "the image is in the page");
    assert_eq!(requests, Vec::<String>::new());
}
