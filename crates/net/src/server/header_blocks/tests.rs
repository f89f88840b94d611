use proptest::prelude::*;

use super::*;

/// A frame of headers.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
}

fn headers(block: &[u8]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, block)
}

fn text(text: &str) -> Vec<u8> {
    assert!(text.len() < 127);
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

fn read(frames: &[Vec<u8>]) -> (HeaderBlocks, Result<(), Malformed>) {
    let mut blocks = HeaderBlocks::default();
    let result = blocks.read(&[&PREFACE[..], &frames.concat()].concat());
    (blocks, result)
}

/// `:path` by its name in the static table, entering the table.
fn path(value: &str) -> Vec<u8> {
    [vec![0x44], text(value)].concat()
}

#[test]
fn each_frame_whose_path_enters_the_table_is_counted_once() {
    let newest = [vec![0x7e], text("/by/the/newest/name")].concat();
    let literal = [vec![0x40], text(":path"), text("/literal")].concat();
    // ":path" in Huffman's code.
    let huffman = [&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f][..], &text("/huffman")].concat();
    let ordinary = [vec![0x40], text("otlp:tenant"), text(":path")].concat();
    let not_indexed = [vec![0x04], text("/once")].concat();
    let (blocks, result) = read(&[
        headers(&[path("/a"), path("/b"), vec![0x82, 0x86]].concat()),
        headers(&newest),
        headers(&literal),
        headers(&huffman),
        headers(&ordinary),
        headers(&not_indexed),
        headers(&[0xbe, 0xbf]),
    ]);
    assert_eq!((blocks.pins(), result), (4, Ok(())));
}

#[test]
fn a_name_that_left_the_table_counts_no_more() {
    let mut frames = vec![headers(&path("/a"))];
    frames.resize(129, headers(&[vec![0x40], text("x"), text("y")].concat()));
    assert_eq!(read(&frames).0.pins(), 0);
}

#[test]
fn padding_and_priority_are_no_headers() {
    let payload = [&[3, 0, 0, 0, 0, 9][..], &path("/a"), &[0x44, 0x44, 0x44]].concat();
    let frame = frame(HEADERS, END_HEADERS | PADDED | PRIORITY, &payload);
    assert_eq!(read(&[frame.clone(), frame]).0.pins(), 2);
}

#[test]
fn a_block_may_change_the_size_of_the_table_twice() {
    let twice = headers(&[0x20, 0x3f, 0xe1, 0x1f, 0x82]);
    assert_eq!(read(&[twice.clone(), twice]).1, Ok(()));
    assert_eq!(read(&[headers(&[0x20, 0x20, 0x20])]).1, Err(Malformed));
    // The same three changes in short frames.
    let parts = [frame(HEADERS, 0, &[0x20, 0x20]), frame(CONTINUATION, END_HEADERS, &[0x20])];
    assert_eq!(read(&parts).1, Err(Malformed));
    // A block begins with its first frame, also an empty one.
    let empty = [frame(HEADERS, 0, &[]), frame(CONTINUATION, END_HEADERS, &[0x20, 0x20])];
    assert_eq!(read(&[empty.clone().concat(), empty.concat()]).1, Ok(()));
}

/// Guarantee: an unfinished block is charged what h2 uses for it: at least the map's places of its
/// fields, also if each is an index of one byte. At its end that ends.
#[test]
fn an_unfinished_block_is_charged_what_decoding_it_may_hold() {
    const FIELDS: usize = 470;
    let mut map = http::HeaderMap::new();
    for index in 0..FIELDS {
        let name = http::HeaderName::try_from(format!("x{index}")).expect("is a name");
        map.append(name, http::HeaderValue::from_static(""));
    }
    let begun = frame(HEADERS, 0, &[0x82; FIELDS]);
    let end = |flags, payload: &[u8]| frame(CONTINUATION, flags, payload);
    let (blocks, _) = read(std::slice::from_ref(&begun));
    assert!(blocks.kept_bytes() >= map.capacity() * FIELD_BYTES, "{}", blocks.kept_bytes());
    let (longer, _) = read(&[begun.clone(), end(0, &[0x82])]);
    assert!(longer.is_unfinished && longer.kept_bytes() > blocks.kept_bytes());
    for payload in [&[][..], &[0x82]] {
        let (ended, _) = read(&[begun.clone(), end(END_HEADERS, payload)]);
        assert_eq!((ended.is_unfinished, ended.kept_bytes()), (false, 0));
    }
    assert_eq!(read(&[headers(&[0x82; FIELDS])]).0.kept_bytes(), 0);
}

