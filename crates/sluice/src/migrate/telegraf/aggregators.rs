//! Aggregators: one processor `interval` for each input.
//!
//! Telegraf gives every aggregator the metrics as they came, and the outputs what the aggregators
//! made. `merge` puts metrics of one series and time together, which InfluxDB does by itself: so it
//! means that the outputs get the samples too, as `drop_original = false` does.

use std::time::Duration;

use serde_json::{Value, json};
use sluice_config::duration;

use super::shape::Shape;
use super::source::Section;
use super::values::{self, Globs, Place};
use crate::migrate::report::Report;

const PERIOD: &str = "30s";
/// The processor's own default.
const LATENESS: Duration = Duration::from_secs(2);
const BASIC: [&str; 6] = ["count", "min", "max", "mean", "s2", "stdev"];
const KNOWN: [&str; 7] = ["count", "sum", "min", "max", "mean", "first", "last"];
/// Behind a measurement in a metric's name.
const FIELD_BEHIND: &str = "(_.*)?";

/// Statistics of the metrics that an aggregator takes.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    line: usize,
    name: String,
    /// All measurements, if there are none.
    metrics: Globs,
    fields: Option<Globs>,
    statistics: Vec<String>,
    quantiles: Vec<f64>,
    /// Samples that it takes are not sent themselves.
    drops: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Aggregation {
    rules: Vec<Rule>,
    period: Option<String>,
    lateness: Option<Duration>,
    /// Tags that are left out before, by every aggregator.
    excluded: Vec<String>,
    excluded_line: usize,
    /// The samples are sent, whatever the other aggregators drop.
    is_merged: bool,
}

/// The processor of an input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Interval {
    pub config: Value,
    /// Tags that are left out before, if no sample is sent itself.
    pub excluded: Vec<String>,
    /// The line of `tagexclude`.
    pub excluded_line: usize,
    /// Some samples at least are sent themselves.
    pub has_samples: bool,
    /// Some samples at least are not.
    pub drops: bool,
}

/// All metrics, for a rule.
const ALL: &str = ".*";

const FILTERS: [(&str, &str); 8] = [
    ("namedrop", "name the metrics that are aggregated in `namepass`"),
    ("fieldexclude", FIELDS),
    ("fielddrop", FIELDS),
    ("tagpass", "a rule of `interval` goes by the names of metrics"),
    ("tagdrop", "a rule of `interval` goes by the names of metrics"),
    ("metricpass", "a rule of `interval` goes by the names of metrics"),
    ("taginclude", "name the tags that are left out in `tagexclude`, or fewer in `tag_keys`"),
    ("name_override", NAMES),
];
/// The place of remarks on tags.
const TAGS: &str = "aggregators: tagexclude";
const NAMES: &str = "a statistic is a field of the measurement that it is made of";
const FIELDS: &str = "name the fields that are aggregated in `fieldinclude`";

/// Reads the aggregators. None if nothing is aggregated.
pub(super) fn read(plugins: Vec<(String, Section)>, report: &mut Report) -> Option<Aggregation> {
    let mut found = Aggregation::default();
    let mut exclusions = Vec::new();
    for (kind, mut section) in plugins {
        if !["basicstats", "minmax", "quantile", "merge"].contains(&kind.as_str()) {
            report.left_out(section.line, &section.name, remedy(&kind));
            continue;
        }
        if kind == "merge" {
            found.is_merged = true;
            section.ignore(&["drop_original"]);
            section.ignore(&["period", "grace", "delay", "round_timestamp_to"]);
            section.finish(report);
            continue;
        }
        let excluded = excluded(&mut section, report);
        if let Some(rule) = read_rule(&kind, section, &mut found, report) {
            add(&mut found.rules, rule, report);
            exclusions.push(excluded);
        }
    }
    found.exclude(&exclusions, report);
    (!found.rules.is_empty()).then_some(found)
}

fn remedy(kind: &str) -> String {
    match kind {
        "final" => "the processor `interval` has `last`, which is written each interval and not \
                    when a series ends"
            .to_owned(),
        "valuecounter" => "no processor counts values; count points by a tag instead, with \
                           `statistics: [count]`"
            .to_owned(),
        kind => format!(
            "Sluice has no `{kind}`: keep Telegraf for it, and let its `outputs.influxdb` write to \
             Sluice's receiver `influxdb`"
        ),
    }
}

