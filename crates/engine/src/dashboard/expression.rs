//! PromQL for a metric of the tables, by its kind.

use sluice_otlp::Signal;
use sluice_telemetry::table::{Declared, MetricKind, TableDoc};

use super::FILTERS;
use super::panels::Panel;

/// A forecast is shown up to this. Above it is infinity, for which a graph has no place.
pub(super) const CAP_S: u32 = 86_400;

/// One metric in a panel.
pub(super) struct Query {
    /// As docs/metrics.md has it, without the suffix of the signal's items.
    pub(super) metric: &'static str,
    pub(super) read: Read,
    /// Labels that tell lines apart.
    pub(super) by: &'static [&'static str],
    /// Regular expressions for labels' values.
    pub(super) only: &'static [(&'static str, &'static str)],
    /// In the legend, before the labels.
    pub(super) word: &'static str,
}

/// The way from a metric's samples to a line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// Gauges, added up.
    Sum,
    /// The highest gauge.
    Max,
    /// The highest gauge, as a part of another one with the same labels.
    MaxOf(&'static str),
    /// The lowest gauge, up to [`CAP_S`].
    CappedMin,
    /// Gauges, counted.
    Count,
    /// A counter's growth in a second.
    Rate,
    /// A counter's growth in the time that the dashboard shows.
    Growth,
    /// A counter as it stands, the lowest.
    Level,
}

/// A query of Grafana.
pub(super) struct Target {
    pub(super) expression: String,
    pub(super) legend: String,
}

impl Query {
    pub(super) fn metrics(&self) -> impl Iterator<Item = &'static str> {
        let other = if let Read::MaxOf(whole) = self.read { Some(whole) } else { None };
        std::iter::once(self.metric).chain(other)
    }

    pub(super) fn is_capped(&self) -> bool {
        self.read == Read::CappedMin
    }
}

/// The metrics of all tables, by name.
pub(super) struct Metrics<'a>(&'a [TableDoc]);

/// Names of a metric in all forms that a reader of `/metrics` may get, and how a legend calls it.
struct Spelling {
    names: String,
    word: &'static str,
}

impl<'a> Metrics<'a> {
    pub(super) fn new(tables: &'a [TableDoc]) -> Self {
        Metrics(tables)
    }

    /// # Panics
    /// If there is no such metric: a panel names one that was renamed or removed.
    fn find(&self, name: &str) -> (&'a TableDoc, &'a Declared) {
        let mut all =
            self.0.iter().flat_map(|table| table.metrics.iter().map(move |metric| (table, metric)));
        all.find(|(_, metric)| name_of(metric) == name)
            .unwrap_or_else(|| panic!("a panel has the metric {name}, which no table has"))
    }

    pub(super) fn meaning(&self, name: &str) -> String {
        let (_, metric) = self.find(name);
        let condition = metric.condition.map(|it| format!(" Only while {it}.")).unwrap_or_default();
        format!("{}{condition}", metric.meaning)
    }

    /// The unit of Grafana for all lines of a panel.
    pub(super) fn unit(&self, panel: &Panel) -> String {
        let units = panel.queries.iter().map(|query| self.unit_of(query));
        let mut units: Vec<String> = units.collect();
        units.dedup();
        assert!(units.len() == 1, "`{}` has several units: {units:?}", panel.title);
        units.remove(0)
    }

    fn unit_of(&self, query: &Query) -> String {
        let (_, metric) = self.find(query.metric);
        let is_bytes = metric.unit == "bytes";
        let is_seconds = metric.unit == "seconds" || metric.name.ends_with("_seconds");
        let things = match metric.by_items {
            true => "items",
            false => metric.name.rsplit('_').next().unwrap_or_default(),
        };
        match query.read {
            Read::MaxOf(_) => "percentunit".to_owned(),
            // CPU seconds a second are cores.
            Read::Rate if is_seconds => "count:cores".to_owned(),
            Read::Rate if is_bytes => "binBps".to_owned(),
            Read::Rate => format!("count:{things}/s"),
            _ if is_bytes => "bytes".to_owned(),
            _ if is_seconds => "s".to_owned(),
            _ => "short".to_owned(),
        }
    }

