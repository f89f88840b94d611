//! Fields of line protocol, and points that pass beside their statistics.

use super::*;

/// A point of one series, a second after the base.
fn one(value: f64) -> Vec<NumberDataPoint> {
    vec![point("a", BASE + SECOND, Number::AsDouble(value))]
}

/// A field of line protocol, as the receiver `influxdb` makes a metric of it.
fn field(name: &str, metadata: &[(&str, &str)], value: f64) -> Metric {
    let metadata = metadata.iter().map(|(key, text)| attribute(key, text)).collect();
    Metric { metadata, ..gauge(name, one(value)) }
}

/// The lines of these requests without their times, in order.
fn lines_of(requests: &[Bytes]) -> Vec<String> {
    let mut text = Vec::new();
    for request in requests {
        sluice_influx::write(request, LIMIT_BYTES, &mut text).expect("is written");
    }
    let text = String::from_utf8(text).expect("is text");
    let without_time = |line: &str| line.rsplit_once(' ').expect("has a time").0.to_owned();
    let mut lines: Vec<String> = text.lines().map(without_time).collect();
    lines.sort();
    lines
}

/// Scenario: the field `idle` of `cpu` and the field `value` of `cpu_idle`, which are metrics of
/// one name, with the last point, a statistic, and a statistic that is a field. Guarantee: each
/// field has its own value and its own line.
#[test]
fn fields_of_two_measurements_are_two_series() {
    let rule = "{metrics: [.], match_type: regexp, statistics: [max]";
    for (rules, expected) in [
        (String::new(), ["cpu,series=a idle=90", "cpu_idle,series=a value=1"]),
        (
            format!(", rules: [{rule}}}]"),
            ["cpu,series=a idle_max=90", "cpu_idle_max,series=a value=1"],
        ),
        (
            format!(", rules: [{rule}, influxdb_field: value}}]"),
            ["cpu,series=a idle_max=90", "cpu_idle,series=a value_max=1"],
        ),
    ] {
        let mut pipe = Pipe::new(&format!("{{interval: 10s{rules}}}"));
        let idle = field("cpu_idle", &[("influxdb.field", "idle")], 90.0);
        let left = pipe.put(vec![idle, field("cpu_idle", &[], 1.0)]);
        assert!(left.is_empty(), "{rules}");
        pipe.now = BASE + 15 * SECOND;
        pipe.aggregator.seal(pipe.now);
        assert_eq!(lines_of(&pipe.written()), expected, "{rules}");
        assert_eq!(pipe.aggregator.usage(), (0, 0));
    }
}

/// Scenario: one field as a boolean, then as a number. Guarantee: neither has the type of the
/// other: with statistics of fields, only the boolean passes, whichever came first.
#[test]
fn a_boolean_and_a_number_are_two_series() {
    let both = || [field("m", &[("influxdb.type", "boolean")], 1.0), field("m", &[], 3.0)];
    let mut pipe = Pipe::new(TEN);
    pipe.put(both().into());
    pipe.now = BASE + 15 * SECOND;
    pipe.aggregator.seal(pipe.now);
    assert_eq!(lines_of(&pipe.written()), ["m,series=a value=3", "m,series=a value=true"]);
    let [boolean, number] = both();
    for metrics in [[boolean.clone(), number.clone()], [number, boolean]] {
        let mut pipe = Pipe::new(
            "{interval: 10s, rules: [{metrics: [.], match_type: regexp, influxdb_field: value, \
             statistics: [max]}]}",
        );
        let left = pipe.put(metrics.into());
        assert_eq!(lines_of(&[left]), ["m,series=a value=true"]);
        assert_eq!(brief(&pipe.at(15)), [("m_value_max", "a", 10 * SECOND, 3.0)]);
    }
}

/// Scenario: points of a metric whose points are kept, and of one whose are not; a request that is
/// refused first, and a writing that is taken back. Guarantee: at each moment the ledger balances:
/// what came and what was made is what was taken out and what was passed on or given out.
#[test]
fn points_that_pass_beside_their_statistics_are_not_taken_out() {
    let points = |request: &Bytes| u64::from(count(Signal::Metrics, request).expect("is valid"));
    for (keeps, expected) in [(true, 3), (false, 3 + 4)] {
        let mut pipe = Pipe::new(&format!(
            "{{interval: 10s, rules: [{{metrics: [latency], match_type: strict, \
             statistics: [count, max], keep_points: {keeps}}}]}}"
        ));
        let some = |number: u64| -> Vec<_> {
            (0..number).map(|at| point("a", BASE + at, Number::AsInt(1))).collect()
        };
        let metrics = request(vec![sum("requests", DELTA, some(3)), gauge("latency", some(4))]);
        pipe.pass(&metrics, false);
        let (came, mut gone) = (points(&metrics), points(&pipe.pass(&metrics, true)));
        let aggregated = pipe.aggregator.aggregated.clone();
        let figures = || {
            let Aggregated { taken, replaced, made } = &*aggregated;
            [taken, replaced, made].map(|it| it.read().total())
        };
        assert_eq!((figures(), came), ([expected, 0, 0], expected + gone), "{keeps}");
        pipe.aggregator.seal(BASE + 12 * SECOND);
        pipe.aggregator.take(LIMIT_BYTES).expect("is due");
        pipe.aggregator.undo_to(0);
        assert_eq!(figures(), [expected, 0, 0], "{keeps}");
        gone += pipe.written().iter().map(points).sum::<u64>();
        assert_eq!(figures(), [expected, expected, 3], "{keeps}");
        assert_eq!(came + 3, expected + gone, "{keeps}");
    }
}
