//! hyper's timer for HTTP/1 headers. hyper starts it when a request may begin; the time counts from
//! the request's first byte, so that an idle connection is not one with slow headers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

use super::activity::Activity;

pub(super) struct HeaderTimer(pub(super) Arc<Activity>);

impl Timer for HeaderTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        // A new connection has sent bytes already: they showed its protocol.
        let activity = Arc::clone(&self.0);
        let is_idle = activity.has_served();
        let idle_bytes = if is_idle { activity.read_bytes.load(Ordering::Relaxed) } else { 0 };
        Box::pin(HeaderSleep { duration, activity, idle_bytes, sleep: None })
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }
}

struct HeaderSleep {
    duration: Duration,
    activity: Arc<Activity>,
    /// Bytes that had been read when the request could begin.
    idle_bytes: u64,
    sleep: Option<Pin<Box<dyn Sleep>>>,
}

impl Sleep for HeaderSleep {}

impl Future for HeaderSleep {
    type Output = ();

    /// hyper polls it after each read.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let read_bytes = self.activity.read_bytes.load(Ordering::Relaxed);
        if self.sleep.is_none() && read_bytes == self.idle_bytes {
            return Poll::Pending;
        }
        let duration = self.duration;
        self.sleep.get_or_insert_with(|| TokioTimer::new().sleep(duration)).as_mut().poll(context)
    }
}
