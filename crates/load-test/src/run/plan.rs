//! The work: what is sent, how fast, for how long, and what is wrong with the backends meanwhile.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use clap::builder::{PossibleValuesParser, RangedI64ValueParser, TypedValueParser};
use sluice_otlp::Encoding;

use super::definition::{Definition, Setting};
use super::faults::FaultSchedule;
use super::machine::Cores;
use super::promql::PrometheusPlan;
use super::verdict::Threshold;
use crate::generate::{Farm, LogFiles, Pace, Protocol};
use crate::report::{SubjectRecord, Target};
use crate::subject::{Limits, free_addr};

/// Pipelines of a multi-pipeline run, as in the Kyma load test.
const SEVERAL_PIPELINES: usize = 3;

/// One call of the load test.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub target: Target,
    pub name: String,
    pub multi: bool,
    /// What is wrong with the backends while the load lasts.
    pub faults: FaultSchedule,
    /// What is wrong when the load ends stays wrong. Else all backends are well from then on.
    pub faults_outlast_load: bool,
    pub duration: Duration,
    /// When items are sent; `None`: as the target's generators do in the Kyma load test.
    pub pace: Option<Pace>,
    /// For targets that are sent requests.
    pub requests: Requests,
    /// Of a log record's body; `None`: 2,000, and 400 of lines in files.
    pub body_bytes: Option<usize>,
    /// What a metric agent scrapes. An open loop's rate sets how often.
    pub farm: Farm,
    /// What a log agent tails. `pace` and `body_bytes` go before its own.
    pub log_files: LogFiles,
    /// Searches the highest rate that is held; `duration` is then that of one try.
    pub find_limit: Option<LimitSearch>,
    pub subjects: Vec<Definition>,
    /// Subjects that were asked for as well and cannot be tested in this way.
    pub unable: Vec<SubjectRecord>,
    /// Of each subject, interleaved.
    pub turns: usize,
    /// CPU quota of each subject, in cores; `None`: all of its cores.
    pub cpus: Option<f64>,
    /// Memory limit of each subject; `None`: a Kyma gateway's.
    pub memory_mib: Option<u64>,
    /// How long the backends may take to get the rest when the load has ended.
    pub drain_within: Duration,
    pub fail_if: Vec<Threshold>,
    /// In place of the subject's own metrics and of /proc, for the Kyma load test's figures.
    pub prometheus: Option<PrometheusPlan>,
    /// Where subjects serve their metrics; `None`: at a free port.
    pub metrics_listen: Option<SocketAddr>,
    /// Nothing is shown while it runs.
    pub quiet: bool,
    /// The call, for the report.
    pub command: Option<String>,
}

// Options of the command line: its help would show a doc comment. Unset: as in the Kyma load test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Requests {
    /// How requests reach the subject [default: grpc]
    #[arg(long, value_name = "PROTOCOL", value_parser = one_of(PROTOCOLS))]
    pub protocol: Option<Protocol>,
    /// How requests are compressed [default: none]
    #[arg(long = "compression", value_name = "ENCODING", value_parser = one_of(COMPRESSIONS))]
    pub encoding: Option<Encoding>,
    /// Items a request [default: traces 512, metrics and logs 100]
    #[arg(long = "batch-size", value_name = "ITEMS", value_parser = count())]
    pub items: Option<u32>,
    /// Connections to the subject [default: traces 2, metrics 20, logs 4]
    #[arg(long, value_name = "COUNT", value_parser = count())]
    pub connections: Option<u32>,
    /// Requests in flight at once on each connection; over HTTP each has a connection of its own
    /// [default: traces 10, metrics 100, logs 8]
    #[arg(long, value_name = "COUNT", value_parser = count())]
    pub streams: Option<u32>,
}

