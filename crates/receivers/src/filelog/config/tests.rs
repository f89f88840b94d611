use sluice_config::load::read_text;
use sluice_tail::{Compression, SortBy, SortKind};

use super::*;

fn read(text: &str) -> (FilelogConfig, Vec<String>) {
    let (config, diagnostics) = read_text("receivers.filelog", text, FilelogConfig::read);
    (config, diagnostics.items().iter().map(|it| it.message.clone()).collect())
}

#[test]
fn the_defaults_are_those_of_the_collector() {
    let (config, messages) = read("include: [/var/log/*.log]");
    assert_eq!(messages, [""; 0]);
    let options = &config.options;
    assert!(options.starts_at_end && options.deletes_after.is_none() && !options.locks);
    assert_eq!(options.poll_interval, Duration::from_millis(200));
    assert_eq!(options.flush_after, Duration::from_millis(500));
    assert_eq!((options.head_bytes, options.max_open), (1000, 1024));
    assert_eq!(options.splitter.max_bytes, 1 << 20);
    assert!(!options.splitter.truncates && options.ordering.is_none());
    assert_eq!(options.splitter.charset, Charset::Utf8);
    assert!(matches!(options.splitter.boundary, Boundary::LineFeed));
    assert_eq!(options.compression, Compression::None);
    assert!(config.files.name && !config.files.path && config.storage.is_none());
}

#[test]
fn every_option_of_the_collector_takes_effect_or_is_warned_of() {
    let (config, messages) = read(
        "
include: [/a/**/*.log]
exclude: [/a/b.log]
exclude_older_than: 24h
start_at: beginning
multiline: {line_start_pattern: '^\\d', omit_pattern: true}
force_flush_period: 1s
encoding: utf-16le
preserve_leading_whitespaces: true
preserve_trailing_whitespaces: true
include_file_name: false
include_file_path: true
include_file_name_resolved: true
include_file_path_resolved: true
include_file_owner_name: true
include_file_owner_group_name: true
include_file_permissions: true
include_file_record_number: true
include_file_record_offset: true
poll_interval: 1s
fingerprint_size: 16
initial_buffer_size: 32KiB
max_log_size: 2MiB
max_log_size_behavior: truncate
max_concurrent_files: 10
max_batches: 2
delete_after_read: true
acquire_fs_lock: true
attributes: {a: b}
resource: {service.name: c}
operators: []
header: {pattern: '^#', metadata_operators: [{type: noop}]}
storage: file_storage
retry_on_failure: {enabled: true, initial_interval: 1s, max_interval: 2s, max_elapsed_time: 0}
ordering_criteria:
  regex: '(?P<time>\\d+)-(?P<n>\\d+)'
  group_by: '(a|b)'
  top_n: 3
  sort_by:
    - {sort_type: timestamp, regex_key: time, layout: '%Y%m%d', location: UTC, ascending: true}
    - {sort_type: numeric, regex_key: n}
    - {sort_type: mtime}
compression: auto
polls_to_archive: 1
id: file_input
on_truncate: read_new
file_cache_advise: true
skip_unmodified_files: true
",
    );
    let warned = [
        "max_batches",
        "id",
        "initial_buffer_size",
        "polls_to_archive",
        "file_cache_advise",
        "skip_unmodified_files",
        "on_truncate",
        "initial_interval",
        "max_interval",
        "max_elapsed_time",
    ];
    assert_eq!(messages.len(), warned.len(), "{messages:#?}");
    for (message, option) in messages.iter().zip(warned) {
        assert!(message.contains(&format!("{option}` has no effect")), "{message}");
    }
    let options = &config.options;
    let ordering = options.ordering.as_ref().expect("is there");
    assert_eq!((ordering.top, ordering.sort_by.len()), (3, 3));
    assert!(matches!(options.splitter.boundary, Boundary::Start { omit: true, .. }));
    assert_eq!((options.max_open, options.compression), (10, Compression::Auto));
    assert_eq!(config.storage.as_deref(), Some("file_storage"));
    assert_eq!(config.resource.len() + config.files.constant.len(), 2);
    assert!(config.header.is_some());
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (text, expected) in [
        ("", "receivers.filelog.include` is required"),
        ("include: []", "receivers.filelog.include` must not be empty"),
        ("include: ['/a/[']", "has the pattern `/a/[`, which has `[` without `]`"),
        ("include: [/a], start_at: middle", "start_at` must be one of"),
        ("include: [/a], encoding: utf-9", "`utf-9` is not an encoding: "),
        ("include: [/a], delete_after_read: true", "needs `start_at: beginning`"),
        ("include: [/a], operators: [{type: json_parsr}]", "json_parsr"),
        ("include: [/a], header: {pattern: x}", "metadata_operators` is required"),
        ("include: [/a], header: {metadata_operators: [{type: noop}]}", "pattern` is required"),
        (
            "include: [/a], header: {pattern: x, metadata_operators: [{type: noop}]}",
            "header` needs `start_at: beginning`",
        ),
        ("include: [/a], attributes: {a: 'EXPR(1 +)'}", "attributes` has a wrong `a`: "),
        ("include: [/a], resource: {a: 'EXPR(level)'}", "`level` is always nil"),
        ("include: [/a], attributes: [a]", "must be a mapping"),
        ("include: [/a], multiline: {line_start_pattern: '('}", "line_start_pattern"),
        (
            "include: [/a], multiline: {line_start_pattern: a, line_end_pattern: b}",
            "cannot have both",
        ),
        ("include: [/a], encoding: nop, multiline: {line_end_pattern: b}", "`encoding: nop`"),
        ("include: [/a], ordering_criteria: {sort_by: [{sort_type: numeric}]}", "regex"),
        (
            "include: [/a], ordering_criteria: {regex: '(?P<a>x)', \
             sort_by: [{sort_type: numeric, regex_key: b}]}",
            "has no group `b`",
        ),
        ("include: [/a], fingerprint_size: 15", "fingerprint_size"),
        ("include: [/a], max_log_size: 0", "max_log_size"),
        ("include: [/a], compression: zstd", "compression"),
        ("include: [/a], poll_intervall: 1s", "has no option `poll_intervall`"),
    ] {
        let (_, messages) = read(&format!("{{{text}}}"));
        assert!(messages.iter().any(|it| it.contains(expected)), "{text}: {messages:?}");
    }
}

