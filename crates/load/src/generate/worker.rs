//! The workers of a load: each takes the next ticket, stamps its own buffer, sends it and waits for
//! the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::answer::Answer;
use super::client::Client;
use super::load::{Load, LoadError, Pace, Protocol};
use super::report::{Collected, LoadReport, Problem, Progress};
use super::running::{RunningLoad, Stop};
use super::template::{Stamp, Template};
use crate::identity::{Identity, SEQUENCE_LIMIT, next_generator};
use crate::latency::{Latency, record};

/// A request of an open loop is late when it is sent this long after its time.
const LATE_AFTER: Duration = Duration::from_millis(50);

impl Load {
    /// Sends it all and reports the outcome.
    pub async fn run(self) -> Result<LoadReport, LoadError> {
        self.start()?.finish().await
    }

    /// Begins to send in the background.
    pub fn start(self) -> Result<RunningLoad, LoadError> {
        self.check()?;
        let shared = Arc::new(Shared {
            template: Template::new(&self.shape, self.encoding),
            request: self.request(),
            load: self,
            generator: next_generator(),
            next: AtomicU64::new(0),
            started: Instant::now(),
            progress: Arc::default(),
            collected: Mutex::default(),
            stop: Stop::new(),
        });
        let (progress, stop) = (Arc::clone(&shared.progress), shared.stop.clone());
        Ok(RunningLoad::spawn(progress, stop, shared.run(), ()))
    }
}

/// The state that all workers of a load share.
struct Shared {
    load: Load,
    template: Template,
    request: Request<()>,
    generator: u16,
    /// The number of the next request.
    next: AtomicU64,
    started: Instant,
    progress: Arc<Progress>,
    collected: Mutex<Collected>,
    stop: Stop,
}

impl Shared {
    /// Runs all workers to their end.
    async fn run(self: Arc<Self>) -> Result<LoadReport, LoadError> {
        let mut workers = JoinSet::new();
        for _ in 0..self.load.connections {
            let connection = Arc::new(Client::grpc(self.load.target));
            for _ in 0..self.load.streams {
                let client = match self.load.protocol {
                    Protocol::Grpc => Arc::clone(&connection),
                    // A connection takes one request at a time.
                    Protocol::Http => Arc::new(Client::http()),
                };
                workers.spawn(Worker { shared: Arc::clone(&self), client }.run());
            }
        }
        workers.join_all().await;
        Ok(self.report())
    }

    /// When sending ends, if time ends it.
    fn end(&self) -> Option<Instant> {
        self.load.duration.map(|duration| self.started + duration)
    }

    /// The last moment at which an answer counts.
    fn last_call(&self) -> Option<Instant> {
        self.end().map(|end| end + self.load.grace)
    }

    fn request_limit(&self) -> u64 {
        let by_items = self.load.items.map(|items| items.div_ceil(self.template.items()));
        // The acknowledged items are a bounded set.
        by_items.unwrap_or(u64::MAX).min(SEQUENCE_LIMIT / self.template.items())
    }

    /// Of an open loop.
    fn requests_per_s(&self) -> Option<f64> {
        match self.load.pace {
            Pace::Closed => None,
            Pace::Open { items_per_s } => Some(items_per_s / self.template.items() as f64),
        }
    }

    fn due(&self, ticket: u64) -> Option<Instant> {
        let after_s = ticket as f64 / self.requests_per_s()?;
        Some(self.started + Duration::from_secs_f64(after_s))
    }

    /// Requests that an open loop had to send within its time, or until it was stopped before that.
    fn scheduled(&self) -> u64 {
        let due = match (self.requests_per_s(), self.load.duration) {
            (Some(requests_per_s), Some(duration)) => {
                let stopped_after = self.stop.at().map_or(duration, |at| at - self.started);
                (requests_per_s * duration.min(stopped_after).as_secs_f64()).ceil() as u64
            }
            _ => self.next.load(Ordering::Relaxed),
        };
        due.min(self.request_limit())
    }

