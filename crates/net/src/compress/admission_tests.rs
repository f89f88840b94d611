//! Unpacking asks before it holds memory.

use std::io::Write;

use super::*;

const LIMIT: usize = 64 << 20;

/// One payload of each kind for which the size is known, or is not, beforehand.
fn payloads(plain: &[u8]) -> Vec<(&'static str, Packing, Vec<u8>)> {
    let chunks = [Bytes::copy_from_slice(plain)];
    let pack = |encoding| compress(encoding, &chunks, None).expect("packs").to_vec();
    let mut unsized_zstd = ::zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    unsized_zstd.write_all(plain).expect("packs");
    let block = compress_snappy_block(&chunks).expect("packs").to_vec();
    vec![
        ("one gzip member", Encoding::Gzip.into(), pack(Encoding::Gzip)),
        ("several gzip members", Encoding::Gzip.into(), pack(Encoding::Gzip).repeat(2)),
        ("zstd with its size", Encoding::Zstd.into(), pack(Encoding::Zstd)),
        ("several zstd frames", Encoding::Zstd.into(), pack(Encoding::Zstd).repeat(2)),
        ("zstd without its size", Encoding::Zstd.into(), unsized_zstd.finish().expect("packs")),
        ("framed snappy", Encoding::Snappy.into(), pack(Encoding::Snappy)),
        ("a snappy block", Encoding::Snappy.into(), block),
        ("zlib", Packing::Zlib, compress_zlib(&chunks, None).expect("packs").to_vec()),
        ("lz4", Packing::Lz4, compress_lz4(&chunks).expect("packs").to_vec()),
    ]
}

fn words(length: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|index| format!("key.{}={:x};", index % 50, index.wrapping_mul(97)).into_bytes())
        .take(length)
        .collect()
}

/// All that `hold` was told, and what came of it.
fn asked(packing: Packing, input: &[u8], admitted_bytes: usize) -> (Vec<usize>, Result<Bytes, InflateError<usize>>) {
    let mut totals = Vec::new();
    let result = decompress_admitted(packing, input, LIMIT, &mut |total_bytes| {
        totals.push(total_bytes);
        if total_bytes > admitted_bytes { Err(total_bytes) } else { Ok(()) }
    });
    (totals, result)
}

/// Guarantee: the caller is asked for no more than twice a buffer that doubles and a window, and ends with what it got.
#[test]
fn the_caller_ends_with_what_it_is_told_to_hold() {
    for length in [0, 100, 190_000, 3_000_000] {
        for (name, packing, input) in payloads(&words(length)) {
            let (totals, result) = asked(packing, &input, usize::MAX);
            let bytes = result.expect(name);
            let last = *totals.last().expect("is asked");
            assert!(
                (bytes.len()..=bytes.len() + bytes.len() / 8).contains(&last),
                "{name}: {last} for {}",
                bytes.len()
            );
            let most = *totals.iter().max().expect("is asked");
            let highest = 5 * bytes.len().max(4 * input.len()).max(4096);
            assert!(most <= highest, "{name}: {most} for {}", bytes.len());
        }
    }
}

/// Guarantee: where the size is known, it is asked for once and exactly.
#[test]
fn a_size_that_is_known_is_asked_for_exactly() {
    let plain = words(190_000);
    for (name, packing, input) in payloads(&plain) {
        let claimed = claimed_len_bytes(packing, &input);
        if claimed == Some(plain.len()) && !name.starts_with("several") {
            let (mut totals, _) = asked(packing, &input, usize::MAX);
            totals.dedup();
            assert_eq!(totals, [plain.len()], "{name}");
        }
    }
}

/// Guarantee: a bomb holds nothing beyond what was admitted, whatever it is packed with.
#[test]
fn a_bomb_ends_where_memory_is_refused() {
    const ADMITTED: usize = 300_000;
    for (name, packing, input) in payloads(&vec![0; 32 << 20]) {
        let (totals, result) = asked(packing, &input, ADMITTED);
        let (refused, granted) = totals.split_last().expect("is asked");
        assert_eq!(result, Err(InflateError::Refused(*refused)), "{name}");
        assert!(granted.iter().all(|total| *total <= ADMITTED), "{name}: {granted:?}");
        let seen = with_decompressed_admitted(
            packing,
            &input,
            LIMIT,
            &mut |total| (total <= ADMITTED).then_some(()).ok_or(total),
            |_| (),
        );
        assert!(matches!(seen, Err(InflateError::Refused(_))), "{name}: {seen:?}");
    }
}

/// Guarantee: wherever memory is refused, the caller gets its refusal, and the decoders work again afterwards.
#[test]
fn a_refusal_at_any_step_is_the_callers() {
    let plain = words(400_000);
    for (name, packing, input) in payloads(&plain) {
        let expected = decompress(packing, &input, LIMIT).expect(name);
        let (totals, _) = asked(packing, &input, usize::MAX);
        for steps in 0..totals.len() {
            let mut left = steps;
            let result = decompress_admitted(packing, &input, LIMIT, &mut |_| {
                left = left.checked_sub(1).ok_or("refused")?;
                Ok(())
            });
            assert!(result == Err(InflateError::Refused("refused")), "{name} at {steps}");
            assert!(decompress(packing, &input, LIMIT).as_ref() == Ok(&expected), "{name} after a refusal at {steps}");
        }
    }
}

/// Guarantee: a thread keeps no more for its next payload than is said, whatever it unpacked.
#[test]
fn a_thread_keeps_little_of_a_large_payload() {
    for (name, packing, input) in payloads(&words(20 << 20)) {
        with_decompressed(packing, &input, LIMIT, |plain| assert!(plain.bytes.len() >= 20 << 20)).expect(name);
        assert!(SCRATCH.with_borrow(Vec::capacity) <= SCRATCH_KEPT_BYTES, "{name}");
        assert!(!zstd::keeps_decoder(), "{name}");
    }
}
