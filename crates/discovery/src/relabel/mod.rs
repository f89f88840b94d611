//! Relabelling as Prometheus does it: rules in order change a set of labels, or drop it. Pure.

mod case;
mod config;
mod template;

use std::borrow::Cow;
use std::num::NonZeroU64;

use md5::{Digest as _, Md5};
use regex::Regex;

use crate::labels::{Label, Labels, NameScheme, Text};
use template::{Template, group};

pub use config::read;

/// A rule of `relabel_configs` or `metric_relabel_configs`.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Their values, joined by `separator`, are what the rule looks at.
    sources: Vec<Text>,
    separator: String,
    action: Action,
}

#[derive(Clone, Debug)]
enum Action {
    Replace(Replace),
    Keep(Matcher),
    Drop(Matcher),
    KeepEqual(Text),
    DropEqual(Text),
    HashMod { target: Text, modulus: NonZeroU64 },
    LabelMap { names: Regex, replacement: Template },
    LabelDrop(Regex),
    LabelKeep(Regex),
    Lowercase(Text),
    Uppercase(Text),
}

#[derive(Clone, Debug)]
struct Replace {
    matcher: Matcher,
    target: Template,
    replacement: Template,
    scheme: NameScheme,
}

/// A pattern that has to match the whole text.
#[derive(Clone, Debug)]
enum Matcher {
    /// `(.*)`, the default: matches all, without a search.
    All,
    Pattern(Regex),
}

impl Matcher {
    fn matches(&self, text: &str) -> bool {
        match self {
            Matcher::All => true,
            Matcher::Pattern(regex) => regex.is_match(text),
        }
    }
}

/// Applies rules in their order. False: a rule drops the labels, which are then of no use.
#[must_use]
pub fn apply(rules: &[Rule], labels: &mut Labels) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}

impl Rule {
    fn apply(&self, labels: &mut Labels) -> bool {
        match &self.action {
            Action::Keep(matcher) => return matcher.matches(&self.joined(labels)),
            Action::Drop(matcher) => return !matcher.matches(&self.joined(labels)),
            Action::KeepEqual(target) => return **labels.get(target) == *self.joined(labels),
            Action::DropEqual(target) => return **labels.get(target) != *self.joined(labels),
            Action::Replace(replace) => {
                if let Some((target, value)) = replace.of(&self.joined(labels)) {
                    labels.set(&target, value);
                }
            }
            Action::HashMod { target, modulus } => {
                let hash = Md5::digest(self.joined(labels).as_bytes());
                let last = hash.last_chunk().copied().unwrap_or_default();
                let value = u64::from_be_bytes(last) % *modulus;
                labels.set(target, value.to_string().into());
            }
            Action::Lowercase(target) => {
                let value = case::lower(&self.joined(labels));
                labels.set(target, value.into());
            }
            Action::Uppercase(target) => {
                let value = case::upper(&self.joined(labels));
                labels.set(target, value.into());
            }
            Action::LabelMap { names, replacement } => {
                let map = |label: &Label| {
                    let name = renamed(names, replacement, label);
                    Label { name, value: label.value.clone() }
                };
                // Taken first: a label that this rule sets is not matched by it.
                let matched = labels.iter().filter(|label| names.is_match(&label.name));
                let mut mapped: Vec<Label> = matched.map(map).collect();
                mapped.retain(|label| !label.name.is_empty());
                if !mapped.is_empty() {
                    labels.merge(mapped);
                }
            }
            Action::LabelDrop(names) => labels.retain(|label| !names.is_match(&label.name)),
            Action::LabelKeep(names) => labels.retain(|label| names.is_match(&label.name)),
        }
        true
    }

    fn joined<'l>(&self, labels: &'l Labels) -> Cow<'l, str> {
        match self.sources.as_slice() {
            [] => Cow::Borrowed(""),
            [only] => Cow::Borrowed(labels.get(only)),
            [first, others @ ..] => {
                let mut text = labels.get(first).to_string();
                for other in others {
                    text.push_str(&self.separator);
                    text.push_str(labels.get(other));
                }
                Cow::Owned(text)
            }
        }
    }
}

impl Replace {
    /// The label to set, if the pattern matches and the label's name is valid.
    fn of(&self, text: &str) -> Option<(Text, Text)> {
        let (target, value) = match &self.matcher {
            Matcher::All => (self.target.expand(|_| text), self.replacement.expand(|_| text)),
            Matcher::Pattern(regex) => {
                // Without groups to expand, a match is all that matters.
                if let (Template::Fixed(target), Template::Fixed(value)) =
                    (&self.target, &self.replacement)
                {
                    (regex.is_match(text)).then(|| (target.clone(), value.clone()))?
                } else {
                    let captures = regex.captures(text)?;
                    let expand = |template: &Template| template.expand(|at| group(&captures, at));
                    (expand(&self.target), expand(&self.replacement))
                }
            }
        };
        self.scheme.is_label_name(&target).then_some((target, value))
    }
}

fn renamed(names: &Regex, replacement: &Template, label: &Label) -> Text {
    let renamed = names.replace_all(&label.name, |captures: &regex::Captures<'_>| {
        replacement.expand(|at| captures.get(at).map_or("", |group| group.as_str())).to_string()
    });
    renamed.into()
}

#[cfg(test)]
mod tests;
