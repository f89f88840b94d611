//! Samples of tables of metrics, collected at each scrape or report; the Prometheus text format.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::table::{Declared, MetricKind, Table};

/// One value of a metric, with its labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub labels: Vec<(&'static str, String)>,
    pub value: f64,
}

/// A metric at one moment.
#[derive(Clone, Debug)]
pub struct Family {
    pub declared: Declared,
    pub samples: Vec<Sample>,
}

/// All metrics at one moment, by name.
pub type Families = BTreeMap<String, Family>;

/// The form of metrics' names. The Collector's names carry `_total` and unit suffixes or not,
/// depending on its own configuration: dashboards exist for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Leave `_total` off counters (`without_type_suffix`, and the Collector's older default).
    pub without_type_suffix: bool,
    /// Leave unit suffixes such as `_seconds` off (`without_units`).
    pub without_units: bool,
    /// Labels of every sample that has none of the name itself: see [`labels_of_resource`].
    pub constant_labels: Vec<(String, String)>,
    /// Those of [`TARGET_INFO`].
    pub target_labels: Vec<(String, String)>,
}

/// A metric whose labels are the attributes of the process, as OpenTelemetry has it for Prometheus.
/// In OTLP the resource says it.
pub const TARGET_INFO: &str = "target_info";

/// The prefix for an attribute's name that cannot begin a label.
const LABEL_PREFIX: &str = "key_";

/// The attributes of a resource as labels, named as OpenTelemetry has it for Prometheus, as in
/// `service_name`. Of attributes that become one label the values are joined by `;`, by name.
pub fn labels_of_resource<'a>(
    attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<(String, String)> {
    let attributes: BTreeMap<&str, &str> = attributes.into_iter().collect();
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in attributes {
        let joined = labels.entry(label_name(name)).or_default();
        if !joined.is_empty() {
            joined.push(';');
        }
        joined.push_str(value);
    }
    labels.into_iter().collect()
}

fn label_name(attribute: &str) -> String {
    let cleaned = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    let name: String = attribute.chars().map(cleaned).collect();
    // Two underscores are Prometheus' own.
    let can_begin =
        name.starts_with(|first: char| !first.is_ascii_digit()) && !name.starts_with("__");
    if can_begin { name } else { format!("{LABEL_PREFIX}{}", name.trim_start_matches('_')) }
}

impl Naming {
    /// The names of OTLP, which are the Collector's own: suffixes are for Prometheus.
    pub const fn of_otlp() -> Self {
        Naming {
            without_type_suffix: true,
            without_units: true,
            constant_labels: Vec::new(),
            target_labels: Vec::new(),
        }
    }
}

impl Default for Naming {
    /// As declared, with units. A gateway has the configuration's `PrometheusReader::default`.
    fn default() -> Self {
        Naming { without_units: false, ..Naming::of_otlp() }
    }
}

/// The prefix of metrics that the Collector lacks: their unit is always part of the name.
const OWN_PREFIX: &str = "sluice_";

/// Collects samples by family, so that components may report in any order.
pub struct Exposition<'a> {
    naming: &'a Naming,
    families: Families,
}

impl<'a> Exposition<'a> {
    pub fn new(naming: &'a Naming) -> Self {
        Exposition { naming, families: BTreeMap::new() }
    }

    /// Writes all metrics of a table. `labels` are the values of its labels, in their order.
    pub fn write<S>(&mut self, table: &Table<S>, labels: &[&str], source: &S) {
        debug_assert_eq!(labels.len(), table.labels.len(), "{}", table.title);
        let table_labels: Vec<_> =
            table.labels.iter().copied().zip(labels.iter().copied()).collect();
        for metric in table.metrics {
            let (declared, table_labels) = (&metric.declared, &table_labels);
            (metric.read)(source, &mut Series { exposition: self, declared, table_labels });
        }
    }