    /// One query; for a metric by items one for each signal.
    pub(super) fn targets(&self, query: &Query, panel: &Panel) -> Vec<Target> {
        let (table, metric) = self.find(query.metric);
        let labels = [table.labels, metric.labels].concat();
        for label in query.by.iter().chain(query.only.iter().map(|(label, _)| label)) {
            let is_of_scrape = *label == "instance";
            let has = is_of_scrape || labels.iter().any(|own| own.replace('.', "_") == *label);
            assert!(has, "`{}`: {} has no label {label}", panel.title, query.metric);
        }
        let is_counter = metric.kind == MetricKind::Counter;
        let wants_counter = matches!(query.read, Read::Rate | Read::Growth | Read::Level);
        assert!(is_counter == wants_counter, "`{}` reads {}", panel.title, query.metric);
        let target = |Spelling { names, word }: Spelling| Target {
            expression: self.expression(query, &selector(&names, &labels, query.only)),
            legend: legend(query, word, panel),
        };
        spellings(metric).into_iter().map(target).collect()
    }

    fn expression(&self, query: &Query, selected: &str) -> String {
        let by = match query.by {
            [] => String::new(),
            by => format!(" by ({}) ", by.join(", ")),
        };
        match query.read {
            Read::Sum => format!("sum{by}({selected})"),
            Read::Max => format!("max{by}({selected})"),
            Read::MaxOf(whole) => {
                let (table, metric) = self.find(whole);
                let labels = [table.labels, metric.labels].concat();
                let [spelling] =
                    spellings(metric).try_into().unwrap_or_else(|_| panic!("{whole} is by items"));
                let whole = selector(&spelling.names, &labels, query.only);
                format!("max{by}({selected} / {whole})")
            }
            Read::CappedMin => format!("clamp_max(min{by}({selected}), {CAP_S})"),
            Read::Count => format!("count{by}({selected})"),
            Read::Rate => format!("sum{by}(rate({selected}[$__rate_interval]))"),
            Read::Growth => format!("sum{by}(increase({selected}[$__range]))"),
            Read::Level => format!("min{by}({selected})"),
        }
    }
}

fn name_of(metric: &Declared) -> String {
    match (metric.by_items, metric.unit) {
        (true, _) | (_, "") => metric.name.to_owned(),
        (false, unit) => format!("{}_{unit}", metric.name),
    }
}

/// The naming of the reader decides on suffixes: see `without_type_suffix` and `without_units`.
fn spellings(metric: &Declared) -> Vec<Spelling> {
    let all = |items: &str, word| {
        let base = format!("{}{items}", metric.name);
        let with_unit = Some(metric.unit).filter(|unit| !unit.is_empty());
        let with_unit = with_unit.map(|unit| format!("{base}_{unit}"));
        // Own names always have their unit.
        let bare =
            if base.starts_with("sluice_") && with_unit.is_some() { None } else { Some(base) };
        let names = bare.into_iter().chain(with_unit).flat_map(|name| match metric.kind {
            MetricKind::Counter => vec![name.clone(), format!("{name}_total")],
            MetricKind::Gauge | MetricKind::UpDownCounter => vec![name],
        });
        Spelling { names: names.collect::<Vec<_>>().join("|"), word }
    };
    if !metric.by_items {
        return vec![all("", "")];
    }
    let words = [
        (Signal::Traces, "spans"),
        (Signal::Metrics, "metric points"),
        (Signal::Logs, "log records"),
    ];
    words.map(|(signal, word)| all(&format!("_{}", signal.items_name()), word)).into()
}

fn selector(names: &str, labels: &[&str], only: &[(&str, &str)]) -> String {
    let always = ["job", "instance"];
    let filters = FILTERS.iter().map(|(name, ..)| *name);
    let filters = filters.filter(|name| always.contains(name) || labels.contains(name));
    let filters = filters.map(|name| format!("{name}=~\"${name}\""));
    let only = only.iter().map(|(label, pattern)| format!("{label}=~\"{pattern}\""));
    let matchers: Vec<String> = filters.chain(only).collect();
    let matchers = matchers.join(",");
    // A regular expression only where there is a choice.
    match names.contains('|') {
        true => format!("{{__name__=~\"{names}\",{matchers}}}"),
        false => format!("{names}{{{matchers}}}"),
    }
}

fn legend(query: &Query, items: &str, panel: &Panel) -> String {
    let is_of_delivery = ["pipeline", "exporter"].iter().all(|label| query.by.contains(label));
    let delivery = is_of_delivery.then(|| "{{pipeline}} → {{exporter}}".to_owned());
    let others = query
        .by
        .iter()
        .filter(|label| !is_of_delivery || !["pipeline", "exporter"].contains(label));
    let others = others.map(|label| format!("{{{{{label}}}}}"));
    let words = [query.word, items].map(str::to_owned).into_iter().filter(|it| !it.is_empty());
    let parts: Vec<String> = words.chain(delivery).chain(others).collect();
    if parts.is_empty() { panel.title.to_owned() } else { parts.join(" ") }
}