/// Guarantee: as in the Collector, an attribute that is null has the empty text.
#[test]
fn attributes_that_are_null_are_empty() {
    let (config, messages) = read("{include: [/a], attributes: {a: null, b: ~}, resource: {c: }}");
    assert_eq!(messages, [""; 0]);
    let constants = config.files.constant.iter().chain(&config.resource);
    let empty = AnyValue::String(String::new());
    assert_eq!(constants.filter(|(_, value)| *value == empty).count(), 3);
}

fn sort_by_time(layout: &str, more: &str) -> (FilelogConfig, Vec<String>) {
    read(&format!(
        "include: [/a]\nordering_criteria:\n  regex: '(?P<1st>.*)'\n  sort_by:\n    \
         - {{sort_type: timestamp, layout: '{layout}', {more}}}"
    ))
}

/// Guarantee: times in names of files are read as `time_parser` reads times, and those that do not
/// exist are none.
#[test]
fn files_are_ordered_by_times_as_the_operators_read_them() {
    for (layout, times, wrong) in [
        ("%Y%m%d%H", &["2024123123", "2025010100", "2025010101"][..], "2024023100"),
        ("%Y%m%d", &["20240130", "20240229"], "20249901"),
        ("%d-%b-%y", &["31-Dec-99", "01-jan-00", "02-Jan-00"], "31-Feb-99"),
        ("%Y %j", &["2024 +02:00", "2024 +01:00", "2024 -01:00"], "2024 366"),
        ("%FT%T%z", &["2024-01-02T03:04:05+0200", "2024-01-02T03:04:05+0100"], "2024-01-02"),
        ("%Y%m%d%I%p", &["2024010204AM", "2024010203PM"], "2024010213PM"),
        ("%F %T.%L", &["2024-01-01 00:00:01.999", "2024-01-01 00:00:02"], "2024"),
    ] {
        let (config, messages) = sort_by_time(layout, "regex_key: 1st");
        assert_eq!(messages, [""; 0], "{layout}");
        let ordering = config.options.ordering.expect("is there");
        let [SortBy { kind: SortKind::Timestamp(parse), key, .. }] = &*ordering.sort_by else {
            panic!("one sort by time");
        };
        let path = ordering.pattern.expect("is there");
        assert!(path.captures(b"x").is_some_and(|found| found.name(key).is_some()));
        let values: Vec<_> = times.iter().map(|time| parse(time)).collect();
        let rises = values.is_sorted_by(|one, next| one < next);
        assert!(values.iter().all(Option::is_some) && rises, "{layout}: {values:?}");
        assert_eq!(parse(wrong), None, "{layout}: {wrong}");
    }
    let (_, messages) = sort_by_time("%Y", "regex_key: 1st, location: Europe/Berlin");
    assert_eq!(messages, [""; 0]);
}

#[test]
fn mistakes_of_an_order_are_named_once() {
    for (layout, more, expected) in [
        ("%s", "regex_key: 1st", ".layout` needs a point or a comma before `%s`"),
        ("%Q", "regex_key: 1st", ".layout` has `%Q`, which is no directive"),
        ("2006", "regex_key: 1st", ".layout` has a digit"),
        ("", "regex_key: 1st", ".layout` must not be empty"),
        ("%Y", "regex_key: 1st, location: Nowhere", "`Nowhere` is not a time zone"),
        ("%Y", "regex_key: ''", ".regex_key` must not be empty"),
        ("%Y", "ascending: true", ".regex_key` is required"),
    ] {
        let (_, messages) = sort_by_time(layout, more);
        assert_eq!(messages.len(), 1, "{layout}, {more}: {messages:?}");
        assert!(messages[0].contains(expected), "{layout}, {more}: {messages:?}");
    }
}
