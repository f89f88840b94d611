use sluice_config::read_text;

use super::*;

fn metric(name: &'static [u8], kind: PointKind) -> MetricView<'static> {
    let (temporality, is_monotonic, has_points) = (CUMULATIVE, true, true);
    MetricView { name, unit: b"", kind, temporality, is_monotonic, has_points }
}

fn options(text: &str) -> Options {
    let (options, diagnostics) = read_text("p", text, read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    options
}

/// Guarantee: names and kinds must both match to include, one of them is enough to exclude, and
/// `exclude` goes first.
#[test]
fn metrics_are_selected_by_name_and_kind() {
    use PointKind::{Exponential, Histogram, Sum};
    let all = options("{}");
    assert!(all.selects(&metric(b"a", Sum)) && all.selects(&metric(b"b", Exponential)));
    let both = options("include: {metrics: ['^a'], match_type: regexp, metric_types: [SUM]}");
    let selected = |name, kind| both.selects(&metric(name, kind));
    assert!(selected(b"ab", Sum) && !selected(b"ab", Histogram) && !selected(b"ba", Sum));
    let text = "include: {metrics: [a, b], match_type: strict}\n\
                exclude: {metrics: [b], match_type: strict, metric_types: [exponentialhistogram]}";
    let less = options(text);
    let selected = |name, kind| less.selects(&metric(name, kind));
    assert!(selected(b"a", Sum) && !selected(b"b", Sum) && !selected(b"a", Exponential));
    assert!(!selected(b"A", Sum));
}

#[test]
fn what_the_collector_refuses_is_refused() {
    for text in [
        "include: {metrics: [a]}",
        "exclude: {match_type: strict}",
        "include: {metric_types: [gauge]}",
        "initial_value: first",
        "include: {metrics: ['('], match_type: regexp}",
        "memory_limit_mib: 0",
    ] {
        assert!(read_text("p", text, read).1.has_errors(), "{text}");
    }
}

/// Guarantee: after a reload a processor goes on with what its predecessor remembers, also with
/// other options, but not with the memory of another kind of processor.
#[test]
fn a_successor_remembers() {
    let processor =
        |text, kind| CumulativeToDelta { options: options(text), series: Memory::new(kind) };
    let series = |processor: &CumulativeToDelta| processor.series().expect("remembers");
    let old = processor("{}", NAME);
    let new = processor("initial_value: keep", NAME);
    new.take_over(old.running().expect("remembers"), false);
    assert!(Arc::ptr_eq(&series(&old), &series(&new)));
    let other = processor("{}", "other");
    other.take_over(old.running().expect("remembers"), true);
    assert!(!Arc::ptr_eq(&series(&old), &series(&other)));
}
