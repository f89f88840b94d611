//! The farm scraped by a client that reads bytes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::identity::{Identity, SequenceSet};

fn farm() -> Farm {
    Farm { targets: 2, metrics: 3, series: 4, labels: 2, counters: 1, ..Farm::default() }
}

/// The head and the body of the answer to one request; the connection stays open.
async fn ask(stream: &mut TcpStream, request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let head_len = loop {
        stream.read_buf(&mut bytes).await.unwrap();
        if let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8(bytes[..head_len].to_vec()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .unwrap()
        .parse::<usize>()
        .unwrap();
    while bytes.len() < head_len + length {
        assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "ended early");
    }
    (head, String::from_utf8(bytes[head_len..].to_vec()).unwrap())
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

fn sequences(page: &str) -> Vec<u64> {
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    let values = samples.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap());
    values.map(|value| Identity::from_sample(value).unwrap().sequence()).collect()
}

#[tokio::test]
async fn every_sample_of_every_scrape_has_an_identity_of_its_own_and_all_are_acknowledged() {
    let open = farm().open().unwrap();
    let addrs = open.addrs.to_vec();
    let mut running = open.start();
    let mut all = SequenceSet::default();
    for addr in addrs {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        for _ in 0..3 {
            let (head, page) = ask(&mut stream, GET).await;
            assert!(
                head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("version=0.0.4"),
                "{head}"
            );
            let found = sequences(&page);
            assert_eq!(found.len(), 12);
            assert!(found.into_iter().all(|sequence| all.insert(sequence)), "twice the same");
        }
    }
    running.stop();
    let report = running.finish().await.unwrap();
    assert_eq!((report.offered, report.accepted, report.requests, report.failed), (72, 72, 6, 0));
    assert_eq!((all.len(), report.acknowledged.difference_len(&all)), (72, 0));
    assert!(report.bytes_sent > 0, "{report:?}");
    let [(problem, _)] = &report.problems[..] else { panic!("{report:?}") };
    assert!(
        problem.contains("6 scrapes are little to go by"),
        "every 30 s is what this farm expects: {problem:?}"
    );
}

#[tokio::test]
async fn open_metrics_is_served_to_who_asks_for_it_and_strangers_are_told() {
    let open = farm().open().unwrap();
    let addr = open.addrs[0];
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let mut running = open.start();
    let request =
        "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n";
    let (head, page) = ask(&mut stream, request).await;
    assert!(
        head.contains("application/openmetrics-text; version=1.0.0") && page.ends_with("# EOF\n"),
        "{head}{page}"
    );
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "405"),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        let (head, _) = ask(&mut stream, request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }
    running.stop();
    assert_eq!(running.finish().await.unwrap().offered, 12);
}

#[tokio::test]
async fn a_scrape_waits_for_the_start_and_gets_nothing_after_the_end() {
    let open = farm().open().unwrap();
    let mut stream = TcpStream::connect(open.addrs[0]).await.unwrap();
    let early = tokio::spawn(async move {
        let answer = ask(&mut stream, GET).await;
        (stream, answer)
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!early.is_finished() && open.shared.progress.report().offered == 0);
    let mut running = open.start();
    let (mut stream, (head, _)) = early.await.unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    running.stop();
    let (head, body) = ask(&mut stream, GET).await;
    assert!(head.starts_with("HTTP/1.1 503 ") && body.is_empty(), "{head}");
    assert_eq!(running.finish().await.unwrap().accepted, 12);
}

#[tokio::test]
async fn a_scrape_that_was_not_read_to_its_end_is_not_acknowledged() {
    // 3 MB a page: more than fits into the sockets' buffers, and 60 kB, which fits.
    for metrics in [600, 12] {
        let open = Farm { metrics, series: 10, ..farm() }.open().unwrap();
        let addr = open.addrs[0];
        let mut running = open.start();
        let mut patient = TcpStream::connect(addr).await.unwrap();
        ask(&mut patient, GET).await;
        let mut hasty = TcpStream::connect(addr).await.unwrap();
        hasty.write_all(GET.as_bytes()).await.unwrap();
        let mut first = [0; 100];
        hasty.read_exact(&mut first).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        drop(hasty);
        tokio::time::sleep(Duration::from_millis(100)).await;
        running.stop();
        let (report, samples) = (running.finish().await.unwrap(), u64::from(metrics) * 10);
        let counts = (report.offered, report.accepted, report.failed, report.unanswered);
        assert_eq!(counts, (2 * samples, samples, samples, 0), "{metrics} metrics");
        assert_eq!(report.acknowledged.len(), samples);
    }
}

#[tokio::test]
async fn targets_without_scrapes_are_a_problem_of_the_report() {
    let mut running =
        Farm { scrape_every: Duration::from_millis(20), ..farm() }.open().unwrap().start();
    tokio::time::sleep(Duration::from_millis(100)).await;
    running.stop();
    let report = running.finish().await.unwrap();
    let [(problem, _)] = &report.problems[..] else { panic!("{report:?}") };
    assert!(
        problem.starts_with("2 of 2 targets were scraped less often than every 0.02 s"),
        "{problem:?}"
    );
}

#[test]
fn a_farm_that_cannot_be_says_why() {
    let refused = |farm: Farm| farm.open().err().unwrap().to_string();
    assert!(refused(Farm { targets: 0, ..farm() }).contains("1 to 1000 targets"));
    assert!(refused(Farm { metrics: 1_000_000, series: 10, ..farm() }).contains("10000000"));
    assert!(refused(Farm { counters: 4, ..farm() }).contains("4 of 3"));
    assert!(refused(Farm { churn_every: Some(Duration::ZERO), ..farm() }).contains("above zero"));
}
