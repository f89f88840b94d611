//! The options, and which statistics a metric gets.

use std::sync::Arc;
use std::time::Duration;

use sluice_config::Fields;

use crate::fingerprint::Fingerprint;
use crate::matching::{MatchType, Strings};
use crate::series::Bounds;

/// Values that a series keeps for exact quantiles unless the configuration says otherwise.
const QUANTILE_VALUES: usize = 2048;

/// One statistic over the points of a series in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statistic {
    Sum,
    Count,
    Min,
    Max,
    Mean,
    First,
    Last,
}

impl Statistic {
    const ALL: [(&'static str, Statistic); 7] = [
        ("sum", Statistic::Sum),
        ("count", Statistic::Count),
        ("min", Statistic::Min),
        ("max", Statistic::Max),
        ("mean", Statistic::Mean),
        ("first", Statistic::First),
        ("last", Statistic::Last),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].0
    }
}

/// The statistics of a metric.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Statistics {
    pub kinds: Vec<Statistic>,
    /// Each with the ending of its metric's name: 0.99 and `p99`.
    pub quantiles: Vec<(f64, String)>,
    /// They are fields of line protocol: this one, unless the metric came as another.
    pub field: Option<String>,
    /// The points pass as well.
    pub keeps_points: bool,
}

/// Metrics by their names, and their statistics.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    names: Strings,
    pub statistics: Arc<Statistics>,
}

#[derive(Clone, Debug)]
pub(super) struct Options {
    /// Length of a bucket in nanoseconds.
    pub interval: u64,
    /// Time that a bucket waits for late points, in nanoseconds.
    pub lateness: u64,
    pub passes_gauges: bool,
    pub passes_deltas: bool,
    pub passes_summaries: bool,
    pub rules: Vec<Rule>,
    /// Values of a series in a bucket that are kept for exact quantiles.
    pub quantile_values: usize,
    pub bounds: Bounds,
}

impl Options {
    /// The statistics that a rule gives a metric.
    pub(super) fn rule(&self, name: &[u8]) -> Option<&Arc<Statistics>> {
        self.rules.iter().find(|rule| rule.names.match_text(name)).map(|rule| &rule.statistics)
    }

