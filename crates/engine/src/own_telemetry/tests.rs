use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use sluice_config::document::Temporality;
use sluice_flow::{BoxFuture, Outcome, Packed};
use sluice_telemetry::exposition::{Exposition, Families, Naming};
use sluice_telemetry::otlp::Resource;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;
use tokio::time::{sleep, timeout};

use super::*;

const TABLE: Table<f64> =
    Table { title: "", labels: &[], metrics: &[row!(Counter "a", |value: &f64| *value, "A.")] };

fn families(value: f64) -> Families {
    let naming = Naming::of_otlp();
    let mut exposition = Exposition::new(&naming);
    exposition.write(&TABLE, &[], &value);
    exposition.families()
}

/// Gives these answers, one a request, and then none.
struct Backend {
    answers: Mutex<VecDeque<Outcome>>,
    bodies: Mutex<Vec<Vec<u8>>>,
}

impl Exporter for Backend {
    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            self.bodies.lock().push(request.chunks.concat());
            let answer = self.answers.lock().pop_front();
            match answer {
                Some(outcome) => outcome,
                None => std::future::pending().await,
            }
        })
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(10)
    }
}

fn backend(answers: impl IntoIterator<Item = Outcome>) -> Arc<Backend> {
    Arc::new(Backend {
        answers: Mutex::new(answers.into_iter().collect()),
        bodies: Mutex::default(),
    })
}

fn reader(bytes_max: usize) -> Arc<Reader> {
    let stats = Arc::new(PushStats::new(Signal::Metrics, "metrics.readers[0]".to_owned(), None));
    let reports =
        Reports::new(Resource::default(), Temporality::Cumulative, SystemTime::UNIX_EPOCH);
    Arc::new(Reader::new(reports, bytes_max, stats))
}

const SHORT: Pauses =
    Pauses { first: Duration::from_millis(1), longest: Duration::from_millis(10) };

/// A sender of what the reader reports. `limit`: for one request.
fn start(
    reader: &Arc<Reader>,
    backend: &Arc<Backend>,
    pauses: Pauses,
    limit: Duration,
) -> (CancellationToken, JoinHandle<()>) {
    let (exporter, stats) = (backend.clone(), reader.stats.clone());
    let sender = Sender { exporter, timeout: limit, stats, endpoint: String::new(), pauses };
    let stop = CancellationToken::new();
    let task = tokio::spawn(sender.run(reader.clone(), stop.clone()));
    (stop, task)
}

fn counts(reader: &Reader) -> [u64; 5] {
    let stats = &reader.stats;
    let all =
        [&stats.taken_requests, &stats.failed_requests, &stats.refused_requests, &stats.sent_items];
    let [taken, failed, refused, sent] = all.map(|count| count.load(Ordering::Relaxed));
    [taken, failed, refused, sent, stats.dropped()]
}

/// Scenario: reports are never sent. Guarantee: the newest wait, within the bound in bytes, and at
/// least one; the others are counted.
#[test]
fn reports_that_wait_are_bounded() {
    for (bytes_max, kept) in [(1, 1), (1000, 1000)] {
        let reader = reader(bytes_max);
        (0..500).for_each(|value| reader.report(&families(f64::from(value)), SystemTime::now()));
        let mut bytes = 0;
        let mut reports = 0;
        while let Some(request) = reader.take() {
            bytes += request.body.len();
            reports += 1;
            assert_eq!(request.kept.points, 1);
        }
        assert!(reports > 0 && (reports == 1 || bytes <= kept), "{reports} reports, {bytes} bytes");
        assert_eq!(counts(&reader)[4], 500 - reports);
    }
}

/// Waits until something holds.
async fn eventually(holds: impl Fn() -> bool) {
    let holding = async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(Duration::from_secs(30), holding).await.expect("in time");
}

/// Scenario: the backend asks for a pause, is misconfigured, takes, refuses, takes a part, and
/// then does not answer. Guarantee: what may be sent again is, in order; what is refused is not;
/// all is counted, and what was not answered waits.
#[tokio::test]
async fn answers_decide_what_is_sent_again() {
    let reason = || "x".to_owned();
    let backend = backend([
        Outcome::RetryAfter { delay: Some(Duration::from_millis(5)), reason: reason() },
        Outcome::Misconfigured { reason: reason() },
        Outcome::Delivered,
        Outcome::Rejected { reason: reason() },
        // More than it was sent.
        Outcome::PartlyRejected { items: u64::MAX, reason: reason() },
    ]);
    let reader = reader(100_000);
    (0..4).for_each(|value| reader.report(&families(f64::from(value)), SystemTime::now()));
    let (stop, task) = start(&reader, &backend, SHORT, Duration::from_millis(50));
    // The fourth report is tried again and again.
    eventually(|| counts(&reader)[1] >= 4).await;
    let bodies = backend.bodies.lock().clone();
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
    assert!(bodies[2] != bodies[3] && bodies[3] != bodies[4]);
    assert!(bodies[4] != bodies[5] && bodies[5] == bodies[6]);
    let [taken, _, refused, sent, dropped] = counts(&reader);
    assert_eq!((taken, refused, sent, dropped), (2, 1, 2, 2), "refused whole and in part");
    stop.cancel();
    timeout(Duration::from_secs(30), task).await.expect("ends").expect("does not panic");
    assert_eq!(reader.stats.waiting(), 1);
}

/// Scenario: the end comes while the sender pauses after a failure, and the backend is back.
/// Guarantee: what waits is sent without the pause.
#[tokio::test]
async fn the_end_sends_what_waits() {
    let failure = Outcome::RetryAfter { delay: None, reason: "x".to_owned() };
    let backend = backend([failure, Outcome::Delivered, Outcome::Delivered]);
    let reader = reader(100_000);
    reader.report(&families(1.0), SystemTime::now());
    let hour = Pauses { first: Duration::from_secs(3600), longest: Duration::from_secs(3600) };
    let (stop, task) = start(&reader, &backend, hour, Duration::from_secs(30));
    eventually(|| counts(&reader)[1] == 1).await;
    reader.report(&families(2.0), SystemTime::now());
    stop.cancel();
    timeout(Duration::from_secs(30), task).await.expect("ends").expect("does not panic");
    assert_eq!(counts(&reader)[..2], [2, 1]);
    assert_eq!(reader.stats.waiting(), 0);
}

/// Guarantee: every instance has its own id, in the form of a UUID of version 4.
#[test]
fn the_instance_has_an_id() {
    let id = crate::process::instance_id();
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12], "{id}");
    assert_eq!(id.as_bytes()[14], b'4', "{id}");
    assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
    assert_eq!(id, crate::process::instance_id());
}