/// The tags that an aggregator excludes, sorted, and their line.
fn excluded(section: &mut Section, report: &mut Report) -> (usize, Vec<String>) {
    let (line, mut tags) = section.texts("tagexclude", report).unwrap_or_default();
    if !Globs(tags.clone()).are_names() {
        let text = "list the tags one by one: `attributes` leaves out tags by name";
        report.left_out(line, &section.place("tagexclude"), text);
        tags.clear();
    }
    tags.sort();
    tags.dedup();
    (line, tags)
}

fn read_rule(
    kind: &str,
    mut section: Section,
    found: &mut Aggregation,
    report: &mut Report,
) -> Option<Rule> {
    let (line, name) = (section.line, section.name.clone());
    if !read_period(&mut section, found, report) {
        return None;
    }
    let mut globs = |key: &str| section.texts(key, report).map(|(_, globs)| Globs(globs));
    let metrics = globs("namepass").unwrap_or_default();
    let fields = globs("fieldinclude").or_else(|| globs("fieldpass"));
    let drops = section.boolean("drop_original", report) == Some(true);
    let (mut statistics, mut quantiles) = (Vec::new(), Vec::new());
    match kind {
        "basicstats" => statistics = read_stats(&mut section, report),
        "minmax" => statistics = vec!["min".to_owned(), "max".to_owned()],
        _ => quantiles = read_quantiles(&mut section, report),
    }
    section.refuse(&FILTERS, report);
    section.finish(report);
    let is_empty = statistics.is_empty() && quantiles.is_empty();
    (!is_empty).then_some(Rule { line, name, metrics, fields, statistics, quantiles, drops })
}

/// False if the aggregator has another period than the ones before.
fn read_period(section: &mut Section, found: &mut Aggregation, report: &mut Report) -> bool {
    let (line, period) =
        section.text("period", report).unwrap_or((section.line, PERIOD.to_owned()));
    let place = section.place("period");
    let period = values::duration(&period, &Place { line, name: &place }, report);
    let period = period.unwrap_or_else(|| PERIOD.to_owned());
    let mut late = Duration::ZERO;
    for key in ["delay", "grace"] {
        if let Some((_, text)) = section.text(key, report) {
            late += values::parsed(&text).unwrap_or_default();
        }
    }
    if late > found.lateness.unwrap_or(LATENESS) {
        found.lateness = Some(late);
    }
    match &found.period {
        Some(first) if *first != period => {
            let text = format!(
                "all metrics of an input have one interval, {first}: give the aggregators one \
                 period"
            );
            report.left_out(line, &place, text);
            false
        }
        _ => {
            found.period = Some(period);
            true
        }
    }
}

fn read_stats(section: &mut Section, report: &mut Report) -> Vec<String> {
    let default = || BASIC.map(str::to_owned).to_vec();
    let (line, stats) = section.texts("stats", report).unwrap_or_else(|| (section.line, default()));
    let (known, others): (Vec<_>, Vec<_>) =
        stats.into_iter().partition(|stat| KNOWN.contains(&stat.as_str()));
    if !others.is_empty() {
        let others = others.join(", ");
        let text = format!("`interval` has no {others}; it has quantiles (`quantiles: [0.95]`)");
        report.left_out(line, &section.place("stats"), text);
    }
    known
}

fn read_quantiles(section: &mut Section, report: &mut Report) -> Vec<f64> {
    section.ignore(&["algorithm", "compression"]);
    match section.texts("quantiles", report) {
        None => vec![0.25, 0.5, 0.75],
        Some((line, texts)) => {
            let quantile = |text: &String| text.parse().ok().filter(|it| (0.0..=1.0).contains(it));
            let (known, wrong): (Vec<_>, Vec<_>) =
                texts.iter().partition(|text| quantile(text).is_some());
            if !wrong.is_empty() {
                let text = "has a value that is no number from 0 to 1";
                report.left_out(line, &section.place("quantiles"), text);
            }
            known.into_iter().filter_map(quantile).collect()
        }
    }
}