    pub(super) fn fingerprint(&self, kind: &str) -> u64 {
        let mut fingerprint = Fingerprint::new(kind);
        fingerprint.list(&self.rules, |out, rule| {
            Strings::fingerprint(Some(&rule.names), out);
            out.add(format!("{:?}", rule.statistics));
        });
        let Options { interval, lateness, passes_gauges, passes_summaries, .. } = self;
        let Options { passes_deltas, quantile_values, bounds, .. } = self;
        fingerprint.add(format!("{interval} {lateness} {passes_gauges} {passes_summaries}"));
        fingerprint.add(format!("{passes_deltas}"));
        fingerprint.add(format!("{quantile_values} {bounds:?}"));
        fingerprint.finish()
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(super) fn read(fields: &mut Fields<'_>) -> Options {
    let day = Duration::from_secs(86_400);
    let doc = "Length of a bucket. Buckets begin at multiples of it since 1970.";
    let range = Duration::from_millis(1)..=day;
    let interval = fields.duration_in("interval", Duration::from_secs(60), range, doc);
    let doc = "Time that a bucket waits for late points after its end. Later ones become points of \
               their own. Not an option of the Collector.";
    let range = Duration::ZERO..=day;
    let lateness = fields.duration_in("allowed_lateness", Duration::from_secs(2), range, doc);
    let doc = "Metrics that pass as they came.";
    let passing = fields.section("pass_through", doc, |fields| {
        let gauge = fields.boolean("gauge", false, "Gauges, unless `rules` name them.");
        let doc = "Sums of deltas, unless `rules` name them. Not an option of the Collector.";
        let delta = fields.boolean("delta_sum", false, doc);
        (gauge, delta, fields.boolean("summary", false, "Summaries."))
    });
    let (passes_gauges, passes_deltas, passes_summaries) = passing.unwrap_or_default();
    let doc = "Statistics of gauges and of sums of deltas, by their names: the first rule that \
               matches counts. Metrics of other kinds keep their last point, or pass. Not an \
               option of the Collector.";
    let rules = fields.sections("rules", doc, read_rule);
    let doc = "Values of a series in a bucket that are kept for exact quantiles, 8 bytes each. \
               With more, or while `memory_limit_mib` is spent, quantiles are estimates within \
               1 %. Not an option of the Collector.";
    let quantile_values =
        fields.integer("quantile_values", QUANTILE_VALUES as u32, 0..=1 << 20, doc) as usize;
    let doc = "Most series at a time, once for each bucket: points of further ones pass as they \
               came. `memory_limit_mib` bounds them in any case. Not an option of the Collector.";
    let series: u64 = fields.integer("max_series", i64::MAX as u64, 1..=i64::MAX as u64, doc);
    let doc = "Memory for open buckets, beside that of `buffer.memory`: a series takes about 400 \
               bytes and its attributes in each. While it is spent, points of new series pass as \
               they came. Not an option of the Collector.";
    let mib: u32 = fields.integer("memory_limit_mib", 64, 1..=1 << 20, doc);
    let series = usize::try_from(series).unwrap_or(usize::MAX);
    Options {
        interval: nanos(interval),
        lateness: nanos(lateness),
        passes_gauges,
        passes_deltas,
        passes_summaries,
        rules,
        quantile_values,
        bounds: Bounds { series, bytes: (mib as usize) << 20 },
    }
}

fn read_rule(fields: &mut Fields<'_>) -> Rule {
    let match_type = MatchType::read(fields);
    let doc = "Names of metrics, of which one is enough. Required.";
    let names = fields.string_list("metrics", &[], doc);
    if names.is_empty() && !fields.is_describing() {
        fields.error_at("metrics", "is missing: a rule is for metrics that it names");
    }
    let names = match names.is_empty() {
        true => Strings::Strict(names),
        false => match_type.compile(fields, "metrics", names),
    };
    let doc = "`sum`, `count`, `min`, `max`, `mean`, `first`, `last`. Each is a metric with its \
               name at the end, `NAME_max`; the sum of a sum and the last point of a gauge keep \
               the name.";
    let mut statistics = Statistics::default();
    for name in fields.string_list("statistics", &[], doc) {
        let known = Statistic::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name));
        match known {
            Some((_, kind)) if statistics.kinds.contains(kind) => {}
            Some((_, kind)) => statistics.kinds.push(*kind),
            None => {
                let message = format!("has the unknown statistic `{name}`");
                let hint = "possible are sum, count, min, max, mean, first, last; quantiles have \
                            an option of their own";
                fields.error_at_with_hint("statistics", &message, hint);
            }
        }
    }
    let doc = "Statistics are fields of line protocol, as Telegraf's aggregators write them: with \
               `value`, the mean of `vus` is the field `value_mean` of the measurement `vus`, and \
               its quantile 0.5 `value_050`. All are floats. A metric that came as another field \
               keeps it: `cpu_idle_mean`. In OTLP the metric has the field in its name. Fields of \
               text tell no series apart, and those of texts and booleans pass.";
    statistics.field = fields.non_empty_string("influxdb_field", doc);
    let doc = "The points pass as they came, too, as with `drop_original = false` of Telegraf.";
    statistics.keeps_points = fields.boolean("keep_points", false, doc);
    let doc = "Quantiles from 0 to 1. 0.99 is a metric `NAME_p99`.";
    for text in fields.texts("quantiles", doc) {
        match text.parse::<f64>().ok().filter(|quantile| (0.0..=1.0).contains(quantile)) {
            Some(quantile) => {
                let mut ending = ending(quantile);
                if statistics.field.is_some() {
                    // Two of Telegraf's may be the same, as those of 0.99 and 0.999.
                    let telegrafs = format!("{:03}", (quantile * 100.0) as u32);
                    let is_taken = statistics.quantiles.iter().any(|(_, it)| *it == telegrafs);
                    ending = if is_taken { ending } else { telegrafs };
                }
                if !statistics.quantiles.iter().any(|(_, known)| *known == ending) {
                    statistics.quantiles.push((quantile, ending));
                }
            }
            None => {
                let message = format!("has `{text}`, which is no number from 0 to 1");
                let hint = "the median is 0.5, the 99th percentile 0.99";
                fields.error_at_with_hint("quantiles", &message, hint);
            }
        }
    }
    let is_empty = statistics.kinds.is_empty() && statistics.quantiles.is_empty();
    if is_empty && !fields.is_describing() && !fields.is_given("quantiles") {
        let hint = "name some in `statistics` or `quantiles`";
        fields.error_with_hint("has no statistics", hint);
    }
    Rule { names, statistics: Arc::new(statistics) }
}

