//! How a subject is started and what its metrics are called: folders with a description and
//! templates. Those of the repository (`subjects/`) are part of this program; docs/load-test.md,
//! section "Subjects", says what a folder holds.

mod built_in;
mod description;
mod error;
mod metrics;
mod template;
mod variables;
mod version;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use built_in::BUILT_IN_NAMES;
pub use description::{SUBJECT_FILE, Tried};
pub use error::DefinitionError;
pub(crate) use metrics::{Metrics, PipelineMetrics, Selector};
use variables::Scope;
pub(crate) use variables::Setting;

use crate::generate::Protocol;
use crate::report::{Target, Warning};
use crate::subject::{Limits, Ready, RestartPolicy, SubjectSpec};
use description::{Description, ReadyWhen};
use error::{Problem, place};

/// A subject that can be started.
#[derive(Clone, Debug)]
pub struct Definition {
    pub name: String,
    description: Description,
    /// For messages about the description.
    path: PathBuf,
    source: String,
    /// Templates, each with its path, by the names that the description has for them.
    templates: BTreeMap<String, (PathBuf, String)>,
    program: Option<PathBuf>,
}

impl Definition {
    /// One of [`BUILT_IN_NAMES`].
    pub fn built_in(name: &str) -> Result<Definition, DefinitionError> {
        if !BUILT_IN_NAMES.contains(&name) {
            return Err(DefinitionError::unknown_name(name));
        }
        Definition::load(&Path::new("subjects").join(name), |path: &Path| {
            built_in::file(path).map(str::to_owned).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    /// Reads a folder with [`SUBJECT_FILE`] and the templates that it names.
    pub fn read(folder: &Path) -> Result<Definition, DefinitionError> {
        Definition::load(folder, |path: &Path| fs::read_to_string(path))
    }

    fn load(
        folder: &Path,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> Result<Definition, DefinitionError> {
        let read = |path: &Path| {
            read(path).map_err(|source| DefinitionError::File { path: path.to_owned(), source })
        };
        let path = folder.join(SUBJECT_FILE);
        let source = read(&path)?;
        let description = Description::parse(&path, &source)?;
        let mut templates = BTreeMap::new();
        for name in description.template_names() {
            let path = folder.join(name);
            templates.insert(name.clone(), (path.clone(), read(&path)?));
        }
        let name = description.name.clone();
        Ok(Definition { name, description, path, source, templates, program: None })
    }

    /// In a sentence, what it is.
    pub fn about(&self) -> Option<&str> {
        self.description.about.as_deref()
    }

    /// Which version it was tried with, and when; `None`: it was written from documentation alone.
    pub fn tried(&self) -> Option<&Tried> {
        self.description.tried.as_ref()
    }

    /// Where it comes with this program and was never tried: what its figures are worth.
    pub(super) fn warning(&self) -> Option<Warning> {
        let is_doubtful = BUILT_IN_NAMES.contains(&self.name.as_str()) && self.tried().is_none();
        let message = "its configuration was written from documentation and has never been tried";
        let remedy = format!("look at {} before you believe its figures", self.path.display());
        is_doubtful.then(|| Warning::new(message, &remedy).of(&self.name))
    }

    /// Whether its program is there.
    pub fn is_installed(&self) -> bool {
        self.clone().find_program().is_ok()
    }

    /// What can be asked of it with `-t`.
    pub fn targets(&self) -> Vec<Target> {
        self.description.targets()
    }

    /// An error that says what it can do, where it cannot do this.
    pub fn require_target(&self, target: Target) -> Result<(), DefinitionError> {
        let (name, targets, path) = (self.name.clone(), self.targets(), self.path.clone());
        match targets.contains(&target) {
            true => Ok(()),
            false => Err(DefinitionError::Target { name, target, targets, path }),
        }
    }

    /// The variable of the environment that may hold its program's path.
    pub fn program_variable(&self) -> String {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        format!("SLUICE_TEST_{}", self.name.chars().map(upper).collect::<String>())
    }

    /// Uses the program at this path.
    pub fn set_program(&mut self, path: &Path) -> Result<(), DefinitionError> {
        let (name, path) = (self.name.clone(), path.to_owned());
        if !path.is_file() {
            return Err(DefinitionError::NoProgram { name, path });
        }
        self.program = Some(path);
        Ok(())
    }

    /// Has this configuration instead of its own, whatever the target.
    pub(crate) fn set_config(&mut self, path: &str, template: &str) {
        let template = (path.into(), template.to_owned());
        self.templates.values_mut().for_each(|own| own.clone_from(&template));
    }

    /// Finds the program: by [`Definition::program_variable`], relative to the folder where the
    /// command begins with `./`, by its absolute path, or in PATH.
    pub fn find_program(&mut self) -> Result<(), DefinitionError> {
        let variable = self.program_variable();
        if let Some(path) = std::env::var_os(&variable).filter(|path| !path.is_empty()) {
            return self.set_program(Path::new(&path));
        }
        let program = self.description.command[0].clone();
        if let Some(relative) = program.strip_prefix("./") {
            let path = self.path.parent().unwrap_or(Path::new("")).join(relative);
            return self.set_program(&path);
        }
        if program.contains('/') {
            return self.set_program(Path::new(&program));
        }
        if let Some(path) = in_path(&program) {
            return self.set_program(&path);
        }
        let install = self.description.install.as_deref().unwrap_or("install it").to_owned();
        Err(DefinitionError::NotInPath { name: self.name.clone(), program, variable, install })
    }

    /// Its version, if it prints one.
    pub(super) fn version_number(&self) -> Option<String> {
        version::ask(self.program.as_ref()?, &self.description.version)
    }

    /// Its metrics in one turn.
    pub(super) fn metrics(
        &self,
        target: Target,
        setting: &Setting,
    ) -> Result<Metrics, DefinitionError> {
        let fill = |selector: &mut Selector, scope| {
            let filled = Selector::parse(&self.filled(&selector.text, setting, scope)?);
            *selector = filled.map_err(|problem| problem.at(self.place_of(&selector.text)))?;
            Ok(())
        };
        let mut metrics = self.description.chosen(target).metrics;
        metrics.path = self.filled(&metrics.path, setting, Scope::default())?;
        metrics.all_mut().try_for_each(|selector| fill(selector, Scope::default()))?;
        for index in 0..setting.backends.len() {
            let mut pipeline = metrics.pipeline.clone();
            pipeline.all_mut().try_for_each(|selector| fill(selector, Scope::pipeline(index)))?;
            metrics.pipelines.push(pipeline);
        }
        Ok(metrics)
    }

    /// What is to be started for one turn.
    pub(super) fn spec(
        &self,
        target: Target,
        setting: &Setting,
        limits: Limits,
        cpus: &[usize],
    ) -> Result<SubjectSpec, DefinitionError> {
        self.require_target(target)?;
        let chosen = self.description.chosen(target);
        let fill = |text: &String| self.filled(text, setting, Scope::default());
        let (mut config, mut config_file) = (String::new(), String::new());
        if let Some((path, text)) = chosen.config.as_ref().and_then(|name| self.templates.get(name))
        {
            config = template::render(text, setting)
                .map_err(|(line, problem)| problem.at(place(path, line)))?;
            config_file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        let delay = Duration::from_millis(chosen.restart_delay_ms);
        let spec = SubjectSpec {
            name: self.name.clone(),
            binary: self.program.clone().unwrap_or_else(|| chosen.command[0].clone().into()),
            args: chosen.command[1..].iter().map(fill).collect::<Result<_, _>>()?,
            config,
            config_file,
            env: self.environment(&chosen, setting)?,
            cpus: cpus.to_vec(),
            limits,
            ready: chosen.ready.map(|ready| self.ready(&ready, setting)).transpose()?,
            ready_within: Some(Duration::from_secs(chosen.ready_within_s)),
            restart: chosen.restart.then(|| RestartPolicy::backing_off_from(delay)),
        };
        if target.takes_requests() {
            self.require_address(setting, &spec)?;
        }
        Ok(spec)
    }

    /// One that is never told where the load is sent would not take it. Of gRPC this shows when it
    /// is not ready: every subject is asked for that.
    fn require_address(
        &self,
        setting: &Setting,
        spec: &SubjectSpec,
    ) -> Result<(), DefinitionError> {
        let port = setting.listen.port().to_string();
        let mut told = spec.args.iter().chain(spec.env.iter().map(|(_, value)| value));
        let knows = spec.config.contains(&port) || told.any(|text| text.contains(&port));
        match setting.protocol {
            Protocol::Http if !knows => {
                Err(DefinitionError::NoHttp { name: self.name.clone(), path: self.path.clone() })
            }
            _ => Ok(()),
        }
    }

    /// One whose name has the pipeline's index is there once a pipeline.
    fn environment(
        &self,
        chosen: &Description,
        setting: &Setting,
    ) -> Result<Vec<(String, String)>, DefinitionError> {
        let mut filled = Vec::new();
        for (name, value) in &chosen.env {
            let scopes = match name.contains("@INDEX@") {
                true => (0..setting.backends.len()).map(Scope::pipeline).collect(),
                false => vec![Scope::default()],
            };
            for scope in scopes {
                let fill = |text: &str| self.filled(text, setting, scope);
                filled.push((fill(name)?, fill(value)?));
            }
        }
        Ok(filled)
    }

    fn ready(&self, when: &ReadyWhen, setting: &Setting) -> Result<Ready, DefinitionError> {
        let fill = |text: &str| self.filled(text, setting, Scope::default());
        let address = |text: &str, filled: &str| {
            let problem = Problem::Address(filled.to_owned());
            filled.parse().map_err(|_| problem.at(self.place_of(text)))
        };
        Ok(match when {
            ReadyWhen::Connect(text) => Ready::Connect(address(text, &fill(text)?)?),
            ReadyWhen::Http(text) => {
                let url = fill(text)?;
                let (host, path) = url.split_once('/').unwrap_or((&url, ""));
                Ready::Http { addr: address(text, host)?, path: format!("/{path}") }
            }
            ReadyWhen::Output(text) => Ready::Output(fill(text)?),
        })
    }

    fn filled(
        &self,
        text: &str,
        setting: &Setting,
        scope: Scope,
    ) -> Result<String, DefinitionError> {
        template::fill(text, setting, scope).map_err(|problem| problem.at(self.place_of(text)))
    }

    /// Where the description has this text.
    fn place_of(&self, text: &str) -> String {
        let quoted = serde_json::to_string(text).unwrap_or_default();
        let line = self.source.lines().position(|line| line.contains(&quoted)).unwrap_or(0);
        place(&self.path, line + 1)
    }
}

fn in_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests;
