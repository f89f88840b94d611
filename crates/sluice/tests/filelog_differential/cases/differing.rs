//! Records that Sluice makes of files on purpose otherwise than the Collector.

use super::Case;
use super::container::{CONTAINERD, PATH, cri, plain};
use crate::contents;

/// Names of cases, each with the reason. The test fails for one that does not differ.
pub(crate) const EXCEPTIONS: [(&str, &str); 22] = [
    ("characters-split", "the Collector cuts within characters, Sluice between them"),
    ("windows-1252-unused", "unused bytes are U+FFFD there, as in WHATWG's standard here"),
    ("utf-16-spaces", "the Collector takes single bytes of characters for white space"),
    ("utf-16-across", "the Collector takes two halves of characters for a line feed"),
    ("json-leading-zero", "`01` is no JSON"),
    ("json-array-fractions", "the Collector makes 0 of each fraction in an array"),
    ("json-array-object", "an object is no array"),
    ("csv-without-header", "the Collector loses a row without its header, whatever `on_error` is"),
    ("time-beyond-2262", "times are between 1677 and 2262; the Collector's wrap around from there"),
    ("trace-partly", "a record on which an operator fails is as it was"),
    ("syslog-without-time", "`-` for the time is allowed: no failure"),
    ("rfc3164-to-body", "the Collector looks for time and severity in the attributes"),
    ("rfc5424-to-body", "the Collector looks for time and severity in the attributes"),
    ("filter-failing", "a filter that fails drops nothing, unless `on_error` says so"),
    ("recombine-failing", "`recombine` deals with a record that fails as `on_error` says"),
    ("nil-in-list", "nil is not the empty string"),
    ("container-mixed", "parts of stdout and stderr are not joined with each other"),
    ("container-elsewhere", "a record on which an operator fails is as it was"),
    ("container-without-time", "a record on which an operator fails is as it was"),
    (
        "header-over-the-name",
        "attributes of a header are over those of the file whenever it is read",
    ),
    ("header-unended", "a last line without its end is a record, also where a header may be"),
    ("multiline-omitted-split", "the Collector repeats bytes, by the length of what it leaves out"),
];

const MIXED: &str = "2024-04-13T07:59:37.1Z stdout P out \n2024-04-13T07:59:37.2Z stderr P err \n\
                     2024-04-13T07:59:37.3Z stdout F put\n2024-04-13T07:59:37.4Z stderr F or\n";

pub(super) fn cases() -> Vec<Case> {
    let utf_16 = |text: &str| contents::utf_16(text, u16::to_le_bytes);
    let container = |name: &str, path: &str, content: &str| {
        let options = "include_file_path: true\noperators:\n  - {type: container}";
        Case::of_files(name, options, vec![(path.to_owned(), content.into())])
    };
    let syslog = |protocol: &str| {
        format!("  - {{type: syslog_parser, protocol: {protocol}, parse_to: body}}")
    };
    let ids = "  - type: json_parser\n  - type: trace_parser\n    trace_id: {parse_from: \
    attributes.t}\n    \
               span_id: {parse_from: attributes.s}";
    let header = |operator: &str| {
        format!("header:\n  pattern: '^#'\n  metadata_operators:\n    - {{type: {operator}}}")
    };
    let elsewhere = cri(136, CONTAINERD, plain);
    vec![
        Case::new("characters-split", "max_log_size: 10", contents::plain(13, 20)),
        Case::new("windows-1252-unused", "encoding: windows-1252", b"\x81\x8d x\n"),
        Case::new("utf-16-spaces", "encoding: utf-16le", utf_16(" a \n\tb\t\n")),
        Case::new("utf-16-across", "encoding: utf-16le", utf_16("a\u{a05}\u{100}b\nc\n")),
        Case::operators("json-leading-zero", "  - type: json_parser", "{\"a\":01}\n"),
        Case::operators(
            "json-array-fractions",
            "  - {type: json_array_parser, parse_to: body}",
            "[1.5]\n",
        ),
        Case::operators(
            "json-array-object",
            "  - {type: json_array_parser, parse_to: body}",
            "{}\n",
        ),
        Case::operators(
            "csv-without-header",
            "  - {type: csv_parser, header_attribute: none}",
            "a\n",
        ),
        Case::operators(
            "time-beyond-2262",
            "  - {type: time_parser, parse_from: body, layout: '%Y-%m-%d'}",
            "2300-01-01\n",
        ),
        Case::operators("trace-partly", ids, "{\"t\":\"48\",\"s\":\"zz\"}\n"),
        Case::operators(
            "syslog-without-time",
            "  - {type: syslog_parser, protocol: rfc5424}",
            "<0>1 - - - - - -\n",
        ),
        Case::operators("rfc3164-to-body", &syslog("rfc3164"), "<34>Oct 11 22:14:15 h su: x\n"),
        Case::operators(
            "rfc5424-to-body",
            &syslog("rfc5424"),
            "<34>1 2003-10-11T22:14:15Z h a p m - x\n",
        ),
        Case::operators(
            "filter-failing",
            "  - {type: filter, expr: 'len(attributes.none) == 0'}",
            "a\n",
        ),
        Case::operators(
            "recombine-failing",
            "  - {type: recombine, combine_field: attributes.none, is_first_entry: 'true', \
             force_flush_period: 3s}",
            "a\nb\n",
        ),
        Case::operators(
            "nil-in-list",
            "  - {type: add, field: attributes.x, value: 1, if: 'attributes.none in [\"x\", \
            \"\"]'}",
            "a\n",
        ),
        container("container-mixed", PATH, MIXED),
        container("container-elsewhere", "elsewhere.log", &elsewhere),
        container("container-without-time", PATH, "{\"log\":\"no time\",\"stream\":\"stdout\"}\n"),
        Case::new(
            "multiline-omitted-split",
            "max_log_size: 10\nmultiline: {line_start_pattern: '^#', omit_pattern: true}",
            "#0123456789abcdefghijkl\n#x\n#y\n",
        ),
        Case::new("header-unended", &header("noop"), "no end"),
        Case::new(
            "header-over-the-name",
            &header("add, field: 'attributes[\"log.file.name\"]', value: b"),
            "#\na\nread later",
        ),
    ]
}
