//! The fuzzers' corpus and its neighbourhood, through the reader of configurations.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/config.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: whatever a configuration file contains, reading it ends with a document or with
/// errors that say where.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    replay::replay(env!("CARGO_MANIFEST_DIR"), &[("config", checks::check_load)], 1000);
}
