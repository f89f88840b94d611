//! The fuzzers' corpus and its neighbourhood, through every check of the OTLP decoders.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/otlp.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on the OTLP decoders fails for the corpus or changes of
/// it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    let targets: [(&str, replay::Check); 5] = [
        ("scan", checks::check_scan),
        ("split", checks::check_split),
        ("edit", checks::check_edit),
        ("json_in", checks::check_json_in),
        ("json_out", checks::check_json_out),
    ];
    replay::replay(env!("CARGO_MANIFEST_DIR"), &targets, 1000);
}