const PROTOCOLS: [(&str, Protocol); 2] = [("grpc", Protocol::Grpc), ("http", Protocol::Http)];
const COMPRESSIONS: [(&str, Encoding); 3] =
    [("none", Encoding::Identity), ("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd)];

/// What each of these names stands for.
fn one_of<T, const N: usize>(values: [(&'static str, T); N]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let names = values.map(|(name, _)| name);
    PossibleValuesParser::new(names)
        .map(move |name| values[names.iter().position(|one| *one == name).unwrap_or(0)].1)
}

fn count() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=100_000)
}

/// How long and how closely the highest rate is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitSearch {
    /// For each subject. What was found until then is reported.
    pub within: Duration,
    /// A rate that fails so close above one that is held ends the search: 0.05 is 5 %.
    pub precision: f64,
}

/// How many pipelines there are, with and without `-m`.
pub fn pipelines(multi: bool) -> usize {
    if multi { SEVERAL_PIPELINES } else { 1 }
}

impl Plan {
    /// A plan in which nothing was asked for.
    pub fn new(target: Target, subjects: Vec<Definition>) -> Plan {
        Plan {
            target,
            name: env!("CARGO_PKG_VERSION").to_owned(),
            duration: Duration::from_secs(60),
            subjects,
            turns: 1,
            drain_within: Duration::from_secs(30),
            ..Plan::default()
        }
    }

    /// A Kyma gateway's, where nothing else was said: 500 MiB and 1500 MiB more a pipeline.
    fn memory_limit_mib(&self) -> u64 {
        self.memory_mib.unwrap_or(500 + 1500 * pipelines(self.multi) as u64)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { cpu_cores: self.cpus, memory_bytes: Some(self.memory_limit_mib() << 20) }
    }

    /// An error that names the first thing that can be known to fail before anything starts.
    pub(super) fn check(&self, cores: &Cores) -> anyhow::Result<()> {
        let (cpus, own_cores) = (self.cpus.unwrap_or(0.0), cores.of_subject());
        ensure!(
            cpus <= own_cores as f64,
            "--cpus {cpus}: the subject has {own_cores} core(s) of this machine, the bench takes \
             the others: give no more than that, or run on a machine with more cores"
        );
        self.check_source()?;
        // As of a turn, with addresses that mean nothing: every variable has a value that will have
        // one. The port of `listen` is looked for in what the subject is given.
        let [addr, listen] = [1, u16::MAX].map(|port| (Ipv4Addr::LOCALHOST, port).into());
        let mut setting = self.setting(cores, listen, addr, vec![addr; pipelines(self.multi)])?;
        if self.target == Target::MetricAgent {
            setting.scrape_targets = vec![addr];
            setting.scrape_interval = Some(Duration::from_secs(1));
        }
        setting.log_root = self.target.tails_files().then(PathBuf::new);
        for definition in &self.subjects {
            definition.spec(self.target, &setting, self.limits(), &cores.subject)?;
            definition.metrics(self.target, &setting)?;
        }
        Ok(())
    }

    /// What a subject's configuration is made with; the source of the load adds what it knows.
    pub(super) fn setting(
        &self,
        cores: &Cores,
        listen: SocketAddr,
        metrics: SocketAddr,
        backends: Vec<SocketAddr>,
    ) -> io::Result<Setting> {
        let quota = self.cpus.map_or(usize::MAX, |cpus| cpus.ceil() as usize);
        Ok(Setting {
            signal: self.target.signal(),
            protocol: self.requests.protocol.unwrap_or(Protocol::Grpc),
            listen,
            listen_other: free_addr()?,
            metrics,
            spare: free_addr()?,
            backends,
            memory_limit_mib: self.memory_limit_mib(),
            cores: cores.of_subject().min(quota).max(1),
            scrape_targets: Vec::new(),
            scrape_interval: None,
            log_root: None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sluice_otlp::Signal;

    use super::*;

    /// A plan in which nothing was asked for.
    pub(in crate::run) fn plan(signal: Signal) -> Plan {
        let target = match signal {
            Signal::Traces => Target::Traces,
            Signal::Metrics => Target::Metrics,
            Signal::Logs => Target::LogsOtel,
        };
        Plan { quiet: true, ..Plan::new(target, Vec::new()) }
    }
}
