//! Syslog messages, of both protocols.

use super::Case;

const RFC3164: &str = "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8
<13>Feb  5 17:32:18 10.0.0.99 app[17]: text: with: colons
<165>Aug 24 05:34:00 host %% It's time to make the do-nuts.
<0>Jan  1 00:00:00 h kernel: panic
<191>Dec 31 23:59:59 h x[]: y
<192>Dec 31 23:59:59 h x: priority too high
<34>Oct 11 22:14:15 mymachine
<34>Oct 11 22:14 mymachine su: no seconds
Oct 11 22:14:15 mymachine su: no priority
<>Oct 11 22:14:15 mymachine su: empty priority
<34>2024-05-06T07:08:09Z host app: another time
<34>Oct 11 22:14:15 mymachine su[12]: Gr\u{fc}\u{df}e \u{1f30d}
<034>Oct 11 22:14:15 mymachine su: leading zero
<7>Oct  1 22:14:15 h a-b.c/d[1]: tag with other characters
<34>Oct 11 22:14:15 h app:nospace
<34>Oct 11 22:14:15 h %ASA-6-302013:Built
<34>Oct 11 22:14:15 h CEF:0|Vendor|Product|1.0|100|x|5|src=1
<34>Oct 11 22:14:15 h app:
<34>Oct 11 22:14:15 h http://x y
<34>Oct 11 22:14:15 h 12:30:11 x
<34>Oct 11 22:14:15 app:x app2: y
<34>Oct 11 22:14:15 -05:00 h a: x
<34>Oct 11 22:14:15 h word then app: x
no syslog at all
";

const RFC5424: &str =
    "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - 'su root' failed
<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time.
<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [exampleSDID@32473 iut=\"3\" \
eventSource=\"App\\\"x\\]\"] text
<165>1 2003-10-11T22:14:15.003Z host evntslog 12 ID47 [a@1 k=\"1\"][b@1 k=\"2\" l=\"\"]
<165>1 2003-10-11T22:14:15.003Z host evntslog - ID47 [a@1] text
<191>1 2003-10-11T22:14:15Z h a p m - text
<192>1 - h a p m - priority too high
<34>2 2003-10-11T22:14:15.003Z h a p m - other version
<34>1 2003-10-11 h a p m - no time
<34>1 2003-10-11T22:14:15.003Z h a p m [a k=1] bad data
<34>1 2003-10-11T22:14:15.003Z h a p m - \u{feff}with a mark
<34>1 2003-10-11T22:14:15.123456789Z h a p m - nanoseconds
<34>1 2003-10-11T22:14:15.003Z h a
<34>1 2003-10-11T22:14:15.003Z h a p m -
no syslog at all
";

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, options) in [
        ("plain", ""),
        ("located", "location: Europe/Berlin"),
        ("without-priority", "allow_skip_pri_header: true"),
        ("dropped", "on_error: drop"),
    ] {
        for (protocol, lines) in [("rfc3164", RFC3164), ("rfc5424", RFC5424)] {
            let operators =
                format!("  - type: syslog_parser\n    protocol: {protocol}\n    {options}");
            cases.push(Case::operators(&format!("{protocol}-{name}"), &operators, lines));
        }
    }
    let counted: String = RFC5424.lines().map(|line| format!("{} {line}\n", line.len())).collect();
    let wrong = format!("{counted}7 <34>1 - h a p m -\n0 \nx\n");
    let operators = "  - {type: syslog_parser, protocol: rfc5424, enable_octet_counting: true}";
    cases.push(Case::operators("rfc5424-counted", operators, wrong));
    let framed =
        "  - {type: syslog_parser, protocol: rfc5424, non_transparent_framing_trailer: LF}";
    cases.push(Case::operators("rfc5424-framed", framed, RFC5424));
    cases
}
