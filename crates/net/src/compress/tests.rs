use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 8 << 20;
const PACKED: [Encoding; 3] = [Encoding::Gzip, Encoding::Zstd, Encoding::Snappy];

/// A small body and a large one.
const GZIP_LENGTHS: [usize; 2] = [900, 190_000];

/// Bytes that compress about as telemetry does: repeated keys, varying values.
fn telemetry_like(length: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(length + 64);
    let mut state = 1_u32;
    while bytes.len() < length {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        write!(bytes, "http.request.header.{}={:x};", state % 40, state)
            .expect("a vector takes it");
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

fn packed(encoding: Encoding, bytes: &Bytes) -> Bytes {
    compress(encoding, std::slice::from_ref(bytes), None).expect("packs")
}

fn passable(encoding: Encoding, packed: &[u8]) -> bool {
    with_decompressed(encoding, packed, 64 << 20, |plain| plain.is_passable)
        .is_ok_and(|passable| passable)
}

#[test]
fn every_encoding_round_trips_and_chunks_are_one_message() {
    for length in [0, 1, 100, 190_000, 3_000_000] {
        let plain = telemetry_like(length);
        let chunks = [
            plain.slice(..length / 3),
            plain.slice(length / 3..length / 2),
            plain.slice(length / 2..),
        ];
        for encoding in Encoding::ALL {
            let packed = compress(encoding, &chunks, None).expect("packs");
            assert_eq!(
                decompress(encoding, &packed, LIMIT).expect("unpacks"),
                plain,
                "{encoding:?} {length}"
            );
            let seen = with_decompressed(encoding, &packed, LIMIT, |plain| {
                Bytes::copy_from_slice(plain.bytes)
            })
            .expect("unpacks");
            assert_eq!(seen, plain, "{encoding:?} {length} through the scratch buffer");
        }
        let zlib = compress(Packing::Zlib, &chunks, None).expect("packs");
        assert_eq!(decompress(Packing::Zlib, &zlib, LIMIT).expect("unpacks"), plain);
    }
}

/// Another decoder than the one that [`decompress`] takes for a single member.
fn unpacked_by_flate2(packed: &[u8], wrapping: Wrapping) -> Vec<u8> {
    let mut plain = Vec::new();
    match wrapping {
        Wrapping::Gzip => flate2::read::MultiGzDecoder::new(packed).read_to_end(&mut plain),
        Wrapping::Zlib => flate2::read::ZlibDecoder::new(packed).read_to_end(&mut plain),
    }
    .expect("unpacks");
    plain
}

proptest! {
    #[test]
    fn what_is_packed_others_unpack(
        words in proptest::collection::vec(any::<u16>(), 0..60_000),
        alphabet in 1_u16..=u16::MAX,
        level in 1_i32..=9
    ) {
        // From words that are all the same, over text, to incompressible ones.
        let plain: Vec<u8> = words.iter().flat_map(|word| (word % alphabet).to_le_bytes()).collect();
        for wrapping in [Wrapping::Gzip, Wrapping::Zlib] {
            for level in [None, Some(level)] {
                let packed = deflate::compress(&plain, wrapping, level).expect("packs");
                prop_assert!(packed.len() <= plain.len() + plain.len() / 1000 + 64);
                prop_assert_eq!(&unpacked_by_flate2(&packed, wrapping), &plain);
            }
        }
    }
}

#[test]
fn a_level_that_does_not_exist_is_refused() {
    let error =
        compress(Encoding::Gzip, &[Bytes::from_static(b"x")], Some(13)).expect_err("there is none");
    assert!(error.to_string().contains("there is no level 13; use 1 to 9"), "{error}");
}

#[test]
fn the_limit_is_exact_in_every_encoding() {
    let plain = telemetry_like(100_000);
    for encoding in PACKED {
        let packed = packed(encoding, &plain);
        assert_eq!(
            decompress(encoding, &packed, 100_000).expect("fits").len(),
            100_000,
            "{encoding:?}"
        );
        let refused = decompress(encoding, &packed, 99_999);
        assert_eq!(refused, Err(DecompressError::TooLarge { limit_bytes: 99_999 }), "{encoding:?}");
    }
    let zlib = compress(Packing::Zlib, &[plain], None).expect("packs");
    assert!(decompress(Packing::Zlib, &zlib, 100_000).is_ok());
    assert_eq!(
        decompress(Packing::Zlib, &zlib, 99_999),
        Err(DecompressError::TooLarge { limit_bytes: 99_999 })
    );
}

#[test]
fn bombs_stop_at_the_limit_with_a_bounded_buffer() {
    // A gigabyte of zeros in a few members, frames or blocks.
    let zeros = Bytes::from(vec![0; 64 << 20]);
    for encoding in [Encoding::Gzip, Encoding::Zstd] {
        let one = compress(encoding, std::slice::from_ref(&zeros), Some(9)).expect("packs");
        let bomb = one.repeat(16);
        for payload in [&one[..], &bomb[..]] {
            let mut ask = admit;
            let mut output = Output::reusing(Vec::new(), 1 << 20, &mut ask);
            let result = unpack(encoding.into(), payload, &mut output);
            assert_eq!(
                result,
                Err(DecompressError::TooLarge { limit_bytes: 1 << 20 }.into()),
                "{encoding:?}"
            );
            assert!(
                output.bytes.capacity() <= (2 << 20) + 1,
                "{encoding:?} grew to {}",
                output.bytes.capacity()
            );
        }
    }
}

#[test]
fn a_claimed_size_alone_allocates_nothing() {
    // A gzip trailer, a zstd header and a snappy header that claim gigabytes for a few real bytes.
    let mut gzip = packed(Encoding::Gzip, &telemetry_like(1000)).to_vec();
    let trailer = gzip.len() - 4;
    gzip[trailer..].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    zstd.extend_from_slice(&0x3fff_ffff_u32.to_le_bytes());
    zstd.extend_from_slice(&[1, 0, 0]);
    let snappy = vec![0xff, 0xff, 0xff, 0xff, 0x07, 0x00, 0x41];
    for (encoding, payload) in
        [(Encoding::Gzip, gzip), (Encoding::Zstd, zstd), (Encoding::Snappy, snappy)]
    {
        assert_eq!(claimed_len_bytes(encoding, &payload), None, "{encoding:?}");
        let mut ask = admit;
        let mut output = Output::reusing(Vec::new(), usize::MAX >> 1, &mut ask);
        assert!(unpack(encoding.into(), &payload, &mut output).is_err(), "{encoding:?}");
        assert!(
            output.bytes.capacity() < 1 << 20,
            "{encoding:?} allocated {}",
            output.bytes.capacity()
        );
    }
}

#[test]
fn several_members_and_frames_unpack_to_their_concatenation_but_are_not_passable() {
    let second = telemetry_like(700);
    for (encoding, length) in [
        (Encoding::Zstd, 5000),
        (Encoding::Gzip, GZIP_LENGTHS[0]),
        (Encoding::Gzip, GZIP_LENGTHS[1]),
    ] {
        let first = telemetry_like(length);
        let single = packed(encoding, &first);
        assert!(passable(encoding, &single), "{encoding:?}");
        // The second case is the treacherous one for gzip: both trailers are the same.
        for other in [&second, &first] {
            let double = [single.as_ref(), packed(encoding, other).as_ref()].concat();
            let expected = [first.as_ref(), other.as_ref()].concat();
            let plain = decompress(encoding, &double, LIMIT).expect("unpacks");
            assert_eq!(plain, expected, "{encoding:?}");
            assert!(!passable(encoding, &double), "{encoding:?}");
        }
    }
    let snappy = packed(Encoding::Snappy, &second);
    assert!(!passable(Encoding::Snappy, &snappy));
}

#[test]
fn gzip_with_something_behind_it_or_a_lying_trailer_is_refused() {
    for length in GZIP_LENGTHS {
        let good = packed(Encoding::Gzip, &telemetry_like(length));
        let (member, trailer) = good.split_at(good.len() - 8);
        let (checksum, size) = trailer.split_at(4);
        let off = |value: &[u8], by: u32| {
            let value = u32::from_le_bytes(value.try_into().expect("four bytes"));
            value.wrapping_add(by).to_le_bytes()
        };
        let mut bad = vec![
            [&good, &b"garbage that is not a member"[..]].concat(),
            // These look right to a decoder that looks only at the end.
            [&good, trailer].concat(),
            [&good, &[0; 100][..], trailer].concat(),
            [&member[..member.len() / 2], trailer].concat(),
            [&member[..member.len() - 1], trailer].concat(),
        ];
        for by in [1, u32::MAX] {
            bad.push([member, &off(checksum, by), size].concat());
            bad.push([member, checksum, &off(size, by)].concat());
        }
        for (number, bad) in bad.iter().enumerate() {
            let result = decompress(Encoding::Gzip, bad, LIMIT);
            assert!(
                matches!(result, Err(DecompressError::Corrupt { .. })),
                "{length}, {number}: {result:?}"
            );
            assert!(!passable(Encoding::Gzip, bad), "{length}, {number}");
        }
    }
}

#[test]
fn truncated_payloads_are_corrupt_wherever_they_are_cut() {
    let plain = telemetry_like(3000);
    for encoding in PACKED {
        let whole = packed(encoding, &plain);
        for length in 0..whole.len() {
            // A framed snappy stream may end after any frame; the identifier alone is an empty
            // stream.
            if encoding == Encoding::Snappy && (length == 0 || length == 10) {
                continue;
            }
            let result = decompress(encoding, &whole[..length], LIMIT);
            assert!(
                matches!(result, Err(DecompressError::Corrupt { .. })),
                "{encoding:?} cut at {length}: {result:?}"
            );
        }
    }
    let zlib = compress(Packing::Zlib, &[plain], None).expect("packs");
    assert!(
        (0..zlib.len()).all(|length| decompress(Packing::Zlib, &zlib[..length], LIMIT).is_err())
    );
}

#[test]
fn zstd_windows_above_8_mib_and_dictionaries_are_not_supported() {
    let mut encoder = ::zstd::bulk::Compressor::new(1).expect("a compressor");
    let plain = telemetry_like(20 << 20);
    encoder.set_parameter(::zstd::zstd_safe::CParameter::WindowLog(24)).expect("is valid");
    let wide = encoder.compress(&plain).expect("packs");
    assert!(!passable(Encoding::Zstd, &wide));
    // A window costs memory only if the output is not kept whole, so this may or may not be taken;
    // without the content size it must not be.
    let mut stream = ::zstd::stream::Encoder::new(Vec::new(), 1).expect("an encoder");
    stream.window_log(27).expect("is valid");
    stream.write_all(&plain).expect("packs");
    let wide = stream.finish().expect("packs");
    let result = decompress(Encoding::Zstd, &wide, 64 << 20);
    assert!(matches!(result, Err(DecompressError::Unsupported { .. })), "{result:?}");

    let mut with_dictionary =
        ::zstd::bulk::Compressor::with_dictionary(1, &dictionary()).expect("a compressor");
    let packed = with_dictionary.compress(&telemetry_like(5000)).expect("packs");
    let result = decompress(Encoding::Zstd, &packed, LIMIT);
    assert!(matches!(result, Err(DecompressError::Unsupported { .. })), "{result:?}");
    assert!(!passable(Encoding::Zstd, &packed));
}

fn dictionary() -> Vec<u8> {
    let samples: Vec<Bytes> =
        (0..200).map(|index| telemetry_like(20_000).slice(index * 50..index * 50 + 400)).collect();
    ::zstd::dict::from_samples(&samples, 4096).expect("a dictionary")
}

#[test]
fn our_own_zstd_is_passable_at_every_level() {
    let plain = telemetry_like(300_000);
    for level in 1..=22 {
        let packed =
            compress(Encoding::Zstd, std::slice::from_ref(&plain), Some(level)).expect("packs");
        assert!(passable(Encoding::Zstd, &packed), "level {level}");
    }
    assert!(compress(Encoding::Zstd, std::slice::from_ref(&plain), Some(23)).is_err());
    assert!(compress(Encoding::Gzip, &[plain], Some(13)).is_err());
}

#[test]
fn both_snappy_formats_are_taken_under_one_name() {
    let plain = telemetry_like(200_000);
    let block = compress_snappy_block(std::slice::from_ref(&plain)).expect("packs");
    let framed = packed(Encoding::Snappy, &plain);
    assert_ne!(block, framed);
    assert_eq!(decompress(Encoding::Snappy, &block, LIMIT).expect("unpacks"), plain);
    assert_eq!(decompress(Encoding::Snappy, &framed, LIMIT).expect("unpacks"), plain);
    assert_eq!(
        decompress(Encoding::Snappy, &block, 1000),
        Err(DecompressError::TooLarge { limit_bytes: 1000 })
    );
}

#[test]
fn a_decoder_works_again_after_an_error() {
    let plain = telemetry_like(50_000);
    for encoding in PACKED {
        let good = packed(encoding, &plain);
        for _ in 0..3 {
            assert!(with_decompressed(encoding, &good[..good.len() / 2], LIMIT, |_| ()).is_err());
            assert!(
                with_decompressed(encoding, &good, LIMIT, |seen| seen.bytes == plain)
                    .expect("unpacks")
            );
        }
    }
}

proptest! {
    /// Whatever the bytes, unpacking ends, keeps to the limit, and does not panic.
    #[test]
    fn arbitrary_bytes_never_exceed_the_limit(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        limit in 0_usize..5000
    ) {
        for encoding in Encoding::ALL {
            if let Ok(plain) = decompress(encoding, &bytes, limit) {
                prop_assert!(plain.len() <= limit);
            }
        }
        let _ = decompress(Packing::Zlib, &bytes, limit);
    }

    /// If the format has a checksum, one flipped bit never yields other data silently.
    #[test]
    fn a_flipped_bit_is_found_by_gzip(at: proptest::sample::Index, bit in 0_u8..8) {
        for length in GZIP_LENGTHS {
            let plain = telemetry_like(length);
            let mut packed = packed(Encoding::Gzip, &plain).to_vec();
            let at = at.index(packed.len());
            packed[at] ^= 1 << bit;
            if let Ok(unpacked) = decompress(Encoding::Gzip, &packed, LIMIT) {
                prop_assert!(unpacked == plain);
            }
        }
    }
}

/// Scenario: thousands of members with little in them, each of which costs microseconds.
/// Guarantee: as many as bgzip makes of the largest request are read; more are refused, and say so.
#[test]
fn gzip_members_without_number_are_refused() {
    let member = packed(Encoding::Gzip, &telemetry_like(10));
    let plain = decompress(Encoding::Gzip, &member.repeat(2_048), LIMIT).expect("unpacks");
    assert_eq!(plain.len(), 20_480);
    let error = decompress(Encoding::Gzip, &member.repeat(2_049), LIMIT).expect_err("too many");
    assert!(error.to_string().contains("more than 2048 members"), "{error}");
}

/// Guarantee: a zstd frame that is shorter than its header claims is refused, however large the
/// buffer is.
#[test]
fn a_zstd_frame_with_less_than_it_claims_is_refused() {
    // A single segment of 288 bytes whose only block is empty, behind a whole frame too.
    let lying = [0x28, 0xb5, 0x2f, 0xfd, 0x60, 0x20, 0x00, 0x01, 0x00, 0x00];
    let behind = [packed(Encoding::Zstd, &telemetry_like(100)).as_ref(), &lying].concat();
    for input in [&lying[..], &behind] {
        assert!(matches!(
            decompress(Encoding::Zstd, input, LIMIT),
            Err(DecompressError::Corrupt { .. })
        ));
        let seen = with_decompressed(Encoding::Zstd, input, LIMIT, |plain| plain.bytes.len());
        assert!(matches!(seen, Err(DecompressError::Corrupt { .. })));
    }
}

/// Guarantee: an error names the format that the sender named.
#[test]
fn errors_name_the_format() {
    for (packing, expected) in [
        (
            Packing::Zlib,
            "the zlib data is corrupt: the stream is malformed or its checksum does not match",
        ),
        (
            Packing::Known(Encoding::Gzip),
            "the gzip data is corrupt: the stream is malformed or its checksum does not match",
        ),
    ] {
        let error = decompress(packing, &[b'x'; 64], LIMIT).expect_err("is corrupt");
        assert_eq!(error.to_string(), expected);
    }
}
