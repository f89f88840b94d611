//! The groups of a job as its sources know them now.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::group::Group;
use crate::labels::Text;

/// Memory of all targets of a job, if no text were shared, in bytes.
const WEIGHT_LIMIT_BYTES: usize = 256 << 20;

/// Groups by their sources. Bounded by what it holds, not by how often that changes.
pub(crate) struct Index {
    state: Mutex<State>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// Of each source: its groups, and their weight.
    sources: Vec<(Vec<Arc<Group>>, usize)>,
    version: u64,
}

/// A source's access to its own groups.
pub(crate) struct Reporter {
    index: Arc<Index>,
    source: usize,
}

impl Index {
    /// `changed` is told of every change.
    pub(crate) fn new(changed: Arc<Notify>) -> Arc<Index> {
        Arc::new(Index { state: Mutex::default(), changed })
    }

    pub(crate) fn reporter(self: &Arc<Self>) -> Reporter {
        let mut state = self.state.lock();
        state.sources.push((Vec::new(), 0));
        Reporter { index: self.clone(), source: state.sources.len() - 1 }
    }

    /// A number that grows with each change.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// All groups, and the version that they are.
    pub(crate) fn groups(&self) -> (Vec<Arc<Group>>, u64) {
        let state = self.state.lock();
        let groups = state.sources.iter().flat_map(|(groups, _)| groups.iter().cloned());
        (groups.collect(), state.version)
    }
}

impl Reporter {
    /// The source has these groups now, and no others. Groups that are as before stay what they
    /// are.
    ///
    /// # Errors
    /// The job would have too many targets: the source's groups of before stay.
    pub(crate) fn replace(&self, groups: Vec<Arc<Group>>) -> Result<(), String> {
        let weight = groups.iter().fold(0usize, |sum, group| sum.saturating_add(group.weight()));
        let mut state = self.index.state.lock();
        let others = state.sources.iter().enumerate().filter(|(at, _)| *at != self.source);
        let others: usize = others.map(|(_, (_, weight))| weight).sum();
        if weight.saturating_add(others) > WEIGHT_LIMIT_BYTES {
            let mib = WEIGHT_LIMIT_BYTES >> 20;
            return Err(format!("all targets of the job would take more than {mib} MiB"));
        }
        let before = &mut state.sources[self.source];
        let known: HashMap<&Text, &Arc<Group>> =
            before.0.iter().map(|group| (&group.key, group)).collect();
        let same = |group: Arc<Group>| {
            let known = known.get(&group.key).filter(|known| ***known == group);
            known.map_or(group, |known| Arc::clone(known))
        };
        let groups: Vec<Arc<Group>> = groups.into_iter().map(same).collect();
        let is_same = groups.len() == before.0.len()
            && groups.iter().zip(&before.0).all(|(new, old)| Arc::ptr_eq(new, old));
        if !is_same {
            *before = (groups, weight);
            state.version += 1;
            drop(state);
            self.index.changed.notify_one();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    fn group(key: &str, addresses: &[&str]) -> Arc<Group> {
        let addresses = addresses.iter().map(|address| Text::from(*address));
        Arc::new(Group::new(key.into(), addresses, Labels::default()))
    }

    /// Guarantee: only a change counts as one, and groups that stay are the same allocation.
    #[test]
    fn only_changes_are_told() {
        let index = Index::new(Arc::default());
        let (one, other) = (index.reporter(), index.reporter());
        one.replace(vec![group("a", &["1"]), group("b", &["2"])]).expect("fits");
        let (first, version) = index.groups();
        one.replace(vec![group("a", &["1"]), group("b", &["2"])]).expect("fits");
        other.replace(Vec::new()).expect("fits");
        assert_eq!((index.version(), first.len()), (version, 2));
        other.replace(vec![group("a", &["3"])]).expect("fits");
        one.replace(vec![group("a", &["1"]), group("b", &["4"])]).expect("fits");
        let (second, later) = index.groups();
        assert_eq!((later, second.len()), (version + 2, 3));
        assert!(Arc::ptr_eq(&first[0], &second[0]) && !Arc::ptr_eq(&first[1], &second[1]));
        one.replace(Vec::new()).expect("fits");
        assert_eq!(index.groups().0, [group("a", &["3"])]);
    }

    /// Scenario: a source has a long label for many targets, or a million of them. Guarantee: it is
    /// refused, and the groups of before stay.
    #[test]
    fn targets_that_would_take_all_memory_are_refused() {
        let index = Index::new(Arc::default());
        let reporter = index.reporter();
        reporter.replace(vec![group("a", &["1"])]).expect("fits");
        let labels: Labels = [("long", "x".repeat(1 << 20))].into_iter().collect();
        let addresses = (0..600).map(|number: usize| Text::from(number.to_string()));
        let heavy = Arc::new(Group::new("b".into(), addresses, labels));
        let addresses = (0..1_000_000).map(|number: usize| Text::from(number.to_string()));
        let many = Arc::new(Group::new("c".into(), addresses, Labels::default()));
        for group in [heavy, many] {
            let error = reporter.replace(vec![group]).expect_err("too heavy");
            assert!(error.contains("more than 256 MiB"), "{error}");
        }
        assert_eq!(index.groups().0, [group("a", &["1"])]);
    }
}
