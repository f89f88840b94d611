use proptest::prelude::*;

use super::*;

fn splitter(boundary: Boundary) -> Splitter {
    Splitter {
        boundary,
        charset: Charset::Utf8,
        max_bytes: 1 << 20,
        truncates: false,
        keeps_leading: false,
        keeps_trailing: false,
    }
}

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("(?m){text}")).expect("a pattern")
}

/// The records of a content that arrives in pieces, and the bytes that are left.
fn records(splitter: &Splitter, pieces: &[&[u8]], flushes: bool) -> (Vec<String>, usize) {
    records_until(splitter, pieces, if flushes { End::Flush } else { End::Here })
}

fn records_until(splitter: &Splitter, pieces: &[&[u8]], last: End) -> (Vec<String>, usize) {
    let (mut window, mut records, mut is_within) = (Vec::new(), Vec::new(), false);
    for (index, piece) in pieces.iter().enumerate() {
        window.extend_from_slice(piece);
        let is_last = index + 1 == pieces.len();
        let end = if is_last { last } else { End::Open };
        while let Some(cut) = splitter.next(&window, end, is_within) {
            assert!(cut.consumed > 0 || is_within != cut.is_within, "it goes on");
            if let Some((start, stop)) = cut.text {
                let text = splitter.charset.decode(&window[start..stop]).into_owned();
                records.push(String::from_utf8(text).expect("is UTF-8"));
            }
            is_within = cut.is_within;
            window.drain(..cut.consumed);
        }
    }
    (records, window.len())
}

#[test]
fn lines_end_with_line_feeds() {
    let lines = splitter(Boundary::LineFeed);
    let (found, left) = records(&lines, &[b" a \r\n\n\tb\nc"], false);
    assert_eq!((found, left), (["a", "", "b"].map(str::to_owned).to_vec(), 1));
    assert_eq!(records(&lines, &[b"a\nb"], true).0, ["a", "b"]);
    let keeps = Splitter { keeps_leading: true, keeps_trailing: true, ..lines };
    assert_eq!(records(&keeps, &[b" a \r\n\tb \n"], false).0, [" a ", "\tb "]);
}

/// Guarantee: a row is whole wherever the pieces end, an object of JSON is a line, and a quote that
/// does not end takes a bounded number of lines with it, or one at the end of a file.
#[test]
fn rows_go_on_within_quotes() {
    let rows = splitter(Boundary::Row);
    let text: &[u8] = b"a,\"b\nc\",\"d\n\"\r\n{\"e\": \"\\\"\"}\nf,\"g\nh\n";
    let whole = ["a,\"b\nc\",\"d\n\"", "{\"e\": \"\\\"\"}"].map(str::to_owned).to_vec();
    for at in 1..text.len() {
        let (first, second) = text.split_at(at);
        assert_eq!(records(&rows, &[first, second], false), (whole.clone(), 7), "{at}");
    }
    let flushed = [whole, ["f,\"g", "h"].map(str::to_owned).to_vec()].concat();
    assert_eq!(records(&rows, &[text], true), (flushed, 0));
    let endless = "\"".to_owned() + &"0123456\n".repeat(20_000);
    let (found, _) = records(&rows, &[endless.as_bytes()], true);
    assert!((OPEN_ROW_BYTES - 8..OPEN_ROW_BYTES + 8).contains(&found[0].len()));
    assert_eq!(found[1..].concat().len(), 7 * (found.len() - 1), "lines");
}

#[test]
fn records_begin_or_end_with_a_pattern() {
    let start = |omit| splitter(Boundary::Start { pattern: pattern("^LOG"), omit });
    let text: &[u8] = b"before\nLOG a\n more\nLOG b\nLOG c";
    let (found, left) = records(&start(false), &[text], false);
    assert_eq!((found, left), (["before", "LOG a\n more", "LOG b"].map(str::to_owned).to_vec(), 5));
    assert_eq!(records(&start(true), &[text], false).0, ["before", "a\n more", "b"]);
    assert_eq!(records(&start(false), &[text], true).0.last().expect("one"), "LOG c");
    let end = |omit| splitter(Boundary::End { pattern: pattern("END$"), omit });
    assert_eq!(records(&end(false), &[b"a\nEND\nb END\nc"], false).0, ["a\nEND", "b END"]);
    assert_eq!(records(&end(true), &[b"a\nEND\nb END\nc"], false).0, ["a", "b"]);
}

