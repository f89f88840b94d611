//! The fuzzers' corpus and its neighbourhood, through every check of backends' answers.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/answers.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on backends' answers fails for the corpus or changes of
/// it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), &[("answers", checks::check_answers)], 1000);
}