    fn full_name(&self, declared: &Declared, items: &str) -> String {
        // Only the Collector's names exist in both spellings.
        let is_spelled_out = !self.naming.without_units || declared.name.starts_with(OWN_PREFIX);
        let mut full = declared.name_of(items, if is_spelled_out { declared.unit } else { "" });
        if declared.kind == MetricKind::Counter && !self.naming.without_type_suffix {
            full.push_str("_total");
        }
        full
    }

    fn sample(&mut self, declared: &Declared, name: String, sample: Sample) {
        let new = || Family { declared: *declared, samples: Vec::new() };
        let Family { samples, .. } = self.families.entry(name).or_insert_with(new);
        debug_assert!(
            !samples.iter().any(|other| other.labels == sample.labels),
            "{}{:?} is written twice, which Prometheus refuses",
            declared.name,
            sample.labels
        );
        samples.push(sample);
    }

    /// All that was collected.
    pub fn families(self) -> Families {
        self.families
    }

    /// The text of a scrape, `text/plain; version=0.0.4`.
    pub fn render(self) -> String {
        let mut text = String::new();
        for (name, Family { declared: Declared { kind, meaning, .. }, samples }) in self.families {
            let kind = kind.as_str();
            let _ = writeln!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
            let Naming { constant_labels, target_labels, .. } = self.naming;
            let constant = if name == TARGET_INFO { target_labels } else { constant_labels };
            for sample in samples {
                write_sample(&mut text, &name, &sample, constant);
            }
        }
        text
    }
}

fn write_sample(text: &mut String, name: &str, sample: &Sample, constant: &[(String, String)]) {
    let Sample { labels, value } = sample;
    let is_own = |key: &str| labels.iter().any(|(own, _)| *own == key);
    let own = labels.iter().map(|(key, value)| (*key, value.as_str()));
    let constant = constant.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let pairs = own.chain(constant.filter(|(key, _)| !is_own(key)));
    text.push_str(name);
    for (index, (key, value)) in pairs.clone().enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        let key = key.replace('.', "_");
        let _ = write!(text, "{before}{key}=\"{}\"", escaped(value));
    }
    if pairs.count() > 0 {
        text.push('}');
    }
    let _ = match *value == f64::INFINITY {
        true => writeln!(text, " +Inf"),
        false => writeln!(text, " {value}"),
    };
}

/// The series of one metric, while its table is written.
pub struct Series<'e, 'n> {
    exposition: &'e mut Exposition<'n>,
    declared: &'e Declared,
    table_labels: &'e [(&'static str, &'e str)],
}

impl Series<'_, '_> {
    /// `labels` are the values of the metric's own labels, in their order.
    pub fn add(&mut self, labels: &[&str], value: f64) {
        self.add_items("", labels, value);
    }

