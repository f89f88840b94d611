//! `time_parser`, with the Collector's cases.

use sluice_otlp::AnyValue;

use super::{NOW_NS, applied, built, record, text};
use crate::parsers::time::{days_since_1970, rfc3339};

fn ns(time: &str) -> i64 {
    rfc3339(time).unwrap_or_else(|| panic!("{time}"))
}

fn time(options: &str, body: AnyValue) -> Result<i64, String> {
    let record = applied("time_parser", &format!("parse_from: body\n{options}"), body)?;
    Ok(record.time_ns.expect("a time"))
}

fn layout(kind: &str, layout: &str, location: &str) -> String {
    format!("layout_type: {kind}\nlayout: '{layout}'\nlocation: '{location}'")
}

/// Text, time, layout of Go, layout of strptime, location.
const CASES: [[&str; 5]; 23] = [
    [
        "Mon Jan 2 15:04:05 UTC 2006",
        "2006-01-02T15:04:05Z",
        "Mon Jan 2 15:04:05 MST 2006",
        "%a %b %e %H:%M:%S %Z %Y",
        "UTC",
    ],
    [
        "Mon Jan 2 15:04:05 UTC 2006",
        "2006-01-02T15:04:05Z",
        "Mon Jan 2 15:04:05 MST 2006",
        "%a %b %e %H:%M:%S %Z %Y",
        "HST",
    ],
    [
        "Mon Jan 2 15:04:05 MST 2006",
        "2006-01-02T15:04:05-07:00",
        "Mon Jan 2 15:04:05 MST 2006",
        "%a %b %e %H:%M:%S %Z %Y",
        "UTC",
    ],
    [
        "Mon Jan 2 15:04:05 HST 2006",
        "2006-01-02T15:04:05-10:00",
        "Mon Jan 2 15:04:05 MST 2006",
        "%a %b %e %H:%M:%S %Z %Y",
        "UTC",
    ],
    [
        "Mon Jan 02 15:04:05 MST 2006",
        "2006-01-02T15:04:05-07:00",
        "Mon Jan 02 15:04:05 MST 2006",
        "%a %b %d %H:%M:%S %Z %Y",
        "UTC",
    ],
    ["12:34PM", "2026-01-01T12:34:00Z", "3:04PM", "%H:%M%p", "UTC"],
    ["12:34PM", "2026-01-01T12:34:00-10:00", "3:04PM", "%H:%M%p", "HST"],
    ["Jun 09 11:39:45", "2026-06-09T11:39:45Z", "Jan 02 15:04:05", "%b %d %H:%M:%S", "UTC"],
    ["Jun 09 11:39:45", "2026-06-09T11:39:45-10:00", "Jan 02 15:04:05", "%b %d %H:%M:%S", "HST"],
    [
        "2020-06-09T15:39:58",
        "2020-06-09T15:39:58Z",
        "2006-01-02T15:04:05",
        "%Y-%m-%dT%H:%M:%S",
        "UTC",
    ],
    [
        "2020-06-09T15:39:58",
        "2020-06-09T15:39:58-10:00",
        "2006-01-02T15:04:05",
        "%Y-%m-%dT%H:%M:%S",
        "HST",
    ],
    [
        "2019-11-05 10:38:35.118 HST",
        "2019-11-05T10:38:35.118-10:00",
        "2006-01-02 15:04:05.999 MST",
        "%Y-%m-%d %H:%M:%S.%L %Z",
        "UTC",
    ],
    ["3/4/2018 11:52:29", "2018-03-04T11:52:29Z", "1/2/2006 15:04:05", "%q/%g/%Y %H:%M:%S", "UTC"],
    [
        "2019-11-27T09:34:32.901-1000",
        "2019-11-27T09:34:32.901-10:00",
        "2006-01-02T15:04:05.999-0700",
        "%Y-%m-%dT%H:%M:%S.%L%z",
        "UTC",
    ],
    [
        "2019-10-15T10:42:01.900436-10:00",
        "2019-10-15T10:42:01.900436-10:00",
        "2006-01-02T15:04:05.999999-07:00",
        "%Y-%m-%dT%H:%M:%S.%f%j",
        "UTC",
    ],
    [
        "22-JUL-2019 15:16:13",
        "2019-07-22T15:16:13Z",
        "02-Jan-2006 15:04:05",
        "%d-%b-%Y %H:%M:%S",
        "UTC",
    ],
    [
        "2019-03-08T18:41:12.152531115Z",
        "2019-03-08T18:41:12.152531115Z",
        "2006-01-02T15:04:05.999999999Z",
        "%Y-%m-%dT%H:%M:%S.%sZ",
        "",
    ],
    [
        "2019-03-08T18:41:12.152531115Z",
        "2019-03-08T18:41:12.152531115-07:00",
        "2006-01-02T15:04:05.999999999Z",
        "%Y-%m-%dT%H:%M:%S.%sZ",
        "MST",
    ],
    [
        "05/Aug/2019:20:38:46 +0000",
        "2019-08-05T20:38:46Z",
        "02/Jan/2006:15:04:05 -0700",
        "%d/%b/%Y:%H:%M:%S %z",
        "HST",
    ],
    ["Aug  4 03:26:02", "2026-08-04T03:26:02Z", "Jan _2 15:04:05", "%b %e %H:%M:%S", "UTC"],
    [
        "2020-12-16T21:43:28.391Z",
        "2020-12-16T21:43:28.391Z",
        "2006-01-02T15:04:05.999Z",
        "%Y-%m-%dT%H:%M:%S.%LZ",
        "",
    ],
    [
        "2020-12-16T21:43:28.391Z",
        "2020-12-16T21:43:28.391-10:00",
        "2006-01-02T15:04:05.999Z",
        "%Y-%m-%dT%H:%M:%S.%LZ",
        "HST",
    ],
    [
        "1970-12-16T21:43:28.391Z",
        "1970-12-16T21:43:28.391Z",
        "2006-01-02T15:04:05.999Z",
        "%Y-%m-%dT%H:%M:%S.%LZ",
        "",
    ],
];

