use proptest::prelude::*;

use super::*;

const GRACE: Duration = Duration::from_secs(100);

#[derive(Clone, Debug, PartialEq)]
struct Pod {
    key: &'static str,
    names: Vec<&'static str>,
    rank: i64,
    value: usize,
}

impl Indexed for Pod {
    type Name = String;

    fn key(&self) -> Arc<str> {
        self.key.into()
    }

    fn names(&self, visit: &mut dyn FnMut(String)) {
        self.names.iter().for_each(|name| visit((*name).to_owned()));
    }

    fn rank(&self) -> i64 {
        self.rank
    }

    fn weight(&self) -> usize {
        1000
    }
}

fn pod(key: &'static str, names: &[&'static str], rank: i64) -> Pod {
    Pod { key, names: names.to_vec(), rank, value: 0 }
}

fn found(index: &Index<Pod>, name: &str) -> Option<&'static str> {
    index.find(&name.to_owned()).map(|pod| pod.key)
}

/// Scenario: a pod gets an address, ends, and another one gets the address; events of the first one
/// come late. Guarantee: an address is that of the pod that started last, and one that nothing else
/// has leads to its last owner for the grace.
#[test]
fn a_name_leads_to_the_pod_that_started_last() {
    let (start, mut index) = (Instant::now(), Index::new(GRACE, usize::MAX));
    let at = |seconds| start + Duration::from_secs(seconds);
    index.apply(Event::Added(pod("a", &["ua"], 0)), at(0));
    index.apply(Event::Modified(pod("a", &["ua", "ip1"], 10)), at(1));
    index.apply(Event::Added(pod("b", &["ub", "ip1"], 20)), at(2));
    index.apply(Event::Modified(pod("a", &["ua", "ip1"], 10)), at(3));
    assert_eq!((found(&index, "ip1"), found(&index, "ua")), (Some("b"), Some("a")));
    index.apply(Event::Deleted(pod("a", &["ua"], 10)), at(4));
    assert_eq!((found(&index, "ua"), index.len()), (Some("a"), 1));
    index.apply(Event::Deleted(pod("b", &[], 20)), at(5));
    index.expire(at(103));
    assert_eq!((found(&index, "ip1"), found(&index, "ua")), (Some("b"), Some("a")));
    index.expire(at(104));
    assert_eq!((found(&index, "ip1"), found(&index, "ua")), (Some("b"), None));
    index.expire(at(105));
    assert_eq!((found(&index, "ip1"), index.weight()), (None, 0));
}

/// Scenario: the API server was away while one pod ended and one began. Guarantee: during the list
/// all that was known is there, after it only what was listed.
#[test]
fn a_list_takes_the_place_of_what_was_known() {
    let (now, mut index) = (Instant::now(), Index::new(Duration::ZERO, usize::MAX));
    index.apply(Event::Restarted, now);
    index.apply(Event::Added(pod("a", &["ua"], 0)), now);
    index.apply(Event::Added(pod("b", &["ub"], 0)), now);
    assert!(!index.is_listed());
    index.apply(Event::Listed, now);
    assert!(index.is_listed());
    // A list that fails, and one that does not.
    index.apply(Event::Restarted, now);
    index.apply(Event::Added(pod("c", &["uc"], 0)), now);
    index.apply(Event::Restarted, now);
    index.apply(Event::Added(pod("b", &["ub"], 0)), now);
    assert_eq!([found(&index, "ua"), found(&index, "uc")], [Some("a"), Some("c")]);
    index.apply(Event::Listed, now);
    index.expire(now);
    assert_eq!(["ua", "ub", "uc"].map(|name| found(&index, name)), [None, Some("b"), None]);
    assert_eq!((index.len(), index.is_listed()), (1, true));
}

/// Guarantee: objects beyond the limit are counted and not held, and there is room again when
/// others are gone.
#[test]
fn memory_is_bounded() {
    let (now, mut index) = (Instant::now(), Index::new(Duration::ZERO, 2500));
    for key in ["a", "b", "c"] {
        index.apply(Event::Added(pod(key, &[key], 0)), now);
        index.apply(Event::Modified(pod(key, &[key], 0)), now);
    }
    assert_eq!((index.len(), index.refused(), found(&index, "c")), (2, 2, None));
    index.apply(Event::Deleted(pod("a", &["a"], 0)), now);
    index.apply(Event::Modified(pod("c", &["c"], 0)), now);
    assert_eq!((index.len(), found(&index, "c"), found(&index, "a")), (2, Some("c"), None));
}

const KEYS: [&str; 3] = ["a", "b", "c"];
const NAMES: [&str; 4] = ["1", "2", "3", "4"];

proptest! {
    /// Guarantee: without a grace, the index is what its events say: the last versions by key,
    /// each name that of an object that has it, and no memory of others.
    #[test]
    fn an_index_is_what_its_events_say(
        steps in prop::collection::vec(
            (0..5usize, 0..3usize, prop::collection::vec(0..4usize, 0..3), 0..3i64), 0..60),
    ) {
        let (now, mut index) = (Instant::now(), Index::new(Duration::ZERO, usize::MAX));
        let mut model: HashMap<&str, (Pod, bool)> = HashMap::new();
        for (value, (what, key, names, rank)) in steps.into_iter().enumerate() {
            let mut names: Vec<_> = names.into_iter().map(|at| NAMES[at]).collect();
            names.dedup();
            let object = Pod { key: KEYS[key], names, rank, value };
            let event = match what {
                0 => {
                    model.values_mut().for_each(|(_, is_listed)| *is_listed = false);
                    Event::Restarted
                }
                1 => {
                    model.retain(|_, (_, is_listed)| *is_listed);
                    Event::Listed
                }
                2 => {
                    model.remove(object.key);
                    Event::Deleted(object)
                }
                _ => {
                    model.insert(object.key, (object.clone(), true));
                    Event::Modified(object)
                }
            };
            index.apply(event, now);
            index.expire(now);
        }
        prop_assert_eq!(index.len(), model.len());
        for (key, (object, _)) in &model {
            prop_assert_eq!(&**index.get(key).expect("is held"), object);
        }
        for name in NAMES {
            if let Some(found) = index.find(&name.to_owned()) {
                let held = model.get(found.key).map(|(object, _)| object.value);
                prop_assert_eq!(held, Some(found.value));
                prop_assert!(found.names.contains(&name));
            }
        }
        prop_assert_eq!(index.weight(), model.len() * (1000 + OVERHEAD_BYTES));
    }
}