/// Rules for the same metrics become one, as the first that matches a metric counts. One that drops
/// them is enough.
fn add(rules: &mut Vec<Rule>, rule: Rule, report: &mut Report) {
    if let Some(same) =
        rules.iter_mut().find(|it| it.metrics == rule.metrics && it.fields == rule.fields)
    {
        same.drops |= rule.drops;
        let new = |it: &String| !same.statistics.contains(it);
        let statistics: Vec<String> = rule.statistics.into_iter().filter(new).collect();
        same.statistics.extend(statistics);
        for quantile in rule.quantiles {
            if !same.quantiles.contains(&quantile) {
                same.quantiles.push(quantile);
            }
        }
        return;
    }
    let overlaps = rules.iter().any(|it| {
        let are_names = it.metrics.are_names() && rule.metrics.are_names();
        let is_for_all = it.metrics.0.is_empty() || rule.metrics.0.is_empty();
        is_for_all || !are_names || it.metrics.0.iter().any(|name| rule.metrics.0.contains(name))
    });
    if overlaps {
        let text = "another aggregator may take the same metrics: give both the same `namepass`, \
                    or names that none of them shares";
        report.left_out(rule.line, &rule.name, text);
        return;
    }
    rules.push(rule);
}

impl Aggregation {
    /// Tags are left out before all rules, so that it has to be the same ones for all.
    fn exclude(&mut self, exclusions: &[(usize, Vec<String>)], report: &mut Report) {
        let Some((_, first)) = exclusions.first() else { return };
        let are_same = exclusions.iter().all(|(_, tags)| tags == first);
        for (line, tags) in exclusions.iter().filter(|(_, tags)| !tags.is_empty()) {
            if are_same {
                self.excluded_line = *line;
                self.excluded.clone_from(tags);
            } else {
                let text = "tags are left out for all aggregators: give each the same `tagexclude`";
                report.left_out(*line, TAGS, text);
            }
        }
    }

    /// The processor for an input. `shape`: the names of k6's samples, if it has them. None if no
    /// rule is for it.
    pub(super) fn interval(&self, shape: Option<&Shape>, report: &mut Report) -> Option<Interval> {
        let (mut rules, mut keeps, mut drops) = (Vec::new(), false, false);
        for rule in &self.rules {
            let Some(mut option) = rule.option(shape, report) else { continue };
            let is_kept = self.is_merged || !rule.drops;
            if is_kept {
                option["keep_points"] = json!(true);
            }
            keeps |= is_kept;
            drops |= !is_kept;
            rules.push(option);
        }
        if rules.is_empty() {
            return None;
        }
        let passes = !rules.iter().any(|rule| rule["metrics"] == json!([ALL]));
        let period = self.period.clone().unwrap_or_else(|| PERIOD.to_owned());
        let mut config = json!({"interval": period});
        if let Some(lateness) = self.lateness {
            config["allowed_lateness"] = json!(duration::format(lateness));
        }
        if passes {
            config["pass_through"] = json!({"gauge": true, "delta_sum": true, "summary": true});
        }
        config["rules"] = Value::Array(rules);
        let has_samples = keeps || passes;
        let mut excluded = self.excluded.clone();
        if has_samples && !excluded.is_empty() {
            let text = "samples are sent too, and have these tags: give all aggregators \
                        `drop_original = true` and no `namepass`, or exclude them at the outputs";
            report.left_out(self.excluded_line, TAGS, text);
            excluded.clear();
        }
        let excluded_line = self.excluded_line;
        Some(Interval { config, excluded, excluded_line, has_samples, drops })
    }
}