    fn report(&self) -> LoadReport {
        let collected = self.collected.lock();
        let sent = self.progress.offered();
        let offered = match self.load.pace {
            Pace::Closed => sent,
            Pace::Open { .. } => (self.scheduled() * self.template.items()).max(sent),
        };
        let never_sent = offered - sent;
        let problem = || Problem {
            message: format!(
                "{never_sent} items were due and never sent, because all senders waited for answers"
            ),
            remedy: "set a lower rate with -r: the subject does not keep up; where it is only \
                     slow to answer, use more --streams",
        };
        let acknowledged = collected.acknowledged.clone();
        LoadReport {
            offered,
            never_sent,
            problems: (never_sent > 0).then(problem).into_iter().collect(),
            endings: collected.endings.clone(),
            messages: collected.messages.clone(),
            refusals_without_delay: collected.refusals_without_delay,
            acknowledged_after: Latency::of(&collected.acknowledged_after_us),
            ..LoadReport::of(self.generator, &self.progress, acknowledged, self.started.elapsed())
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl Worker {
    async fn run(self) {
        let shared = &self.shared;
        let mut buffer = BytesMut::from(shared.template.frame());
        while let Some(ticket) = self.next_ticket().await {
            let first = Identity::new(shared.generator, ticket * shared.template.items());
            let stamp = Stamp {
                first,
                time_unix_ns: crate::unix_ns(),
                poison_every: shared.load.poison_every,
            };
            shared.template.stamp(&mut buffer, stamp);
            let frame = buffer.freeze();
            self.deliver(first.sequence(), &frame).await;
            // The connection has let go of the bytes once it has written them; else they are
            // copied.
            buffer =
                frame.try_into_mut().unwrap_or_else(|_| BytesMut::from(shared.template.frame()));
        }
    }

    /// Waits until the next request is to be sent. `None`: no more.
    async fn next_ticket(&self) -> Option<u64> {
        let shared = &self.shared;
        if shared.stop.at().is_some() || shared.end().is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        let ticket = shared.next.fetch_add(1, Ordering::Relaxed);
        if ticket >= shared.request_limit() {
            return None;
        }
        if let Some(due) = shared.due(ticket) {
            if shared.end().is_some_and(|end| due >= end) {
                return None;
            }
            tokio::select! {
                () = sleep_until(due) => {}
                () = shared.stop.wait() => return None,
            }
            if due.elapsed() > LATE_AFTER {
                shared.progress.late_requests.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.progress.offered.fetch_add(shared.template.items(), Ordering::Relaxed);
        Some(ticket)
    }

    /// Sends one request until it has its final answer, and counts that.
    async fn deliver(&self, first_sequence: u64, frame: &Bytes) {
        let shared = &self.shared;
        let began = Instant::now();
        // The answer of an attempt that was to be followed by another.
        let mut refusal = None;
        let answering = self.attempt_until_final(frame, began, &mut refusal);
        let answer = match shared.last_call() {
            Some(last_call) => timeout_at(last_call, answering).await.ok(),
            None => Some(answering.await),
        };
        // One that waited for its next attempt when time was up has been refused, not left without
        // an answer.
        let answer = answer.or(refusal);
        let items = shared.template.items();
        let progress = &shared.progress;
        progress.requests.fetch_add(1, Ordering::Relaxed);
        let Some(answer) = answer else {
            progress.unanswered.fetch_add(items, Ordering::Relaxed);
            return;
        };
        if answer.is_ok() {
            let rejected = answer.rejected_items.min(items);
            progress.accepted.fetch_add(items - rejected, Ordering::Relaxed);
            progress.rejected.fetch_add(rejected, Ordering::Relaxed);
            let mut collected = shared.collected.lock();
            record(&mut collected.acknowledged_after_us, began.elapsed(), 1);
            if rejected == 0 {
                collected.acknowledged.insert_range(first_sequence..first_sequence + items);
            }
            return;
        }
        let counter = match &answer {
            answer if answer.fate_is_unknown() => &progress.unanswered,
            answer if answer.is_retryable() => &progress.refused,
            _ => &progress.failed,
        };
        counter.fetch_add(items, Ordering::Relaxed);
    }

    /// `refusal` is the last answer while the next attempt is waited for.
    async fn attempt_until_final(
        &self,
        frame: &Bytes,
        began: Instant,
        refusal: &mut Option<Answer>,
    ) -> Answer {
        let shared = &self.shared;
        let mut attempt = 0;
        loop {
            let answer = self.attempt(frame).await;
            shared.collected.lock().count(&answer);
            if answer.is_ok() || !answer.is_retryable() {
                return answer;
            }
            attempt += 1;
            let Some(delay) = shared.load.retry.delay(attempt, began.elapsed(), answer.retry_delay)
            else {
                return answer;
            };
            shared.progress.retries.fetch_add(1, Ordering::Relaxed);
            *refusal = Some(answer);
            sleep(delay).await;
            *refusal = None;
        }
    }

    async fn attempt(&self, frame: &Bytes) -> Answer {
        let shared = &self.shared;
        shared.progress.bytes_sent.fetch_add(frame.len() as u64, Ordering::Relaxed);
        let request = shared.request.clone();
        let limit = shared.load.timeout;
        let answer = timeout(limit, self.client.call(request, frame)).await;
        answer.unwrap_or_else(|_| Answer::timed_out(limit))
    }
}
