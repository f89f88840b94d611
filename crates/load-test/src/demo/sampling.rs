//! The gateway's own metrics, memory and CPU, second by second.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::time::Instant;

use crate::scrape::Scrape;
use crate::subject::{Usage, usage_of_process};

/// One look at the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Sampled {
    pub(crate) at: Instant,
    pub(crate) usage: Usage,
    pub(crate) scrape: Scrape,
}

pub(crate) struct Sampler {
    metrics: SocketAddr,
    pid: u32,
    first: Option<Sampled>,
    /// The last while the load ran.
    under_load: Option<Sampled>,
    last: Option<Sampled>,
    memory_max_bytes: u64,
}

impl Sampler {
    pub(crate) fn new(metrics: SocketAddr, pid: u32) -> Self {
        Sampler { metrics, pid, first: None, under_load: None, last: None, memory_max_bytes: 0 }
    }

    async fn look(&mut self) -> anyhow::Result<Sampled> {
        let usage = usage_of_process(self.pid).context("the gateway has ended")?;
        self.memory_max_bytes = self.memory_max_bytes.max(usage.rss_bytes);
        Ok(Sampled { at: Instant::now(), usage, scrape: Scrape::fetch(self.metrics).await? })
    }

    /// Looks while the load runs. What is busy may fail to answer once, but not for the first time.
    pub(crate) async fn sample(&mut self) -> anyhow::Result<()> {
        match self.look().await {
            Ok(sampled) => {
                self.first.get_or_insert_with(|| sampled.clone());
                self.under_load = Some(sampled.clone());
                self.last = Some(sampled);
                Ok(())
            }
            Err(_) if self.first.is_some() && usage_of_process(self.pid).is_some() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Looks once more when the load has ended: this does not count for CPU.
    pub(crate) async fn sample_after_load(&mut self) -> anyhow::Result<()> {
        self.last = Some(self.look().await?);
        Ok(())
    }

    /// The last look. Asked for only after the first.
    pub(crate) fn last(&self) -> &Sampled {
        self.last.as_ref().expect("sampled once before anything is reported")
    }

    pub(crate) fn memory_max_bytes(&self) -> u64 {
        self.memory_max_bytes
    }

    /// Cores taken on average while the load ran.
    pub(crate) fn cpu_cores(&self) -> f64 {
        match (&self.first, &self.under_load) {
            (Some(first), Some(last)) if last.at > first.at => {
                (last.usage.cpu - first.usage.cpu).as_secs_f64() / (last.at - first.at).as_secs_f64()
            }
            _ => 0.0,
        }
    }
}
