//! Parsers, with texts that they can read and texts that they cannot.

use fastrand::Rng;

use super::Case;
use crate::contents;

/// Each fate of a record on which an operator fails.
const ON_ERROR: [&str; 4] = ["send", "send_quiet", "drop", "drop_quiet"];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = json();
    cases.extend(absent());
    cases.extend(regex());
    cases.extend(csv());
    cases.extend(pairs());
    cases.extend(uri());
    cases.extend(times());
    cases.extend(severities());
    cases.extend(others());
    cases
}

fn json() -> Vec<Case> {
    let mut cases = Vec::new();
    for on_error in ON_ERROR {
        let operators = format!("  - type: json_parser\n    on_error: {on_error}");
        let content = contents::json(61, true);
        cases.push(Case::operators(&format!("json-{on_error}"), &operators, content));
    }
    for (seed, (name, options)) in [
        ("ints", "parse_ints: true"),
        ("body", "parse_to: body"),
        ("resource", "parse_to: resource.parsed\n    parse_ints: true"),
        ("deep", "parse_to: attributes.a.b"),
        ("renamed", "parse_to: attributes\n    body: attributes.msg"),
        (
            "embedded",
            "timestamp:\n      parse_from: attributes.time\n      layout: \
            '%Y-%m-%dT%H:%M:%S.%LZ'\n    \
             severity:\n      parse_from: attributes.level",
        ),
        (
            "embedded-go",
            "parse_to: body\n    timestamp:\n      parse_from: body.time\n      layout_type: \
            gotime\n      \
             layout: '2006-01-02T15:04:05.999Z07:00'\n    severity:\n      parse_from: \
             body.level\n      \
             overwrite_text: true\n      mapping: {fatal: odd, debug2: [3, x]}",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        for (kind, mistakes) in [("", false), ("-mistakes", true)] {
            let operators = format!("  - type: json_parser\n    {options}");
            let content = contents::json(70 + seed as u64, mistakes);
            cases.push(Case::operators(&format!("json-{name}{kind}"), &operators, content));
        }
    }
    let deep = format!("{}1{}\n", "{\"a\":".repeat(20), "}".repeat(20));
    let content = format!(
        "{{\"a\":1,\"a\":2}}\n{deep}{{\"a\":\"\\ud800\"}}\n{{\"a\":1e999}}\n{{\"a\":-0.0}}\n\
         {{\"a\":\"\t\"}}\n{{'a':1}}\n {{\"a\" : 1 }} \n{{\"a\":NaN}}\n{{}}\n{{\"\":\"\"}}\n"
    );
    for (name, options) in [("", ""), ("-ints", "\n    parse_ints: true")] {
        let operators = format!("  - type: json_parser{options}");
        cases.push(Case::operators(&format!("json-corners{name}"), &operators, content.clone()));
    }
    let lists = "[1,25,\"x\"]\n[\"a\",null,true]\n[]\n[1,[2],{\"b\":3}]\n[1,2]\nno\n";
    for (name, options) in
        [("list", "parse_to: body"), ("header", "header: 'a,b,c'"), ("deep", "parse_to: body.x")]
    {
        let operators = format!("  - type: json_array_parser\n    {options}");
        cases.push(Case::operators(&format!("json-array-{name}"), &operators, lists));
    }
    cases
}

/// Options that are null or empty, and what a section leaves that fails.
fn absent() -> Vec<Case> {
    let sections = "    timestamp:\n    severity:\n    trace:\n    scope_name:";
    let line = "{\"trace_id\":\"480140f3d770a5ae32f0a22b6a812cff\",\"level\":\"Warning\"}\n";
    let operators = [
        ("sections-null", format!("  - type: json_parser\n    parse_to: body\n{sections}"), line),
        (
            "group-digit",
            "  - {type: regex_parser, regex: '(?P<5xx>5..)|(?P<x>.*)', cache: null}".to_owned(),
            "503\n404\n",
        ),
        (
            "preset-empty",
            "  - {type: json_parser}\n  - {type: severity_parser, parse_from: attributes.level, \
             preset: ''}"
                .to_owned(),
            line,
        ),
        (
            "layout-type-empty",
            "  - {type: time_parser, parse_from: body, layout_type: '', layout: '%F'}".to_owned(),
            "2024-02-29\n2024-02-30\n",
        ),
        (
            "section-failing",
            "  - type: json_parser\n    timestamp: {parse_from: attributes.level, layout: '%F'}\n\
             \x20   severity: {parse_from: attributes.level}"
                .to_owned(),
            line,
        ),
        (
            "route-null",
            "  - type: router\n    routes:\n      - {expr: 'true', output: end, attributes: {a: \
             null}}\n  - {type: noop, id: end}"
                .to_owned(),
            "x\n",
        ),
    ];
    let case = |(name, operators, content): (&str, String, &str)| {
        Case::operators(name, &operators, content)
    };
    operators.into_iter().map(case).collect()
}

fn regex() -> Vec<Case> {
    let mut rng = Rng::with_seed(81);
    let mut text = String::new();
    for number in 0..60 {
        let zone = ["Z", "+02:00", "-05:30", ""][rng.usize(..4)];
        let level = ["info", "WARN", "error", "Critical", "fatal4", "300", "?"][rng.usize(..7)];
        text.push_str(&format!(
            "2024-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}{zone} [{level}] n{number}: {}\n",
            rng.u8(1..=12),
            rng.u8(1..=31),
            rng.u8(..25),
            rng.u8(..60),
            rng.u8(..60),
            rng.u32(..1_000_000),
            contents::words(&mut rng, 0..4),
        ));
    }
    const PATTERN: &str =
        r"^(?P<time>\S+) \[(?P<level>\w+)\] (?P<name>[^:]+): ?(?P<message>.*)(?P<missing>x)?$";
    let stamped = "timestamp:\n      parse_from: attributes.time\n      \
                   layout: '%Y-%m-%dT%H:%M:%S.%f%z'\n    severity:\n      parse_from: \
                   attributes.level\n      \
                   mapping: {fatal: [critical], info3: {min: 300, max: 310}}";
    let mut cases = Vec::new();
    for on_error in ON_ERROR {
        let operators = format!(
            "  - type: regex_parser\n    regex: '{PATTERN}'\n    on_error: {on_error}\n    \
            {stamped}"
        );
        cases.push(Case::operators(&format!("regex-{on_error}"), &operators, text.clone()));
    }
    for (name, more) in [
        ("to-body", "parse_to: body"),
        ("cached", "cache: {size: 10}"),
        ("conditional", "if: 'body contains \"error\"'"),
        ("scope", "scope_name: {parse_from: attributes.name}\n    body: attributes.message"),
    ] {
        let operators = format!("  - type: regex_parser\n    regex: '{PATTERN}'\n    {more}");
        cases.push(Case::operators(&format!("regex-{name}"), &operators, text.clone()));
    }
    let operators = "  - {type: regex_parser, regex: '(?P<a>\\d+)(?:-(?P<b>\\w*))?'}";
    let lines = "x 1-b y\n7\n-\n12-\n\u{661} 3-é\n";
    cases.push(Case::operators("regex-anywhere", operators, lines));
    cases
}

fn csv() -> Vec<Case> {
    let lines = "1,two,3\n\"a,b\",\"say \"\"hi\"\"\",\n,,\n1,2\n1,2,3,4\n \"x\" , y \
    ,z\na\"b,c\"d,e\n\
                 \"open,b,c\n'1',2,3\nÄ,日本,🌍\n#1,2,3\n\"\",\"\",\"\"\n";
    let mut cases = Vec::new();
    for (name, options) in [
        ("plain", "header: 'a,b,c'"),
        ("lazy", "header: 'a,b,c'\n    lazy_quotes: true"),
        ("ignoring", "header: 'a,b,c'\n    ignore_quotes: true"),
        ("body", "header: 'a,b,c'\n    parse_to: body\n    on_error: drop"),
        ("header-delimiter", "header: 'a|b|c'\n    header_delimiter: '|'"),
    ] {
        let operators = format!("  - type: csv_parser\n    {options}");
        cases.push(Case::operators(&format!("csv-{name}"), &operators, lines));
    }
    let tabs = lines.replace(',', "\t");
    let operators = "  - {type: csv_parser, header: \"a\\tb\\tc\", delimiter: \"\\t\"}";
    cases.push(Case::operators("csv-tabs", operators, tabs));
    let dynamic = "  - {type: regex_parser, regex: '^(?P<names>[^;]*);(?P<row>.*)$'}\n  \
                   - {type: csv_parser, parse_from: attributes.row, header_attribute: names}";
    let rows = "a,b;1,2\nx;7\na,b,c;1,2\n;\n";
    cases.push(Case::operators("csv-header-attribute", dynamic, rows));
    cases
}

fn pairs() -> Vec<Case> {
    let lines = "a=1 b=two\na=\"x y\" b='z w'\na= b=2\n=1\na\na=1=2\na=1  b=2 \n\"a b\"=c\n\
                 a='it\"s' b=\"it's\"\na=\"open\nA=Ä 日=🌍\na=1 a=2\n a=1\n\
                 a=\"\" b=''\na=x\"y z\"\n";
    let mut cases = Vec::new();
    for (name, options) in [
        ("plain", ""),
        ("body", "parse_to: body\n    on_error: drop_quiet"),
        ("conditional", "if: body startsWith \"a\""),
    ] {
        let operators = format!("  - type: key_value_parser\n    {options}");
        cases.push(Case::operators(&format!("pairs-{name}"), &operators, lines));
    }
    for (name, delimiter, pair_delimiter) in
        [("colons", ":", ","), ("arrows", "=>", "&"), ("words", " is ", ";")]
    {
        let text = lines.replace(' ', pair_delimiter).replace('=', delimiter);
        let operators = format!(
            "  - {{type: key_value_parser, delimiter: '{delimiter}', pair_delimiter: \
            '{pair_delimiter}'}}"
        );
        cases.push(Case::operators(&format!("pairs-{name}"), &operators, text));
    }
    cases
}

fn uri() -> Vec<Case> {
    let lines = "https://user:pass@example.com:8443/a/b?x=1&y=2&x=3#frag\n?a=1&b=&c\n/only/path\n\
                 http://[::1]:80/x\nmailto:a@b.c\nhttp://host/%zz\n://\nexample.com:80\n\
                 http://h/p?q=%C3%BC+x\nHTTP://UP.example/\nhttp://h:port/\nftp://h\n?\nhttp://a \
                 b/\n\
                 http://h/p?\n//host/path\n?a=%zz&b=2\n?a;b=1\nx\n";
    let mut cases = Vec::new();
    for (name, options) in [("attributes", ""), ("body", "parse_to: body")] {
        let operators = format!("  - type: uri_parser\n    {options}");
        cases.push(Case::operators(&format!("uri-{name}"), &operators, lines));
    }
    cases
}

fn times() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name: &str, options: &str, lines: &str| {
        for on_error in ["send", "drop"] {
            let operators = format!(
                "  - type: time_parser\n    parse_from: body\n    on_error: {on_error}\n    \
                {options}"
            );
            cases.push(Case::operators(&format!("time-{name}-{on_error}"), &operators, lines));
        }
    };
    let iso = "2024-02-29T23:59:59.123456789Z\n2023-02-29T00:00:00Z\n2024-06-30T23:59:60Z\n\
               2024-1-2T3:4:5Z\n2024-01-02T03:04:05.5+02:00\n2024-01-02T03:04:05-0730\n\
               1969-12-31T23:59:59Z\n2261-01-01T00:00:00Z\n1700-01-01T00:00:00Z\n2024-01-02\nx\n";
    case("strptime", "layout: '%Y-%m-%dT%H:%M:%S.%fZ'", iso);
    case("strptime-zone", "layout: '%Y-%m-%dT%H:%M:%S%j'", iso);
    case("go", "layout_type: gotime\n    layout: '2006-01-02T15:04:05.999999999Z07:00'", iso);
    case("go-plain", "layout_type: gotime\n    layout: '2006-01-02T15:04:05Z0700'", iso);
    let syslog =
        "Jan  2 03:04:05\nJan 02 03:04:05\nFeb 30 00:00:00\njan 2 3:4:5\nDec 31 23:59:59\n";
    case("month", "layout: '%b %e %H:%M:%S'\n    location: Europe/Berlin", syslog);
    case("month-go", "layout_type: gotime\n    layout: 'Jan _2 15:04:05'", syslog);
    let apache = "10/Oct/2000:13:55:36 -0700\n10/Oct/2000:13:55:36 +0000\n1/Oct/2000:1:5:6 -0700\n";
    case("apache", "layout: '%d/%b/%Y:%H:%M:%S %z'", apache);
    let zones = "2024-07-01 12:00:00 CEST\n2024-07-01 12:00:00 UTC\n2024-01-01 12:00:00 EST\n\
                 2024-07-01 12:00:00 XYZ\n2024-07-01 12:00:00 GMT\n";
    case("zones", "layout: '%Y-%m-%d %H:%M:%S %Z'\n    location: Europe/Berlin", zones);
    let local =
        "2024-03-31 02:30:00\n2024-10-27 02:30:00\n2024-07-01 00:00:00\n1900-01-01 00:00:00\n";
    case("local", "layout: '%Y-%m-%d %H:%M:%S'\n    location: Europe/Berlin", local);
    case(
        "local-go",
        "layout_type: gotime\n    layout: '2006-01-02 15:04:05'\n    \
          location: America/New_York",
        local,
    );
    let epochs = "1136214245\n1136214245.123456\n-1\n0\n1e9\nx\n\
                  1136214245.\n.5\n 1\n";
    for layout in ["s", "ms", "us", "ns", "s.ms", "s.us", "s.ns"] {
        let options = format!("layout_type: epoch\n    layout: {layout}");
        case(&format!("epoch-{}", layout.replace('.', "-")), &options, epochs);
    }
    let halves = "01:02:03 PM 2024-05-06\n12:00:00 AM 2024-05-06\n13:00:00 PM 2024-05-06\n";
    case("halves", "layout: '%I:%M:%S %p %Y-%m-%d'", halves);
    let names = "Monday, 06 May 24 03:04:05\nMon, 06 May 24 03:04:05\nSunday, 06 May 69 03:04:05\n";
    case("names", "layout: '%A, %d %B %y %H:%M:%S'", names);
    cases
}