/// Guarantee: what a pattern matches is left out of the last record of all, too. Of one that is
/// flushed it stays: the rest of it may come.
#[test]
fn the_last_record_is_as_those_before() {
    let starts = |omit| splitter(Boundary::Start { pattern: pattern("^LOG"), omit });
    let last = |splitter, text: &str| {
        let (found, left) = records_until(&splitter, &[text.as_bytes()], End::Last);
        assert_eq!(left, 0);
        found
    };
    assert_eq!(last(starts(true), "before\nLOG a\nLOG b\n more"), ["before", "a", "b\n more"]);
    assert_eq!(last(starts(true), "LOG a\nLOG"), ["a", ""]);
    assert_eq!(last(starts(false), "LOG a\nLOG"), ["LOG a", "LOG"]);
    assert_eq!(last(starts(true), "no match"), ["no match"]);
    assert_eq!(records(&starts(true), &[b"LOG a\nLOG b"], true).0, ["a", "LOG b"]);
}

/// Scenario: what is there is flushed within a unit of UTF-16, and the rest comes. Guarantee: no
/// half of a unit is lost, and what follows is read as it is.
#[test]
fn a_flush_within_a_unit_shifts_nothing() {
    let boundaries = || {
        let end = Boundary::End { pattern: pattern("$"), omit: false };
        [Boundary::LineFeed, end, Boundary::Start { pattern: pattern("^k"), omit: false }]
    };
    for name in ["utf-16le", "utf-16be"] {
        let charset = Charset::named(name).expect("is known");
        let bytes = encoded(name, "abcdefgh\nk\n");
        let cuts = (1..bytes.len()).flat_map(|at| [(at, false), (at, true)]);
        for ((at, truncates), boundary) in
            cuts.flat_map(|cut| boundaries().map(|boundary| (cut, boundary)))
        {
            let max_bytes = if truncates { 4 } else { 100 };
            let lines = Splitter { charset, truncates, max_bytes, ..splitter(boundary) };
            let (mut window, mut found, mut is_within) = (Vec::new(), String::new(), false);
            for piece in [&bytes[..at], &bytes[at..]] {
                window.extend_from_slice(piece);
                while let Some(cut) = lines.next(&window, End::Flush, is_within) {
                    let (start, stop) = cut.text.unwrap_or_default();
                    found += &String::from_utf8_lossy(&charset.decode(&window[start..stop]));
                    is_within = cut.is_within;
                    window.drain(..cut.consumed);
                }
            }
            assert!(found.is_ascii() && window.is_empty(), "{name} at {at}: {found:?}");
            if truncates {
                assert!(found.ends_with('k'), "{name} at {at}: {found:?}");
            } else {
                assert_eq!(found, "abcdefghk", "{name} at {at}");
            }
        }
    }
}

#[test]
fn long_records_are_split_or_truncated() {
    let lines = Splitter { max_bytes: 4, ..splitter(Boundary::LineFeed) };
    assert_eq!(records(&lines, &[b"abcdefghij\nk\n"], false).0, ["abcd", "efgh", "ij", "k"]);
    let text = "aaäö€\n".as_bytes();
    assert_eq!(records(&lines, &[text], false).0, ["aaä", "ö", "€"]);
    let truncates = Splitter { truncates: true, ..lines };
    assert_eq!(records(&truncates, &[b"abcdefghij\nk\n"], false).0, ["abcd", "k"]);
    assert_eq!(records(&truncates, &[b"abcde", b"fghij", b"\nk\n"], false).0, ["abcd", "k"]);
    let boundary = Boundary::Start { pattern: pattern("^LOG"), omit: false };
    let truncates = Splitter { boundary, ..truncates };
    let pieces: [&[u8]; 3] = [b"LOG 12", b"345\n6", b"78\nLOG x"];
    assert_eq!(records(&truncates, &pieces, true).0, ["LOG", "LOG"]);
    let whole = Splitter { charset: Charset::Nop, ..splitter(Boundary::None) };
    assert_eq!(records(&whole, &[b" a\nb ", b"c"], false).0, [" a\nb c"]);
}

#[test]
fn other_encodings_are_cut_at_whole_characters() {
    let wide: Vec<u8> = "ä\r\n b\nLOG".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let charset = Charset::Other(encoding_rs::UTF_16LE);
    let lines = Splitter { charset, ..splitter(Boundary::LineFeed) };
    assert_eq!(records(&lines, &[&wide], true).0, ["ä", "b", "LOG"]);
    let boundary = Boundary::Start { pattern: pattern("^LOG"), omit: true };
    let starts = Splitter { boundary, ..lines };
    let wide: Vec<u8> = "LOGä\nLOGö\nLOG€".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(records(&starts, &[&wide], true).0, ["ä", "ö", "LOG€"]);
}

