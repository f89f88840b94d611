//! How a subject is started and what its metrics are called: the ones that come with the load test, and folders of others.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use sluice_otlp::Signal;
use thiserror::Error;

use crate::subject::{Limits, SubjectSpec};

/// The description in a subject's folder.
pub const SUBJECT_FILE: &str = "subject.json";
const GATEWAY_YAML: &str = include_str!("builtin/gateway.yaml");
const SLUICE: &str = include_str!("builtin/sluice.json");
const COLLECTOR: &str = include_str!("builtin/otelcol.json");

/// Why a subject cannot be used.
#[derive(Debug, Error)]
pub enum DefinitionError {
    #[error("{path}: {source}: a subject's folder needs {SUBJECT_FILE} and the template that it names")]
    File { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("{path}: `command` is empty: give the program and its arguments")]
    NoCommand { path: PathBuf },
    #[error("{name}: no program `{program}` in PATH: install it or set {variable} to its path")]
    NotFound { name: String, program: String, variable: &'static str },
}

/// A subject. In all texts `@LISTEN@`, `@METRICS@`, `@METRICS_HOST@`, `@METRICS_PORT@`, `@SIGNAL@`, `@ITEMS@` (spans,
/// metric_points, log_records), `@BATCH_ITEMS@`, `@MEMORY_LIMIT_MIB@` and `@CORES@` are replaced, and `@BACKEND@` by the
/// first backend. Lines of the template between `@EACH_PIPELINE@` and `@END@` are repeated, with `@INDEX@` (from 0) and that
/// pipeline's `@BACKEND@`. In the command, `{config}` is the configuration's path and `{dir}` its folder.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Arguments that make it print its version.
    #[serde(default)]
    version: Vec<String>,
    /// File name of the configuration's template, in the same folder.
    config: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) metrics: MetricNames,
    #[serde(skip)]
    template: String,
}

/// Names in its Prometheus metrics at `http://@METRICS@/metrics`. What has no name is not known.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct MetricNames {
    /// Counter of items taken from senders.
    pub(super) received: Option<String>,
    /// Gauge, in whatever unit.
    pub(super) queue: Option<String>,
    /// Gauge of the items that wait for delivery: what it holds is not lost.
    pub(super) held: Option<String>,
}

/// The values of one turn.
pub(super) struct Setting {
    pub(super) signal: Signal,
    pub(super) listen: SocketAddr,
    pub(super) metrics: SocketAddr,
    pub(super) backends: Vec<SocketAddr>,
    pub(super) memory_limit_mib: u64,
    pub(super) cores: usize,
}

impl Definition {
    /// Sluice itself, the binary at this path.
    pub fn sluice(binary: &Path) -> Definition {
        Definition::built_in(SLUICE, binary)
    }

    /// The OpenTelemetry Collector: `variable` in the environment is its path, else `otelcol` in PATH.
    pub fn collector(variable: &'static str) -> Result<Definition, DefinitionError> {
        let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        let not_found =
            || DefinitionError::NotFound { name: "otelcol".to_owned(), program: "otelcol".to_owned(), variable };
        let binary = named.or_else(|| in_path("otelcol")).ok_or_else(not_found)?;
        Ok(Definition::built_in(COLLECTOR, &binary))
    }

    fn built_in(json: &str, binary: &Path) -> Definition {
        let mut definition: Definition = serde_json::from_str(json).expect("comes with this program and is tested");
        GATEWAY_YAML.clone_into(&mut definition.template);
        definition.command[0] = binary.display().to_string();
        definition
    }

    /// Reads a folder with [`SUBJECT_FILE`] and a template. The command is looked for in PATH, or relative to the folder
    /// where it begins with `./`.
    pub fn read(folder: &Path) -> Result<Definition, DefinitionError> {
        let read = |path: PathBuf| {
            fs::read_to_string(&path).map_err(|source| DefinitionError::File { path: path.clone(), source })
        };
        let path = folder.join(SUBJECT_FILE);
        let mut definition: Definition = serde_json::from_str(&read(path.clone())?)
            .map_err(|source| DefinitionError::Malformed { path: path.clone(), source })?;
        if let Some(config) = &definition.config {
            definition.template = read(folder.join(config))?;
        }
        let Some(program) = definition.command.first_mut() else { return Err(DefinitionError::NoCommand { path }) };
        if let Some(relative) = program.strip_prefix("./") {
            *program = folder.join(relative).display().to_string();
        } else if let Some(found) = in_path(program) {
            *program = found.display().to_string();
        }
        Ok(definition)
    }