fn severities() -> Vec<Case> {
    let lines = "trace\nTRACE2\ndebug\nInfo\ninformation\n\
                 notice\nwarn\nwarning\nerr\nerror\nerror4\n\
                 critical\nfatal\nalert\nemerg\npanic\n9\n17\n25\n0\n404\n503\n200\n302\n199\n \
                 \nx\nfoo\n4xx\n";
    let mut cases = Vec::new();
    for (name, options) in [
        ("default", ""),
        ("text", "overwrite_text: true"),
        ("none", "preset: none\n    mapping: {error: [err, 17], info: x}"),
        ("otel", "preset: otel"),
        ("aliases", "preset: aliases"),
        ("http", "mapping: {info: 2xx, warn: 3xx, error: 4xx, fatal: [5xx]}"),
        ("ranges", "mapping: {debug: {min: 0, max: 100}, error: [{min: 400, max: 499}, foo]}"),
        ("quiet", "on_error: drop_quiet"),
    ] {
        let operators = format!("  - type: severity_parser\n    parse_from: body\n    {options}");
        cases.push(Case::operators(&format!("severity-{name}"), &operators, lines));
        let parsed = format!(
            "  - {{type: regex_parser, regex: '^(?P<text>.*)$'}}\n  \
             - {{type: add, field: attributes.number, value: 'EXPR(body matches \"^[0-9]+$\" ? \
             int(body) : nil)'}}\n  \
             - type: severity_parser\n    parse_from: attributes.number\n    {options}"
        );
        cases.push(Case::operators(&format!("severity-number-{name}"), &parsed, lines));
    }
    cases
}

