//! The fuzzers' corpus and its neighbourhood, through every check of line protocol.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/influx.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on line protocol fails for the corpus or changes of it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    replay::replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("line_protocol", checks::check_line_protocol)],
        2000,
    );
}