    /// For a metric that is declared by items: its name ends in `items`.
    pub fn add_items(&mut self, items: &str, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), self.declared.labels.len(), "{}", self.declared.name);
        debug_assert_eq!(self.declared.by_items, !items.is_empty(), "{}", self.declared.name);
        let name = self.exposition.full_name(self.declared, items);
        let own = self.declared.labels.iter().copied().zip(labels.iter().copied());
        let labels = self.table_labels.iter().copied().chain(own);
        let labels = labels.map(|(key, value)| (key, value.to_owned())).collect();
        self.exposition.sample(self.declared, name, Sample { labels, value });
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    fn rendered<S: 'static>(
        naming: &Naming,
        table: &Table<S>,
        labels: &[&str],
        source: &S,
    ) -> String {
        let mut exposition = Exposition::new(naming);
        exposition.write(table, labels, source);
        exposition.render()
    }

    #[test]
    fn whatever_a_resource_is_called_its_labels_are_valid_and_no_label_is_there_twice() {
        let attributes = [
            ("service.name", "a"),
            ("my label", "b"),
            ("my-label", "c"),
            ("1st", "d"),
            ("__name__", "e"),
        ];
        let constant_labels = labels_of_resource(attributes.into_iter().chain([
            ("pipeline", "f"),
            ("größe", "g"),
            ("", "h"),
        ]));
        let names: Vec<_> =
            constant_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "gr__e=g",
            "key_=h",
            "key_1st=d",
            "key_name__=e",
            "my_label=b;c",
            "pipeline=f",
            "service_name=a",
        ];
        assert_eq!(names, expected);
        let naming = Naming { constant_labels, ..Naming::default() };
        const TABLE: Table<()> =
            Table { title: "", labels: &["pipeline"], metrics: &[row!(Gauge "a", |()| 1.0, "A.")] };
        let text = rendered(&naming, &TABLE, &["own"], &());
        assert!(
            text.contains("a{pipeline=\"own\",gr__e=\"g\"") && !text.contains("pipeline=\"f\""),
            "{text}"
        );
    }

    #[test]
    fn families_are_whole_however_samples_arrive_and_labels_are_escaped() {
        let naming = Naming { without_type_suffix: false, ..Naming::default() };
        const TABLE: Table<u64> = Table {
            title: "",
            labels: &[],
            metrics: &[
                row!(Counter "b" by ["x"], |count, series| {
                    series.add(&["a\"b\\c\n"], *count as f64);
                    series.add(&["d"], 2.0);
                }, "B."),
                row!(Gauge "a" in "bytes", |_| 1.5, "A."),
                row!(Gauge "c", |_| f64::INFINITY, "C."),
            ],
        };
        assert_eq!(
            rendered(&naming, &TABLE, &[], &1),
            "# HELP a_bytes A.\n# TYPE a_bytes gauge\na_bytes 1.5\n\
             # HELP b_total B.\n# TYPE b_total counter\nb_total{x=\"a\\\"b\\\\c\\n\"} 1\n\
             b_total{x=\"d\"} 2\n\
             # HELP c C.\n# TYPE c gauge\nc +Inf\n"
        );
    }

    #[test]
    fn names_follow_the_configured_suffixes() {
        let naming = Naming {
            without_type_suffix: true,
            without_units: true,
            constant_labels: vec![("service_name".into(), "sluice".into())],
            target_labels: Vec::new(),
        };
        const TABLE: Table<()> = Table {
            title: "",
            labels: &[],
            metrics: &[
                row!(Counter "process_uptime" in "seconds", |()| 0.25, "Up."),
                row!(Counter "sluice_wait" in "seconds", |()| 1.0, "Waiting."),
            ],
        };
        let text = rendered(&naming, &TABLE, &[], &());
        assert!(text.contains("\nprocess_uptime{service_name=\"sluice\"} 0.25\n"), "{text}");
        assert!(text.contains("\nsluice_wait_seconds{"), "our own always have their unit: {text}");
        let naming = Naming { without_type_suffix: false, ..Naming::default() };
        let text = rendered(&naming, &TABLE, &[], &());
        assert!(text.contains("\nprocess_uptime_seconds_total 0.25\n"), "{text}");
    }

    /// Guarantee: a metric by items is documented under the names and labels that it is written
    /// with.
    #[test]
    fn tables_describe_what_they_write() {
        const TABLE: Table<()> = Table {
            title: "T",
            labels: &["receiver"],
            metrics: &[row!(Counter "taken" by ["transport"], |(), series| {
                series.add_items("spans", &["grpc"], 1.0);
            }, "Taken.")
            .by_items()
            .only("sometimes")],
        };
        let text = rendered(&Naming::default(), &TABLE, &["otlp"], &());
        assert!(text.contains("\ntaken_spans{receiver=\"otlp\",transport=\"grpc\"} 1\n"), "{text}");
        let doc = TABLE.describe();
        assert_eq!(
            doc.metrics[0].names(),
            ["taken_spans", "taken_metric_points", "taken_log_records"]
        );
        assert_eq!([doc.labels, doc.metrics[0].labels], [["receiver"], ["transport"]]);
        assert_eq!(doc.metrics[0].condition, Some("sometimes"));
    }
}