impl Rule {
    fn option(&self, shape: Option<&Shape>, report: &mut Report) -> Option<Value> {
        let field = shape.map_or("value", |shape| &shape.field);
        match (&self.fields, shape) {
            (Some(fields), Some(_)) if !fields.matches(field) => return None,
            (Some(_), None) => {
                let text = "fields are aggregated whatever their names are";
                report.left_out(self.line, &format!("{}: fieldinclude", self.name), text);
            }
            _ => {}
        }
        let is_for_all = self.metrics.0.is_empty();
        let named = shape.and_then(|shape| shape.is_named(&self.metrics));
        if !is_for_all && named == Some(false) {
            return None;
        }
        let (match_type, metrics) = match (is_for_all || named == Some(true), shape) {
            (true, _) => ("regexp", vec![ALL.to_owned()]),
            (false, Some(shape)) => {
                let behind = shape.behind_measurement();
                match self.metrics.are_names() && behind.is_empty() {
                    true => ("strict", self.metrics.0.clone()),
                    false => ("regexp", self.metrics.regexps(&behind)),
                }
            }
            (false, None) => ("regexp", self.metrics.regexps(FIELD_BEHIND)),
        };
        let mut rule =
            json!({"metrics": metrics, "match_type": match_type, "influxdb_field": field});
        if !self.statistics.is_empty() {
            rule["statistics"] = json!(self.statistics);
        }
        if !self.quantiles.is_empty() {
            rule["quantiles"] = json!(self.quantiles);
        }
        Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn aggregation(text: &str, report: &mut Report) -> Option<Aggregation> {
        let mut root = source::read(text).unwrap();
        let plugins = root.section("aggregators", report).unwrap().plugins(report);
        read(plugins, report)
    }

    fn shape() -> Shape {
        Shape { field: "data_value".to_owned(), ..Shape::default() }
    }

    /// Guarantee: aggregators of the same metrics become one rule; statistics that are not there
    /// are named with their line; `merge` means that samples are sent as well.
    #[test]
    fn aggregators_become_rules() {
        let mut report = Report::default();
        let text = "[[aggregators.basicstats]]\nperiod = '1s'\ndrop_original = true\n\
                    stats = ['sum', 'mean', 'stdev']\n[[aggregators.quantile]]\nperiod = '1s'\n\
                    drop_original = true\nquantiles = [0.95]\n[[aggregators.merge]]\n\
                    drop_original = true\n";
        let found = aggregation(text, &mut report).unwrap();
        let left = report.left();
        assert_eq!(left.len(), 1);
        assert!(left[0].0 == 4 && left[0].1.contains("stdev"), "{left:?}");
        let expected = json!({"interval": "1s", "rules": [{"metrics": [".*"],
            "match_type": "regexp", "influxdb_field": "data_value",
            "statistics": ["sum", "mean"], "quantiles": [0.95], "keep_points": true}]});
        let interval = found.interval(Some(&shape()), &mut report).unwrap();
        assert_eq!(interval.config, expected);
        assert!(interval.has_samples && !interval.drops);
        let text = "[[aggregators.minmax]]\ndrop_original = true\n";
        let found = aggregation(text, &mut Report::default()).unwrap();
        let interval = found.interval(Some(&shape()), &mut report).unwrap();
        assert!(!interval.has_samples && interval.drops);
    }

    /// Guarantee: metrics that no aggregator takes pass, by name or by pattern; what cannot be told
    /// apart is refused.
    #[test]
    fn names_are_kept_apart() {
        let mut report = Report::default();
        let text = "[[aggregators.basicstats]]\nnamepass = ['vus', 'http_reqs']\nstats = ['sum']\n\
                    drop_original = true\ndelay = '3s'\ngrace = '2s'\n\
                    [[aggregators.minmax]]\nnamepass = ['iterations']\n";
        let found = aggregation(text, &mut report).unwrap();
        let Interval { config, .. } = found.interval(Some(&shape()), &mut report).unwrap();
        assert_eq!(config["rules"][0]["metrics"], json!(["vus", "http_reqs"]));
        assert_eq!(config["rules"][1]["match_type"], json!("strict"));
        assert_eq!(config["allowed_lateness"], json!("5s"));
        assert_eq!(config["pass_through"]["delta_sum"], json!(true));
        assert!(report.is_whole());
        let lines = found.interval(None, &mut report).unwrap();
        assert_eq!(lines.config["rules"][1]["metrics"], json!(["^iterations(_.*)?$$"]));
        let fixed = Shape { measurement: Some("tail".to_owned()), ..shape() };
        assert_eq!(found.interval(Some(&fixed), &mut report), None);
        for text in [
            "[[aggregators.basicstats]]\nstats = ['sum']\n[[aggregators.minmax]]\nnamepass=['a']",
            "[[aggregators.basicstats]]\nstats = ['sum']\n[[aggregators.minmax]]\nperiod = '1s'",
            "[[aggregators.final]]",
            "[[aggregators.minmax]]\nnamedrop = ['x']",
        ] {
            let mut report = Report::default();
            aggregation(text, &mut report);
            assert_eq!(report.left().len(), 1, "{text}: {:?}", report.left());
        }
    }
}
