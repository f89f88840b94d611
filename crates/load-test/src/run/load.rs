//! The load of a plan: requests that are sent to the subject, targets that it scrapes, or files
//! that it tails. Defaults are those of the Kyma load test's generators.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{bail, ensure};
use sluice_otlp::{Encoding, Signal};

use super::definition::Setting;
use super::plan::{Plan, pipelines};
use crate::backend::Backend;
use crate::generate::{
    Farm, Load, LogFiles, OpenFarm, OpenLogFiles, Pace, Protocol, Retry, RunningLoad, Shape,
};
use crate::report::{self, Scenario, Target, Warning};

/// Limit of the request buffers: every stream has its own copy of a request.
const BUFFERS_LIMIT_BYTES: f64 = 2.0 * (1_u64 << 30) as f64;
/// The message limit of receivers and backends by default.
const MESSAGE_LIMIT_BYTES: f64 = (4_u64 << 20) as f64;
/// Files that this process needs for other things than the load's connections.
const OTHER_FILES: u64 = 256;
/// Requests of k6's script a second: about what k6 reaches on four cores.
const K6_REQUESTS_PER_S: f64 = 10_000.0;
/// Time for the first scrape, in addition to the scrape interval.
const SCRAPED_WITHIN: Duration = Duration::from_secs(20);

/// The source of a turn's load. It is opened before the subject starts, whose configuration names
/// the targets or files. It starts when the subject is ready.
pub(super) enum Source {
    Otlp(Load),
    Farm(OpenFarm),
    LogFiles(OpenLogFiles),
}

impl Source {
    /// Puts the targets to scrape, or the root of the files to tail, into the setting.
    pub(super) fn tell(&self, setting: &mut Setting) {
        match self {
            Source::Otlp(_) => {}
            Source::Farm(farm) => {
                setting.scrape_targets = farm.addrs.clone();
                setting.scrape_interval = Some(farm.scrape_interval());
            }
            Source::LogFiles(files) => setting.log_root = Some(files.root().to_owned()),
        }
    }

    /// Waits for the first scrape of a subject that fetches by a clock of its own.
    pub(super) async fn wait_until_wanted(&self) -> anyhow::Result<()> {
        // A file waits for its reader.
        let Source::Farm(farm) = self else { return Ok(()) };
        let limit = farm.scrape_interval() + SCRAPED_WITHIN;
        let is_wanted = farm.wait_for_scraper(limit).await;
        let limit_s = limit.as_secs();
        ensure!(is_wanted, "no target was scraped within {limit_s} s: see the subject's template");
        Ok(())
    }

    /// Log files without a rate grow as fast as their lines arrive at these backends.
    pub(super) fn start(self, backends: &[Backend]) -> anyhow::Result<RunningLoad> {
        Ok(match self {
            Source::Otlp(load) => load.start()?,
            Source::Farm(farm) => farm.start(),
            Source::LogFiles(files) => {
                files.start(backends.iter().map(Backend::arrivals).collect())
            }
        })
    }
}

/// The generators of the Kyma load test, the workers of each, and items a request.
fn generators(target: Target) -> (u32, u32, u32) {
    match target.signal() {
        Signal::Traces => (2, 10, 512),
        Signal::Metrics => (20, 100, 100),
        Signal::Logs => (4, 8, 100),
    }
}

impl Plan {
    /// Items a second; `None`: closed loop.
    pub(super) fn rate_per_s(&self) -> Option<f64> {
        match self.pace {
            Some(Pace::Open { items_per_s }) => Some(items_per_s),
            Some(Pace::Closed) if self.target.takes_requests() => None,
            _ => match self.target {
                Target::Traces => None,
                // 2,000 producers, each of which pushes one request in 30 seconds.
                Target::Metrics => Some(2000.0 / 30.0 * f64::from(self.items_per_request())),
                Target::MetricAgent => Some(self.farm.samples_per_s()),
                Target::LogsOtel => Some(1000.0),
                Target::LogAgent | Target::LogsFluentBit => self.log_files.lines_per_s,
                // k6 itself has as many virtual users as it takes for no rate.
                Target::K6 => self.k6.k6.is_none().then_some(K6_REQUESTS_PER_S),
            },
        }
    }

    pub(super) fn items_per_request(&self) -> u32 {
        self.requests.items.unwrap_or(generators(self.target).2)
    }

