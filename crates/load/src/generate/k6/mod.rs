//! A generator that writes as k6 does, at any rate: requests to InfluxDB once a second with all
//! samples since the last one, or the files of k6's JSON and CSV outputs. It knows the sum of each
//! counter, so that a loss is exact. `Form` has the bytes.

mod flush;
mod form;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use flush::Flusher;
pub use form::{COUNTERS, Form, SAMPLES_PER_REQUEST, Sums};

/// k6's own interval of all three outputs but JSON, which writes five times as often.
const PUSH_INTERVAL: Duration = Duration::from_secs(1);
const JSON_INTERVAL: Duration = Duration::from_millis(200);
const SECOND_NS: f64 = 1e9;
/// More would not be told apart by their times.
const RATE_LIMIT: f64 = 1e6;

/// Where the samples go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Line protocol over HTTP, to the database `k6` of the server at this address.
    Influx(SocketAddr),
    /// A file that is replaced.
    File(Form, PathBuf),
}

impl Output {
    fn form(&self) -> Form {
        match self {
            Output::Influx(_) => Form::Lines,
            Output::File(form, _) => *form,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Samples {
    pub output: Output,
    /// HTTP requests of the script a second, each with [`SAMPLES_PER_REQUEST`] samples.
    pub requests_per_s: f64,
}

/// The samples that were generated so far, and what became of it as far as k6 would know.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Written {
    /// HTTP requests that the script would have made.
    pub requests: u64,
    pub samples: u64,
    /// The sums of [`COUNTERS`].
    pub sums: Sums,
    /// Requests of `requests` whose samples were in a flush that failed: k6 drops it.
    pub requests_dropped: u64,
    pub flushes: u64,
    pub flushes_failed: u64,
    /// Time of all flushes, and of the longest, from the first byte to the answer.
    pub flush_time: Duration,
    pub flush_max: Duration,
    pub bytes: u64,
    /// The first reason of a flush that failed.
    pub failure: Option<String>,
}

impl Samples {
    /// Fails if the rate is impossible.
    pub fn check(&self) -> Result<()> {
        let rate = self.requests_per_s;
        ensure!(
            rate > 0.0 && rate <= RATE_LIMIT,
            "{rate} requests/s of k6 cannot be generated: give a rate above 0, up to {RATE_LIMIT}"
        );
        Ok(())
    }

    /// Generates until `stop` is true, writes the rest, and waits for all answers. Fails if a file
    /// cannot be written; a request that fails is counted.
    pub async fn run(
        self,
        mut stop: watch::Receiver<bool>,
        written: Arc<Mutex<Written>>,
    ) -> Result<()> {
        self.check()?;
        let form = self.output.form();
        let every = if form == Form::Json { JSON_INTERVAL } else { PUSH_INTERVAL };
        let mut flusher = Flusher::open(&self.output, Arc::clone(&written)).await?;
        let (began, began_ns) = (Instant::now(), crate::unix_ns());
        let mut body = Vec::new();
        form.head(&mut body);
        let (mut number, mut ticks, mut seconds) = (0_u64, 0_u32, 0_u64);
        let mut is_over = false;
        while !is_over {
            ticks += 1;
            tokio::select! {
                () = sleep_until(began + every * ticks) => {}
                // An error means that it cannot be stopped any more.
                _ = stop.wait_for(|stop| *stop) => is_over = true,
            }
            let elapsed_s = began.elapsed().as_secs_f64();
            let until = (elapsed_s * self.requests_per_s) as u64;
            let mut sums = Sums::default();
            let first = number;
            while number < until {
                let after_ns = number as f64 / self.requests_per_s * SECOND_NS;
                form.request(&mut body, number, began_ns + after_ns as u64, &mut sums);
                number += 1;
            }
            let mut samples = (number - first) * SAMPLES_PER_REQUEST;
            while seconds < elapsed_s as u64 {
                seconds += 1;
                form.second(&mut body, began_ns + seconds * SECOND_NS as u64);
                samples += 2;
            }
            {
                let mut written = written.lock();
                written.requests = number;
                written.samples += samples;
                written.sums.iter_mut().zip(sums).for_each(|(sum, more)| *sum += more);
            }
            if !body.is_empty() {
                // As k6: with four requests under way, the next one waits, and so do later samples.
                flusher.flush(std::mem::take(&mut body), number - first).await?;
            }
        }
        flusher.finish().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
