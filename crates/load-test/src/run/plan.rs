//! The work: what is sent, how fast, for how long, and what is wrong with the backends meanwhile.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::definition::{Definition, Setting};
use super::faults::FaultSchedule;
use super::find_limit::LimitSearch;
use super::machine::Cores;
use super::promql::PrometheusPlan;
use super::requests::Requests;
use super::source::Source;
use super::verdict::Threshold;
use crate::generate::{Farm, LogFiles, Pace};
use crate::report::{self, Scenario, SubjectRecord, Target, Warning};
use crate::subject::{Limits, free_addr};

/// Pipelines of a multi-pipeline run, as in the Kyma load test.
const SEVERAL_PIPELINES: usize = 3;

/// One call of the load test.
#[derive(Clone, Debug)]
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
    pub unable: Vec<Unable>,
    /// Of each subject, interleaved.
    pub turns: usize,
    /// CPU quota of each subject, in cores; `None`: all of its cores.
    pub cpus: Option<f64>,
    /// Memory limit of each subject; `None`: a Kyma gateway's.
    pub memory_mib: Option<u64>,
    /// How long the backends may take to get the rest when the load has ended.
    pub drain_within: Duration,
    pub fail_if: Vec<Threshold>,
    /// Takes the place of the subject's own metrics and of /proc for the figures that the Kyma load
    /// test has.
    pub prometheus: Option<PrometheusPlan>,
    /// Where subjects serve their metrics; `None`: at a free port.
    pub metrics_listen: Option<SocketAddr>,
    /// Nothing is shown while it runs.
    pub quiet: bool,
    /// The call, for the report.
    pub command: Option<String>,
}

/// A subject that cannot do the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unable {
    pub name: String,
    pub reason: String,
}

impl Unable {
    pub(super) fn record(&self) -> SubjectRecord {
        SubjectRecord {
            name: self.name.clone(),
            cannot: Some(self.reason.clone()),
            ..SubjectRecord::default()
        }
    }

    pub(super) fn warning(&self) -> Warning {
        Warning::new(format!("not tested: {}", self.reason), "").of(&self.name)
    }
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
            multi: false,
            faults: FaultSchedule::default(),
            faults_outlast_load: false,
            duration: Duration::from_secs(60),
            pace: None,
            requests: Requests::default(),
            body_bytes: None,
            farm: Farm::default(),
            log_files: LogFiles::default(),
            find_limit: None,
            subjects,
            unable: Vec::new(),
            turns: 1,
            cpus: None,
            memory_mib: None,
            drain_within: Duration::from_secs(30),
            fail_if: Vec::new(),
            prometheus: None,
            metrics_listen: None,
            quiet: false,
            command: None,
        }
    }

    pub(super) fn pipelines(&self) -> usize {
        pipelines(self.multi)
    }

    /// A Kyma gateway's, where nothing else was said: 500 MiB and 1500 MiB more a pipeline.
    pub(super) fn memory_limit_mib(&self) -> u64 {
        self.memory_mib.unwrap_or(500 + 1500 * self.pipelines() as u64)
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { cpu_cores: self.cpus, memory_bytes: Some(self.memory_limit_mib() << 20) }
    }

    /// Cores that a subject can use at once.
    pub(super) fn cores_of_subject(&self, cores: &Cores) -> usize {
        let quota = self.cpus.map_or(usize::MAX, |cpus| cpus.ceil() as usize);
        cores.of_subject().min(quota).max(1)
    }

    /// What the configuration of a subject is made with, as far as the source of the load does not
    /// say it.
    pub(super) fn setting(
        &self,
        cores: &Cores,
        listen: SocketAddr,
        metrics: SocketAddr,
        backends: Vec<SocketAddr>,
    ) -> io::Result<Setting> {
        Ok(Setting {
            signal: self.target.signal(),
            protocol: self.requests.protocol,
            listen,
            listen_other: free_addr()?,
            metrics,
            spare: free_addr()?,
            backends,
            memory_limit_mib: self.memory_limit_mib(),
            cores: self.cores_of_subject(cores),
            scrape_targets: Vec::new(),
            scrape_interval: None,
            log_root: None,
        })
    }

    /// What offers the load. `listen` is where the subject takes requests, if that is what it is
    /// offered.
    pub(super) fn source(&self, listen: SocketAddr) -> anyhow::Result<Source> {
        Ok(match self.target {
            Target::Traces | Target::Metrics | Target::LogsOtel => Source::Otlp(self.load(listen)),
            Target::MetricAgent => Source::Farm(self.farm().open()?),
            Target::LogAgent | Target::LogsFluentBit => Source::LogFiles(self.log_files().open()?),
        })
    }

    /// Whether what the target is about can be had.
    pub(super) fn check_source(&self) -> anyhow::Result<()> {
        match self.target {
            Target::MetricAgent => Ok(self.farm().check()?),
            Target::LogAgent | Target::LogsFluentBit => Ok(self.log_files().check()?),
            _ => Ok(()),
        }
    }

    pub(super) fn farm(&self) -> Farm {
        match self.pace {
            Some(Pace::Open { items_per_s }) => self.farm.clone().scraped_at(items_per_s),
            _ => self.farm.clone(),
        }
    }

    fn log_files(&self) -> LogFiles {
        LogFiles {
            lines_per_s: self.rate_per_s(),
            body_bytes: self.body_bytes.unwrap_or(self.log_files.body_bytes),
            ..self.log_files.clone()
        }
    }

    /// What would be done: a line each for scenario, load, faults, subjects and how often.
    pub fn in_words(&self) -> String {
        let scenario = self.scenario();
        let mut lines = vec![
            report::title(&scenario),
            format!("Name: {}", self.name),
            report::load_in_words(&scenario),
        ];
        lines.extend(scenario.faults.map(|faults| format!("Faults: {faults}")));
        let subjects: Vec<&str> = self.subjects.iter().map(|one| one.name.as_str()).collect();
        lines.push(format!("Subjects: {}", subjects.join(", ")));
        let within_s = self.find_limit.map(|search| search.within.as_secs_f64());
        lines.push(match within_s {
            Some(within_s) => format!("The limit of each is searched for at most {within_s} s"),
            None => format!("Turns of each: {}", self.turns),
        });
        lines.join("\n") + "\n"
    }

    pub(super) fn scenario(&self) -> Scenario {
        let of_requests = Some(u64::from(self.items_per_request()));
        let (body_bytes, items_per_request) = match self.target {
            Target::Traces | Target::Metrics => (None, of_requests),
            Target::LogsOtel => (Some(self.shape().body_bytes), of_requests),
            // A scrape is a request, the other way round.
            Target::MetricAgent => (None, Some(self.farm.series_per_target())),
            Target::LogAgent | Target::LogsFluentBit => (Some(self.log_files().body_bytes), None),
        };
        Scenario {
            target: self.target,
            name: self.name.clone(),
            multi: self.multi,
            backpressure: !self.faults.is_empty(),
            faults: self.faults.in_words(),
            load_s: self.duration.as_secs_f64(),
            rate_per_s: if self.find_limit.is_some() { None } else { self.rate_per_s() },
            find_limit: self.find_limit.is_some(),
            body_bytes: body_bytes.map(|bytes| bytes as u64),
            items_per_request,
            carried: self.carried(),
            pipelines: self.pipelines() as u32,
            command: self.command.clone(),
        }
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
