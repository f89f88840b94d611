//! The database at the end of the way: a real influxd of its own, or a sink in its place.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::backend::influx::Influx;
use crate::generate::k6::COUNTERS;
use crate::run::definition::ask_version;
use crate::run::machine::Cores;
use crate::run::runtime::OwnRuntime;
use crate::scrape::http_request;
use crate::subject::{
    Ready, Subject, SubjectSpec, Usage, cpu_of_threads, free_addr, usage_of_process,
};

/// At most 15 bytes.
const SINK_THREADS: &str = "k6-sink";
/// An influxd that has much to store answers late.
const ANSWER_WITHIN: Duration = Duration::from_secs(120);
/// A counter that k6 has only where it cannot hold a rate.
const DROPPED_ITERATIONS: &str = "dropped_iterations";

/// All as influxd has it by default, but for its folders, its own metrics and its log.
const CONFIG: &str = "\
reporting-disabled = true
bind-address = '@SPARE@'
[meta]
dir = '{dir}/meta'
[data]
dir = '{dir}/data'
wal-dir = '{dir}/wal'
query-log-enabled = false
[http]
bind-address = '@ADDRESS@'
log-enabled = false
[monitor]
store-enabled = false
[logging]
level = 'warn'
";

pub(super) enum Database {
    Influxd { process: Subject, addr: SocketAddr, version: Option<String> },
    Sink { sink: Influx, _runtime: OwnRuntime },
}

impl Database {
    /// Starts influxd on the bench's cores, or the sink.
    pub(super) async fn start(influxd: Option<&Path>, cores: &Cores) -> Result<Database> {
        let Some(binary) = influxd else {
            let runtime = OwnRuntime::start(cores.of_bench(), SINK_THREADS)?;
            let counted = [&COUNTERS[..], &[DROPPED_ITERATIONS]].concat();
            let sink = runtime.spawn(async move { Influx::start(&counted).await }).await??;
            return Ok(Database::Sink { sink, _runtime: runtime });
        };
        let [addr, spare] = [free_addr()?, free_addr()?];
        let config = CONFIG.replace("@ADDRESS@", &addr.to_string());
        let spec = SubjectSpec {
            name: "InfluxDB".to_owned(),
            binary: binary.to_owned(),
            args: vec!["-config".to_owned(), "{config}".to_owned()],
            config: config.replace("@SPARE@", &spare.to_string()),
            config_file: "influxdb.conf".to_owned(),
            env: vec![("HOME".to_owned(), "{dir}".to_owned())],
            cpus: cores.bench.clone(),
            ready: Some(Ready::from(addr)),
            ..SubjectSpec::default()
        };
        let process = Subject::start(spec).await?;
        let version = ask_version(binary, &["version".to_owned()]);
        let database = Database::Influxd { process, addr, version };
        database.query("CREATE DATABASE k6").await?;
        Ok(database)
    }

    pub(super) fn addr(&self) -> SocketAddr {
        match self {
            Database::Influxd { addr, .. } => *addr,
            Database::Sink { sink, .. } => sink.addr(),
        }
    }

    /// For instance `InfluxDB 1.6.7`.
    pub(super) fn name(&self) -> String {
        match self {
            Database::Influxd { version: Some(version), .. } => format!("InfluxDB {version}"),
            Database::Influxd { .. } => "InfluxDB".to_owned(),
            Database::Sink { .. } => "sink".to_owned(),
        }
    }

    /// Of the sink, the memory is that of the whole bench.
    pub(super) fn usage(&self) -> Option<Usage> {
        match self {
            Database::Influxd { process, .. } => process.usage(),
            Database::Sink { .. } => own_usage(SINK_THREADS),
        }
    }

    pub(super) fn is_sink(&self) -> bool {
        matches!(self, Database::Sink { .. })
    }

    /// The sum of a counter, however the subject has written it: as k6 does, or added up over an
    /// interval under the name that Telegraf has for that. `None`: it is not there.
    pub(super) async fn sum(&self, counter: &str) -> Option<f64> {
        let statement = format!("SELECT sum(\"value\"), sum(\"value_sum\") FROM \"{counter}\"");
        let answer = self.query(&statement).await.ok()?;
        let result = answer.pointer("/results/0").filter(|result| result["error"].is_null())?;
        // Nothing found is a sum, too.
        let values = result.pointer("/series/0/values/0").and_then(Value::as_array);
        let sums = values.into_iter().flatten().skip(1).filter_map(Value::as_f64);
        Some(sums.sum())
    }

    async fn query(&self, statement: &str) -> Result<Value> {
        let statement = utf8_percent_encode(statement, NON_ALPHANUMERIC);
        let url = format!("http://{}/query?db=k6&q={statement}", self.addr());
        let (status, body) =
            http_request(Method::POST, &url, ANSWER_WITHIN).await.context("InfluxDB")?;
        ensure!(status.is_success(), "InfluxDB answers {status}");
        Ok(serde_json::from_slice(&body)?)
    }
}

/// The CPU time of this process's threads of a name, with the memory of the whole process.
pub(super) fn own_usage(threads: &str) -> Option<Usage> {
    let process = usage_of_process(std::process::id())?;
    Some(Usage { cpu: cpu_of_threads(threads), ..process })
}