fn others() -> Vec<Case> {
    let trace = "\
                 {\"t\":\"480140f3d770a5ae32f0a22b6a812cff\",\"s\":\"92c3792d54ba94f3\",\
                 \"f\":\"01\"}\n\
                 {\"t\":\"480140F3D770A5AE32F0A22B6A812CFF\",\"s\":\"92C3792D54BA94F3\"}\n\
                 {\"t\":\"\",\"s\":\"\",\"f\":\"\"}\n{\"s\":17}\n{}\n";
    let ids = "trace_id: {parse_from: attributes.t}\n    span_id: {parse_from: attributes.s}\n    \
               trace_flags: {parse_from: attributes.f}";
    let mut cases = Vec::new();
    for on_error in ON_ERROR {
        let operators = format!(
            "  - type: json_parser\n  - type: trace_parser\n    on_error: {on_error}\n    {ids}"
        );
        cases.push(Case::operators(&format!("trace-{on_error}"), &operators, trace));
    }
    let body = "  - {type: json_parser, parse_to: body}\n  - {type: trace_parser}";
    let lines = "\
                 {\"trace_id\":\"480140f3d770a5ae32f0a22b6a812cff\",\
                 \"span_id\":\"92c3792d54ba94f3\",\
                 \"trace_flags\":\"01\",\"x\":1}\n{\"x\":1}\n";
    cases.push(Case::operators("trace-default", body, lines));
    let scope =
        "  - {type: json_parser}\n  - {type: scope_name_parser, parse_from: attributes.name}";
    let names = "{\"name\":\"a.b\"}\n{\"name\":7}\n{\"name\":\"\"}\n{}\n{\"name\":null}\n";
    cases.push(Case::operators("scope-name", scope, names));
    cases
}
