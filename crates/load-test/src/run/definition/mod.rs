//! Definitions of subjects: folders with a description and templates (docs/load-test.md,
//! "Subjects"). Those of `subjects/` are part of this program.

mod built_in;
mod description;
mod error;
mod template;
mod version;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};

pub use built_in::BUILT_IN_NAMES;
pub(super) use description::K6Form;
pub use description::Tried;
use description::{Description, SUBJECT_FILE};
pub(crate) use description::{Metrics, PipelineMetrics, Selector};
use error::{at, did_you_mean};
use template::Scope;
pub(crate) use template::Setting;
pub(super) use version::ask as ask_version;

use crate::generate::Protocol;
use crate::report::{Target, Warning};
use crate::subject::{Limits, Ready, SubjectSpec, in_path};

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
    pub fn built_in(name: &str) -> anyhow::Result<Definition> {
        if !BUILT_IN_NAMES.contains(&name) {
            let hint = did_you_mean(name, BUILT_IN_NAMES);
            bail!(
                "no subject `{name}`{hint}: there are {}; describe another one in a folder for \
                 --subject-dir",
                BUILT_IN_NAMES.join(", ")
            );
        }
        Definition::load(&Path::new("subjects").join(name), |path: &Path| {
            built_in::file(path).map(str::to_owned).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    /// Reads a folder with `subject.json` and the templates that it names.
    pub fn read(folder: &Path) -> anyhow::Result<Definition> {
        Definition::load(folder, |path: &Path| fs::read_to_string(path))
    }

    fn load(
        folder: &Path,
        read: impl Fn(&Path) -> io::Result<String>,
    ) -> anyhow::Result<Definition> {
        let read = |path: &Path| {
            read(path).map_err(|error| {
                let path = path.display();
                anyhow!(
                    "{path}: {error}: a subject's folder needs {SUBJECT_FILE} and the templates \
                     that it names"
                )
            })
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

    /// One sentence about the subject.
    pub fn about(&self) -> Option<&str> {
        self.description.about.as_deref()
    }

    /// The version and date of the trial; `None`: written from documentation alone.
    pub fn tried(&self) -> Option<&Tried> {
        self.description.tried.as_ref()
    }

    /// A warning about the figures of a built-in subject that was never tried.
    pub(super) fn warning(&self) -> Option<Warning> {
        let is_doubtful = BUILT_IN_NAMES.contains(&self.name.as_str()) && self.tried().is_none();
        let message = "its configuration was written from documentation and has never been tried";
        let remedy = format!("look at {} before you believe its figures", self.path.display());
        is_doubtful.then(|| Warning::new(message, &remedy).of(&self.name))
    }

    pub fn is_installed(&self) -> bool {
        self.clone().find_program().is_ok()
    }

    /// The targets that `-t` may ask of it.
    pub fn targets(&self) -> Vec<Target> {
        self.description.targets()
    }

    /// Fails if the subject cannot do this target. The error names the targets that it can do.
    pub fn require_target(&self, target: Target) -> anyhow::Result<()> {
        let (name, path, targets) = (&self.name, self.path.display(), self.targets());
        let names = targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ");
        let can = targets.contains(&target);
        ensure!(can, "{name} cannot be tested with -t {target}: {path} names {names} only");
        Ok(())
    }

    /// It has no process: the load goes to its backend.
    pub(super) fn is_direct(&self) -> bool {
        self.description.command.is_empty()
    }

    /// The output of k6 that it takes.
    pub(super) fn k6_form(&self) -> K6Form {
        self.description.chosen(Target::K6).k6
    }

    /// The name of its program, as its description has it; empty for one without a process.
    pub fn program_name(&self) -> &str {
        self.description.command.first().map_or("", |program| {
            program.rsplit_once('/').map_or(program.as_str(), |(_, name)| name)
        })
    }

    pub fn set_program(&mut self, path: &Path) -> anyhow::Result<()> {
        let (name, shown) = (&self.name, path.display());
        ensure!(
            path.is_file(),
            "{name}: no program at {shown}: give its path with --subject-binary {name}=PATH"
        );
        self.program = Some(path.to_owned());
        Ok(())
    }

    /// Replaces its configuration, for all targets.
    pub(crate) fn set_config(&mut self, path: &str, template: &str) {
        let template = (path.into(), template.to_owned());
        self.templates.values_mut().for_each(|own| own.clone_from(&template));
    }

    /// Finds the program: by the variable SLUICE_TEST_NAME, of its own name or of its program's, by
    /// its path, or in PATH.
    pub fn find_program(&mut self) -> anyhow::Result<()> {
        if self.is_direct() {
            return Ok(());
        }
        let variable = program_variable(&self.name);
        for variable in [variable.clone(), program_variable(self.program_name())] {
            if let Some(path) = std::env::var_os(&variable).filter(|path| !path.is_empty()) {
                return self.set_program(Path::new(&path));
            }
        }
        let program = &self.description.command[0];
        let path = match program.strip_prefix("./") {
            Some(relative) => Some(self.path.with_file_name(relative)),
            None if program.contains('/') => Some(program.into()),
            None => in_path(program),
        };
        if let Some(path) = path {
            return self.set_program(&path);
        }
        let (name, install) = (&self.name, self.description.install.as_deref());
        bail!(
            "{name}: no program `{program}` in PATH: {}, or give its path with --subject-binary \
             {name}=PATH or {variable}",
            install.unwrap_or("install it")
        )
    }

    pub(super) fn version_number(&self) -> Option<String> {
        version::ask(self.program.as_ref()?, &self.description.version)
    }

    pub(super) fn metrics(&self, target: Target, setting: &Setting) -> anyhow::Result<Metrics> {
        let fill = |selector: &mut Selector, scope| {
            let filled = self.filled(&selector.text, setting, scope)?;
            *selector =
                Selector::try_from(filled).map_err(|wrong| self.at(&selector.text, &wrong))?;
            anyhow::Ok(())
        };
        let mut metrics = self.description.chosen(target).metrics;
        metrics.path = self.filled(&metrics.path, setting, Scope::Whole)?;
        metrics.all_mut().try_for_each(|selector| fill(selector, Scope::Whole))?;
        for index in 0..setting.backends.len() {
            let mut pipeline = metrics.pipeline.clone();
            pipeline.all_mut().try_for_each(|selector| fill(selector, Scope::Pipeline(index)))?;
            metrics.pipelines.push(pipeline);
        }
        Ok(metrics)
    }

    pub(super) fn spec(
        &self,
        target: Target,
        setting: &Setting,
        limits: Limits,
        cpus: &[usize],
    ) -> anyhow::Result<SubjectSpec> {
        self.require_target(target)?;
        let chosen = self.description.chosen(target);
        let fill = |text: &String| self.filled(text, setting, Scope::Whole);
        let (mut config, mut config_file) = (String::new(), String::new());
        if let Some((path, text)) = chosen.config.as_ref().and_then(|name| self.templates.get(name))
        {
            config = template::fill(text, setting, Scope::Whole)
                .map_err(|(line, wrong)| at(path, line, &wrong))?;
            config_file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
        let delay = Duration::from_millis(chosen.restart_delay_ms.unwrap_or(10_000));
        let spec = SubjectSpec {
            name: self.name.clone(),
            binary: self.program.clone().unwrap_or_else(|| chosen.command[0].clone().into()),
            args: chosen.command[1..].iter().map(fill).collect::<Result<_, _>>()?,
            config,
            config_file,
            env: self.environment(&chosen, setting)?,
            cpus: cpus.to_vec(),
            limits,
            ready: chosen.ready.map(|ready| self.ready(ready, setting)).transpose()?,
            ready_within: chosen.ready_within_s.map(Duration::from_secs),
            restart_delay: chosen.restart.unwrap_or(true).then_some(delay),
        };
        // Without the load's port a subject would not take the load, or (gRPC) never become ready.
        if target.takes_requests() && setting.protocol == Protocol::Http {
            let port = setting.listen.port().to_string();
            let told = spec.args.iter().chain(spec.env.iter().map(|(_, value)| value));
            ensure!(
                told.chain([&spec.config]).any(|text| text.contains(&port)),
                "{} takes no OTLP over HTTP: {} and its template use neither `@LISTEN@` nor \
                 `@LISTEN_HTTP@`; leave --protocol out",
                self.name,
                self.path.display()
            );
        }
        Ok(spec)
    }

    /// A variable whose name has the pipeline's index is set once for each pipeline.
    fn environment(
        &self,
        chosen: &Description,
        setting: &Setting,
    ) -> anyhow::Result<Vec<(String, String)>> {
        let mut filled = Vec::new();
        for (name, value) in &chosen.env {
            let scopes = match name.contains("@INDEX@") {
                true => (0..setting.backends.len()).map(Scope::Pipeline).collect(),
                false => vec![Scope::Whole],
            };
            for scope in scopes {
                let fill = |text: &str| self.filled(text, setting, scope);
                filled.push((fill(name)?, fill(value)?));
            }
        }
        Ok(filled)
    }

    fn ready(&self, mut when: Ready, setting: &Setting) -> anyhow::Result<Ready> {
        let (Ready::Connect(text) | Ready::Http(text) | Ready::Output(text)) = &mut when;
        let filled = self.filled(text, setting, Scope::Whole)?;
        let text = std::mem::replace(text, filled);
        if let Some(addr) = when.addr().filter(|addr| addr.parse::<SocketAddr>().is_err()) {
            let help = "give `@LISTEN@`, `@METRICS@` or host:port with numbers";
            return Err(self.at(&text, &format!("`{addr}` is no address: {help}")));
        }
        Ok(when)
    }

    fn filled(&self, text: &str, setting: &Setting, scope: Scope) -> anyhow::Result<String> {
        template::fill(text, setting, scope).map_err(|(_, wrong)| self.at(text, &wrong))
    }

    /// A problem with this text of the description.
    fn at(&self, text: &str, problem: &str) -> anyhow::Error {
        let quoted = serde_json::to_string(text).unwrap_or_default();
        let line = self.source.lines().position(|line| line.contains(&quoted)).unwrap_or(0);
        at(&self.path, line + 1, problem)
    }
}

/// The variable of the environment that names a program: `SLUICE_TEST_FLUENT_BIT`.
pub(super) fn program_variable(name: &str) -> String {
    let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("SLUICE_TEST_{}", name.chars().map(upper).collect::<String>())
}

#[cfg(test)]
mod tests;
