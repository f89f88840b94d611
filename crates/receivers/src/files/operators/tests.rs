//! Positions of records that operators hold.

use fastrand::Rng;
use sluice_config::load::read_text;
use sluice_flow::source::Positions;
use sluice_otlp::AnyValue;

use super::*;

/// Records of each source are held until one ends with a point.
const BY_SOURCE: &str = "[{type: recombine, combine_field: body, max_batch_size: 0, \
    is_last_entry: 'body endsWith \".\"', source_identifier: attributes.source, \
    max_unmatched_batch_size: 0, max_sources: 100000, force_flush_period: 1h}]";

const FILE: FileId = FileId(1);
const LINE_BYTES: u64 = 10;

fn operators(chain: &str) -> Operators {
    let text = format!("operators: {chain}");
    let (config, diagnostics) =
        read_text("r", &text, |fields| Chain::read(fields, "operators", ""));
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    Operators::new(config.build())
}

fn push(operators: &mut Operators, start: u64, source: usize, text: &str) {
    let origin = Origin { stream: FILE.0, range: start..start + LINE_BYTES - 1 };
    let mut record = Record::new(AnyValue::String(text.to_owned()), 1, origin);
    record.attributes = vec![("source".to_owned(), AnyValue::String(source.to_string()))];
    operators.push(record, 9);
}

/// The positions of a request, with the offset of the first line in it.
type UnderWay = Vec<(u64, Position)>;

/// Takes the records that have left. Returns the number of positions.
fn take(
    operators: &mut Operators,
    mut positions: Vec<Position>,
    now: Option<(FileId, u64)>,
    under_way: &mut UnderWay,
) -> usize {
    positions.append(&mut operators.released(now));
    let (left, count) = (operators.take(), positions.len());
    let first = left.origins.iter().map(|origin| origin.range.start).min();
    let position = Position::of_all(positions);
    match first.zip(position) {
        Some(request) => under_way.push(request),
        None => assert_eq!(count, 0, "nothing is let go without a record"),
    }
    count
}

/// Scenario: records of many sources are held for long, each of many ranges, and requests are
/// resolved in any order. Guarantee: positions are few; the checkpoint passes no line before its
/// record is resolved, and passes all lines in the end.
#[test]
fn positions_are_few_and_pass_no_record_that_is_under_way() {
    const LINES: u64 = 3000;
    for (seed, sources) in (0..12).zip([1, 3, 10, 40].into_iter().cycle()) {
        let rng = &mut Rng::with_seed(seed);
        let (mut operators, positions) = (operators(BY_SOURCE), Positions::starting_at(0));
        let (mut under_way, mut end, mut furthest) = (UnderWay::new(), 0, 0);
        while end < LINES * LINE_BYTES {
            let start = end;
            for _ in 0..rng.usize(1..5) {
                let text = if rng.usize(0..8) == 0 { "x." } else { "x" };
                push(&mut operators, end, rng.usize(0..sources), text);
                end += LINE_BYTES;
            }
            let position = positions.begin(start..end);
            operators.end_range(FILE, start..end, &position);
            let most = RANGES_MAX + 2;
            if operators.items() == 0 {
                position.resolve();
            } else {
                let now = Some((FILE, start));
                let count = take(&mut operators, vec![position], now, &mut under_way);
                assert!(count <= most, "{count} positions of a request");
            }
            assert!(operators.held.values().all(|ranges| ranges.len() <= RANGES_MAX));
            while under_way.len() > rng.usize(0..9) {
                under_way.swap_remove(rng.usize(0..under_way.len())).1.resolve();
            }
            let first = under_way.iter().map(|(start, _)| *start).min().unwrap_or(end);
            let lowest = operators.lowest_held(FILE).unwrap_or(end).min(first);
            let checkpoint = positions.lowest_unresolved();
            assert!(checkpoint <= lowest, "{checkpoint} is behind {lowest}");
            furthest = furthest.max(checkpoint);
        }
        assert!(furthest > end / 4, "{furthest} of {end}, {sources} sources");
        operators.flush(Duration::MAX);
        take(&mut operators, Vec::new(), None, &mut under_way);
        under_way.iter().for_each(|(_, position)| position.resolve());
        assert_eq!((positions.lowest_unresolved(), positions.is_interrupted()), (end, false));
        assert!(operators.held.is_empty());
    }
}

/// Scenario: a request with records that were held is dropped, while another record of the file is
/// still held. Guarantee: the file is read again from the first range of the request.
#[test]
fn a_request_that_is_dropped_is_read_again_from_its_first_range() {
    let (mut operators, positions) = (operators(BY_SOURCE), Positions::starting_at(0));
    for (start, source) in [(0, 0), (10, 1), (20, 2), (30, 3)] {
        push(&mut operators, start, source, "x");
        let position = positions.begin(start..start + 10);
        operators.end_range(FILE, start..start + 10, &position);
        position.resolve();
    }
    push(&mut operators, 40, 3, "x.");
    push(&mut operators, 50, 1, "x.");
    let position = positions.begin(40..60);
    operators.end_range(FILE, 40..60, &position);
    let mut under_way = UnderWay::new();
    let count = take(&mut operators, vec![position], Some((FILE, 40)), &mut under_way);
    assert_eq!((count, positions.is_interrupted()), (2, false));
    drop(under_way);
    assert_eq!((positions.lowest_unresolved(), positions.rewind()), (0, 10));
}
