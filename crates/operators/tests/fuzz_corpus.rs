//! The fuzzers' corpus and its neighbourhood, through every check of the log operators.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/operators.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on operators and expressions fails for the corpus or
/// changes of it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    let targets: [(&str, replay::Check); 2] =
        [("operators", checks::check_operators), ("expression", checks::check_expression)];
    replay::replay(env!("CARGO_MANIFEST_DIR"), &targets, 500);
}
