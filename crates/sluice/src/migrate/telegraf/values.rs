//! Values of Telegraf as values of Sluice: variables, durations, sizes, patterns of names.

use std::time::Duration;

use serde_json::Value;
use sluice_config::duration;

use crate::migrate::report::Report;

/// Where a value stands.
pub(super) struct Place<'p> {
    pub line: usize,
    pub name: &'p str,
}

/// A text with variables in Sluice's form, every other `$` doubled.
pub(super) fn text(text: &str, place: &Place<'_>, report: &mut Report) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push_str("$$");
            rest = after;
        } else if let Some((variable, after)) = variable(rest) {
            out.push_str(&in_our_form(&variable, place, report));
            rest = after;
        } else {
            out.push_str("$$");
        }
    }
    out.push_str(rest);
    if let Some(name) = secret_of_a_store(text) {
        let text = format!(
            "a secret store holds `{name}`: put the secret into an environment variable, and write \
             ${{env:NAME}} in its place"
        );
        report.left_out(place.line, place.name, text);
    }
    out
}

/// `${NAME…}` or `$NAME` behind its dollar, with what stands behind the name in braces.
fn variable(text: &str) -> Option<((String, String), &str)> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let len_of = |text: &str| {
        let begins = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if begins { text.bytes().take_while(|byte| is_name(*byte)).count() } else { 0 }
    };
    if let Some(inner) = text.strip_prefix('{') {
        let (len, end) = (len_of(inner), inner.find('}')?);
        let is_variable = len > 0 && (len == end || inner[len..].starts_with([':', '-', '?', '+']));
        return is_variable
            .then(|| ((inner[..len].to_owned(), inner[len..end].to_owned()), &inner[end + 1..]));
    }
    let len = len_of(text);
    (len > 0).then(|| ((text[..len].to_owned(), String::new()), &text[len..]))
}

fn in_our_form((name, rest): &(String, String), place: &Place<'_>, report: &mut Report) -> String {
    let condition = rest.strip_prefix(':').unwrap_or(rest);
    match condition.chars().next() {
        None => {}
        Some('-') => return format!("${{env:{name}:-{}}}", condition[1..].replace('$', "$$")),
        Some('?') => {
            let text = format!("`{name}` that is not set is empty here, with a warning");
            report.note(place.line, place.name, text);
        }
        Some(_) => {
            let text = format!("`${{{name}{rest}}}` is not known: set the variable to the value");
            report.left_out(place.line, place.name, text);
        }
    }
    format!("${{env:{name}}}")
}

/// `@{store:key}`.
fn secret_of_a_store(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("@{")?;
    let (name, _) = rest.split_once('}')?;
    name.contains(':').then_some(name)
}

/// Whether the text has a variable of the environment.
pub(super) fn has_variable(text: &str) -> bool {
    text.match_indices('$').any(|(at, _)| variable(&text[at + 1..]).is_some())
}

/// A duration as Go writes it; a number alone is of seconds. None if it is none.
pub(super) fn duration(written: &str, place: &Place<'_>, report: &mut Report) -> Option<String> {
    if has_variable(written) {
        let ours = text(written, place, report);
        let is_alone = ours.starts_with("${") && ours.ends_with('}') && !ours.contains(":-");
        if is_alone {
            let text = "the variable needs a unit here, as `10s`: a number alone is an error";
            report.note(place.line, place.name, text);
        }
        return Some(ours);
    }
    match parsed(written) {
        Some(found) => Some(duration::format(found)),
        None => {
            report.left_out(place.line, place.name, format!("`{written}` is no duration"));
            None
        }
    }
}

pub(super) fn parsed(written: &str) -> Option<Duration> {
    if let Ok(seconds) = written.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    if let Some(days) = written.strip_suffix('d').and_then(|days| days.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(days * 86_400.0).ok();
    }
    duration::parse(written).ok()
}

/// A number of bytes: `32MiB`, `1MB`, `500`. None if it is none.
pub(super) fn bytes(written: &str) -> Option<u64> {
    sluice_config::size::parse(written).ok()
}

/// An integer, or a variable that has one.
pub(super) fn integer(written: &str, place: &Place<'_>, report: &mut Report) -> Option<Value> {
    if has_variable(written) {
        return Some(Value::String(text(written, place, report)));
    }
    let number = written.parse::<i64>().ok();
    if number.is_none() {
        report.left_out(place.line, place.name, format!("`{written}` is no integer"));
    }
    number.map(Value::from)
}

