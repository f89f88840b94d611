//! Who is tested: `--subject`, `--subject-dir`, `--turns`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use sluice_load_test::run::Definition;

/// The path of a Collector, where it is not `otelcol` in PATH.
const COLLECTOR_VARIABLE: &str = "SLUICE_TEST_OTELCOL";

#[derive(Debug, Args)]
pub(super) struct SubjectArguments {
    /// Who is tested; may be given several times [default: sluice]
    #[arg(long, value_name = "NAME")]
    subject: Vec<SubjectName>,
    /// Another subject: a folder with `subject.json` and a configuration template; may be given several times
    #[arg(long, value_name = "DIR")]
    subject_dir: Vec<PathBuf>,
    /// Turns of each subject, interleaved
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(super) turns: u16,
}

/// A subject that the load test knows by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SubjectName {
    Sluice,
    Otelcol,
    Rotel,
}

impl SubjectArguments {
    /// All subjects, each once.
    pub(super) fn definitions(&self) -> Result<Vec<Definition>> {
        let mut definitions = Vec::new();
        for name in &self.subject {
            definitions.push(match name {
                SubjectName::Sluice => sluice()?,
                SubjectName::Otelcol => Definition::collector(COLLECTOR_VARIABLE)?,
                SubjectName::Rotel => {
                    bail!("--subject rotel is not there yet: describe it in a folder for --subject-dir")
                }
            });
        }
        for folder in &self.subject_dir {
            definitions.push(Definition::read(folder)?);
        }
        if definitions.is_empty() {
            definitions.push(sluice()?);
        }
        let mut names: Vec<_> = definitions.iter().map(|definition| &definition.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("subject `{}` is given twice: --turns repeats a subject", twice[0]);
        }
        Ok(definitions)
    }
}

fn sluice() -> Result<Definition> {
    Ok(Definition::sluice(&std::env::current_exe().context("cannot find this program's own file")?))
}
