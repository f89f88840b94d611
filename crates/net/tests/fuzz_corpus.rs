//! The fuzzers' corpus and its neighbourhood, through every check of a peer's data before it is
//! read as OTLP.

// Public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/net.rs"]
mod checks;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/forward.rs"]
mod forward;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/replay.rs"]
mod replay;

/// Guarantee: no assertion of the fuzzers on unpacking, gRPC framing and the forward protocol
/// fails for the corpus or changes of it.
#[test]
fn the_corpus_and_its_neighbourhood_hold_what_the_fuzzers_assert() {
    let targets: [(&str, replay::Check); 9] = [
        ("gunzip", checks::check_gunzip),
        ("unzstd", checks::check_unzstd),
        ("unsnappy", checks::check_unsnappy),
        ("inflate", checks::check_inflate),
        ("unlz4", checks::check_unlz4),
        ("grpc_frame", checks::check_grpc_frame),
        ("grpc_status", checks::check_grpc_status),
        ("msgpack", forward::check_msgpack),
        ("forward", forward::check_forward),
    ];
    replay::replay(env!("CARGO_MANIFEST_DIR"), &targets, 1000);
}
