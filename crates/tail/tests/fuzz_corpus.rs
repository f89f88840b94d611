//! The fuzzers' corpus and its neighbourhood, through the check of how files are read.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/tail.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on encodings and the ends of records fails for the corpus
/// or changes of it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), &[("tail", checks::check_tail)], 150);
}
