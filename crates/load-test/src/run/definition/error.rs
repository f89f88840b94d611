//! Errors in a subject's folder: the place, the problem and a hint.

use std::path::Path;

use anyhow::{Error, anyhow};
use strsim::levenshtein;

/// A problem with a line of a file, counted from 1.
pub(super) fn at(path: &Path, line: usize, problem: &str) -> Error {
    anyhow!("{}:{line}: {problem}", path.display())
}

/// A malformed description. serde names what it found and what it knows between backticks.
pub(super) fn malformed(path: &Path, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let hint = match quoted.split_first() {
        Some((found, known)) if message.starts_with("unknown ") => did_you_mean(found, known),
        _ => String::new(),
    };
    let message = message.split(", expected one of").next().unwrap_or(message);
    at(path, error.line(), &format!("{message}{hint}"))
}

/// The nearest valid name, as the end of a sentence; all of them where none is near.
pub(super) fn did_you_mean<T: AsRef<str>>(found: &str, known: &[T]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    match known.iter().map(|name| (levenshtein(found, name), name)).min() {
        Some((distance, name)) if distance <= found.len().max(name.len()) / 2 => {
            format!(": did you mean `{name}`?")
        }
        Some(_) => format!(": there are {}", known.join(", ")),
        None => String::new(),
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