    /// Its version, if it prints one: the last word of the first line.
    pub(super) fn version_number(&self) -> Option<String> {
        if self.version.is_empty() {
            return None;
        }
        let output = Command::new(&self.command[0]).args(&self.version).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().next()?.split_whitespace().last().map(str::to_owned)
    }

    pub(super) fn spec(&self, setting: &Setting, limits: Limits, cpus: &[usize]) -> SubjectSpec {
        SubjectSpec {
            name: self.name.clone(),
            binary: self.command[0].clone().into(),
            args: self.command[1..].iter().map(|arg| setting.fill(arg)).collect(),
            config: setting.render(&self.template),
            config_file: self.config.clone().unwrap_or_default(),
            env: self.env.iter().map(|(name, value)| (name.clone(), setting.fill(value))).collect(),
            cpus: cpus.to_vec(),
            limits,
            ready: Some(setting.listen),
        }
    }
}

impl Setting {
    /// Replaces the words that have one value.
    pub(super) fn fill(&self, text: &str) -> String {
        let first = self.backends.first().map(SocketAddr::to_string).unwrap_or_default();
        self.fill_common(text).replace("@BACKEND@", &first)
    }

    fn fill_common(&self, text: &str) -> String {
        let items = match self.signal {
            Signal::Traces => "spans",
            Signal::Metrics => "metric_points",
            Signal::Logs => "log_records",
        };
        // The batches of the Kyma gateways.
        let batch_items = if self.signal == Signal::Metrics { "1024" } else { "512" };
        text.replace("@LISTEN@", &self.listen.to_string())
            .replace("@METRICS@", &self.metrics.to_string())
            .replace("@METRICS_HOST@", &self.metrics.ip().to_string())
            .replace("@METRICS_PORT@", &self.metrics.port().to_string())
            .replace("@SIGNAL@", self.signal.as_str())
            .replace("@ITEMS@", items)
            .replace("@BATCH_ITEMS@", batch_items)
            .replace("@MEMORY_LIMIT_MIB@", &self.memory_limit_mib.to_string())
            .replace("@CORES@", &self.cores.to_string())
    }

    /// Repeats the sections of pipelines, then fills in.
    fn render(&self, template: &str) -> String {
        let mut out = String::new();
        let mut section: Option<String> = None;
        for line in template.lines() {
            match (line.trim(), &mut section) {
                ("@EACH_PIPELINE@", None) => section = Some(String::new()),
                ("@END@", Some(lines)) => {
                    for (index, backend) in self.backends.iter().enumerate() {
                        let filled =
                            lines.replace("@INDEX@", &index.to_string()).replace("@BACKEND@", &backend.to_string());
                        out.push_str(&filled);
                    }
                    section = None;
                }
                (_, Some(lines)) => *lines += &format!("{line}\n"),
                (_, None) => out += &format!("{line}\n"),
            }
        }
        self.fill(&out)
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            signal: Signal::Traces,
            listen: "127.0.0.1:4317".parse().unwrap(),
            metrics: "127.0.0.1:8888".parse().unwrap(),
            backends: vec!["127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()],
            memory_limit_mib: 2000,
            cores: 1,
        }
    }

    #[test]
    fn every_pipeline_has_its_exporter_and_no_word_is_left() {
        let spec = Definition::sluice(Path::new("/bin/sluice")).spec(&setting(), Limits::default(), &[]);
        assert!(!spec.config.contains('@'), "{}", spec.config);
        assert!(spec.config.contains("otlp/1:\n    endpoint: 127.0.0.1:2\n"), "{}", spec.config);
        assert!(spec.config.contains("traces/0:") && spec.config.contains("traces/1:"), "{}", spec.config);
        assert_eq!(spec.args.last().unwrap(), "{config}");
    }

    #[test]
    fn a_folder_without_a_description_or_with_a_misspelt_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Definition::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(SUBJECT_FILE), "{error}");
        fs::write(folder.path().join(SUBJECT_FILE), r#"{"name": "x", "command": ["true"], "metrix": {}}"#).unwrap();
        let error = Definition::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("metrix"), "{error}");
        fs::write(folder.path().join(SUBJECT_FILE), r#"{"name": "x", "command": []}"#).unwrap();
        assert!(matches!(Definition::read(folder.path()), Err(DefinitionError::NoCommand { .. })));
    }
}
