//! The settings of the mapping from OTLP.

use crate::names::{Strategy, label_name};

/// The protobuf message of remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// `prometheus.WriteRequest`, of remote write 1.0.
    #[default]
    V1,
    /// `io.prometheus.write.v2.Request`, of remote write 2.0.
    V2,
}

/// The form of histograms with explicit bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CustomBuckets {
    /// Series `_bucket`, `_sum` and `_count`.
    #[default]
    Classic,
    /// Native histograms with custom buckets.
    Native,
    Both,
}

/// Resource attributes that become labels of every series.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResourceLabels {
    #[default]
    None,
    All,
    /// All but `service.name`, `service.namespace` and `service.instance.id`.
    AllButService,
    /// Those that match a pattern of the first list, or any if it is empty, and none of the second.
    Matching {
        included: Vec<Pattern>,
        excluded: Vec<Pattern>,
    },
}

impl ResourceLabels {
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        match self {
            ResourceLabels::None => false,
            ResourceLabels::All => true,
            ResourceLabels::AllButService => !SERVICE_KEYS.contains(&key),
            ResourceLabels::Matching { included, excluded } => {
                let matches = |list: &[Pattern]| list.iter().any(|it| it.matches(key));
                !matches(excluded) && (included.is_empty() || matches(included))
            }
        }
    }
}

pub(crate) const SERVICE_NAME: &[u8] = b"service.name";
pub(crate) const SERVICE_NAMESPACE: &[u8] = b"service.namespace";
pub(crate) const SERVICE_INSTANCE: &[u8] = b"service.instance.id";
/// The attributes that `job` and `instance` are made of.
pub(crate) const SERVICE_KEYS: [&[u8]; 3] = [SERVICE_NAME, SERVICE_NAMESPACE, SERVICE_INSTANCE];

/// A pattern in which `*` stands for any text and `?` for any character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<char>);

impl Pattern {
    pub fn new(text: &str) -> Pattern {
        let mut chars: Vec<char> = text.chars().collect();
        chars.dedup_by(|next, before| *next == '*' && *before == '*');
        Pattern(chars)
    }

    /// Goes back to the last star only: time grows with the product of both lengths at most.
    fn matches(&self, key: &[u8]) -> bool {
        let key: Vec<char> = String::from_utf8_lossy(key).chars().collect();
        let (mut at, mut place) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while place < key.len() {
            match self.0.get(at) {
                Some('*') => {
                    star = Some((at, place));
                    at += 1;
                }
                Some(&wanted) if wanted == '?' || wanted == key[place] => {
                    at += 1;
                    place += 1;
                }
                _ => match &mut star {
                    Some((star_at, from)) => {
                        *from += 1;
                        (at, place) = (*star_at + 1, *from);
                    }
                    None => return false,
                },
            }
        }
        self.0[at..].iter().all(|rest| *rest == '*')
    }
}

/// As the Collector has it.
pub(crate) const TARGET_HELP: &str = "Target metadata";

/// The settings of the mapping to remote write, and to pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub version: Version,
    /// In front of the name of each metric. Empty: none.
    pub namespace: String,
    pub strategy: Strategy,
    /// Labels of every series that has none of the same name. See [`Settings::label_name`].
    pub external_labels: Vec<(String, String)>,
    pub resource_labels: ResourceLabels,
    /// Write a series `target_info` for each resource.
    pub target_info: bool,
    /// `target_info` has the external labels, too.
    pub target_external_labels: bool,
    /// Write labels `otel_scope_…`.
    pub scope_info: bool,
    /// With `scope_info`: write `otel_scope_schema_url`.
    pub scope_schema_url: bool,
    /// Write metadata in remote write 1.0. In 2.0 every series has it.
    pub send_metadata: bool,
    pub custom_buckets: CustomBuckets,
    /// The largest message, in bytes before compression.
    pub limit_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            version: Version::V1,
            namespace: String::new(),
            strategy: Strategy::default(),
            external_labels: Vec::new(),
            resource_labels: ResourceLabels::None,
            target_info: true,
            target_external_labels: true,
            scope_info: true,
            scope_schema_url: false,
            send_metadata: false,
            custom_buckets: CustomBuckets::Classic,
            limit_bytes: 3_000_000,
        }
    }
}

impl Settings {
    /// The name of a label by the strategy. `None`: nothing is left of it.
    pub fn label_name(strategy: Strategy, name: &str) -> Option<String> {
        label_name(strategy, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_and_question_marks() {
        for (pattern, key, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("service.*", "service.name", true),
            ("service.*", "services", false),
            ("a?c", "abc", true),
            ("a?c", "aéc", true),
            ("a?c", "ac", false),
            ("*a*b", "xxaxxbxb", true),
            ("*a*b", "xxaxxbx", false),
            ("a**", "a", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).matches(key.as_bytes()), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn excluded_attributes_are_no_labels_even_if_they_are_included() {
        let list = |texts: &[&str]| texts.iter().map(|text| Pattern::new(text)).collect();
        let of = |included: &[&str], excluded: &[&str]| ResourceLabels::Matching {
            included: list(included),
            excluded: list(excluded),
        };
        assert!(of(&["k8s.*"], &[]).has(b"k8s.pod"));
        assert!(!of(&["k8s.*"], &[]).has(b"host"));
        assert!(!of(&["k8s.*"], &["*.pod"]).has(b"k8s.pod"));
        assert!(of(&[], &["*.pod"]).has(b"host"));
        assert!(!ResourceLabels::AllButService.has(b"service.name"));
        assert!(ResourceLabels::AllButService.has(b"service.version"));
    }
}
