//! The fuzzers' corpus and its neighbourhood, through every check of remote write.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/prometheus.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on remote write fails for the corpus or changes of it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    replay::replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("remote_write", checks::check_remote_write)],
        2000,
    );
}
