//! A small set of labels, sorted by name, and which names are valid.
//!
//! Texts are shared: a label that a group gives to all its targets, or a job to all of its own, is
//! in memory once. A label without a value is none, as in Prometheus.

use std::sync::{Arc, LazyLock};

/// A name or a value.
pub type Text = Arc<str>;

static EMPTY: LazyLock<Text> = LazyLock::new(|| Text::from(""));

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    pub name: Text,
    pub value: Text,
}

/// Labels with names that differ and values that are not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<Label>);

impl Labels {
    pub fn with_capacity(labels: usize) -> Labels {
        Labels(Vec::with_capacity(labels))
    }

    /// The value, empty if there is none.
    pub fn get(&self, name: &str) -> &Text {
        self.find(name).map_or(&EMPTY, |at| &self.0[at].value)
    }

    /// Sets a label; an empty value removes it.
    pub fn set(&mut self, name: &Text, value: Text) {
        match (self.find(name), value.is_empty()) {
            (Ok(at), true) => drop(self.0.remove(at)),
            (Ok(at), false) => self.0[at].value = value,
            (Err(_), true) => {}
            (Err(at), false) => self.0.insert(at, Label { name: name.clone(), value }),
        }
    }

    /// Sets a label that is not there yet.
    pub fn set_default(&mut self, name: &Text, value: &Text) {
        if let Err(at) = self.find(name)
            && !value.is_empty()
        {
            self.0.insert(at, Label { name: name.clone(), value: value.clone() });
        }
    }

    /// Sets many labels, which costs less than one after the other. Of labels with the same name,
    /// the last one counts; an empty value removes.
    pub(crate) fn merge(&mut self, labels: impl IntoIterator<Item = Label>) {
        self.0.extend(labels);
        self.0.sort_by(|left, right| left.name.cmp(&right.name));
        self.0.dedup_by(|next, kept| {
            let is_same = next.name == kept.name;
            if is_same {
                std::mem::swap(next, kept);
            }
            is_same
        });
        self.0.retain(|label| !label.value.is_empty());
    }

    pub fn retain(&mut self, keep: impl FnMut(&Label) -> bool) {
        self.0.retain(keep);
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Label> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Frees memory that is not used.
    pub fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|label| (*label.name).cmp(name))
    }
}

impl<N: Into<Text>, V: Into<Text>> FromIterator<(N, V)> for Labels {
    /// Of labels with the same name, the last one counts.
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Labels {
        let label = |(name, value): (N, V)| Label { name: name.into(), value: value.into() };
        let mut set = Labels::default();
        set.merge(labels.into_iter().map(label));
        set
    }
}

/// Which names of labels and metrics are valid: `metric_name_validation_scheme`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameScheme {
    /// Any text that is not empty.
    #[default]
    Utf8,
    /// Letters, digits and `_`, and no digit first.
    Legacy,
}

impl NameScheme {
    pub fn is_label_name(self, name: &str) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        let first = name.bytes().next();
        match self {
            NameScheme::Utf8 => first.is_some(),
            NameScheme::Legacy => {
                first.is_some_and(is_letter)
                    && name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn label_names_follow_the_scheme() {
        for (name, utf8, legacy) in [
            ("", false, false),
            ("a", true, true),
            ("_1", true, true),
            ("1a", true, false),
            ("a.b", true, false),
            ("é", true, false),
            ("a:b", true, false),
        ] {
            assert_eq!(NameScheme::Utf8.is_label_name(name), utf8, "{name}");
            assert_eq!(NameScheme::Legacy.is_label_name(name), legacy, "{name}");
        }
    }

    proptest! {
        /// Guarantee: a set behaves as a sorted map in which an empty value removes.
        #[test]
        fn a_set_is_a_sorted_map(
            steps in prop::collection::vec(("[a-d]{1,2}", "[xy]?", any::<bool>()), 0..40),
        ) {
            let (mut labels, mut model) = (Labels::default(), BTreeMap::new());
            for (name, value, only_if_absent) in steps {
                if only_if_absent {
                    labels.set_default(&name.as_str().into(), &value.as_str().into());
                    if !value.is_empty() {
                        model.entry(name.clone()).or_insert(value);
                    }
                } else {
                    labels.set(&name.as_str().into(), value.as_str().into());
                    model.remove(&name);
                    model.extend((!value.is_empty()).then(|| (name.clone(), value)));
                }
                prop_assert_eq!(&**labels.get(&name), model.get(&name).map_or("", String::as_str));
            }
            let pairs = labels.iter().map(|label| (&*label.name, &*label.value));
            let expected = model.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            prop_assert!(pairs.eq(expected));
        }

        /// Guarantee: labels that are set at a time are as those that are set in turn.
        #[test]
        fn many_labels_are_set_as_one_after_the_other(
            before in prop::collection::vec(("[a-d]{1,2}", "[xy]?"), 0..20),
            more in prop::collection::vec(("[a-d]{1,2}", "[xy]?"), 0..20),
        ) {
            let mut merged: Labels = before.clone().into_iter().collect();
            let label = |(name, value): &(String, String)| Label {
                name: name.as_str().into(),
                value: value.as_str().into(),
            };
            merged.merge(more.iter().map(label));
            let mut set = Labels::default();
            for (name, value) in before.iter().chain(&more) {
                set.set(&name.as_str().into(), value.as_str().into());
            }
            prop_assert_eq!(merged, set);
        }
    }
}
