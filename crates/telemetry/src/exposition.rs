//! The Prometheus text format, written afresh at each scrape from the counters that stand beside the code they count.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How metrics are named. The Collector's names carry `_total` and unit suffixes or not, depending on its own configuration:
/// dashboards exist for both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// Leave `_total` off counters (`without_type_suffix`, and the Collector's older default).
    pub without_type_suffix: bool,
    /// Leave unit suffixes such as `_seconds` off (`without_units`).
    pub without_units: bool,
    /// Labels that every sample carries that has none of the name itself (see [`labels_of_resource`]).
    pub constant_labels: Vec<(String, String)>,
}

/// What stands before the name of an attribute that cannot begin a label's.
const LABEL_PREFIX: &str = "key_";

/// The attributes of a resource as labels, named as OpenTelemetry's compatibility with Prometheus says: `service.name` is `service_name`.
/// Of attributes that become one label the values are joined by `;`, in the order of their names.
pub fn labels_of_resource<'a>(attributes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<(String, String)> {
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
    let can_begin = name.starts_with(|first: char| !first.is_ascii_digit()) && !name.starts_with("__");
    if can_begin { name } else { format!("{LABEL_PREFIX}{}", name.trim_start_matches('_')) }
}

impl Default for Naming {
    fn default() -> Self {
        Naming { without_type_suffix: true, without_units: false, constant_labels: Vec::new() }
    }
}

/// Of metrics that the Collector does not have: their unit is always part of the name.
const OWN_PREFIX: &str = "sluice_";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

struct Family {
    kind: Kind,
    help: &'static str,
    samples: String,
}

/// Collects samples by family, so that components may report in any order.
pub struct Exposition<'a> {
    naming: &'a Naming,
    families: BTreeMap<String, Family>,
}

impl<'a> Exposition<'a> {
    pub fn new(naming: &'a Naming) -> Self {
        Exposition { naming, families: BTreeMap::new() }
    }

    /// `name` without any suffix; `unit` such as `seconds` or `bytes`, empty for counts.
    pub fn counter(&mut self, name: &str, unit: &str, help: &'static str, labels: &[(&str, &str)], value: u64) {
        let suffix = if self.naming.without_type_suffix { "" } else { "_total" };
        self.sample(Kind::Counter, self.full_name(name, unit, suffix), help, labels, &value.to_string());
    }

    pub fn counter_seconds(&mut self, name: &str, help: &'static str, labels: &[(&str, &str)], seconds: f64) {
        let suffix = if self.naming.without_type_suffix { "" } else { "_total" };
        self.sample(Kind::Counter, self.full_name(name, "seconds", suffix), help, labels, &seconds.to_string());
    }

    pub fn gauge(&mut self, name: &str, unit: &str, help: &'static str, labels: &[(&str, &str)], value: f64) {
        let text = if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
        self.sample(Kind::Gauge, self.full_name(name, unit, ""), help, labels, &text);
    }

    fn full_name(&self, name: &str, unit: &str, suffix: &str) -> String {
        let mut full = name.to_owned();
        // Only the Collector's names exist in both spellings.
        let spelled_out = !self.naming.without_units || name.starts_with(OWN_PREFIX);
        if !unit.is_empty() && spelled_out {
            full.push('_');
            full.push_str(unit);
        }
        full.push_str(suffix);
        full
    }

    fn sample(&mut self, kind: Kind, name: String, help: &'static str, labels: &[(&str, &str)], value: &str) {
        let is_own = |key: &str| labels.iter().any(|(own, _)| *own == key);
        let constant = self.naming.constant_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let constant = constant.filter(|(key, _)| !is_own(key));
        let mut line = name.clone();
        let mut separator = '{';
        for (key, value) in labels.iter().copied().chain(constant) {
            let _ = write!(line, "{separator}{key}=\"");
            escape_into(value, &mut line);
            line.push('"');
            separator = ',';
        }
        if separator == ',' {
            line.push('}');
        }
        let series = line.clone() + " ";
        let _ = writeln!(line, " {value}");
        let family = self.families.entry(name).or_insert_with(|| Family { kind, help, samples: String::new() });
        debug_assert!(
            !family.samples.lines().any(|other| other.starts_with(&series)),
            "{series}is written twice, which Prometheus refuses"
        );
        family.samples.push_str(&line);
    }

    /// The text of a scrape, `text/plain; version=0.0.4`.
    pub fn render(self) -> String {
        let mut text = String::new();
        for (name, family) in self.families {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = write!(text, "# HELP {name} {}\n# TYPE {name} {kind}\n{}", family.help, family.samples);
        }
        text
    }
}

fn escape_into(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_resource_is_called_its_labels_are_valid_and_no_label_is_there_twice() {
        let attributes = [("service.name", "a"), ("my label", "b"), ("my-label", "c"), ("1st", "d"), ("__name__", "e")];
        let constant_labels =
            labels_of_resource(attributes.into_iter().chain([("pipeline", "f"), ("größe", "g"), ("", "h")]));
        let names: Vec<_> = constant_labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected =
            ["gr__e=g", "key_=h", "key_1st=d", "key_name__=e", "my_label=b;c", "pipeline=f", "service_name=a"];
        assert_eq!(names, expected);
        let naming = Naming { constant_labels, ..Naming::default() };
        let mut exposition = Exposition::new(&naming);
        exposition.gauge("a", "", "A.", &[("pipeline", "own")], 1.0);
        let text = exposition.render();
        assert!(text.contains("a{pipeline=\"own\",gr__e=\"g\"") && !text.contains("pipeline=\"f\""), "{text}");
    }

    #[test]
    fn families_are_whole_however_samples_arrive_and_labels_are_escaped() {
        let naming = Naming { without_type_suffix: false, ..Naming::default() };
        let mut exposition = Exposition::new(&naming);
        exposition.counter("b", "", "B.", &[("x", "a\"b\\c\n")], 1);
        exposition.gauge("a", "bytes", "A.", &[], 1.5);
        exposition.counter("b", "", "B.", &[], 2);
        exposition.gauge("c", "", "C.", &[], f64::INFINITY);
        assert_eq!(
            exposition.render(),
            "# HELP a_bytes A.\n# TYPE a_bytes gauge\na_bytes 1.5\n\
             # HELP b_total B.\n# TYPE b_total counter\nb_total{x=\"a\\\"b\\\\c\\n\"} 1\nb_total 2\n\
             # HELP c C.\n# TYPE c gauge\nc +Inf\n"
        );
    }

    #[test]
    fn names_follow_the_configured_suffixes() {
        let naming = Naming {
            without_type_suffix: true,
            without_units: true,
            constant_labels: vec![("service_name".into(), "sluice".into())],
        };
        let mut exposition = Exposition::new(&naming);
        exposition.counter_seconds("process_cpu", "CPU.", &[], 0.25);
        assert!(exposition.render().ends_with("process_cpu{service_name=\"sluice\"} 0.25\n"));
    }
}
