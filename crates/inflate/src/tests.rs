//! Guarantees: a taken stream unpacks as with libdeflate, to the stream's last byte; the streams of
//! usual packers are taken; no stream that libdeflate refuses is taken.

use std::io::Write as _;

use flate2::{Compress, Compression, FlushCompress};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;

/// Lines of words and identifiers, as in most telemetry.
fn lines(words: &[u16]) -> Vec<u8> {
    const WORDS: [&str; 8] = [
        "request ",
        "served from ",
        "cache ",
        "upstream=",
        "status ",
        "closed by peer ",
        "GET ",
        "retry ",
    ];
    let mut text = Vec::new();
    for word in words {
        match word % 11 {
            known @ 0..8 => text.extend_from_slice(WORDS[usize::from(known)].as_bytes()),
            8 => write!(text, "{word:08x} ").expect("a vector takes it"),
            9 => text.extend(std::iter::repeat_n(b'=', usize::from(word % 700))),
            _ => text.extend_from_slice(&word.to_le_bytes()),
        }
    }
    text
}

/// By several packers, also flushed in the middle and with stored blocks.
fn packed(plain: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for level in [1, 6, 12] {
        let mut packer = Compressor::new(CompressionLvl::new(level).expect("is a level"));
        let mut stream = vec![0; packer.deflate_compress_bound(plain.len())];
        let length = packer.deflate_compress(plain, &mut stream).expect("packs");
        stream.truncate(length);
        all.push(stream);
    }
    for level in [0, 1, 6, 9] {
        let mut packer = Compress::new(Compression::new(level), false);
        let mut stream = Vec::with_capacity(2 * plain.len() + 1000);
        let (first, rest) = plain.split_at(plain.len() / 3);
        packer.compress_vec(first, &mut stream, FlushCompress::Full).expect("packs");
        packer.compress_vec(rest, &mut stream, FlushCompress::Finish).expect("packs");
        all.push(stream);
    }
    all
}

fn inflate(stream: &[u8], length: usize) -> Option<(usize, Vec<u8>)> {
    let mut output = vec![0xa5; length];
    let taken = Inflater::new().expect("this processor is suited").inflate(stream, &mut output)?;
    Some((taken, output))
}

/// If the stream is taken, libdeflate has to unpack it to the same.
fn same_as_libdeflate(stream: &[u8], length: usize) -> TestCaseResult {
    if let Some((taken, output)) = inflate(stream, length) {
        let mut judged = vec![0; length];
        let judgement = Decompressor::new().deflate_decompress(&stream[..taken], &mut judged);
        prop_assert_eq!(judgement, Ok(length));
        prop_assert!(output == judged);
        // It ends there: a byte less is too little.
        prop_assert!(
            Decompressor::new().deflate_decompress(&stream[..taken - 1], &mut judged).is_err()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_packers_write_is_taken(
        words in proptest::collection::vec(any::<u16>(), 0..20_000),
        behind in 0_usize..40,
    ) {
        let plain = lines(&words);
        for stream in packed(&plain) {
            // Single codes, as of distances where nothing repeats, are not taken.
            let taken = inflate(&[&stream[..], &vec![0xff; behind]].concat(), plain.len());
            prop_assert!(taken.is_some() || words.len() < 100, "{} bytes", plain.len());
            if let Some((taken, output)) = taken {
                prop_assert_eq!(taken, stream.len());
                prop_assert!(output == plain);
            }
        }
    }

    #[test]
    fn another_length_is_not_taken(
        words in proptest::collection::vec(any::<u16>(), 100..2000),
        off in 1_usize..400,
    ) {
        let plain = lines(&words);
        for stream in packed(&plain) {
            prop_assert_eq!(inflate(&stream, plain.len() + off), None);
            prop_assert_eq!(inflate(&stream, plain.len().saturating_sub(off)), None);
        }
    }

    #[test]
    fn a_damaged_stream_is_taken_only_if_libdeflate_takes_it(
        words in proptest::collection::vec(any::<u16>(), 0..1000),
        damages in proptest::collection::vec((any::<proptest::sample::Index>(), 0_u8..8), 1..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let plain = lines(&words);
        for stream in packed(&plain) {
            let mut damaged = stream.clone();
            for (at, bit) in &damages {
                damaged[at.index(stream.len())] ^= 1 << bit;
            }
            same_as_libdeflate(&damaged, plain.len())?;
            let cut = &stream[..cut.index(stream.len())];
            prop_assert_eq!(inflate(cut, plain.len()), None);
        }
    }

    #[test]
    fn arbitrary_bytes_are_taken_only_if_libdeflate_takes_them(
        bytes in proptest::collection::vec(any::<u8>(), 0..600), length in 0_usize..2000
    ) {
        same_as_libdeflate(&bytes, length)?;
    }
}

/// Codes of all lengths up to the longest: each symbol is there about half as often as the one
/// before.
#[test]
fn the_longest_codes_are_taken() {
    let mut plain = Vec::new();
    for round in 0..6_u32 {
        for step in 1..40_000_u32 {
            plain.push(
                (step.trailing_zeros() as u8).wrapping_mul(11)
                    ^ (step.wrapping_mul(2_654_435_761) >> 31) as u8
                    ^ round as u8,
            );
        }
    }
    for stream in packed(&plain) {
        assert_eq!(inflate(&stream, plain.len()), Some((stream.len(), plain.clone())));
    }
}

/// Matches at every distance that is less than a piece of copying, and around it.
#[test]
fn near_matches_repeat_what_they_write() {
    for period in 1..80_usize {
        let plain: Vec<u8> = (0..5000).map(|at| (at % period * 37 % 251) as u8).collect();
        for stream in packed(&plain) {
            if let Some((taken, output)) = inflate(&stream, plain.len()) {
                assert!(taken == stream.len() && output == plain, "{period}");
            }
        }
    }
}

/// Guarantee: empty blocks cost no more than libdeflate takes for them, however many fit into a
/// body.
#[test]
fn many_blocks_with_little_in_them_are_not_taken() {
    // Fixed codes (1 in two bits), then the end of the block (0 in seven); the last one has its
    // first bit set.
    let empty_blocks = |count: usize| {
        let mut stream = vec![0; (count * 10).div_ceil(8)];
        for bit in (0..count).map(|block| block * 10 + 1).chain([(count - 1) * 10]) {
            stream[bit / 8] |= 1 << (bit % 8);
        }
        stream
    };
    for count in [1, FEW_BLOCKS, FEW_BLOCKS + 1, 100_000] {
        let stream = empty_blocks(count);
        assert_eq!(
            Decompressor::new().deflate_decompress(&stream, &mut []),
            Ok(0),
            "{count} make a good stream"
        );
        let taken = (count <= FEW_BLOCKS).then_some((stream.len(), Vec::new()));
        assert_eq!(inflate(&stream, 0), taken, "{count}");
    }
}
