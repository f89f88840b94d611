//! The cases of the Collector's own test, and some about streams.

use std::time::Duration;

use serde_json::{Value as Json, json};
use sluice_otlp::AnyValue;

use crate::record::{Origin, Record};
use crate::testing::{chain, parts, record, run};

/// Records with these bodies, each of a file whose name stands before a colon.
fn records(texts: &[&str]) -> Vec<Record> {
    let of = |text: &&str| match text.split_once(':') {
        Some((file, body)) => {
            record(json!({"body": body, "attributes": {"log.file.path": file, "source": file}}))
        }
        None => record(json!({ "body": text })),
    };
    texts.iter().map(of).collect()
}

fn shown(records: &[Record]) -> Vec<String> {
    let show = |record: &Record| {
        let parts = parts(record);
        let body = parts["body"].as_str().unwrap_or_default().to_owned();
        match parts["attributes"]["log.file.path"].as_str() {
            Some(file) => format!("{file}:{body}"),
            None => body,
        }
    };
    records.iter().map(show).collect()
}

#[test]
fn batches_end_where_the_collector_ends_them() {
    let first = "is_first_entry: body == 'start'";
    let last = "is_last_entry: body == 'end'";
    let lines: Vec<String> = (1..=9).map(|number| format!("1:content{number}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let start = |rest: &[&'static str]| [&["1:start"], rest].concat();
    let cases: Vec<(&str, &str, Vec<&str>, Vec<&str>)> = vec![
        (first, "", vec![], vec![]),
        (last, "", vec!["end"], vec!["end"]),
        (last, "", vec!["a", "end"], vec!["a\nend"]),
        (first, "", vec!["start", "a", "start"], vec!["start\na", "start"]),
        (first, "", vec!["a", "b", "c"], vec!["a\nb\nc"]),
        (
            first,
            "",
            vec!["1:start", "1:a", "1:start", "1:b", "1:start", "2:c", "2:d"],
            vec!["1:start\na", "1:start\nb", "1:start", "2:c\nd"],
        ),
        (last, "combine_with: '', ", vec!["a", "end"], vec!["aend"]),
        (
            "is_first_entry: body matches `^\\S`",
            "",
            vec!["Log message 1", "Error, stack trace", "    at a", "    at b", "Another"],
            vec!["Log message 1", "Error, stack trace\n    at a\n    at b", "Another"],
        ),
        (last, "", vec!["1:a", "2:b", "1:end", "2:end"], vec!["1:a\nend", "2:b\nend"]),
        (
            last,
            "source_identifier: attributes.source, ",
            vec!["1:a", "2:b", "1:end", "2:end"],
            vec!["1:a\nend", "2:b\nend"],
        ),
        (
            last,
            "max_sources: 1, ",
            vec!["1:a", "1:b", "2:c", "2:d", "2:end"],
            vec!["1:a\nb", "2:c\nd\nend"],
        ),
        (
            last,
            "max_batch_size: 2, ",
            vec!["1:a", "2:b", "1:end", "2:c", "2:end"],
            vec!["1:a\nend", "2:b\nc", "2:end"],
        ),
        (last, "max_batch_size: 0, ", vec!["a", "b", "c", "end"], vec!["a\nb\nc\nend"]),
        (
            last,
            "max_log_size: 5, ",
            vec!["file1", "file1", "file2", "end"],
            vec!["file1\nfile1", "file2\nend"],
        ),
        (
            first,
            "max_log_size: 12, ",
            [start(&lines_of(5)), vec!["1:start", "1:start"]].concat(),
            vec![
                "1:start\ncontent1",
                "1:content2\ncontent3",
                "1:content4\ncontent5",
                "1:start",
                "1:start",
            ],
        ),
        (
            first,
            "max_batch_size: 5, ",
            [vec!["1:start"], lines.clone()].concat(),
            vec![
                "1:start\ncontent1\ncontent2\ncontent3\ncontent4",
                "1:content5\ncontent6\ncontent7\ncontent8\ncontent9",
            ],
        ),
        (first, "max_unmatched_batch_size: 0, ", vec!["a", "b", "c"], vec!["a\nb\nc"]),
        (first, "max_unmatched_batch_size: 1, ", vec!["a", "b", "c"], vec!["a", "b", "c"]),
        (
            first,
            "max_unmatched_batch_size: 2, ",
            vec!["a", "b", "c", "d", "e", "start", "f", "g", "start", "h", "i"],
            vec!["a\nb", "c\nd", "e", "start\nf\ng", "start\nh\ni"],
        ),
        (last, "max_unmatched_batch_size: 1, ", vec!["a", "b"], vec!["a", "b"]),
        (
            last,
            "max_unmatched_batch_size: 2, ",
            vec!["a", "b", "c", "d", "end", "e", "f", "end"],
            vec!["a\nb", "c\nd", "end", "e\nf", "end"],
        ),
    ];
    for (condition, options, before, after) in cases {
        let operators = format!(
            "- type: recombine\n  combine_field: body\n  {condition}\n  {}",
            options.trim_end_matches(", ")
        );
        assert_eq!(shown(&run(&operators, records(&before))), after, "{operators} {before:?}");
    }
}

fn lines_of(count: usize) -> Vec<&'static str> {
    ["1:content1", "1:content2", "1:content3", "1:content4", "1:content5"][..count].to_vec()
}

/// The other fields are those of the oldest or the newest record.
#[test]
fn the_base_is_the_oldest_or_the_newest() {
    let of =
        |body: &str, base: &str| record(json!({"body": {"m": body}, "attributes": {"base": base}}));
    for (overwrite, base) in
        [("", "1"), (", overwrite_with: oldest", "1"), (", overwrite_with: newest", "2")]
    {
        let operator = format!(
            "- {{type: recombine, combine_field: body.m, is_last_entry: body.m == 'b'{overwrite}}}"
        );
        let out = run(&operator, [of("a", "1"), of("b", "2")]);
        let expected: Json = json!({"body": {"m": "a\nb"}, "attributes": {"base": base}});
        assert_eq!(parts(&out[0]), expected, "{overwrite}");
        assert_eq!(out.len(), 1);
    }
}

/// A character that is split among records becomes whole.
#[test]
fn bytes_are_combined_before_they_are_text() {
    let of = |bytes: &[u8]| {
        let mut record = record(json!({}));
        record.body = AnyValue::Bytes(bytes.to_vec());
        record
    };
    let operator = "- {type: recombine, combine_field: body, \
                    is_last_entry: attributes.x == 1, combine_with: ''}";
    let out = run(operator, [of(b"\xe5\xbe"), of(b"\x90"), of(b"\xff")]);
    assert_eq!(shown(&out), ["\u{5f90}\u{FFFD}"]);
}

/// Guarantee: records of two streams are never one, and each result has its whole range.
#[test]
fn streams_are_kept_apart() {
    let operator = "- {type: recombine, combine_field: body, \
                    is_last_entry: body == 'end', overwrite_with: newest}";
    let (mut chain, mut out) = (chain(operator), Vec::new());
    for (stream, start, text) in [(1, 10, "a"), (2, 20, "b"), (1, 12, "end"), (2, 22, "end")] {
        let origin = Origin { stream, range: start..start + text.len() as u64 };
        chain.process(Record { origin, ..record(json!({ "body": text })) }, &mut out);
    }
    assert_eq!(shown(&out), ["a\nend", "b\nend"]);
    let origins: Vec<_> = out.into_iter().map(|record| record.origin).collect();
    assert_eq!(origins, [Origin { stream: 1, range: 10..15 }, Origin { stream: 2, range: 20..25 }]);
}

/// A record that fails comes behind those before it, and takes nothing with it.
#[test]
fn a_record_without_text_leaves_as_it_is() {
    let operator = "- {type: recombine, combine_field: body, is_first_entry: attributes.x == 1}";
    let odd = record(json!({"body": 7, "attributes": {"x": 1}}));
    let out = run(operator, [records(&["a"]), vec![odd], records(&["b"])].concat());
    let bodies: Vec<_> = out.iter().map(|record| parts(record)["body"].clone()).collect();
    assert_eq!(bodies, [json!("a"), json!(7), json!("b")]);
}

/// Batches leave when they are old, however many records they get meanwhile.
#[test]
fn old_batches_leave() {
    let operator = "- {type: recombine, combine_field: body, \
                    is_first_entry: body == 'start', force_flush_period: 1s}";
    let (mut chain, mut out) = (chain(operator), Vec::new());
    let mut at = Duration::from_secs(100);
    for text in ["start", "a", "b", "c", "d"] {
        records(&[text]).into_iter().for_each(|record| chain.process(record, &mut out));
        at += Duration::from_millis(400);
        chain.flush(at, &mut out);
    }
    assert_eq!(shown(&out), ["start\na\nb\nc"]);
}
