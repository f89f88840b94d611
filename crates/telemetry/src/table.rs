//! Tables of metrics. A component declares its metrics, with name, kind, unit, labels and meaning,
//! together with how each is read. Both the text of `/metrics` and the documentation come from the
//! same table, so that neither can have a metric that the other lacks.

use std::sync::atomic::{AtomicU64, Ordering};

use sluice_otlp::Signal;

use crate::exposition::Series;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    /// A number of things that come and go. For Prometheus a gauge.
    UpDownCounter,
}

impl MetricKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge | MetricKind::UpDownCounter => "gauge",
        }
    }
}

/// The metrics of one component, read from an `S`.
pub struct Table<S: 'static> {
    pub title: &'static str,
    /// Labels that all its metrics have.
    pub labels: &'static [&'static str],
    pub metrics: &'static [Metric<S>],
}

/// A value that is read as it is.
pub trait Number {
    fn value(&self) -> f64;
}

impl Number for u64 {
    fn value(&self) -> f64 {
        *self as f64
    }
}

impl Number for bool {
    fn value(&self) -> f64 {
        f64::from(*self)
    }
}

impl Number for AtomicU64 {
    fn value(&self) -> f64 {
        self.load(Ordering::Relaxed) as f64
    }
}

/// A row of a table: its value is a field of the table's `Sample`, or read by a function. With `by`
/// and its labels the function adds series.
#[macro_export]
macro_rules! row {
    ($kind:ident $name:literal $(in $unit:literal)? = $($field:ident).+, $meaning:literal) => {
        $crate::row!($kind $name $(in $unit)?,
            |it: &Sample| $crate::table::Number::value(&it.$($field).+), $meaning)
    };
    ($kind:ident $name:literal $(in $unit:literal)?, $read:expr, $meaning:literal) => {
        $crate::row!($kind $name by [] $(in $unit)?, |it, series| {
            let read: fn(&_) -> f64 = $read;
            series.add(&[], read(it));
        }, $meaning)
    };
    ($kind:ident $name:literal by [$($label:literal),*] $(in $unit:literal)?, $read:expr,
     $meaning:literal) => {
        $crate::table::Metric::new(
            $crate::table::MetricKind::$kind, $name, concat!($($unit)?), &[$($label),*], $meaning,
            $read)
    };
}

/// One metric: its declaration, and how it is read.
pub struct Metric<S: 'static> {
    pub(crate) declared: Declared,
    pub(crate) read: fn(&S, &mut Series<'_, '_>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The name without unit and suffix.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: &'static str,
    /// Labels beside those of the table.
    pub labels: &'static [&'static str],
    pub meaning: &'static str,
    /// The name ends in the signal's name for its items.
    pub by_items: bool,
    /// When the metric exists. None: always.
    pub condition: Option<&'static str>,
}

impl<S> Metric<S> {
    /// As [`crate::row`] writes it.
    pub const fn new(
        kind: MetricKind,
        name: &'static str,
        unit: &'static str,
        labels: &'static [&'static str],
        meaning: &'static str,
        read: fn(&S, &mut Series<'_, '_>),
    ) -> Self {
        let (by_items, condition) = (false, None);
        let declared = Declared { name, kind, unit, labels, meaning, by_items, condition };
        Metric { declared, read }
    }

    /// The name ends in the `items` of [`Series::add_items`].
    #[must_use]
    pub const fn by_items(mut self) -> Self {
        self.declared.by_items = true;
        self
    }

    /// It exists only at times.
    #[must_use]
    pub const fn only(mut self, condition: &'static str) -> Self {
        self.declared.condition = Some(condition);
        self
    }
}

/// A table's declarations, for documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDoc {
    pub title: &'static str,
    /// Labels that all its metrics have.
    pub labels: &'static [&'static str],
    pub metrics: Vec<Declared>,
}

impl<S> Table<S> {
    pub fn describe(&self) -> TableDoc {
        let metrics = self.metrics.iter().map(|metric| metric.declared).collect();
        TableDoc { title: self.title, labels: self.labels, metrics }
    }
}

impl Declared {
    /// The names with unit, without the suffix of counters. Several for a metric by items.
    pub fn names(&self) -> Vec<String> {
        let by_signal = Signal::ALL.map(Signal::items_name);
        let items: &[&str] = if self.by_items { &by_signal } else { &[""] };
        items.iter().map(|items| self.name_of(items, self.unit)).collect()
    }

    pub(crate) fn name_of(&self, items: &str, unit: &str) -> String {
        let mut name = self.name.to_owned();
        for part in [items, unit].into_iter().filter(|part| !part.is_empty()) {
            name.push('_');
            name.push_str(part);
        }
        name
    }
}
