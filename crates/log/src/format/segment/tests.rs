use proptest::prelude::*;

use super::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        version: VERSION,
        kind: FileKind::DeadLetters,
        log_id: u128::MAX - 1,
        epoch: 3,
        first_offset: u64::MAX - 1,
        created_unix_ns: 5,
        name: "logs".to_owned(),
    }
}

#[test]
fn one_damaged_copy_costs_nothing_and_two_are_told_from_an_empty_block() {
    let block = header().encode();
    assert_eq!(SegmentHeader::decode(&block), Ok(header()));
    for at in 0..128 {
        let mut damaged = block.clone();
        damaged[at] ^= 0x40;
        assert_eq!(SegmentHeader::decode(&damaged), Ok(header()), "byte {at}");
        damaged[2048 + at] ^= 0x40;
        assert_eq!(SegmentHeader::decode(&damaged), Err(BlockError::Damaged), "byte {at}");
    }
    assert_eq!(SegmentHeader::decode(&[0; 4096]), Err(BlockError::Empty));
    assert_eq!(SegmentHeader::decode(&[]), Err(BlockError::Empty));
    assert_eq!(SegmentHeader::decode(&block[..127]), Err(BlockError::Damaged));
    assert_eq!(SegmentHeader::decode(&block[..128]), Ok(header()));
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let long = SegmentHeader { name: "ä".repeat(15) + "xä", ..header() };
    assert_eq!(SegmentHeader::decode(&long.encode()).unwrap().name, "ä".repeat(15) + "x");
}

fn frame<'a>(readers: &'a [u32], metadata: &'a [u8], payload: &'a [u8]) -> FrameRef<'a> {
    FrameRef {
        offset: 7,
        facts: RecordFacts {
            received_unix_ns: 8,
            encoding: 11,
            flags: 12,
            uncompressed_len_bytes: 13,
        },
        charge: Charge { bytes: 10, items: 9 },
        is_taken: true,
        readers,
        metadata,
        payload,
    }
}

fn encode(frame: &FrameRef<'_>, epoch: u64, position: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_frame_header(frame, epoch, position, &mut bytes);
    bytes
}

#[test]
fn a_header_counts_only_in_its_file_and_at_its_place() {
    let bytes = encode(&frame(&[1, 2], b"m", b"payload"), 5, 4096);
    let HeaderParse::Frame(header) = parse_frame_header(&bytes, 5, 4096) else {
        panic!("not parsed")
    };
    let written = frame(&[1, 2], b"m", b"payload");
    assert_eq!((header.offset, header.readers, header.is_taken), (7, 2, true));
    assert_eq!((header.facts, header.charge), (written.facts, written.charge));
    assert_eq!(header.body_checksum, body_checksum(b"m", b"payload"));
    assert_eq!(header.frame_len_bytes(), 64 + 8 + 8);
    assert_eq!(reader_ids(&bytes, &header).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(parse_frame_header(&bytes, 6, 4096), HeaderParse::NoFrame);
    assert_eq!(parse_frame_header(&bytes, 5, 4104), HeaderParse::NoFrame);
}

#[test]
fn a_header_that_is_cut_asks_for_what_it_needs_and_no_more() {
    let bytes = encode(&frame(&[1, 2, 3], b"", b""), 5, 0);
    for len in 0..bytes.len() {
        let needs = if len < FRAME_PREFIX_LEN_BYTES { FRAME_PREFIX_LEN_BYTES } else { bytes.len() };
        assert_eq!(parse_frame_header(&bytes[..len], 5, 0), HeaderParse::Needs(needs));
    }
}

#[test]
fn lengths_beyond_the_limits_are_no_frame_even_with_a_checksum_that_fits() {
    for (at, value) in
        [(32, u32::MAX), (36, METADATA_LIMIT_BYTES as u32 + 1), (32, BODY_LIMIT_BYTES as u32 + 1)]
    {
        let mut bytes = encode(&frame(&[], b"", b""), 5, 0);
        (&mut bytes[at..]).put_u32_le(value);
        let checksum = header_checksum(&bytes, 0);
        (&mut bytes[FRAME_CHECKSUM_POSITION..]).put_u32_le(checksum);
        assert_eq!(parse_frame_header(&bytes, 5, 0), HeaderParse::NoFrame, "{value} at {at}");
    }
}

#[test]
fn the_marker_is_found_at_multiples_of_the_alignment_only() {
    let bytes = encode(&frame(&[], b"", b""), 5, 0);
    for shift in 0..=24 {
        let mut shifted = vec![0xff; shift];
        shifted.extend_from_slice(&bytes);
        assert_eq!(find_marker(&shifted, 5), (shift % 8 == 0).then_some(shift));
        assert_eq!(find_marker(&shifted, 6), None);
    }
    assert_eq!(find_marker(&bytes[..15], 5), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_no_frame(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        epoch: u64,
        position: u64,
    ) {
        let parsed = parse_frame_header(&bytes, epoch, position);
        prop_assert!(!matches!(parsed, HeaderParse::Frame(_)));
    }

    #[test]
    fn any_change_of_a_header_is_seen(
        readers in proptest::collection::vec(any::<u32>(), 0..5),
        at: usize,
        change in 1u8..,
    ) {
        let mut bytes = encode(&frame(&readers, b"metadata", b"payload"), 5, 4096);
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(!matches!(parse_frame_header(&bytes, 5, 4096), HeaderParse::Frame(_)));
    }
}