    pub(super) fn load(&self, target: SocketAddr) -> Load {
        let (connections, streams, _) = generators(self.target);
        Load {
            shape: self.shape(),
            protocol: self.requests.protocol.unwrap_or(Protocol::Grpc),
            encoding: self.requests.encoding.unwrap_or(Encoding::Identity),
            connections: self.requests.connections.unwrap_or(connections) as usize,
            streams: self.requests.streams.unwrap_or(streams) as usize,
            pace: self.rate_per_s().map_or(Pace::Closed, |items_per_s| Pace::Open { items_per_s }),
            duration: Some(self.duration),
            retry: Retry::SDK,
            ..Load::new(self.target.signal(), target)
        }
    }

    pub(super) fn shape(&self) -> Shape {
        let shape = Shape::of(self.target.signal());
        let body_bytes = self.body_bytes.unwrap_or(shape.body_bytes);
        Shape { items_per_request: self.items_per_request(), body_bytes, ..shape }
    }

    fn any_load(&self) -> Load {
        self.load(SocketAddr::from((Ipv4Addr::LOCALHOST, 4317)))
    }

    fn farm(&self) -> Farm {
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

    /// Opens the source of the load. `listen` is the address at which the subject takes requests.
    pub(super) fn source(&self, listen: SocketAddr) -> anyhow::Result<Source> {
        Ok(match self.target {
            Target::Traces | Target::Metrics | Target::LogsOtel => Source::Otlp(self.load(listen)),
            Target::MetricAgent => Source::Farm(self.farm().open()?),
            Target::LogAgent | Target::LogsFluentBit => Source::LogFiles(self.log_files().open()?),
            Target::K6 => unreachable!("samples of k6 have turns of their own"),
        })
    }

    /// Checks that the farm or the log files can be made.
    pub(super) fn check_source(&self) -> anyhow::Result<()> {
        match self.target {
            Target::MetricAgent => Ok(self.farm().check()?),
            Target::LogAgent | Target::LogsFluentBit => Ok(self.log_files().check()?),
            Target::K6 => self.check_k6(),
            _ => Ok(()),
        }
    }

    /// Checks that the load fits into this process: memory and open files.
    pub fn check_requests(&self) -> anyhow::Result<()> {
        if !self.target.takes_requests() {
            return Ok(());
        }
        let (load, request_bytes) = (self.any_load(), self.request_bytes());
        let streams = load.connections as u64 * load.streams as u64;
        let bytes = streams as f64 * request_bytes;
        ensure!(
            bytes <= BUFFERS_LIMIT_BYTES,
            "{streams} streams with a request of {request_bytes:.0} bytes each would take {:.1} \
             GiB: use fewer --connections or --streams, or a smaller --batch-size",
            bytes / f64::from(1 << 30)
        );
        let (needed, remedy) = match load.protocol {
            Protocol::Grpc => (load.connections as u64, "use fewer --connections"),
            Protocol::Http => (
                streams,
                "over HTTP every stream has a connection of its own, so use fewer --connections or \
                 --streams",
            ),
        };
        match rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
            Some(limit) if needed + OTHER_FILES > limit => bail!(
                "the load needs {needed} connections and this process may have {limit} files \
                 open: {remedy}, or raise it with ulimit -n"
            ),
            _ => Ok(()),
        }
    }

    fn request_bytes(&self) -> f64 {
        let shape = self.shape();
        shape.bytes_per_item() * f64::from(shape.items_per_request)
    }

    /// Warns of requests that most receivers would refuse.
    pub(super) fn warnings_of_requests(&self) -> Option<Warning> {
        let bytes = self.request_bytes();
        let message = format!(
            "a request has {:.1} MiB before compression, and 4 MiB are what receivers and backends \
             take by default",
            bytes / f64::from(1 << 20)
        );
        let remedy = "send fewer items a request with --batch-size, or smaller ones with -s";
        let is_large = self.target.takes_requests() && bytes > MESSAGE_LIMIT_BYTES;
        is_large.then(|| Warning::new(message, remedy))
    }

    /// The transport of requests in words, for the report.
    fn carried(&self) -> Option<String> {
        let load = self.any_load();
        let protocol = match load.protocol {
            Protocol::Grpc => "gRPC",
            Protocol::Http => "HTTP",
        };
        let encoding = match load.encoding {
            Encoding::Identity => "not compressed",
            encoding => encoding.as_str(),
        };
        let (connections, streams) = (load.connections, load.streams);
        self.target.takes_requests().then(|| {
            format!("{protocol}, {encoding}, {connections} connection(s) of {streams} stream(s)")
        })
    }