/// A password or a token: a variable, or the text with a note that it is one.
pub(super) fn secret(written: &str, place: &Place<'_>, report: &mut Report) -> String {
    if !written.is_empty() && !has_variable(written) && secret_of_a_store(written).is_none() {
        let text = "the secret stands in the file: put it into an environment variable, and write \
                    ${env:NAME} in its place";
        report.note(place.line, place.name, text);
    }
    text(written, place, report)
}

/// Patterns of names as Telegraf has them: `*`, `?`, `[a-z]`, `{a,b}`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Globs(pub Vec<String>);

impl Globs {
    /// No pattern is one: each stands for itself.
    pub(super) fn are_names(&self) -> bool {
        self.0.iter().all(|glob| !glob.contains(['*', '?', '[', '{', '$']))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|glob| matches(glob.as_bytes(), name.as_bytes()))
    }

    /// Regular expressions for an option of Sluice. `behind`: what may follow a name.
    pub(super) fn regexps(&self, behind: &str) -> Vec<String> {
        self.0.iter().map(|glob| format!("^{}{behind}$$", regexp(glob))).collect()
    }
}

fn regexp(glob: &str) -> String {
    let (mut out, mut depth, mut in_class) = (String::new(), 0, false);
    for character in glob.chars() {
        match character {
            '!' if out.ends_with('[') => out.push('^'),
            ']' => {
                in_class = false;
                out.push(']');
            }
            other if in_class => out.push(other),
            '*' => out.push_str(".*"),
            '?' => out.push('.'),
            '[' => {
                in_class = true;
                out.push('[');
            }
            '{' => {
                depth += 1;
                out.push_str("(?:");
            }
            '}' if depth > 0 => {
                depth -= 1;
                out.push(')');
            }
            ',' if depth > 0 => out.push('|'),
            '$' => out.push_str("\\$$"),
            '.' | '+' | '(' | ')' | '|' | '^' | '\\' | '}' => {
                out.push('\\');
                out.push(character);
            }
            other => out.push(other),
        }
    }
    out
}

/// `*` and `?` match anything; classes and alternatives match nothing here, to be on the safe side.
fn matches(glob: &[u8], name: &[u8]) -> bool {
    match glob.split_first() {
        None => name.is_empty(),
        Some((b'*', rest)) => (0..=name.len()).any(|at| matches(rest, &name[at..])),
        Some((b'?', rest)) => name.split_first().is_some_and(|(_, name)| matches(rest, name)),
        Some((byte, rest)) => {
            name.split_first().is_some_and(|(first, name)| first == byte && matches(rest, name))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'_> = Place { line: 1, name: "x: y" };

    /// Guarantee: variables have Sluice's form, and every other dollar stays one.
    #[test]
    fn variables_are_translated() {
        for (theirs, ours) in [
            ("http://${HOST}:8086", "http://${env:HOST}:8086"),
            ("$USER-$NAME", "${env:USER}-${env:NAME}"),
            ("${P:-10s}", "${env:P:-10s}"),
            ("${P-a$b}", "${env:P:-a$$b}"),
            ("a$$b $1 ${1} $", "a$$b $$1 $${1} $$"),
        ] {
            let mut report = Report::default();
            assert_eq!(text(theirs, &PLACE, &mut report), ours);
            assert!(report.is_whole());
        }
        for theirs in ["${P:+x}", "@{store:key}"] {
            let mut report = Report::default();
            text(theirs, &PLACE, &mut report);
            assert!(!report.is_whole(), "{theirs}");
        }
    }

    #[test]
    fn durations_and_sizes_are_translated() {
        let mut report = Report::default();
        let mut ours = |theirs: &str| duration(theirs, &PLACE, &mut report);
        assert_eq!(ours("10").as_deref(), Some("10s"));
        assert_eq!(ours("0.5").as_deref(), Some("500ms"));
        assert_eq!(ours("1m30s").as_deref(), Some("1m30s"));
        assert_eq!(ours("$P").as_deref(), Some("${env:P}"));
        assert_eq!(ours("soon"), None);
        assert!(!report.is_whole());
        assert_eq!([bytes("32MiB"), bytes("500"), bytes("x")], [Some(32 << 20), Some(500), None]);
    }

    /// Guarantee: a pattern is a regular expression over the whole name.
    #[test]
    fn patterns_are_regular_expressions() {
        let globs = Globs(vec!["http_req*".into(), "a.b?".into(), "{x,y}[0-9]".into()]);
        let ours = ["^http_req.*$$", "^a\\.b.$$", "^(?:x|y)[0-9]$$"];
        assert_eq!(globs.regexps(""), ours);
        assert!(globs.matches("http_reqs") && globs.matches("a.bc") && !globs.matches("a.b"));
        assert!(!globs.are_names() && Globs(vec!["vus".into()]).are_names());
    }
}
