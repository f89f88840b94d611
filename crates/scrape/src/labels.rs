//! The labels of a series, from the page to the ones that relabelling leaves.

use std::borrow::Cow;

use crate::error::{Limits, ScrapeError, excerpt};

pub(crate) const NAME: &str = "__name__";

/// Changes the labels of a new series; false drops it. The answer is kept for as long as the series
/// is on the page, unless the type of its metric changes.
pub type Relabel<'r> = dyn FnMut(&mut Labels<'_>) -> bool + 'r;

/// Labels, each name once. A label with an empty value is the same as none. The name of the metric
/// is the label `__name__`.
#[derive(Clone, Debug, Default)]
pub struct Labels<'a> {
    pairs: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Labels<'a> {
    /// The value of a label; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        self.pairs.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// Sets a label. An empty value removes it.
    pub fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        if value.is_empty() {
            self.pairs.retain(|(known, _)| *known != name);
        } else if let Some(pair) = self.pairs.iter_mut().find(|(known, _)| *known == name) {
            pair.1 = value;
        } else {
            self.pairs.push((name, value));
        }
    }

    /// All labels, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Takes these labels instead of all; each name is to be there once. Many cost less than with
    /// [`Labels::set`].
    pub fn replace<N, V>(&mut self, labels: impl IntoIterator<Item = (N, V)>)
    where
        N: Into<Cow<'a, str>>,
        V: Into<Cow<'a, str>>,
    {
        self.pairs.clear();
        self.pairs.extend(labels.into_iter().map(|(name, value)| (name.into(), value.into())));
        self.pairs.retain(|(_, value)| !value.is_empty());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds a label of a page, which may have it twice, and without a value.
    pub(crate) fn push(&mut self, name: Cow<'a, str>, value: Cow<'a, str>) {
        self.pairs.push((name, value));
    }

    /// Adds the labels of the target. With `honor`, those of the page win, and one without a value
    /// keeps the target's away; else they are renamed. All have a value then.
    pub(crate) fn add_target(&mut self, target: &'a [(String, String)], honor: bool) {
        let mut renamed: Vec<(&str, Cow<'a, str>)> = Vec::new();
        for (name, value) in target {
            let place = self.pairs.iter().position(|(known, _)| known == name);
            match place {
                Some(_) if honor => {}
                Some(place) => {
                    let exposed = std::mem::replace(&mut self.pairs[place].1, value.into());
                    if !exposed.is_empty() {
                        renamed.push((name, exposed));
                    }
                }
                None => self.pairs.push((name.into(), value.into())),
            }
        }
        self.pairs.retain(|(_, value)| !value.is_empty());
        renamed.sort_by_key(|(name, _)| name.len());
        for (name, value) in renamed {
            let mut name = format!("exported_{name}");
            while !self.get(&name).is_empty() {
                name.insert_str(0, "exported_");
            }
            self.pairs.push((name.into(), value));
        }
    }

    /// Sorts the labels by name.
    pub(crate) fn sort(&mut self) {
        self.pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
    }

    /// Sorts the labels, and refuses those that no series can have.
    pub(crate) fn check(&mut self, limits: &Limits) -> Result<(), ScrapeError> {
        self.sort();
        let series = || excerpt(self.get(NAME).as_bytes());
        let refuse = |reason| Err(ScrapeError::Series { series: series(), reason });
        if self.get(NAME).is_empty() {
            return refuse("has no name");
        }
        if self.pairs.iter().any(|(name, _)| name.is_empty()) {
            return refuse("has a label without a name");
        }
        let exceeds = |limit, found, allowed| {
            if allowed == 0 || found <= allowed {
                return Ok(());
            }
            Err(ScrapeError::Labels { series: series(), limit, found, allowed })
        };
        exceeds("label_limit", self.pairs.len(), limits.labels)?;
        for (name, value) in &self.pairs {
            exceeds("label_name_length_limit", name.len(), limits.label_name_bytes)?;
            exceeds("label_value_length_limit", value.len(), limits.label_value_bytes)?;
        }
        if self.pairs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return refuse("has a label twice");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&'static str, &'static str)]) -> Labels<'static> {
        let mut labels = Labels::default();
        for (name, value) in pairs {
            labels.push((*name).into(), (*value).into());
        }
        labels
    }

    fn sorted(mut labels: Labels<'_>) -> Vec<(String, String)> {
        labels.push(NAME.into(), "m".into());
        labels.check(&Limits::default()).expect("are labels");
        labels.iter().skip(1).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Scenario: the page has labels that the target has, too. Guarantee: without `honor` the
    /// target's win and the page's get a prefix, as often as needed; with it the page's win.
    #[test]
    fn labels_of_the_target_and_of_the_page_do_not_hide_each_other() {
        let target = owned(&[("job", "mine"), ("zone", "a")]);
        let page = [("job", "theirs"), ("exported_job", "third"), ("b", "")];
        let mut renamed = labels(&page);
        renamed.add_target(&target, false);
        let expected = owned(&[
            ("exported_exported_job", "theirs"),
            ("exported_job", "third"),
            ("job", "mine"),
            ("zone", "a"),
        ]);
        assert_eq!(sorted(renamed), expected);
        let mut honored = labels(&page);
        honored.add_target(&target, true);
        let expected = owned(&[("exported_job", "third"), ("job", "theirs"), ("zone", "a")]);
        assert_eq!(sorted(honored), expected);
    }

    /// Scenario: a page has a label of the target without a value, as Pushgateway does for metrics
    /// of no instance. Guarantee: with `honor` there is no such label, else the target's wins.
    #[test]
    fn a_label_without_a_value_keeps_the_targets_away() {
        let target = owned(&[("job", "mine"), ("zone", "a")]);
        for (honor, expected) in
            [(true, owned(&[("job", "mine")])), (false, owned(&[("job", "mine"), ("zone", "a")]))]
        {
            let mut labels = labels(&[("zone", ""), ("other", "")]);
            labels.add_target(&target, honor);
            assert_eq!(sorted(labels), expected, "{honor}");
        }
    }

    #[test]
    fn labels_are_replaced_as_a_whole() {
        let mut labels = labels(&[("a", "b"), ("c", "d")]);
        labels.replace([("e", "f"), ("g", "")]);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("e", "f")]);
    }

    #[test]
    fn labels_that_no_series_can_have_are_refused() {
        let limits = Limits::default();
        let reason = |mut labels: Labels<'_>, limits: &Limits| {
            labels.check(limits).expect_err("is refused").to_string()
        };
        assert_eq!(reason(labels(&[("a", "b")]), &limits), "the series  has no name");
        let twice = labels(&[(NAME, "m"), ("a", "b"), ("a", "c")]);
        assert_eq!(reason(twice, &limits), "the series m has a label twice");
        let nameless = labels(&[(NAME, "m"), ("", "b")]);
        assert_eq!(reason(nameless, &limits), "the series m has a label without a name");
    }

    #[test]
    fn each_limit_of_labels_is_named() {
        let check = |limits: Limits| {
            let mut labels = labels(&[(NAME, "metric"), ("label", "some value")]);
            labels.check(&limits).map_err(|error| error.to_string())
        };
        let fits =
            Limits { labels: 2, label_name_bytes: 8, label_value_bytes: 10, ..Limits::default() };
        assert_eq!(check(fits), Ok(()));
        for (limits, limit) in [
            (Limits { labels: 1, ..fits }, "label_limit: 2, at most 1"),
            (Limits { label_name_bytes: 7, ..fits }, "label_name_length_limit: 8, at most 7"),
            (Limits { label_value_bytes: 9, ..fits }, "label_value_length_limit: 10, at most 9"),
        ] {
            assert_eq!(check(limits), Err(format!("the series metric exceeds {limit}")));
        }
    }
}
