//! Texts with `$1` and `${name}`, expanded as Go's `Regexp.Expand` does.

use regex::{Captures, Regex};

use crate::labels::Text;

#[derive(Clone, Debug)]
pub(super) enum Template {
    /// Nothing to expand.
    Fixed(Text),
    Parts(Vec<Part>),
}

#[derive(Clone, Debug)]
pub(super) enum Part {
    Literal(String),
    Group(usize),
}

impl Template {
    /// Groups that the pattern does not have expand to nothing. A `$` without a name stays.
    pub(super) fn new(text: &str, pattern: &Regex) -> Template {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            literal.push_str(before);
            if let Some(after) = after.strip_prefix('$') {
                literal.push('$');
                rest = after;
                continue;
            }
            let Some((name, after)) = name_of(after) else {
                literal.push('$');
                rest = after;
                continue;
            };
            if let Some(group) = group_of(name, pattern) {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Group(group));
            }
            rest = after;
        }
        literal.push_str(rest);
        if parts.is_empty() {
            return Template::Fixed(literal.into());
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Template::Parts(parts)
    }

    /// `group`: the text of a group, empty if it took no part in the match.
    pub(super) fn expand<'g>(&self, group: impl Fn(usize) -> &'g str) -> Text {
        match self {
            Template::Fixed(text) => text.clone(),
            Template::Parts(parts) => {
                if let [Part::Group(only)] = parts.as_slice() {
                    return group(*only).into();
                }
                let mut text = String::new();
                for part in parts {
                    text.push_str(match part {
                        Part::Literal(literal) => literal,
                        Part::Group(at) => group(*at),
                    });
                }
                text.into()
            }
        }
    }
}

pub(super) fn group<'t>(captures: &Captures<'t>, at: usize) -> &'t str {
    captures.get(at).map_or("", |group| group.as_str())
}

/// The name behind a `$`, with or without braces, and the text after it.
fn name_of(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('{');
    let from = inner.unwrap_or(text);
    let is_end = |character: char| !character.is_alphanumeric() && character != '_';
    let (name, after) = from.split_at(from.find(is_end).unwrap_or(from.len()));
    let after = if inner.is_some() { after.strip_prefix('}')? } else { after };
    (!name.is_empty()).then_some((name, after))
}

/// The group of a name or a number; `01` is a name.
fn group_of(name: &str, pattern: &Regex) -> Option<usize> {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && (name == "0" || !name.starts_with('0')) {
        return name.parse().ok().filter(|group| *group < pattern.captures_len());
    }
    pattern.capture_names().position(|known| known == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the same expansions as in Go.
    #[test]
    fn templates_expand_as_in_go() {
        let pattern = Regex::new("^(?P<first>a+)(b)?(?P<é>c)$").unwrap();
        let captures = pattern.captures("aac").unwrap();
        for (template, expected) in [
            ("", ""),
            ("x", "x"),
            ("$1", "aa"),
            ("${1}x", "aax"),
            ("$1x", ""),
            ("$0-$3", "aac-c"),
            ("<$2>", "<>"),
            ("<$4>$9999999999999999999999", "<>"),
            ("$first.${first}", "aa.aa"),
            ("$firstx", ""),
            ("$é!", "c!"),
            ("$$1", "$1"),
            ("a$$", "a$"),
            ("$", "$"),
            ("a$-b", "a$-b"),
            ("${", "${"),
            ("${1", "${1"),
            ("${}", "${}"),
            ("$01", ""),
            ("${1}${first}$3", "aaaac"),
        ] {
            let expanded = Template::new(template, &pattern).expand(|at| group(&captures, at));
            assert_eq!(&*expanded, expected, "{template}");
        }
    }
}
