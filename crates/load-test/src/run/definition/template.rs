//! Templates: variables between at signs are replaced, sections are repeated.
//!
//! Lines between `@EACH_PIPELINE@` and `@END@`, each on a line of its own, are repeated once a
//! pipeline, those behind `@EACH_TARGET@` once a scrape target. Within one line such a section is
//! repeated with commas between.

use super::variables::{Scope, Setting, look_up};

/// What a section is repeated for; `None`: not the name of a section.
fn scopes(name: &str, setting: &Setting) -> Option<Vec<Scope>> {
    match name {
        "EACH_PIPELINE" => Some((0..setting.backends.len()).map(Scope::Pipeline).collect()),
        "EACH_TARGET" => Some((0..setting.scrape_targets.len()).map(Scope::Target).collect()),
        _ => None,
    }
}

/// Fills in variables and sections. An error comes with the number of its line, from 1.
pub(super) fn fill(text: &str, setting: &Setting, scope: Scope) -> Result<String, (usize, String)> {
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
        let line = 1 + text[..text.len() - rest.len()].matches('\n').count();
        let problem = |text: String| (line, text);
        let Some(scopes) = scopes(name, setting) else {
            out += &look_up(name, setting, scope).map_err(problem)?;
            continue;
        };
        if scope != Scope::Whole {
            return Err(problem(format!("`@{name}@` within a section: sections do not nest")));
        }
        let (mut section, mut after) = rest.split_once("@END@").ok_or_else(|| {
            problem(format!(
                "`@{name}@` without `@END@`: a section ends with a line of its own, or on the \
                 same line"
            ))
        })?;
        let (mut first_line, mut separator) = (line, ",");
        if let Some((behind, lines)) = section.split_once('\n')
            && behind.trim_end().is_empty()
        {
            // Of the lines that begin and end the section nothing stays.
            out.truncate(out.trim_end_matches([' ', '\t']).len());
            section = lines.trim_end_matches([' ', '\t']);
            after = after.trim_start_matches([' ', '\t', '\r']);
            after = after.strip_prefix('\n').unwrap_or(after);
            (first_line, separator) = (line + 1, "");
        }
        let repeated = scopes.into_iter().map(|scope| fill(section, setting, scope));
        let repeated: Result<Vec<_>, _> = repeated.collect();
        out += &repeated.map_err(|(line, text)| (first_line + line - 1, text))?.join(separator);
        rest = after;
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