fn wide_texts() -> impl Strategy<Value = (&'static str, String)> {
    prop_oneof![
        "[ab日本語]{1,40}".prop_map(|text| ("shift_jis", text)),
        "[ab日本語]{1,40}".prop_map(|text| ("euc-jp", text)),
        "[ab中文]{1,40}".prop_map(|text| ("big5", text)),
        "[ab中文]{1,40}".prop_map(|text| ("gbk", text)),
        "[ab中é😀]{1,40}".prop_map(|text| ("gb18030", text)),
        "[ab한국]{1,40}".prop_map(|text| ("euc-kr", text)),
        "[abé中😀]{1,40}".prop_map(|text| ("utf-16le", text)),
        "[abé中😀]{1,40}".prop_map(|text| ("utf-16be", text)),
        "[abé中😀]{1,40}".prop_map(|text| ("utf-8", text)),
    ]
}

fn boundaries() -> impl Strategy<Value = Boundary> {
    prop_oneof![
        Just(Boundary::LineFeed),
        Just(Boundary::Row),
        any::<bool>().prop_map(|omit| Boundary::Start { pattern: pattern("^a"), omit }),
        any::<bool>().prop_map(|omit| Boundary::End { pattern: pattern("b$"), omit }),
        patterns(),
    ]
}

/// Also of nothing, and one that never matches.
fn patterns() -> impl Strategy<Value = Boundary> {
    let text = prop_oneof![Just("c*"), Just("never"), Just("a"), Just("$")];
    let omit = false;
    (text, any::<bool>()).prop_map(move |(text, is_start)| match pattern(text) {
        pattern if is_start => Boundary::Start { pattern, omit },
        pattern => Boundary::End { pattern, omit },
    })
}

fn encoded(name: &str, text: &str) -> Vec<u8> {
    match (name, Charset::named(name).expect("is known")) {
        ("utf-16le", _) => text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        ("utf-16be", _) => text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        (_, Charset::Other(encoding)) => encoding.encode(text).0.into_owned(),
        _ => text.as_bytes().to_vec(),
    }
}

proptest! {
    /// Guarantee: a record that is too long is cut between characters, whatever the encoding and
    /// the pattern, and wherever the pieces end in which it arrives. No byte is lost or doubled.
    #[test]
    fn long_records_are_cut_between_characters(
        (name, text) in wide_texts(),
        boundary in prop_oneof![Just(Boundary::LineFeed), patterns()],
        max_bytes in 4_usize..20,
        cut: prop::sample::Index,
    ) {
        let charset = Charset::named(name).expect("is known");
        let bytes = encoded(name, &text);
        let splitter = Splitter { max_bytes, charset, ..splitter(boundary) };
        let (first, second) = bytes.split_at(cut.index(bytes.len()));
        let (found, left) = records(&splitter, &[first, second], true);
        prop_assert_eq!((found.concat(), left), (text, 0));
    }

    /// Guarantee: behind a line whose rest is left out, the next one is whole.
    #[test]
    fn a_line_behind_one_that_is_left_out_is_whole(
        (name, text) in wide_texts(),
        max_bytes in 4_usize..20,
        cuts: [prop::sample::Index; 2],
    ) {
        let charset = Charset::named(name).expect("is known");
        let bytes = encoded(name, &format!("{text}\nk\n"));
        let lines = splitter(Boundary::LineFeed);
        let lines = Splitter { max_bytes, charset, truncates: true, ..lines };
        let mut cuts = cuts.map(|cut| cut.index(bytes.len()));
        cuts.sort_unstable();
        let (first, rest) = bytes.split_at(cuts[0]);
        let (second, third) = rest.split_at(cuts[1] - cuts[0]);
        let (found, left) = records(&lines, &[first, second, third], false);
        prop_assert!(text.starts_with(&found[0]), "{found:?}");
        prop_assert_eq!((&found[1..], left), (&["k".to_owned()][..], 0));
    }

    /// For any content, in any pieces: it ends, and nothing but white space is lost if nothing is
    /// left out.
    #[test]
    fn no_text_is_lost(
        boundary in boundaries(),
        pieces in prop::collection::vec("[abcä\"\n\r ]{0,12}", 1..5),
        max_bytes in 1_usize..20,
        truncates: bool,
    ) {
        let omits = matches!(
            boundary,
            Boundary::Start { omit: true, .. } | Boundary::End { omit: true, .. }
        );
        let splitter = Splitter { max_bytes, truncates, ..splitter(boundary) };
        let bytes: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
        let (found, left) = records(&splitter, &bytes, true);
        prop_assert_eq!(left, 0);
        if !omits && !truncates && max_bytes > 3 {
            let of = |text: String| text.split_whitespace().collect::<String>();
            prop_assert_eq!(of(found.concat()), of(pieces.concat()));
        }
    }
}
