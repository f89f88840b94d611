//! Files: what is told of them, compressed ones, several of them, and headers.

use bytes::Bytes;
use sluice_net::compress::compress;
use sluice_otlp::Encoding;

use super::Case;
use crate::contents;

const ATTRIBUTES: [(&str, &str); 9] = [
    ("name", "include_file_name: false"),
    ("path", "include_file_path: true"),
    ("name-resolved", "include_file_name_resolved: true"),
    ("path-resolved", "include_file_path_resolved: true"),
    ("owner", "include_file_owner_name: true"),
    ("group", "include_file_owner_group_name: true"),
    ("permissions", "include_file_permissions: true"),
    ("number", "include_file_record_number: true"),
    ("offset", "include_file_record_offset: true"),
];

fn gzip(content: Vec<u8>) -> Vec<u8> {
    compress(Encoding::Gzip, &[Bytes::from(content)], None).expect("it can be packed").to_vec()
}

fn named(files: Vec<(&str, Vec<u8>)>) -> Vec<(String, Vec<u8>)> {
    files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect()
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, option) in ATTRIBUTES {
        cases.push(Case::new(&format!("with-{name}"), option, contents::plain(31, 5)));
    }
    let all: Vec<_> = ATTRIBUTES[1..].iter().map(|(_, option)| *option).collect();
    let all = all.join("\n");
    let files = |seed| {
        named(vec![
            ("a.log", contents::plain(seed, 9)),
            ("below/b.log", contents::plain(seed + 1, 9)),
            ("below/further/a b.log", contents::plain(seed + 2, 9)),
            ("empty.log", Vec::new()),
        ])
    };
    cases.push(Case::of_files("with-all", &all, files(32)));
    let constant = "attributes: {team: red, log.file.name: mine}\ninclude_file_path: true";
    cases.push(Case::of_files("with-constants", constant, files(35)));
    cases.push(Case::of_files(
        "excluded",
        "exclude: ['**/b.log']\nexclude_older_than: 1h",
        files(38),
    ));
    cases.push(Case::of_files("one-at-a-time", "max_concurrent_files: 1", files(41)));

    cases.push(Case::new("gzip", "compression: gzip", gzip(contents::plain(51, 300))));
    let mut unended = contents::plain(52, 9);
    unended.extend_from_slice(b"no end");
    cases.push(Case::new("gzip-unended", "compression: gzip", gzip(unended.clone())));
    let members = [gzip(contents::plain(53, 9)), gzip(contents::plain(54, 9))].concat();
    cases.push(Case::new("gzip-members", "compression: gzip", members));
    let mixed = named(vec![
        ("a.log", contents::plain(55, 9)),
        ("b.log.gz", gzip(contents::plain(56, 9))),
        ("c.log", unended),
    ]);
    cases.push(Case::of_files("gzip-auto", "compression: auto", mixed));
    let numbered = "compression: auto\ninclude_file_record_number: true";
    let packed = named(vec![("a.log.gz", gzip(contents::plain(57, 50)))]);
    cases.push(Case::of_files("gzip-numbered", numbered, packed));
    cases.extend(headers());
    cases.extend(orders());
    cases.push(Case::new("constants-null", "attributes: {a: null, b: ''}\nid: mine", "x\n"));
    cases
}

/// Of several files, those with the latest times in their names.
fn orders() -> Vec<Case> {
    let case = |(name, layout, times): (&str, &str, &[&str])| {
        let options = format!(
            "ordering_criteria:\n  regex: '/x-(?P<1st>[^/]+)\\.log$'\n  top_n: 1\n  sort_by:\n    \
             - {{sort_type: timestamp, regex_key: 1st, layout: '{layout}'}}"
        );
        let file = |time: &&str| (format!("x-{time}.log"), format!("{time}\n").into_bytes());
        Case::of_files(&format!("order-{name}"), &options, times.iter().map(file).collect())
    };
    let orders: [(&str, &str, &[&str]); 8] = [
        ("hour", "%Y%m%d%H", &["2024123123", "2025010100", "2025010101"]),
        ("no-day", "%Y%m%d", &["20240130", "20240231", "20249901"]),
        ("month", "%d-%b-%y", &["31-Dec-99", "01-jan-00", "02-Jan-00"]),
        ("short", "%FT%H%M%S", &["2024-01-02T030405", "2024-01-02T030406"]),
        ("half-day", "%Y%m%d%I%p", &["2024010203PM", "2024010204AM"]),
        ("offset", "%F%z", &["2024-01-02+0100", "2024-01-02+0200"]),
        ("offset-colon", "%Y.%j", &["2024.+02:00", "2024.+01:00", "2024.366"]),
        ("fraction", "%H%M%S.%L", &["030405.123", "030405.456"]),
    ];
    orders.into_iter().map(case).collect()
}

/// Lines at the beginning of a file that say something of all of it.
fn headers() -> Vec<Case> {
    const TEXT: &str = "#host: db-1\n#version: 1.2\n# \r\nfirst\n#host: no header\n  second\nlast";
    const PARSED: &str = "header:\n  pattern: '^#'\n  metadata_operators:\n    \
                          - {type: regex_parser, regex: '^#host: (?P<host>.*)$', if: 'body \
                          contains \"host\"'}\n    \
                          - {type: key_value_parser, delimiter: ': ', pair_delimiter: ';', if: \
                          'body contains \"version\"'}";
    let numbered =
        format!("{PARSED}\ninclude_file_record_number: true\ninclude_file_record_offset: true");
    let named = format!("{PARSED}\nattributes: {{host: constant}}");
    let files = named_files(TEXT);
    vec![
        Case::new("header", PARSED, TEXT),
        Case::new("header-numbered", &numbered, TEXT),
        Case::new("header-over-constants", &named, TEXT),
        Case::of_files("header-of-each-file", PARSED, files),
        Case::new("header-crlf", PARSED, TEXT.replace('\n', "\r\n")),
        Case::new(
            "header-multiline",
            &format!("{PARSED}\nmultiline: {{line_start_pattern: '^[f#]'}}"),
            TEXT,
        ),
        Case::new("header-small", &format!("{PARSED}\nmax_log_size: 9"), TEXT),
        Case::new(
            "header-utf-16",
            &format!("{PARSED}\nencoding: utf-16le\npreserve_leading_whitespaces: true"),
            contents::utf_16(TEXT, u16::to_le_bytes),
        ),
        Case::new(
            "header-csv",
            "header:\n  pattern: '^#Fields: '\n  metadata_operators:\n    \
             - {type: regex_parser, regex: '^#Fields: (?P<fields>.*)$'}\n\
             operators:\n  - {type: csv_parser, delimiter: ' ', header_attribute: fields}\n  - \
             {type: remove, field: attributes.fields}",
            "#Fields: a b c\n1 2 3\n4 5 6\n",
        ),
        Case::new(
            "header-with-operators",
            &format!(
                "{PARSED}\noperators:\n  - {{type: filter, expr: 'attributes.host != \"db-1\"'}}"
            ),
            TEXT,
        ),
    ]
}

fn named_files(text: &str) -> Vec<(String, Vec<u8>)> {
    named(vec![
        ("a.log", text.into()),
        ("b.log", "#host: b\nx\n".into()),
        ("c.log", "no header\n#host: c\n".into()),
    ])
}
