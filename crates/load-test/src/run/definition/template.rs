//! Templates: variables between at signs are replaced, sections are repeated.
//!
//! Lines between `@EACH_PIPELINE@` and `@END@`, each on a line of its own, are repeated once a
//! pipeline, those behind `@EACH_TARGET@` once a scrape target. Within one line such a section is
//! repeated with commas between.

use super::error::Problem;
use super::variables::{Scope, Setting, look_up};

/// What a section is repeated for; `None`: not the name of a section.
fn scopes(name: &str, setting: &Setting) -> Option<Vec<Scope>> {
    match name {
        "EACH_PIPELINE" => Some((0..setting.backends.len()).map(Scope::pipeline).collect()),
        "EACH_TARGET" => Some((0..setting.scrape_targets.len()).map(Scope::target).collect()),
        _ => None,
    }
}

/// Renders a whole template. An error has the number of its line, from 1.
pub(super) fn render(template: &str, setting: &Setting) -> Result<String, (usize, Problem)> {
    let mut out = String::new();
    let mut lines = (1..).zip(template.lines());
    while let Some((number, line)) = lines.next() {
        let Some((name, scopes)) = section(line, setting) else {
            out += &fill(line, setting, Scope::default()).map_err(|problem| (number, problem))?;
            out.push('\n');
            continue;
        };
        let mut repeated = Vec::new();
        loop {
            let unended = || (number, Problem::Unended(name.to_owned()));
            let (number, line) = lines.next().ok_or_else(unended)?;
            if line.trim() == "@END@" {
                break;
            }
            if let Some((name, _)) = section(line, setting) {
                return Err((number, Problem::Nested(name.to_owned())));
            }
            repeated.push((number, line));
        }
        for scope in scopes {
            for (number, line) in &repeated {
                out += &fill(line, setting, scope).map_err(|problem| (*number, problem))?;
                out.push('\n');
            }
        }
    }
    Ok(out)
}

/// The name of a section that begins with a line of its own, and what it is repeated for.
fn section<'a>(line: &'a str, setting: &Setting) -> Option<(&'a str, Vec<Scope>)> {
    let (name, rest) = variable(line.trim())?;
    Some((name, scopes(name, setting).filter(|_| rest.is_empty())?))
}

/// Fills in one line.
pub(super) fn fill(text: &str, setting: &Setting, scope: Scope) -> Result<String, Problem> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        out += &rest[..at];
        rest = &rest[at..];
        let Some((name, after)) = variable(rest) else {
            // An at sign of the subject's own.
            out.push('@');
            rest = &rest[1..];
            continue;
        };
        rest = after;
        if let Some(scopes) = scopes(name, setting) {
            let (inside, after) =
                after.split_once("@END@").ok_or_else(|| Problem::Unended(name.to_owned()))?;
            if scope.pipeline.or(scope.target).is_some() || inside.contains("@EACH_") {
                return Err(Problem::Nested(name.to_owned()));
            }
            let filled: Result<Vec<_>, _> =
                scopes.iter().map(|scope| fill(inside, setting, *scope)).collect();
            out += &filled?.join(",");
            rest = after;
        } else if name == "END" {
            return Err(Problem::EndAlone);
        } else {
            out += &look_up(name, setting, scope)?;
        }
    }
    Ok(out + rest)
}

/// Splits `@NAME@rest`; `None` where the text does not begin with a variable.
fn variable(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.strip_prefix('@')?.split_once('@')?;
    let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    is_name.then_some((name, rest))
}