#[test]
fn layouts_of_both_kinds_read_the_times_of_many_programs() {
    for [body, expected, gotime, strptime, location] in CASES {
        for (kind, format) in [("gotime", gotime), ("strptime", strptime)] {
            let found = time(&layout(kind, format, location), text(body));
            assert_eq!(found, Ok(ns(expected)), "{body} by {format} in {location}");
        }
    }
}

/// A number may lack its zeros or have space before it, and an offset has several forms.
#[test]
fn directives_are_as_lenient_as_the_collectors() {
    let cases: [(&str, &str, &[&str]); 12] = [
        (
            "2006-01-02T15:04:05Z",
            "%a %b %e %H:%M:%S %z %Y",
            &["Mon Jan 2 15:04:05 Z 2006", "Mon Jan 2 15:4:5 Z 2006"],
        ),
        (
            "2007-04-05T06:07:08-10:00",
            "%Y-%m-%dT%H:%M:%S%z",
            &[
                "2007-04-05T06:07:08-10:00",
                "2007-04-05T06:07:08-1000",
                "2007-04-05T06:07:08-10",
                "2007-04-05T06:07:08  -1000",
                "2007-4-5T6:7:8  -10",
                "2007-4-5T6:7:8-10:00",
            ],
        ),
        ("2007-04-05T06:07:08-10:00", "%y-%m-%dT%H:%M:%S%z", &["07-04-05T06:07:08-10:00"]),
        (
            "2007-04-05T12:30:46Z",
            "%FT%T%z",
            &["2007-4-5T12:30:46+0000", "2007-04-05T12:30:46+00", "2007-04-05T12:30:46  Z"],
        ),
        ("2023-02-03T05:06:07Z", "%Y%m%d%H%M%S", &["20230203050607", "2023 02 03 05 06 07"]),
        (
            "2023-02-03T15:06:07Z",
            "%Y-%m-%d %I:%M:%S %p",
            &["2023-02-03 03:06:07 PM", "2023-02-03 3:6:7 PM"],
        ),
        ("2023-02-03T00:06:07Z", "%F %r", &["2023-02-03 12:06:07 am"]),
        ("2023-02-03T15:06:00Z", "%D %R", &["02/03/2023 15:06", "2/3/23 15:6"]),
        ("2023-02-03T15:06:07Z", "%c", &["Fri Feb  3 15:06:07 2023"]),
        ("2023-02-03T15:06:07Z", "%A, %B %d%n%t%Y %X%%", &["Friday, february 3\n\t2023 15:06:07%"]),
        ("2023-02-03T15:06:07.5Z", "%F %T", &["2023-02-03 15:06:07.5", "2023-02-03 15:06:07,500"]),
        (
            "2023-02-03T15:06:07.123456789+05:30",
            "%F %T.%s%j",
            &["2023-02-03 15:06:07,123456789999+05:30"],
        ),
    ];
    for (expected, format, bodies) in cases {
        for body in bodies {
            let found = time(&layout("strptime", format, "UTC"), text(body));
            assert_eq!(found, Ok(ns(expected)), "{body:?} by {format}");
        }
    }
}