    pub(super) fn scenario(&self) -> Scenario {
        let faults = self.faults.in_words();
        let of_requests = Some(u64::from(self.items_per_request()));
        let (body_bytes, items_per_request) = match self.target {
            Target::Traces | Target::Metrics => (None, of_requests),
            Target::LogsOtel => (Some(self.shape().body_bytes), of_requests),
            // A scrape is a request in the other direction.
            Target::MetricAgent => (None, Some(self.farm.series_per_target())),
            Target::LogAgent | Target::LogsFluentBit => (Some(self.log_files().body_bytes), None),
            Target::K6 => (None, None),
        };
        Scenario {
            target: self.target,
            name: self.name.clone(),
            multi: self.multi,
            backpressure: faults.is_some(),
            faults,
            load_s: self.duration.as_secs_f64(),
            rate_per_s: self.rate_per_s().filter(|_| self.find_limit.is_none()),
            find_limit: self.find_limit.is_some(),
            body_bytes: body_bytes.map(|bytes| bytes as u64),
            items_per_request,
            carried: match self.target {
                Target::K6 => Some(self.k6_in_words()),
                _ => self.carried(),
            },
            pipelines: pipelines(self.multi) as u32,
            command: self.command.clone(),
        }
    }

    /// The plan in words: a line each for scenario, name, load, faults, subjects and turns.
    pub fn in_words(&self) -> String {
        let scenario = self.scenario();
        let subjects: Vec<&str> = self.subjects.iter().map(|one| one.name.as_str()).collect();
        let how_often = match self.find_limit {
            Some(search) => {
                let within_s = search.within.as_secs_f64();
                format!("The limit of each is searched for at most {within_s} s")
            }
            None => format!("Turns of each: {}", self.turns),
        };
        let mut lines = vec![
            report::title(&scenario),
            format!("Name: {}", self.name),
            report::load_in_words(&scenario),
        ];
        lines.extend(scenario.faults.map(|faults| format!("Faults: {faults}")));
        lines.extend([format!("Subjects: {}", subjects.join(", ")), how_often]);
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::plan::Requests;
    use crate::run::plan::tests::plan;

    #[test]
    fn what_is_not_asked_for_is_as_in_the_kyma_load_test() {
        let of = |signal| {
            let load = plan(signal).any_load();
            (load.connections, load.streams, load.shape.items_per_request, load.pace)
        };
        assert_eq!(of(Signal::Traces), (2, 10, 512, Pace::Closed));
        let (connections, streams, items, pace) = of(Signal::Metrics);
        assert_eq!((connections, streams, items), (20, 100, 100));
        let Pace::Open { items_per_s } = pace else { panic!("producers that push by the clock") };
        assert_eq!(items_per_s.round(), 6_667.0);
        assert_eq!(of(Signal::Logs), (4, 8, 100, Pace::Open { items_per_s: 1000.0 }));
    }

    #[test]
    fn what_is_asked_for_is_had() {
        let requests = Requests {
            protocol: Some(Protocol::Http),
            encoding: Some(Encoding::Zstd),
            connections: Some(3),
            streams: Some(5),
            items: Some(7),
        };
        let plan = Plan { requests, pace: Some(Pace::Closed), ..plan(Signal::Metrics) };
        let load = plan.any_load();
        assert_eq!((load.protocol, load.encoding), (Protocol::Http, Encoding::Zstd));
        assert_eq!((load.connections, load.streams, load.shape.items_per_request), (3, 5, 7));
        assert_eq!((load.pace, plan.rate_per_s()), (Pace::Closed, None));
        assert_eq!(plan.carried().unwrap(), "HTTP, zstd, 3 connection(s) of 5 stream(s)");
    }

    #[test]
    fn a_load_that_does_not_fit_is_refused_with_what_helps() {
        let mut plan = plan(Signal::Logs);
        plan.check_requests().unwrap();
        plan.requests.streams = Some(10_000);
        let error = plan.check_requests().unwrap_err().to_string();
        assert!(
            error.contains("40000 streams") && error.contains("smaller --batch-size"),
            "{error}"
        );
        plan.requests = Requests {
            streams: None,
            connections: Some(1_000_000),
            items: Some(1),
            ..plan.requests
        };
        plan.requests.streams = Some(1);
        plan.body_bytes = Some(1);
        let error = plan.check_requests().unwrap_err().to_string();
        assert!(
            error.contains("needs 1000000 connections") && error.contains("ulimit -n"),
            "{error}"
        );
    }

    #[test]
    fn requests_that_receivers_refuse_are_warned_of() {
        let mut plan = plan(Signal::Logs);
        assert_eq!(plan.warnings_of_requests(), None);
        plan.requests.items = Some(4_000);
        let warning = plan.warnings_of_requests().unwrap();
        assert!(
            warning.message.contains("9.") && warning.remedy.unwrap().contains("--batch-size"),
            "{}",
            warning.message
        );
    }
}
