//! The workers of a load: each takes the next ticket, stamps its own buffer, sends it and waits for the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::answer::{Answer, Ending};
use super::grpc::GrpcConnection;
use super::http::HttpConnection;
use super::load::{Load, Pace, Protocol};
use super::report::{Collected, LoadReport, Problem, Progress};
use super::template::{PREFIX_LEN, Stamp, Template};
use crate::identity::{Identity, SequenceSet, next_generator};
use crate::latency::{Latency, record};

/// A request of an open loop is late when it is sent this long after its time.
const LATE_AFTER: Duration = Duration::from_millis(50);

/// The state that all workers of a load share.
pub(crate) struct Shared {
    load: Load,
    template: Template,
    request: Request<()>,
    generator: u16,
    /// The number of the next request.
    next: AtomicU64,
    started: Instant,
    pub(crate) progress: Arc<Progress>,
    collected: Mutex<Collected>,
    /// When it was asked to send no more.
    stop: watch::Sender<Option<Instant>>,
}

impl Shared {
    pub(crate) fn new(load: Load, template: Template, request: Request<()>) -> Self {
        Shared {
            load,
            template,
            request,
            generator: next_generator(),
            next: AtomicU64::new(0),
            started: Instant::now(),
            progress: Arc::default(),
            collected: Collected::new(),
            stop: watch::Sender::new(None),
        }
    }

    pub(crate) fn stopper(&self) -> watch::Sender<Option<Instant>> {
        self.stop.clone()
    }

    /// Runs all workers to their end.
    pub(crate) async fn run(self) -> LoadReport {
        let shared = Arc::new(self);
        let mut workers = JoinSet::new();
        for _ in 0..shared.load.connections {
            let connection = Arc::new(GrpcConnection::to(shared.load.target));
            for _ in 0..shared.load.streams {
                let channel = match shared.load.protocol {
                    Protocol::Grpc => Channel::Grpc(Arc::clone(&connection)),
                    Protocol::Http => Channel::Http(Box::new(HttpConnection::new())),
                };
                workers.spawn(Worker { shared: Arc::clone(&shared), channel }.run());
            }
        }
        while let Some(ended) = workers.join_next().await {
            if let Err(panic) = ended.map_err(tokio::task::JoinError::into_panic) {
                std::panic::resume_unwind(panic);
            }
        }
        shared.report()
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
        let by_items = self.load.items.map(|items| items.div_ceil(u64::from(self.template.items())));
        // The acknowledged items are a bounded set.
        by_items.unwrap_or(u64::MAX).min(SequenceSet::LIMIT / u64::from(self.template.items()))
    }

    fn due(&self, ticket: u64) -> Option<Instant> {
        match self.load.pace {
            Pace::Closed => None,
            Pace::Open { items_per_s } => {
                let after_s = ticket as f64 * f64::from(self.template.items()) / items_per_s;
                Some(self.started + Duration::from_secs_f64(after_s))
            }
        }
    }

    /// Requests that an open loop had to send within its time, or until it was stopped before that.
    fn scheduled(&self) -> u64 {
        let sent = self.next.load(Ordering::Relaxed);
        match (self.load.pace, self.load.duration) {
            (Pace::Open { items_per_s }, Some(duration)) => {
                let stopped_after = self.stop.borrow().map_or(duration, |at| at - self.started);
                let time = duration.min(stopped_after);
                let due = items_per_s * time.as_secs_f64() / f64::from(self.template.items());
                (due.ceil() as u64).min(self.request_limit())
            }
            _ => sent.min(self.request_limit()),
        }
    }

    fn report(&self) -> LoadReport {
        let progress = &*self.progress;
        let collected = self.collected.lock();
        let sent = progress.offered();
        let offered = match self.load.pace {
            Pace::Closed => sent,
            Pace::Open { .. } => (self.scheduled() * u64::from(self.template.items())).max(sent),
        };
        let never_sent = offered - sent;
        let problem = || Problem {
            message: format!("{never_sent} items were due and never sent, because all senders waited for answers"),
            remedy: "set a lower rate with -r: the subject does not keep up; where it is only slow to answer, use more --streams",
        };
        LoadReport {
            offered,
            never_sent,
            problems: (never_sent > 0).then(problem).into_iter().collect(),
            endings: collected.endings.clone(),
            messages: collected.messages.clone(),
            refusals_without_delay: collected.refusals_without_delay,
            acknowledged_after: Latency::of(&collected.acknowledged_after_us),
            ..LoadReport::of(self.generator, progress, collected.acknowledged.clone(), self.started.elapsed())
        }
    }
}

enum Channel {
    Grpc(Arc<GrpcConnection>),
    Http(Box<HttpConnection>),
}

struct Worker {
    shared: Arc<Shared>,
    channel: Channel,
}

impl Worker {
    async fn run(self) {
        let shared = &self.shared;
        let mut stop = shared.stop.subscribe();
        let mut buffer = BytesMut::from(shared.template.frame());
        while let Some(ticket) = self.next_ticket(&mut stop).await {
            let first = Identity::new(shared.generator, ticket * u64::from(shared.template.items()));
            let stamp = Stamp { first, time_unix_ns: crate::unix_ns(), poison_every: shared.load.poison_every };
            shared.template.stamp(&mut buffer, stamp);
            let frame = buffer.freeze();
            self.deliver(first.sequence(), &frame).await;
            // The connection has let go of the bytes once it has written them; else they are copied.
            buffer = frame.try_into_mut().unwrap_or_else(|_| BytesMut::from(shared.template.frame()));
        }
    }

    /// Waits until the next request is to be sent. `None`: no more.
    async fn next_ticket(&self, stop: &mut watch::Receiver<Option<Instant>>) -> Option<u64> {
        let shared = &self.shared;
        let is_over = || stop.borrow().is_some() || shared.end().is_some_and(|end| Instant::now() >= end);
        if is_over() {
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
            let mut stop = stop.clone();
            tokio::select! {
                () = sleep_until(due) => {}
                _ = stop.wait_for(Option::is_some) => return None,
            }
            if due.elapsed() > LATE_AFTER {
                shared.progress.late_requests.fetch_add(1, Ordering::Relaxed);
            }
        }
        shared.progress.offered.fetch_add(u64::from(shared.template.items()), Ordering::Relaxed);
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
        // One that waited for its next attempt when time was up has been refused, not left without an answer.
        let answer = answer.or(refusal);
        let items = u64::from(shared.template.items());
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
    async fn attempt_until_final(&self, frame: &Bytes, began: Instant, refusal: &mut Option<Answer>) -> Answer {
        let shared = &self.shared;
        let mut attempt = 0;
        loop {
            let answer = self.attempt(frame).await;
            shared.collected.lock().count(&answer);
            if answer.is_ok() || !answer.is_retryable() {
                return answer;
            }
            attempt += 1;
            let Some(delay) = shared.load.retry.delay(attempt, began.elapsed(), answer.retry_delay) else {
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
        let answer = match &self.channel {
            Channel::Grpc(connection) => timeout(limit, connection.call(request, frame.clone())).await,
            Channel::Http(connection) => timeout(limit, connection.call(request, frame.slice(PREFIX_LEN..))).await,
        };
        answer.unwrap_or_else(|_| Answer::failure(Ending::TimedOut, format!("no answer within {limit:?}")))
    }
}
