//! What is wrong with a subject's folder, where, and what helps.

use std::io;
use std::path::{Path, PathBuf};

use strsim::levenshtein;
use thiserror::Error;

use super::built_in::BUILT_IN_NAMES;
use super::description::SUBJECT_FILE;
use crate::report::Target;

/// Why a subject cannot be used.
#[derive(Debug, Error)]
pub enum DefinitionError {
    #[error(
        "{path}: {source}: a subject's folder needs {SUBJECT_FILE} and the templates that it names"
    )]
    File { path: PathBuf, source: io::Error },
    #[error("{place}: {message}")]
    Malformed { place: String, message: String },
    #[error("{path}: `command` is empty: give the program and its arguments")]
    NoCommand { path: PathBuf },
    #[error("{place}: {problem}")]
    Text { place: String, problem: Problem },
    #[error(
        "no subject `{name}`{hint}: there are {}; describe another one in a folder for \
         --subject-dir",
        BUILT_IN_NAMES.join(", ")
    )]
    UnknownName { name: String, hint: String },
    #[error("{name} cannot be tested with -t {target}: {path} names {} only", list(targets))]
    Target { name: String, target: Target, targets: Vec<Target>, path: PathBuf },
    #[error(
        "{name} takes no OTLP over HTTP: {path} and its template use neither `@LISTEN@` nor \
         `@LISTEN_HTTP@`; leave --protocol out"
    )]
    NoHttp { name: String, path: PathBuf },
    #[error("{name}: no program at {path}: give its path with --subject-binary {name}=PATH")]
    NoProgram { name: String, path: PathBuf },
    #[error(
        "{name}: no program `{program}` in PATH: {install}, or give its path with --subject-binary \
         {name}=PATH or {variable}"
    )]
    NotInPath { name: String, program: String, variable: String, install: String },
}

/// A line of a file.
pub(super) fn place(path: &Path, line: usize) -> String {
    format!("{}:{line}", path.display())
}

/// What a text with variables may have wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    #[error("no variable `@{0}@`{hint}", hint = did_you_mean(.0, .1))]
    UnknownVariable(String, Vec<String>),
    #[error("`@{0}@` has no value {1}")]
    UnsetVariable(String, &'static str),
    #[error("`@{0}@` without `@END@`: a section ends with a line of its own, or on the same line")]
    Unended(String),
    #[error("`@END@` without the section's begin (`@EACH_PIPELINE@` or `@EACH_TARGET@`)")]
    EndAlone,
    #[error("`@{0}@` within a section: sections do not nest")]
    Nested(String),
    #[error("`{0}` is no address: give `@LISTEN@`, `@METRICS@` or host:port with numbers")]
    Address(String),
    #[error("`{0}` is no metric: write `name` or `name{{label=\"value\"}}`")]
    Metric(String),
}

impl Problem {
    pub(super) fn at(self, place: String) -> DefinitionError {
        DefinitionError::Text { place, problem: self }
    }
}

impl DefinitionError {
    /// A description that is not as it should be. serde names what it found and what it knows
    /// between backticks.
    pub(super) fn malformed(path: &Path, error: &serde_json::Error) -> DefinitionError {
        let text = error.to_string();
        let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
        let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
        let hint = match quoted.split_first() {
            Some((found, known)) if message.starts_with("unknown ") => did_you_mean(found, known),
            _ => String::new(),
        };
        let message =
            format!("{}{hint}", message.split(", expected one of").next().unwrap_or(message));
        DefinitionError::Malformed { place: place(path, error.line()), message }
    }

    pub(super) fn unknown_name(name: &str) -> DefinitionError {
        DefinitionError::UnknownName {
            name: name.to_owned(),
            hint: did_you_mean(name, BUILT_IN_NAMES),
        }
    }
}

fn list(targets: &[Target]) -> String {
    targets.iter().map(Target::to_string).collect::<Vec<_>>().join(", ")
}

/// The nearest valid name, as the end of a sentence; all of them where none is near.
fn did_you_mean<T: AsRef<str>>(found: &str, known: &[T]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    match known.iter().map(|name| (levenshtein(found, name), name)).min() {
        Some((distance, name)) if distance <= found.len().max(name.len()) / 2 => {
            format!(": did you mean `{name}`?")
        }
        _ if known.is_empty() => String::new(),
        _ => format!(": there are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered_and_all_where_none_is_near() {
        assert_eq!(
            did_you_mean("metrix", &["name", "metrics", "env"]),
            ": did you mean `metrics`?"
        );
        assert_eq!(did_you_mean("zzzzzz", &["name", "env"]), ": there are name, env");
    }
}
