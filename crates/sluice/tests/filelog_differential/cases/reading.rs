//! Bytes to records: ends of lines, patterns, white space, lengths and encodings.

use super::Case;
use crate::contents;

type Content = fn(u64) -> Vec<u8>;

/// Each content is read with each of the options.
const CONTENTS: [(&str, Content); 7] = [
    ("plain", |seed| contents::plain(seed, 60)),
    ("spaces", contents::spaces),
    ("crlf", contents::crlf),
    ("bytes", contents::bytes),
    ("long", contents::long),
    ("stack", contents::stack),
    ("unended", |seed| {
        let mut content = contents::plain(seed, 20);
        content.extend_from_slice(b"the last line has no end");
        content
    }),
];

const OPTIONS: [(&str, &str); 9] = [
    ("default", ""),
    ("kept", "preserve_leading_whitespaces: true\npreserve_trailing_whitespaces: true"),
    ("numbered", "include_file_record_number: true\ninclude_file_record_offset: true"),
    ("start", r"multiline: {line_start_pattern: '^\d{4}-\d\d-\d\d '}"),
    ("start-omitted", r"multiline: {line_start_pattern: '^\d{4}-\d\d-\d\d ', omit_pattern: true}"),
    ("end", r"multiline: {line_end_pattern: ' end\n'}"),
    ("end-omitted", r"multiline: {line_end_pattern: ' end$\n', omit_pattern: true}"),
    ("any-digit", "multiline: {line_start_pattern: '[0-9]+'}\npreserve_leading_whitespaces: true"),
    ("slow-flush", "force_flush_period: 2s"),
];

/// For contents of ASCII: records are cut between bytes.
const LENGTHS: [(&str, &str); 5] = [
    ("split", "max_log_size: 100"),
    ("truncated", "max_log_size: 100\nmax_log_size_behavior: truncate"),
    ("split-kept", "max_log_size: 64\npreserve_leading_whitespaces: true"),
    ("split-start", "max_log_size: 150\nmultiline: {line_start_pattern: '^[0-9]*7 '}"),
    (
        "truncated-start",
        "max_log_size: 150\nmax_log_size_behavior: truncate\n\
         multiline: {line_start_pattern: '^[0-9]*7 '}",
    ),
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (seed, (content, make)) in CONTENTS.into_iter().enumerate() {
        for (way, options) in OPTIONS {
            cases.push(Case::new(&format!("{content}-{way}"), options, make(seed as u64)));
        }
    }
    for (way, options) in LENGTHS {
        cases.push(Case::new(&format!("long-{way}"), options, contents::long(11)));
        let mut unended = contents::long(12);
        unended.extend_from_slice("x".repeat(300).as_bytes());
        cases.push(Case::new(&format!("unended-{way}"), options, unended));
    }
    cases.push(Case::new("blank", "", "\n\n  \n\r\n\nonly this\n\n"));
    cases.push(Case::new(
        "one-line-of-2-mib",
        "",
        [b"begins ", "y".repeat(2 << 20).as_bytes(), b"\nends\n"].concat(),
    ));
    cases.extend(encodings());
    cases
}

fn encodings() -> Vec<Case> {
    const TEXT: &str = "first\nGrüße\r\n日本語 x\n\n🌍 last\nno end";
    let wide = "1 Grüße\n2 日本語\n".repeat(20);
    let single = |name: &str, content: &[u8]| {
        Case::new(&format!("encoding-{name}"), &format!("encoding: {name}"), content)
    };
    let mut cases = vec![
        single("utf-8-raw", TEXT.as_bytes()),
        single("nop", &contents::bytes(21)),
        single("ascii", &contents::bytes(22)),
        single("iso-8859-1", &contents::bytes(23)),
        single("windows-1252", b"\xe4\x80\x93\n\x85 x\n"),
        single("koi8-r", b"\xf0\xd2\xc9\xd7\xc5\xd4\n\xa3\n"),
        single("shift_jis", b"\x93\xfa\x96\x7b\x8c\xea\n\x83\x5c\x81\x5f x\n\xb1\n"),
        single("euc-jp", b"\xc6\xfc\xcb\xdc\xb8\xec\nx\n"),
        single("big5", b"\xa4\xa4\xa4\xe5\n\xa5\x5c x\n"),
        single("gbk", b"\xd6\xd0\xce\xc4\n\x81\x5c x\n"),
        single("euc-kr", b"\xc7\xd1\xb1\xdb\nx\n"),
    ];
    for (name, to_bytes) in [
        ("utf-16", u16::to_le_bytes as fn(u16) -> [u8; 2]),
        ("utf-16le", u16::to_le_bytes),
        ("utf-16be", u16::to_be_bytes),
    ] {
        cases.push(single(name, &contents::utf_16(TEXT, to_bytes)));
        for (way, pattern) in
            [("start", "line_start_pattern: '^1'"), ("end", "line_end_pattern: '語'")]
        {
            let options = format!(
                "encoding: {name}\nmultiline: {{{pattern}}}\npreserve_leading_whitespaces: true\n\
                 preserve_trailing_whitespaces: true"
            );
            let content = contents::utf_16(&wide, to_bytes);
            cases.push(Case::new(&format!("encoding-{name}-{way}"), &options, content));
        }
    }
    let marked = contents::utf_16("\u{feff}a\nb\n", u16::to_le_bytes);
    cases.push(Case::new("utf-16le-marked", "encoding: utf-16le", marked));
    cases
}
