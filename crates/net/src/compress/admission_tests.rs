//! Unpacking asks before it takes memory.

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
        ("zlib", Packing::Zlib, compress(Packing::Zlib, &chunks, None).expect("packs").to_vec()),
        ("lz4", Packing::Lz4, compress(Packing::Lz4, &chunks, None).expect("packs").to_vec()),
    ]
}

fn words(length: usize) -> Vec<u8> {
    (0_u32..)
        .flat_map(|index| format!("key.{}={:x};", index % 50, index.wrapping_mul(97)).into_bytes())
        .take(length)
        .collect()
}

/// The bytes that unpacking asked for, one after the other, and its result.
fn asked(
    packing: Packing,
    input: &[u8],
    admitted_bytes: usize,
) -> (Vec<usize>, Result<Bytes, InflateError<usize>>) {
    let mut totals = Vec::new();
    let result = decompress_admitted(packing, input, LIMIT, &mut |ask| {
        let Ask::Hold { bytes } = ask else { return Ok(()) };
        totals.push(bytes);
        if bytes > admitted_bytes { Err(bytes) } else { Ok(()) }
    });
    (totals, result)
}

/// Guarantee: whatever a payload tells of its size, unpacking asks for exactly its bytes, beside a
/// window of zstd and, for several gzip members, the size that the last one claims.
#[test]
fn exactly_what_is_there_is_asked_for() {
    for length in [0, 100, 190_000, 3_000_000] {
        for (name, packing, input) in payloads(&words(length)) {
            let (totals, result) = asked(packing, &input, usize::MAX);
            let bytes = result.expect(name);
            assert_eq!(totals.last(), Some(&bytes.len()), "{name}");
            let window_bytes = if name.contains("without") { 8 << 20 } else { 0 };
            let most = *totals.iter().max().expect("is asked");
            assert!(most <= bytes.len() + window_bytes, "{name}: {totals:?} for {}", bytes.len());
            if claimed_len_bytes(packing, &input) == Some(bytes.len()) {
                assert!(totals.iter().all(|total| *total == bytes.len()), "{name}: {totals:?}");
            }
        }
    }
}

/// Guarantee: a long payload that does not tell its size is measured only if the caller allows it;
/// a short one is measured without asking.
#[test]
fn what_takes_long_is_asked_for() {
    for (length, is_long) in [(30_000, false), (200_000, true)] {
        for (name, packing, input) in payloads(&words(length)) {
            let mut is_measured = false;
            let result = decompress_admitted(packing, &input, LIMIT, &mut |ask| {
                is_measured |= ask == Ask::Measure;
                if ask == Ask::Measure { Err(()) } else { Ok(()) }
            });
            // The zstd payloads have more bytes than may be unpacked without asking.
            let takes_long = ["zlib", "zstd without its size", "several zstd frames"];
            let takes_long = takes_long.contains(&name) && is_long;
            assert_eq!(is_measured, takes_long || name == "several gzip members", "{name}");
            assert_eq!(result.is_err(), is_measured, "{name}");
        }
    }
}

