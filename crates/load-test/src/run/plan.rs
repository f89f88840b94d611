//! The plan of a run: load, rate, duration, and faults of the backends.

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
    /// Faults of the backends while the load runs.
    pub faults: FaultSchedule,
    /// Faults that are active when the load ends stay. Otherwise all faults end with the load.
    pub faults_outlast_load: bool,
    pub duration: Duration,
    /// The rate of items; `None`: that of the target's generators in the Kyma load test.
    pub pace: Option<Pace>,
    /// For targets that are sent requests.
    pub requests: Requests,
    /// Size of a log record's body; `None`: 2,000, in log files 400.
    pub body_bytes: Option<usize>,
    /// The targets that a metric agent scrapes. The rate of an open loop sets the scrape interval.
    pub farm: Farm,
    /// The files that a log agent tails. `pace` and `body_bytes` take precedence over its own.
    pub log_files: LogFiles,
    /// The programs of `-t k6`.
    pub k6: K6Programs,
    /// Searches the highest rate that is held; `duration` is then that of one try.
    pub find_limit: Option<LimitSearch>,
    pub subjects: Vec<Definition>,
    /// Subjects that were asked for and cannot do this target.
    pub unable: Vec<SubjectRecord>,
    /// Turns of each subject, interleaved.
    pub turns: usize,
    /// CPU quota of each subject, in cores; `None`: all of its cores.
    pub cpus: Option<f64>,
    /// Memory limit of each subject; `None`: a Kyma gateway's.
    pub memory_mib: Option<u64>,
    /// The longest time that the backends have for the rest when the load has ended.
    pub drain_within: Duration,
    pub fail_if: Vec<Threshold>,
    /// The Prometheus for the Kyma load test's figures, in place of own metrics and of /proc.
    pub prometheus: Option<PrometheusPlan>,
    /// Address at which subjects serve their metrics; `None`: a free port.
    pub metrics_listen: Option<SocketAddr>,
    /// Nothing is shown while the plan runs.
    pub quiet: bool,
    /// The command line, for the report.
    pub command: Option<String>,
}

// Options of the command line: its help would show a doc comment. Unset: as in the Kyma load test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct Requests {
    /// Protocol of requests to the subject [default: grpc]
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol())]
    pub protocol: Option<Protocol>,
    /// Compression of requests [default: none]
    #[arg(long = "compression", value_name = "ENCODING", value_parser = encoding())]
    pub encoding: Option<Encoding>,
    /// Items in each request [default: traces 512, metrics and logs 100]
    #[arg(long = "batch-size", value_name = "ITEMS", value_parser = count())]
    pub items: Option<u32>,
    /// Connections to the subject [default: traces 2, metrics 20, logs 4]
    #[arg(long, value_name = "COUNT", value_parser = count())]
    pub connections: Option<u32>,
    /// Requests in flight on each connection; over HTTP every request in flight has its own
    /// connection [default: traces 10, metrics 100, logs 8]
    #[arg(long, value_name = "COUNT", value_parser = count())]
    pub streams: Option<u32>,
}

fn protocol() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(["grpc", "http"])
        .map(|name| if name == "http" { Protocol::Http } else { Protocol::Grpc })
}

fn encoding() -> impl TypedValueParser<Value = Encoding> {
    PossibleValuesParser::new(["none", "gzip", "zstd"])
        .map(|name| Encoding::from_name(&name).unwrap_or(Encoding::Identity))
}

fn count() -> RangedI64ValueParser<u32> {
    RangedI64ValueParser::new().range(1..=100_000)
}

/// The programs at both ends of the target `k6`; unset: what this program has in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct K6Programs {
    /// k6 itself; unset: a generator that writes as it does.
    pub k6: Option<PathBuf>,
    /// `influxd` of InfluxDB 1.x; unset: a sink that adds up counters.
    pub influxdb: Option<PathBuf>,
}

/// Time limit and precision of the search for the highest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitSearch {
    /// Time limit for each subject. The result until then is reported.
    pub within: Duration,
    /// A rate that fails this close above one that is held ends the search: 0.05 is 5 %.
    pub precision: f64,
}

/// Number of pipelines, with and without `-m`.
pub fn pipelines(multi: bool) -> usize {
    if multi { SEVERAL_PIPELINES } else { 1 }
}

impl Plan {
    /// A plan with the defaults.
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

    /// Default: that of a Kyma gateway, 500 MiB and 1500 MiB for each pipeline.
    fn memory_limit_mib(&self) -> u64 {
        self.memory_mib.unwrap_or(500 + 1500 * pipelines(self.multi) as u64)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { cpu_cores: self.cpus, memory_bytes: Some(self.memory_limit_mib() << 20) }
    }

    /// Fails with the first problem that can be found before anything starts.
    pub(super) fn check(&self, cores: &Cores) -> anyhow::Result<()> {
        let (cpus, own_cores) = (self.cpus.unwrap_or(0.0), cores.of_subject());
        ensure!(
            cpus <= own_cores as f64,
            "--cpus {cpus}: the subject has {own_cores} core(s) of this machine, the bench takes \
             the others: give no more than that, or run on a machine with more cores"
        );
        self.check_source()?;
        // A turn's setting with placeholder addresses: every variable that will have a value has
        // one. The port of `listen` is searched for in the subject's arguments and configuration.
        let [addr, listen] = [1, u16::MAX].map(|port| (Ipv4Addr::LOCALHOST, port).into());
        let mut setting = self.setting(cores, listen, addr, vec![addr; pipelines(self.multi)])?;
        if self.target == Target::MetricAgent {
            setting.scrape_targets = vec![addr];
            setting.scrape_interval = Some(Duration::from_secs(1));
        }
        setting.log_root = self.target.tails_files().then(PathBuf::new);
        setting.k6_file = (self.target == Target::K6).then(PathBuf::new);
        for definition in self.subjects.iter().filter(|one| !one.is_direct()) {
            definition.spec(self.target, &setting, self.limits(), &cores.subject)?;
            definition.metrics(self.target, &setting)?;
        }
        Ok(())
    }

    /// The values for a subject's configuration. The source of the load adds its own.
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
            k6_file: None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sluice_otlp::Signal;

    use super::*;

    /// A plan with the defaults.
    pub(in crate::run) fn plan(signal: Signal) -> Plan {
        let target = match signal {
            Signal::Traces => Target::Traces,
            Signal::Metrics => Target::Metrics,
            Signal::Logs => Target::LogsOtel,
        };
        Plan { quiet: true, ..Plan::new(target, Vec::new()) }
    }
}
