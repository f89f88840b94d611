//! Log files: their encodings, and the records that they are cut into.
//!
//! The first byte of an input chooses the encoding, the second one the ends of records and their
//! length, the third one where the file is cut that arrives in two pieces. The rest is the file.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use regex::bytes::Regex;
use sluice_tail::{
    Boundary, Charset, Compression, Glob, Options, Splitter, Tail, Turn, WINDOW_BYTES,
};

const CHARSETS: [&str; 14] = [
    "utf-8",
    "utf-8-raw",
    "ascii",
    "nop",
    "latin-1",
    "utf-16le",
    "utf-16be",
    "windows-1252",
    "shift_jis",
    "gbk",
    "gb18030",
    "big5",
    "euc-kr",
    "iso-2022-jp",
];
const LENGTHS: [usize; 4] = [1 << 20, 40, 5, 1];

fn pattern(text: &str) -> Regex {
    Regex::new(&format!("(?m){text}")).expect("a pattern")
}

fn boundary(choice: u8, charset: Charset) -> Boundary {
    match choice % 8 {
        _ if charset == Charset::Nop => Boundary::None,
        0..=2 => Boundary::LineFeed,
        3 => Boundary::Start { pattern: pattern("^[0-9]"), omit: false },
        4 => Boundary::Start { pattern: pattern("^a*"), omit: true },
        5 => Boundary::End { pattern: pattern(";"), omit: false },
        6 => Boundary::End { pattern: pattern("\\s+$"), omit: true },
        _ => Boundary::End { pattern: pattern("x*"), omit: false },
    }
}

fn options(path: &Path, splitter: Splitter) -> Options {
    Options {
        include: vec![Glob::new(&path.display().to_string()).expect("a pattern")],
        exclude: Vec::new(),
        exclude_older_than: None,
        ordering: None,
        starts_at_end: false,
        head_bytes: 1000,
        max_open: 2,
        poll_interval: Duration::from_millis(200),
        watches: false,
        flush_after: Duration::from_millis(500),
        splitter,
        compression: Compression::None,
        deletes_after: None,
        locks: false,
    }
}

/// The texts of all records of a file that arrives in these pieces.
fn records(path: &Path, splitter: &Splitter, pieces: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut file = fs::File::create(path).expect("it can be made");
    let mut now = Instant::now();
    let mut tail = Tail::new(options(path, splitter.clone()), Some(Vec::new()), now);
    let (mut found, mut length, mut read) = (Vec::new(), 0, 0);
    for piece in pieces {
        file.write_all(piece).expect("it can be written");
        length += piece.len() as u64;
        now += Duration::from_millis(250);
        read = turn(&mut tail, splitter.charset, now, &mut found).max(read);
    }
    // A last record without its end becomes one after a while.
    for _ in 0..3 {
        now += Duration::from_millis(600);
        read = turn(&mut tail, splitter.charset, now, &mut found).max(read);
    }
    // Half of a unit waits for its other half.
    let whole = length - length % splitter.charset.unit() as u64;
    assert_eq!(read, whole, "all of it was read");
    found
}

/// Reads what there is. Returns the offset that was reached.
fn turn(tail: &mut Tail, charset: Charset, now: Instant, found: &mut Vec<Vec<u8>>) -> u64 {
    let mut read = 0;
    tail.look(now);
    while let Some(id) = tail.next(now) {
        let Some(id) = tail.turn(id, now) else { continue };
        let mut window_bytes = WINDOW_BYTES;
        loop {
            match tail.fill(id, window_bytes, now) {
                Turn::Over => break,
                Turn::Wider(bytes) => {
                    assert!(bytes > window_bytes);
                    window_bytes = bytes;
                }
                Turn::Lines => {
                    let start = tail.begin_range(id);
                    let mut before = None;
                    while let Some(line) = tail.line(id) {
                        assert!(line.offset >= start && before < Some(line.offset));
                        assert!(!line.text.is_empty());
                        before = Some(line.offset);
                        found.push(charset.decode(line.text).into_owned());
                    }
                    read = tail.end_range(id);
                    tail.resolved(id, read);
                }
            }
        }
        tail.end_turn(id, true);
    }
    read
}

/// All of a file becomes records whatever pieces it arrives in; the records are text and no longer
/// than allowed; of lines in ASCII, the pieces make no difference; of lines of whole characters,
/// nothing but white space is lost.
pub fn check_tail(data: &[u8]) {
    let [charset, shape, cut, content @ ..] = data else { return };
    let charset = Charset::named(CHARSETS[usize::from(*charset) % CHARSETS.len()]);
    let charset = charset.expect("it is known");
    let boundary = boundary(*shape, charset);
    let max_bytes = LENGTHS[usize::from(*shape >> 3) % LENGTHS.len()];
    let is_lines = matches!(boundary, Boundary::LineFeed);
    let splitter = Splitter {
        boundary,
        charset,
        max_bytes: max_bytes.max(4),
        truncates: shape & 0x20 != 0,
        keeps_leading: shape & 0x40 != 0,
        keeps_trailing: shape & 0x80 != 0,
    };
    // In memory where that can be: there are thousands of files.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder");
    let whole = records(&folder.path().join("whole"), &splitter, &[content]);
    for text in &whole {
        let is_text = !matches!(charset, Charset::Nop | Charset::Utf8Raw);
        assert!(!is_text || std::str::from_utf8(text).is_ok(), "it is text");
        // A byte becomes three at most, those of U+FFFD.
        assert!(text.len() <= 3 * splitter.max_bytes);
    }
    let (first, second) = content.split_at(usize::from(*cut).min(content.len()));
    let pieces = records(&folder.path().join("pieces"), &splitter, &[first, second]);
    if is_lines && content.is_ascii() && matches!(charset, Charset::Utf8 | Charset::Utf8Raw) {
        assert_eq!(pieces, whole);
    }
    let text = charset.decode(content);
    let is_text = std::str::from_utf8(&text).is_ok_and(|text| !text.contains('\u{fffd}'));
    // The latter's characters depend on those before them, on other lines, too.
    let is_cut = splitter.truncates || charset == Charset::named("iso-2022-jp").expect("known");
    if is_lines && is_text && !is_cut {
        let of = |text: &[u8]| -> Vec<u8> {
            text.iter().copied().filter(|byte| !b" \t\r\n".contains(byte)).collect()
        };
        for records in [whole, pieces] {
            assert!(of(&records.concat()) == of(&text), "no character is cut");
        }
    }
}