#[test]
fn layouts_of_go_have_all_their_elements() {
    let cases = [
        (
            "Monday, 02-Jan-06 15:04:05 MST",
            "Friday, 03-Feb-23 15:06:07 GMT",
            "2023-02-03T15:06:07Z",
        ),
        ("02 Jan 06 15:04 MST", "03 Feb 68 15:06 GMT-3", "2068-02-03T15:06:00-03:00"),
        ("2006-002 15:04", "2024-060 01:02", "2024-02-29T01:02:00Z"),
        ("2006-__2", "2023-  9", "2023-01-09T00:00:00Z"),
        ("2006_01_02", "2023_02_03", "2023-02-03T00:00:00Z"),
        (
            "2006-01-02T15:04:05.000Z07:00",
            "2023-02-03T15:06:07.120+01:00",
            "2023-02-03T15:06:07.12+01:00",
        ),
        ("2006-01-02T15:04:05Z070000", "2023-02-03T15:06:07+010030", "2023-02-03T14:05:37Z"),
        ("January 2 2006 -07:00:00", "may 9 2023 -01:00:00", "2023-05-09T01:00:00Z"),
        ("20060102150405", "20230203150607", "2023-02-03T15:06:07Z"),
    ];
    for (format, body, expected) in cases {
        let found = time(&layout("gotime", format, "UTC"), text(body));
        assert_eq!(found, Ok(ns(expected)), "{body} by {format}");
    }
}

#[test]
fn times_that_do_not_fit_their_layout_are_refused_with_the_place() {
    let cases = [
        ("2006-01-02", "2023-02-30", "there is no such day"),
        ("2006-01-02", "2023-13-01", "no month at `13-01`"),
        ("2006-01-02", "2023-01-01x", "no end at `x`"),
        ("2006-01-02", "2023-01", "no separator at the end"),
        ("15:04", "24:00", "no hour"),
        ("15:04:05", "23:00:60", "no second"),
        ("Jan", "Foo", "no name of a month at `Foo`"),
        ("2006 -0700", "2023 +2500", "no offset of a zone"),
        ("2006 MST", "2023 QQQ", "the time zone `QQQ` is unknown"),
        ("2006-002", "2023-366", "no such day of the year"),
        ("15:04:05.000", "01:02:03.12", "no fraction of a second"),
        ("2006", "9999", "outside the years"),
        ("2006", "é€99", "no year"),
    ];
    for (format, body, expected) in cases {
        let error = time(&layout("gotime", format, "UTC"), text(body)).unwrap_err();
        assert!(error.contains(expected), "{body} by {format}: {error}");
    }
    // The Collector tries this one again and again, without an end.
    let error = time(&layout("strptime", "%m %Y", "UTC"), text(" 60 2024")).unwrap_err();
    assert_eq!(error, "` 60 2024` does not fit the layout `%m %Y`: no month at `60 2024`");
    let error = time(&layout("gotime", "3:04PM", ""), AnyValue::Int(1)).unwrap_err();
    assert_eq!(error, "`body` is an integer, not a text");
}