/// Scenario: half a megabyte of blocks with little or nothing in them, in streams that `inflate`
/// leaves for several reasons. Guarantee: each is walked through, which takes long, only if the
/// caller allows it; short ones are not asked about.
#[test]
fn blocks_that_hold_little_are_asked_about() {
    // A dynamic block whose codes are a zero byte and the end of the block. The last one has three
    // of these bytes.
    let block = |is_last: bool| {
        let mut bits = vec![is_last, false, true];
        let mut put =
            |value: u32, count: u32| bits.extend((0..count).map(|at| value >> at & 1 == 1));
        // One code for distances, 18 for code lengths, of which 18 and 1 take a bit each.
        [(0, 5), (0, 5), (14, 4)].iter().for_each(|(value, count)| put(*value, *count));
        (0..18).for_each(|at| put(u32::from(at == 2 || at == 17), 3));
        // The length 1 for the byte, 138 and 117 times none, 1 for the end and for the distance.
        let lengths = [(0, 1), (1, 1), (127, 7), (1, 1), (106, 7), (0, 1), (0, 1)];
        lengths.iter().for_each(|(value, count)| put(*value, *count));
        if is_last {
            put(0b1000, 4)
        } else {
            put(1, 1)
        }
        bits
    };
    let packed = |blocks: usize, header: &[u8], trailer: &[u8]| {
        let bits: Vec<bool> = (1..=blocks).flat_map(|at| block(at == blocks)).collect();
        let byte =
            |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        [header, &bits.chunks(8).map(byte).collect::<Vec<u8>>(), trailer].concat()
    };
    let member_end = [0x12, 0xd9, 0x41, 0xff, 3, 0, 0, 0];
    let plain_header = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let named_header = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0xff, b'n', 0];
    for (blocks, is_long) in [(100, false), (40_000, true)] {
        for (packing, input) in [
            (Encoding::Gzip.into(), packed(blocks, &plain_header, &member_end)),
            (Encoding::Gzip.into(), packed(blocks, &named_header, &member_end)),
            (Packing::Zlib, packed(blocks, &[0x78, 1], &[0, 3, 0, 1])),
        ] {
            assert_eq!(decompress(packing, &input, LIMIT), Ok(Bytes::from_static(&[0; 3])));
            let result = decompress_admitted(packing, &input, LIMIT, &mut |ask| match ask {
                Ask::Measure => Err(()),
                Ask::Hold { .. } => Ok(()),
            });
            assert_eq!(result.is_err(), is_long, "{packing:?} of {} bytes", input.len());
        }
    }
}

/// Guarantee: a bomb takes no memory beyond the admitted bytes, whatever it is packed with.
#[test]
fn a_bomb_ends_where_memory_is_refused() {
    const ADMITTED: usize = 300_000;
    for (name, packing, input) in payloads(&vec![0; 32 << 20]) {
        let (totals, result) = asked(packing, &input, ADMITTED);
        let (refused, granted) = totals.split_last().expect("is asked");
        assert_eq!(result, Err(InflateError::Refused(*refused)), "{name}");
        assert!(granted.iter().all(|total| *total <= ADMITTED), "{name}: {granted:?}");
        let mut admit = |ask| match ask {
            Ask::Hold { bytes } if bytes > ADMITTED => Err(bytes),
            _ => Ok(()),
        };
        let seen = with_decompressed_admitted(packing, &input, LIMIT, &mut admit, |_| ());
        assert!(matches!(seen, Err(InflateError::Refused(_))), "{name}: {seen:?}");
    }
}

/// Guarantee: wherever memory is refused, the caller gets its refusal, and the decoders work again
/// afterwards.
#[test]
fn a_refusal_at_any_step_is_the_callers() {
    let plain = words(400_000);
    for (name, packing, input) in payloads(&plain) {
        let expected = decompress(packing, &input, LIMIT).expect(name);
        for steps in 0.. {
            let mut left = steps;
            let result = decompress_admitted(packing, &input, LIMIT, &mut |_| {
                left = usize::checked_sub(left, 1).ok_or("refused")?;
                Ok(())
            });
            if result.as_ref() == Ok(&expected) {
                assert!(steps > 0, "{name} is asked");
                break;
            }
            assert!(result == Err(InflateError::Refused("refused")), "{name} at {steps}");
            assert!(
                decompress(packing, &input, LIMIT).as_ref() == Ok(&expected),
                "{name} after a refusal at {steps}"
            );
        }
    }
}

/// Guarantee: a thread keeps at most the stated bytes for its next payload, whatever it unpacked.
#[test]
fn a_thread_keeps_little_of_a_large_payload() {
    for (name, packing, input) in payloads(&words(20 << 20)) {
        with_decompressed(packing, &input, LIMIT, |plain| assert!(plain.bytes.len() >= 20 << 20))
            .expect(name);
        assert!(SCRATCH.with_borrow(Vec::capacity) <= SCRATCH_KEPT_BYTES, "{name}");
        assert!(!zstd::keeps_decoder(), "{name}");
    }
}
