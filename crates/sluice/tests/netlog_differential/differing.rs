//! Records that Sluice makes on purpose otherwise than the Collector.

use super::cases::{Case, GOOD, Transport, counted, utf_16};

/// Names of cases, each with the reason. The test fails for one that does not differ.
pub(crate) const EXCEPTIONS: [(&str, &str); 23] = [
    ("tcp-empty-lines", "empty lines are no records"),
    ("tcp-empty-whole", "empty connections are no records"),
    ("tcp-empty-multiline", "what is empty is no record"),
    ("udp-empty-whole", "empty datagrams are no records"),
    ("syslog-empty-lines", "empty lines are no records"),
    ("tcp-longer", "the Collector closes the connection"),
    ("tcp-start-alone", "the Collector loses what ends with the start of a record"),
    ("tcp-failing-label", "a record is not lost if the expression of an attribute fails"),
    ("tcp-utf-16-spaces", "the Collector takes single bytes of characters for white space"),
    ("udp-utf-16le", "the Collector takes single bytes of characters for control characters"),
    ("rfc3164-brackets", "the Collector leaves the tag out of a text that it is a part of"),
    ("rfc3164-control-counted", "a message with a control character fails, as without a count"),
    ("rfc3164-fraction-counted", "a message that fails behind its time fails, as without a count"),
    ("rfc5424-without-time", "`-` for the time is allowed: no failure"),
    ("rfc5424-years", "times are between 1677 and 2262; the Collector's wrap around from there"),
    ("priority-within", "the Collector takes any `<34>` in a message for its priority"),
    ("priority-before-trailer", "a priority may also lack where a character is behind the message"),
    ("trailer-nul", "messages end with the character, which is not a part of them"),
    ("counted-spaces-trimmed", "white space in a frame is counted, so it stays"),
    ("counted-line-feed", "a line feed at the end of a frame is no part of the message"),
    ("counted-apart", "line feeds between frames are passed"),
    ("counted-longer", "the beginning of a message that is too long is not lost"),
    ("counted-in-latin-1", "the length in the body is that of the text"),
];

fn syslog(name: &str, options: &str) -> Case {
    Case::syslog(Transport::Tcp, name, options)
}

fn counts(name: &str, protocol: &str) -> Case {
    syslog(name, &format!("protocol: {protocol}\nenable_octet_counting: true"))
}

pub(crate) fn cases() -> Vec<Case> {
    let brackets = ["a[1] text", "a[1]:text", "a[b[c]: text", "a[b]c]: text", "a[1: text"];
    let brackets = brackets.map(|text| format!("<34>Oct 11 22:14:15 h {text}\n")).concat();
    let old = "<34>Oct 11 22:14:15 h a: ";
    let at = |time: &str| format!("<34>1 {time} h a p m - text\n");
    let starts = "multiline: {line_start_pattern: '^#'}";
    let starts_without = "multiline: {line_start_pattern: '^#', omit_pattern: true}";
    let trailer = "non_transparent_framing_trailer";
    vec![
        Case::tcp("tcp-empty-lines", "").send("a\n\n \nb\n"),
        Case::tcp("tcp-empty-whole", "one_log_per_packet: true").send("").send("a"),
        Case::tcp("tcp-empty-multiline", starts_without).send("#\n#a"),
        Case::udp("udp-empty-whole", "one_log_per_packet: true").send("").send("\n").send("a"),
        syslog("syslog-empty-lines", "protocol: none").send("a\n\nb\n"),
        Case::tcp("tcp-longer", "max_log_size: 64KiB").send(vec![b'x'; 70_000]),
        Case::tcp("tcp-start-alone", starts).send("#a\n#"),
        Case::tcp("tcp-failing-label", "attributes: {a: 'EXPR(1 + 1)'}").send("a\n"),
        Case::tcp("tcp-utf-16-spaces", "encoding: utf-16le")
            .send(utf_16(" a \n\tb\t\n", u16::to_le_bytes)),
        Case::udp("udp-utf-16le", "encoding: utf-16le").send(utf_16("ab", u16::to_le_bytes)),
        syslog("rfc3164-brackets", "protocol: rfc3164").send(brackets),
        counts("rfc3164-control-counted", "rfc3164").send(counted(format!("{old}a\x1b[31mred"))),
        counts("rfc3164-fraction-counted", "rfc3164")
            .send(counted("<13>Mar  1 02:03:04.5 h a: text")),
        syslog("rfc5424-without-time", "protocol: rfc5424").send(at("-")),
        syslog("rfc5424-years", "protocol: rfc5424")
            .send(at("0000-01-01T00:00:00Z") + &at("1600-01-01T00:00:00Z"))
            .send(at("2300-01-01T00:00:00Z")),
        syslog("priority-within", "protocol: rfc5424\nallow_skip_pri_header: true")
            .send("1 2021-01-02T03:04:05Z h a p m - <13>text\n"),
        syslog(
            "priority-before-trailer",
            &format!("protocol: rfc5424\nallow_skip_pri_header: true\n{trailer}: LF"),
        )
        .send("1 2021-01-02T03:04:05Z h a p m - text\n"),
        syslog("trailer-nul", &format!("protocol: rfc5424\n{trailer}: NUL"))
            .send(format!("{GOOD}\0"))
            .send(format!("{GOOD}\0{GOOD}\n\0")),
        counts("counted-spaces-trimmed", "none").send(counted("a ")),
        counts("counted-line-feed", "rfc5424").send(counted(format!("{GOOD}\n"))),
        counts("counted-apart", "rfc5424")
            .send([&counted(GOOD)[..], b"\n", &counted(GOOD).repeat(2)].concat()),
        counts("counted-longer", "none")
            .socket("max_log_size: 64KiB")
            .send(counted(vec![b'x'; 70_000])),
        counts("counted-in-latin-1", "none")
            .socket("encoding: iso-8859-1")
            .send([counted(b"<34>\xe4\xf6"), counted(b"\xfc")].concat()),
    ]
}