/// `p50` of 0.5, `p99_9` of 0.999.
fn ending(quantile: f64) -> String {
    let percent = format!("{:.6}", quantile * 100.0);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    format!("p{}", percent.replace('.', "_"))
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn options(text: &str) -> Options {
        let (options, diagnostics) = read_text("p", text, read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        options
    }

    /// Guarantee: the Collector's options mean what they mean there, with its defaults.
    #[test]
    fn the_collectors_options_are_read() {
        let plain = options("{}");
        assert_eq!(plain.interval, 60_000_000_000);
        assert!(!plain.passes_gauges && !plain.passes_summaries && plain.rules.is_empty());
        let given = options("interval: 15s\npass_through: {gauge: true, summary: true}");
        assert!(given.passes_gauges && given.passes_summaries);
        assert_eq!(given.interval, 15_000_000_000);
        assert_ne!(plain.fingerprint("x"), given.fingerprint("x"));
    }

    /// Guarantee: the first rule that matches counts, and a quantile names its metric.
    #[test]
    fn rules_give_metrics_their_statistics() {
        let options = options(
            "rules:\n\
             - {metrics: [a], match_type: strict, statistics: [MAX, max], quantiles: [0.5, \
             0.999]}\n\
             - {metrics: ['^a'], match_type: regexp, quantiles: [1, 0, 0.95]}\n",
        );
        let first = options.rule(b"a").expect("is named");
        assert_eq!(first.kinds, [Statistic::Max]);
        let endings = |it: &Statistics| it.quantiles.iter().map(|it| it.1.clone()).collect();
        let named: Vec<String> = endings(first);
        assert_eq!(named, ["p50", "p99_9"]);
        let named: Vec<String> = endings(options.rule(b"ab").expect("matches"));
        assert_eq!(named, ["p100", "p0", "p95"]);
        assert!(options.rule(b"b").is_none());
    }

    /// Guarantee: quantiles of a field have Telegraf's endings, and none is lost where two of its
    /// endings are the same.
    #[test]
    fn quantiles_of_a_field_end_as_telegrafs() {
        let options = options(
            "rules:\n- {metrics: [a], match_type: strict, influxdb_field: value, quantiles: [0, \
             0.5, 0.99, 0.999, 1]}\n",
        );
        let rule = options.rule(b"a").expect("is named");
        let endings: Vec<&str> = rule.quantiles.iter().map(|it| it.1.as_str()).collect();
        assert_eq!(endings, ["000", "050", "099", "p99_9", "100"]);
        assert_eq!(rule.field.as_deref(), Some("value"));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "interval: 0s",
            "interval: -1s",
            "rules: [{metrics: [a], match_type: strict}]",
            "rules: [{match_type: strict, statistics: [sum]}]",
            "rules: [{statistics: [sum]}]",
            "rules: [{metrics: [a], statistics: [sum]}]",
            "rules: [{metrics: [a], match_type: strict, statistics: [median]}]",
            "rules: [{metrics: [a], match_type: strict, quantiles: [99]}]",
            "rules: [{metrics: [a], match_type: strict, quantiles: [x]}]",
            "rules: [{metrics: ['('], match_type: regexp, statistics: [sum]}]",
            "max_series: 0",
            "memory_limit_mib: 0",
        ] {
            assert!(read_text("p", text, read).1.has_errors(), "{text}");
        }
    }
}