#[test]
fn seconds_since_1970_come_in_all_units_and_types() {
    let whole = 1_136_214_245_000_000_000;
    let cases = [
        ("s", text("1136214245"), whole),
        ("s", AnyValue::Bytes(b"1136214245".to_vec()), whole),
        ("s", AnyValue::Int(1_136_214_245), whole),
        ("s", AnyValue::Double(1_136_214_245.9), whole),
        ("ms", text("1136214245123"), whole + 123_000_000),
        ("ms", AnyValue::Double(1_136_214_245_123.0), whole + 123_000_000),
        ("us", AnyValue::Int(1_136_214_245_123_456), whole + 123_456_000),
        ("ns", text("1136214245123456789"), whole + 123_456_789),
        ("s.ms", text("1136214245.123"), whole + 123_000_000),
        ("s.ms", AnyValue::Int(1_136_214_245), whole),
        ("s.ms", AnyValue::Double(1_136_214_245.123), whole + 123_000_000),
        ("s.us", AnyValue::Double(1_136_214_245.123_456), whole + 123_456_000),
        ("s.ns", text("1136214245.123456789"), whole + 123_456_789),
        ("s", AnyValue::Int(-1), -1_000_000_000),
    ];
    for (unit, body, expected) in cases {
        let found = time(&layout("epoch", unit, ""), body.clone());
        assert_eq!(found, Ok(expected), "{body:?} in {unit}");
    }
    for (unit, body) in [
        ("s", text("not-a-number")),
        ("s", text("1.5")),
        ("s", AnyValue::Bool(true)),
        ("s", AnyValue::Int(i64::MAX)),
        ("ns", AnyValue::Double(f64::NAN)),
        ("s.ms", text("1136214245")),
        ("s.ms", AnyValue::Double(1e300)),
    ] {
        let error = time(&layout("epoch", unit, ""), body.clone()).unwrap_err();
        assert!(error.contains("not a time since 1970"), "{body:?} in {unit}: {error}");
    }
}

/// A time without a year is of this year, unless that is more than a week ahead.
#[test]
fn a_year_that_is_missing_is_the_last_possible() {
    let options = layout("gotime", "Jan 2 15:04:05", "UTC");
    for (body, expected) in [
        ("Nov 27 11:00:00", "2026-11-27T11:00:00Z"),
        ("Dec 4 12:00:00", "2026-12-04T12:00:00Z"),
        ("Dec 4 12:00:01", "2025-12-04T12:00:01Z"),
        ("Feb 29 00:00:00", "2026-03-01T00:00:00Z"),
    ] {
        assert_eq!(time(&options, text(body)), Ok(ns(expected)), "{body}");
    }
    let mut parser = built("time_parser", &format!("parse_from: body\n{options}")).unwrap();
    let mut early = record(text("Dec 31 23:59:59"));
    early.observed_ns = ns("2026-01-01T00:00:05Z");
    parser.apply(&mut early).unwrap();
    assert_eq!(early.time_ns, Some(ns("2025-12-31T23:59:59Z")));
}

/// Where clocks change, a local time is taken as Go takes it.
#[test]
fn locations_have_their_rules() {
    let options = layout("gotime", "2006-01-02 15:04", "Europe/Berlin");
    for (body, expected) in [
        ("2024-01-15 12:00", "2024-01-15T12:00:00+01:00"),
        ("2024-07-15 12:00", "2024-07-15T12:00:00+02:00"),
        ("2024-03-31 02:30", "2024-03-31T01:30:00Z"),
        ("2024-10-27 02:30", "2024-10-27T01:30:00Z"),
        ("1970-01-01 00:30", "1970-01-01T00:30:00+01:00"),
    ] {
        assert_eq!(time(&options, text(body)), Ok(ns(expected)), "{body}");
    }
}

