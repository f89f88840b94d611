//! The workers of a load: each takes a ticket, stamps its buffer, sends it and awaits the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use hdrhistogram::Histogram;
use http::Request;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::client::{Answer, Client, Ending};
use super::load::{Load, Protocol};
use super::report::{LATE_AFTER, LoadReport, Progress, RunningLoad};
use super::template::Template;
use crate::identity::{Identity, SEQUENCE_LIMIT, Stamp};
use crate::latency::{Latency, new_histogram, record};

/// Longer than any load.
const ENDLESS: Duration = Duration::from_secs(365 * 24 * 3600);

impl Load {
    pub async fn run(self) -> Result<LoadReport> {
        self.start()?.finish().await
    }

    pub fn start(self) -> Result<RunningLoad> {
        self.check()?;
        let template = Template::new(&self.shape, self.encoding);
        let items = template.items;
        let wanted = self.items.map_or(u64::MAX, |wanted| wanted.div_ceil(items));
        let (progress, started) = (Progress::new(), Instant::now());
        let shared = Arc::new(Shared {
            template,
            request: self.request(),
            next: AtomicU64::new(0),
            // The acknowledged items are a bounded set.
            request_limit: wanted.min(SEQUENCE_LIMIT / items),
            requests_per_s: self.items_per_s().map(|items_per_s| items_per_s / items as f64),
            started,
            end: self.duration.map(|duration| started + duration),
            progress: Arc::clone(&progress),
            acknowledged_after_us: Mutex::new(new_histogram()),
            load: self,
        });
        Ok(RunningLoad { progress, task: tokio::spawn(shared.run()), _offered: Box::new(()) })
    }
}

struct Shared {
    load: Load,
    template: Template,
    request: Request<()>,
    /// The number of the next request.
    next: AtomicU64,
    request_limit: u64,
    /// Rate of an open loop.
    requests_per_s: Option<f64>,
    started: Instant,
    /// End of sending, if the load has a duration.
    end: Option<Instant>,
    progress: Arc<Progress>,
    acknowledged_after_us: Mutex<Histogram<u64>>,
}

impl Shared {
    async fn run(self: Arc<Self>) -> Result<LoadReport> {
        let mut workers = JoinSet::new();
        for _ in 0..self.load.connections {
            let connection = Arc::new(Client::grpc(self.load.target));
            for _ in 0..self.load.streams {
                let client = match self.load.protocol {
                    Protocol::Grpc => Arc::clone(&connection),
                    // A connection takes one request at a time.
                    Protocol::Http => Arc::new(Client::http()),
                };
                workers.spawn(Arc::clone(&self).work(client));
            }
        }
        workers.join_all().await;
        let mut report = self.progress.report().clone();
        report.acknowledged_after = Latency::of(&self.acknowledged_after_us.lock());
        let never_sent = self.due_items().saturating_sub(report.offered);
        report.leave_out(
            never_sent,
            format!(
                "{never_sent} items were due and never sent, because all senders waited for answers"
            ),
            "set a lower rate with -r: the subject does not keep up; where it is only slow to \
             answer, use more --streams",
        );
        Ok(report)
    }

    /// Items that had to be sent: of an open loop within its time, or until it was stopped.
    fn due_items(&self) -> u64 {
        let requests = match (self.requests_per_s, self.load.duration) {
            (Some(requests_per_s), Some(duration)) => {
                let stopped_at = self.progress.stopped_at();
                let ran = stopped_at.map_or(duration, |at| duration.min(at - self.started));
                (requests_per_s * ran.as_secs_f64()).ceil() as u64
            }
            _ => self.next.load(Ordering::Relaxed),
        };
        requests.min(self.request_limit) * self.template.items
    }

    async fn work(self: Arc<Self>, client: Arc<Client>) {
        let generator = self.progress.report().generator;
        let mut buffer = BytesMut::from(&self.template.packed.frame[..]);
        while let Some(ticket) = self.next_ticket().await {
            let identity = Identity::new(generator, ticket * self.template.items);
            let stamp = Stamp { identity, sent_unix_ns: crate::unix_ns() };
            self.template.stamp(&mut buffer, stamp, self.load.poison_every);
            let frame = buffer.freeze();
            self.deliver(&client, identity.sequence(), &frame).await;
            // The connection lets go of the bytes once it has written them.
            buffer = frame.try_into_mut().unwrap_or_else(|_| self.template.packed.frame[..].into());
        }
    }

    /// Waits until the next request is to be sent. `None`: no more.
    async fn next_ticket(&self) -> Option<u64> {
        let is_over = |at| self.end.is_some_and(|end| at >= end);
        if self.progress.stopped_at().is_some() || is_over(Instant::now()) {
            return None;
        }
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        if ticket >= self.request_limit {
            return None;
        }
        let mut is_late = false;
        if let Some(requests_per_s) = self.requests_per_s {
            let due = self.started + Duration::from_secs_f64(ticket as f64 / requests_per_s);
            if is_over(due) {
                return None;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = self.progress.wait_for_stop() => return None,
            }
            is_late = due.elapsed() > LATE_AFTER;
        }
        let mut report = self.progress.report();
        report.late_requests += u64::from(is_late);
        report.offered += self.template.items;
        Some(ticket)
    }

    /// Sends one request until it has its final answer, and counts that.
    async fn deliver(&self, client: &Client, first_sequence: u64, frame: &Bytes) {
        let (began, mut attempt) = (Instant::now(), 0);
        let deadline = self.end.unwrap_or(began + ENDLESS) + self.load.grace;
        let answer = loop {
            attempt += 1;
            self.progress.report().bytes_sent += frame.len() as u64;
            let limit = self.load.timeout;
            let call = timeout(limit, client.call(self.request.clone(), frame));
            let Ok(answer) = timeout_at(deadline, call).await else { break None };
            let answer = answer.unwrap_or_else(|_| {
                Answer::new(Ending::TimedOut, format!("no answer within {limit:?}"))
            });
            self.progress.report().count(&answer);
            let delay = self.load.retry.delay(attempt, began.elapsed(), answer.retry_delay);
            let Some(delay) = delay.filter(|_| answer.is_retryable()) else { break Some(answer) };
            self.progress.report().retries += 1;
            // A request that waits for a retry at the deadline keeps its last answer.
            if timeout_at(deadline, sleep(delay)).await.is_err() {
                break Some(answer);
            }
        };
        let items = self.template.items;
        let mut report = self.progress.report();
        report.requests += 1;
        match answer {
            Some(answer) if answer.ending.is_ok() => {
                let rejected = answer.rejected_items.min(items);
                report.accepted += items - rejected;
                report.rejected += rejected;
                if rejected == 0 {
                    report.acknowledged.insert_range(first_sequence..first_sequence + items);
                }
                record(&mut self.acknowledged_after_us.lock(), began.elapsed(), 1);
            }
            Some(answer) if answer.fate_is_unknown() => report.unanswered += items,
            Some(answer) if answer.is_retryable() => report.refused += items,
            Some(_) => report.failed += items,
            None => report.unanswered += items,
        }
    }
}