#[test]
fn trailers_have_a_few_fields_only() {
    let request = headers(&path("/a"));
    let trailers = |fields| headers(&vec![0x82; fields]);
    assert_eq!(read(&[request.clone(), trailers(TRAILER_FIELDS_MAX)]).1, Ok(()));
    assert_eq!(read(&[request.clone(), trailers(TRAILER_FIELDS_MAX + 1)]).1, Err(Malformed));
    let mut next = trailers(TRAILER_FIELDS_MAX + 1);
    next[8] = 3;
    assert_eq!(read(&[request, next]).1, Ok(()), "that is another request");
}

#[test]
fn http_1_is_passed_over() {
    let mut blocks = HeaderBlocks::default();
    let request = b"PRI /v1/logs HTTP/1.1\r\n\r\n \x20\x20\x20\x20";
    assert_eq!((blocks.read(request), blocks.take_header_bytes()), (Ok(()), 0));
}

#[test]
fn only_bytes_of_headers_are_counted() {
    let data = frame(0, 0, &[0x20; 1000]);
    let (mut blocks, result) = read(&[headers(&path("/a")), data, headers(&[0xbe])]);
    assert_eq!((blocks.take_header_bytes(), result), (5, Ok(())));
    assert_eq!(blocks.take_header_bytes(), 0);
}

proptest! {
    /// Guarantee: it does not matter in which pieces the bytes come, and nothing panics.
    #[test]
    fn pieces_do_not_matter(
        payloads in proptest::collection::vec(
            (0..12_u8, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60)),
            0..20,
        ),
        piece in 1..40_usize,
    ) {
        let frames = payloads.iter().map(|(kind, flags, bytes)| frame(*kind, *flags, bytes));
        let frames: Vec<_> = frames.collect();
        let (mut whole, result) = read(&frames);
        let bytes = [&PREFACE[..], &frames.concat()].concat();
        let mut parts = HeaderBlocks::default();
        let of_parts = bytes.chunks(piece).try_for_each(|bytes| parts.read(bytes));
        prop_assert_eq!(&of_parts, &result);
        if result.is_ok() {
            prop_assert_eq!(parts.kept_bytes(), whole.kept_bytes());
            prop_assert_eq!(parts.take_header_bytes(), whole.take_header_bytes());
        }
    }
}

/// Scenario: frames without headers or a body, of each kind. Guarantee: a thousand in a row are
/// taken, also again after a request or a part of a body; one more ends the connection, unless they
/// come now and then, as keepalives do.
#[test]
fn empty_frames_may_not_go_on_without_end() {
    let [priority, settings, ping, window_update, unknown] = [2, 4, 6, 8, 0x77];
    let limit = EMPTY_FRAMES_MAX as usize;
    for empty in [
        frame(priority, 0, &[0; 5]),
        frame(settings, 0, &[]),
        frame(ping, 0, &[0; 8]),
        frame(window_update, 0, &[0, 0, 0, 1]),
        frame(unknown, 0, &[]),
        frame(DATA, 0, &[]),
    ] {
        let many = vec![empty.clone(); limit];
        for between in [headers(&path("/a")), frame(DATA, 0, &[0])] {
            let frames = [many.clone(), vec![between], many.clone()].concat();
            assert_eq!(read(&frames).1, Ok(()));
        }
        assert_eq!(read(&[many, vec![empty.clone()]].concat()).1, Err(Malformed));
        let mut blocks = HeaderBlocks::default();
        assert_eq!(blocks.read(&PREFACE[..]), Ok(()));
        assert!((0..2 * limit).all(|_| blocks.read(&empty) == Ok(())));
    }
}