#[test]
fn abbreviations_of_zones_are_of_the_location_or_of_a_table() {
    let form = "%a %b %d %H:%M:%S %Z %Y";
    let table = "\ntime_zone_locations: {PDT: America/Los_Angeles, NZST: Pacific/Auckland}";
    for (body, more, expected) in [
        ("Wed Aug 27 15:08:58 IST 2025", table, "2025-08-27T15:08:58+05:30"),
        ("Wed Aug 20 14:08:48 PDT 2025", table, "2025-08-20T14:08:48-07:00"),
        ("Wed Jul 16 10:00:00 NZST 2025", table, "2025-07-16T10:00:00+12:00"),
        ("Wed Aug 27 15:08:58 IST 2025", "", "2025-08-27T15:08:58+05:30"),
    ] {
        let options = layout("strptime", form, "Asia/Kolkata") + more;
        assert_eq!(time(&options, text(body)), Ok(ns(expected)), "{body}");
    }
    let options = layout("strptime", "%F %H:%M %Z", "Europe/Berlin");
    for (body, expected) in [
        ("2024-07-15 12:00 CEST", "2024-07-15T10:00:00Z"),
        ("2024-07-15 12:00 CET", "2024-07-15T11:00:00Z"),
        ("2024-01-15 12:00 CET", "2024-01-15T11:00:00Z"),
    ] {
        assert_eq!(time(&options, text(body)), Ok(ns(expected)), "{body}");
    }
}

/// As in the Collector, an empty type of layout is that of the default.
#[test]
fn the_type_of_the_layout_may_be_empty() {
    let expected = ns("2024-02-29T00:00:00Z");
    assert_eq!(time(&layout("''", "%F", "UTC"), text("2024-02-29")), Ok(expected));
}

#[test]
fn options_that_are_wrong_are_named_with_a_remedy() {
    for (options, expected) in [
        (
            "parse_from: body\nlayout_type: fake\nlayout: x",
            "must be one of `strptime`, `gotime`, `epoch`",
        ),
        ("parse_from: body\nlayout: '%1'", "has a digit"),
        ("parse_from: body\nlayout: '%C'", "has `%C`, which is no directive"),
        ("parse_from: body\nlayout: '%S:%L'", "needs a point or a comma before `%L`"),
        ("parse_from: body\nlayout: '%s'", "needs a point or a comma before `%s`"),
        (
            "parse_from: body\nlayout_type: gotime\nlayout: '15:04:05:999'",
            "needs a point or a comma",
        ),
        ("parse_from: body\nlayout: '%F'\nlocation: fake", "there is no such time zone"),
        ("parse_from: body\nlayout_type: epoch\nlayout: years", "must be one of `s`, `ms`"),
        ("parse_from: body\nlayout_type: epoch\nlayout: s.s", "must be one of `s`, `ms`"),
        ("layout: '%F'", "`operators[0].parse_from` is required"),
        ("parse_from: body", "`operators[0].layout` is required"),
        ("parse_from: attributes\nlayout: '%F'", "needs a key, as in `attributes.name`"),
        ("parse_from: body\nlayout: '%F'\ntime_zone_locations: {PDT: UTC}", "has no effect"),
        ("parse_from: body\nlayout: '%Z'\ntime_zone_locations: {PDT: Nowhere}", "has `Nowhere`"),
    ] {
        let error = built("time_parser", options).err().unwrap_or_default();
        assert!(error.contains(expected), "{options}: {error}");
    }
}

#[test]
fn days_are_counted_as_dates_are() {
    for day in (-800_000..800_000).step_by(37) {
        let (year, month, date) = sluice_otlp::civil_date(day);
        assert_eq!(days_since_1970(year, month, date), day);
    }
    assert_eq!(days_since_1970(2024, 13, 1), days_since_1970(2025, 1, 1));
    assert_eq!(sluice_otlp::civil_time(NOW_NS / 1_000_000_000), "2026-11-27T12:00:00");
}

#[test]
fn times_of_rfc_3339_are_strict() {
    assert_eq!(rfc3339("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
    assert_eq!(rfc3339("1970-01-01T01:00:00+01:00"), Some(0));
    assert_eq!(rfc3339("2024-02-29T00:00:00.1234567891Z"), Some(1_709_164_800_123_456_789));
    for wrong in [
        "",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.Z",
        "1970-01-01T24:00:00Z",
        "1970-02-30T00:00:00Z",
        "1970-00-01T00:00:00Z",
        "1970-01-01T00:00:00+0100",
        "1970-01-01T00:00:00Zx",
        "1970-01-01 00:00:00Z",
        "9999-01-01T00:00:00Z",
        "é970-01-01T00:00:00Z",
    ] {
        assert_eq!(rfc3339(wrong), None, "{wrong}");
    }
}
