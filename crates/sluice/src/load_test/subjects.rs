//! The subjects and their limits: `--subject`, `--subject-dir`, `--cpus` and further options.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::ContentArrangement;
use sluice_load_test::report::Target;
use sluice_load_test::run::{BUILT_IN_NAMES, Definition};

use crate::text;
use crate::values::{number, up_to};

pub(super) fn list() -> Result<ExitCode> {
    let mut table = text::table(&["Name", "Targets", "Tried", "Program", "What it is"]);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    for name in BUILT_IN_NAMES {
        let definition = Definition::built_in(name)?;
        let targets: Vec<String> = definition.targets().iter().map(Target::to_string).collect();
        let tried = definition
            .tried()
            .map_or_else(|| "no".to_owned(), |tried| format!("{}, {}", tried.version, tried.date));
        let is_here = definition.program_name() == OURS || definition.is_installed();
        let program = if is_here { "here" } else { "not here" };
        let about = definition.about().unwrap_or_default();
        table.add_row([*name, &targets.join(" "), &tried, program, about]);
    }
    crate::output::print(&format!("{}\n", table.trim_fmt()))
}

/// The subject whose program is this one.
const OURS: &str = "sluice";

const QUOTAS: &str = "give a number of cores from 0.01 up, for instance 1 or 0.5";

#[derive(Debug, Args)]
pub(super) struct SubjectArguments {
    #[arg(long, value_name = "NAME", help = help())]
    subject: Vec<String>,
    /// Folder of another subject, with `subject.json` and configuration templates; may be given
    /// several times
    #[arg(long, value_name = "DIR")]
    subject_dir: Vec<PathBuf>,
    /// The program of a subject, or of all subjects with a program of this name, if it is not in
    /// PATH; may be given several times
    #[arg(long, value_name = "NAME=PATH", value_parser = name_and_path)]
    subject_binary: Vec<(String, PathBuf)>,
    /// Turns of each subject, interleaved
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = up_to::<u16>(100))]
    pub(super) turns: u16,
    /// CPU quota of each subject, like that of a pod, for instance 1 or 0.5 [default: no quota; the
    /// subject has its own cores]
    #[arg(long, value_name = "CORES", value_parser = number(0.01..=1024.0, QUOTAS))]
    pub(super) cpus: Option<f64>,
    /// Memory limit of each subject [default: 500 MiB, and 1500 MiB a pipeline]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(16..=1_048_576))]
    pub(super) memory_limit: Option<u64>,
}

fn help() -> String {
    format!(
        "The subject: {}; may be given several times [default: sluice]",
        BUILT_IN_NAMES.join(", ")
    )
}

fn name_and_path(text: &str) -> Result<(String, PathBuf), String> {
    let pair = text.split_once('=').filter(|(name, path)| !name.is_empty() && !path.is_empty());
    let (name, path) = pair.ok_or_else(|| {
        "give the subject's name and the path, for instance rotel=/opt/rotel-agent".to_owned()
    })?;
    Ok((name.to_owned(), path.into()))
}

/// Whether `--subject-binary` with this name is about a subject.
fn is_of(definition: &Definition, name: &str) -> bool {
    definition.name == name || definition.program_name() == name
}

impl SubjectArguments {
    /// All subjects, each once and with its program. If none is named: this one.
    pub(super) fn definitions(&self) -> Result<Vec<Definition>> {
        let named = self.subject.iter().map(|name| Definition::built_in(name));
        let described = self.subject_dir.iter().map(|folder| Definition::read(folder));
        let mut definitions = named.chain(described).collect::<Result<Vec<_>, _>>()?;
        if definitions.is_empty() {
            definitions.push(Definition::built_in(OURS)?);
        }
        let mut names: Vec<_> = definitions.iter().map(|definition| &definition.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("subject `{}` is given twice: --turns repeats a subject", twice[0]);
        }
        let is_tested = |name: &String| definitions.iter().any(|one| is_of(one, name));
        if let Some((name, _)) = self.subject_binary.iter().find(|(name, _)| !is_tested(name)) {
            bail!(
                "--subject-binary names `{name}`, which is not tested here: add --subject {name}, \
                 or leave it out"
            );
        }
        let own = || std::env::current_exe().context("cannot find this program's own file");
        for definition in &mut definitions {
            let given = self.subject_binary.iter().find(|(name, _)| is_of(definition, name));
            match given {
                Some((_, path)) => definition.set_program(path)?,
                None if definition.program_name() == OURS => definition.set_program(&own()?)?,
                None => definition.find_program()?,
            }
        }
        Ok(definitions)
    }
}
