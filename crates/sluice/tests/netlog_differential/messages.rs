//! Messages of syslog, many of them at the limits of the two RFCs or beyond.

/// Of RFC 5424, one a line.
pub(crate) fn rfc5424() -> Vec<String> {
    let mut messages: Vec<String> = RFC5424.lines().map(str::to_owned).collect();
    for length in [32, 33] {
        let name = "i".repeat(length);
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p m [{name}@1] id of {length} + 2"));
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p m [{name}] id of {length}"));
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p m [i {name}=\"v\"] name"));
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p {name} - id of a message"));
    }
    for length in [255, 256] {
        let name = "h".repeat(length);
        messages.push(format!("<13>1 2020-02-29T00:00:00Z {name} a p m - host of {length}"));
    }
    for length in [48, 49, 128, 129] {
        let name = "n".repeat(length);
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h {name} p m - name of {length}"));
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a {name} m - process of {length}"));
    }
    for time in TIMES {
        messages.push(format!("<13>1 {time} h a p m - at a time"));
    }
    for data in DATA {
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p m {data}"));
        messages.push(format!("<13>1 2020-02-29T00:00:00Z h a p m {data} and text"));
    }
    messages
}

const RFC5424: &str = "\
<0>1 2021-01-02T03:04:05Z - - - - -
<191>999 2021-01-02T03:04:05.1+02:00 h a p m - text
<192>1 2021-01-02T03:04:05Z h a p m - beyond the last priority
<00>1 2021-01-02T03:04:05Z h a p m - two zeros
<007>1 2021-01-02T03:04:05Z h a p m - zeros before
<1000>1 2021-01-02T03:04:05Z h a p m - four digits
<-1>1 2021-01-02T03:04:05Z h a p m - below zero
<+1>1 2021-01-02T03:04:05Z h a p m - a sign
<>1 2021-01-02T03:04:05Z h a p m - no priority
< 1>1 2021-01-02T03:04:05Z h a p m - a space
<13> 1 2021-01-02T03:04:05Z h a p m - a space before the version
<13>0 2021-01-02T03:04:05Z h a p m - version 0
<13>01 2021-01-02T03:04:05Z h a p m - version 01
<13>1000 2021-01-02T03:04:05Z h a p m - version 1000
<13>2021-01-02T03:04:05Z h a p m - no version
<13>1  2021-01-02T03:04:05Z h a p m - two spaces
<13>1 2021-01-02T03:04:05Z  h a p m - two spaces later
<13>1\t2021-01-02T03:04:05Z\th\ta\tp\tm\t-\ttabs
<13>1 2021-01-02T03:04:05Z h a p m
<13>1 2021-01-02T03:04:05Z h a p
<13>1 2021-01-02T03:04:05Z h a p m -
<13>1 2021-01-02T03:04:05Z h a p m -  two spaces before the text
<13>1 2021-01-02T03:04:05Z h a p m -\tno space before the text
<13>1 2021-01-02T03:04:05Z h a p m -text
<13>1 2021-01-02T03:04:05Z h a p m text without data
<13>1 2021-01-02T03:04:05Z h a p m - \u{feff}behind a mark
<13>1 2021-01-02T03:04:05Z h a p m - Gr\u{fc}\u{df}e \u{1f30d} \u{0}\u{1b}[31m \u{7f}
<13>1 2021-01-02T03:04:05Z h\u{f6} a p m - host beyond ASCII
<13>1 2021-01-02T03:04:05Z h a\u{e4} p m - name beyond ASCII
<13>1 2021-01-02T03:04:05Z h:1 a[2] p/3 m{4} - marks
<13>1 2021-01-02T03:04:05Z h a p m - <14>1 2021-01-02T03:04:05Z h a p m - another within
1 2021-01-02T03:04:05Z h a p m - without a priority
1 2021-01-02T03:04:05Z h a p m [i k=\"v\"] without one, with data
13>1 2021-01-02T03:04:05Z h a p m - half a priority
<13 1 2021-01-02T03:04:05Z h a p m - another half
no syslog
x
<";

/// Times that are allowed, and others.
const TIMES: [&str; 34] = [
    "2020-02-29T23:59:59.999999Z",
    "2020-02-29T23:59:59.9999999Z",
    "2019-02-29T00:00:00Z",
    "2020-04-31T00:00:00Z",
    "2020-13-01T00:00:00Z",
    "2020-00-01T00:00:00Z",
    "2020-01-00T00:00:00Z",
    "2020-01-01T24:00:00Z",
    "2020-01-01T23:60:00Z",
    "2016-12-31T23:59:60Z",
    "2020-01-01T00:00:00",
    "2020-01-01T00:00:00z",
    "2020-01-01t00:00:00Z",
    "2020-01-01 00:00:00Z",
    "2020-01-01T00:00:00.Z",
    "2020-01-01T00:00:00,5Z",
    "2020-01-01T00:00:00.000001+23:59",
    "2020-01-01T00:00:00-23:59",
    "2020-01-01T00:00:00-00:00",
    "2020-01-01T00:00:00+24:00",
    "2020-01-01T00:00:00+01:60",
    "2020-01-01T00:00:00+0100",
    "2020-01-01T00:00:00+01",
    "2020-01-01T00:00:00ZZ",
    "2020-1-1T00:00:00Z",
    "20200101T000000Z",
    "1969-12-31T23:59:59.5Z",
    "1900-03-01T00:00:00Z",
    "2262-04-11T23:47:16Z",
    "02020-01-01T00:00:00Z",
    "1577836800",
    "\u{662}020-01-01T00:00:00Z",
    "2020-01-01T00:00:00\u{2212}01:00",
    "now",
];

/// Structured data that is allowed, and other.
const DATA: [&str; 35] = [
    "[i]",
    "[i][j]",
    "[i][j][i]",
    "[i][j k=\"1\"][i k=\"2\"]",
    "[i k=\"\"]",
    "[i k=\"1\" k=\"2\"]",
    "[i k=\"1\" l=\"2\"][j k=\"3\"]",
    "[i k=\"a b=c [d \u{e4} \u{1f30d}\"]",
    "[i k=\"\\\" \\] \\\\\"]",
    "[i k=\"\\\\\\\"\"]",
    "[i k=\"a\\n\"]",
    "[i k=\"a\\\u{e4}\"]",
    "[i k=\"a]\"]",
    "[i k=\"a\"b\"]",
    "[i k=\"a]",
    "[i k=\"a\"",
    "[i k=a]",
    "[i k='a']",
    "[i k]",
    "[i =\"a\"]",
    "[i k=\"a\"l=\"b\"]",
    "[i  k=\"a\"]",
    "[i k=\"a\" ]",
    "[i ]",
    "[ i]",
    "[]",
    "[",
    "]",
    "[i]x",
    "[i] [j]",
    "[i\u{e4} k=\"a\"]",
    "[i k\u{e4}=\"a\"]",
    "[i=j k=\"a\"]",
    "[i\"j k=\"a\"]",
    "-[i]",
];

/// Of RFC 3164, one a line.
pub(crate) fn rfc3164() -> Vec<String> {
    let mut messages: Vec<String> = RFC3164.lines().map(str::to_owned).collect();
    for length in [48, 49, 255, 256] {
        let name = "n".repeat(length);
        messages.push(format!("<13>Mar  1 02:03:04 h {name}: tag of {length}"));
        messages.push(format!("<13>Mar  1 02:03:04 {name} a: host of {length}"));
        messages.push(format!("<13>Mar  1 02:03:04 h a[{name}]: process of {length}"));
    }
    for stamp in STAMPS {
        messages.push(format!("<13>{stamp} h a[1]: at a time"));
    }
    for content in CONTENTS {
        messages.push(format!("<13>Mar  1 02:03:04 {content}"));
    }
    messages
}

const RFC3164: &str = "\
<0>Mar  1 02:03:04 h a: the first priority
<191>Mar  1 02:03:04 h a: the last
<192>Mar  1 02:03:04 h a: beyond
<00>Mar  1 02:03:04 h a: two zeros
<034>Mar  1 02:03:04 h a: a zero before
<> Mar  1 02:03:04 h a: none
<13> Mar  1 02:03:04 h a: a space behind
<13>   Mar  1 02:03:04 h a: more spaces
<13>\tMar  1 02:03:04 h a: a tab
Mar  1 02:03:04 h a[1]: without a priority
 Mar  1 02:03:04 h a[1]: behind a space
<13>1 2021-01-02T03:04:05Z h a p m - of the other RFC
<13>12: Mar  1 02:03:04: %SYS-5-X: with a counter
<13>*Mar  1 02:03:04 h a: with a star
<13>Mar  1 02:03:04 h ab[1]: two brackets [a] [b]
no syslog
x
<";

const STAMPS: [&str; 19] = [
    "Jan 01 00:00:00",
    "Jan  1 23:59:59",
    "Feb 29 00:00:00",
    "Feb 30 00:00:00",
    "Apr 31 00:00:00",
    "Mar  0 02:03:04",
    "Mar 00 02:03:04",
    "Mar 32 02:03:04",
    "Mar 1 02:03:04",
    "Mar   1 02:03:04",
    "mar  1 02:03:04",
    "March 1 02:03:04",
    "Mar  1 24:00:00",
    "Mar  1 02:60:04",
    "Mar  1 02:03:60",
    "Mar  1 02:03:04.5",
    "Mar  1 2:03:04",
    "Mar  1 2021 02:03:04",
    "2021-03-01T02:03:04Z",
];

const CONTENTS: [&str; 32] = [
    "h a: text",
    "h a[1]: text",
    "h a:text",
    "h a text",
    "h a:",
    "h a: ",
    "h a[]: text",
    "h a[-]: text",
    "h a[b c]: text",
    "h [1]: text",
    "h : text",
    "h -: text",
    "h -[-]: text",
    "- a: text",
    "-",
    "h",
    "h ",
    "  h   a:   text  of words",
    "a: text",
    "a[1]: text",
    "h:1 a: text",
    "h.example.com a.b-c_d/e: text",
    "10.0.0.1 a: text: with: colons",
    "::1 a: text",
    "h \u{e4}: text",
    "h a\u{e4}: text",
    "\u{e4} a: text",
    "h a: Gr\u{fc}\u{df}e \u{1f30d}",
    "h a: a tab\tand more",
    "h a:\ttext",
    "h\ta: text",
    "h a[\u{e4}]: text",
];

/// Texts of any form, one a line.
pub(crate) const RAW: &str = "\
plain text
<34>with a priority
<0>x
<191>x
<192>x
<999>x
<1000>x
<>x
<3x>x
<+3>x
<03>zeros
<003>more zeros
<13>
  <34>behind spaces
text <34> within
13 <34>a number before
Gr\u{fc}\u{df}e \u{1f30d}\u{0}\u{1b}
<";
