//! The cases: receivers, and what is sent to each of them.

use std::net::SocketAddr;

use crate::{differing, messages};

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

pub(crate) struct Case {
    pub(crate) name: String,
    receiver: &'static str,
    pub(crate) transport: Transport,
    /// Options of the receiver: lines of YAML.
    options: String,
    /// Options beside the address.
    socket: String,
    /// The bytes of each connection, or each datagram.
    pub(crate) sent: Vec<Vec<u8>>,
}

impl Case {
    fn new(receiver: &'static str, transport: Transport, name: &str, options: &str) -> Case {
        let (name, options) = (name.to_owned(), options.to_owned());
        Case { name, receiver, transport, options, socket: String::new(), sent: Vec::new() }
    }

    pub(crate) fn syslog(transport: Transport, name: &str, options: &str) -> Case {
        Case::new("syslog", transport, name, options)
    }

    pub(crate) fn tcp(name: &str, options: &str) -> Case {
        Case::new("tcp_log", Transport::Tcp, name, options)
    }

    pub(crate) fn udp(name: &str, options: &str) -> Case {
        Case::new("udp_log", Transport::Udp, name, options)
    }

    /// Options beside the address.
    pub(crate) fn socket(self, options: &str) -> Case {
        Case { socket: options.to_owned(), ..self }
    }

    /// One more connection or datagram.
    pub(crate) fn send(mut self, bytes: impl AsRef<[u8]>) -> Case {
        self.sent.push(bytes.as_ref().to_vec());
        self
    }

    /// Messages in one connection, each a line, or each in a datagram.
    fn lines<L: AsRef<str>>(self, lines: &[L]) -> Case {
        match self.transport {
            Transport::Tcp => {
                let lines: String = lines.iter().map(|it| it.as_ref().to_owned() + "\n").collect();
                self.send(lines)
            }
            Transport::Udp => lines.iter().fold(self, |case, line| case.send(line.as_ref())),
        }
    }

    pub(crate) fn id(&self) -> String {
        format!("{}/{}", self.receiver, self.name)
    }

    /// The receiver's section.
    pub(crate) fn section(&self, at: SocketAddr) -> String {
        let indented = |text: &str, by: &str| -> String {
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(|line| format!("{by}{line}\n")).collect()
        };
        let socket = format!("listen_address: {at}\n{}", self.socket);
        let socket = match (self.receiver, self.transport) {
            ("syslog", Transport::Tcp) => format!("    tcp:\n{}", indented(&socket, "      ")),
            ("syslog", Transport::Udp) => format!("    udp:\n{}", indented(&socket, "      ")),
            _ => indented(&socket, "    "),
        };
        format!(
            "  {}:\n    resource: {{case: {}}}\n{}{socket}",
            self.id(),
            self.name,
            indented(&self.options, "    "),
        )
    }
}

/// A message with its length before it.
pub(crate) fn counted(message: impl AsRef<[u8]>) -> Vec<u8> {
    let message = message.as_ref();
    [format!("{} ", message.len()).as_bytes(), message].concat()
}

/// The same text as UTF-16.
pub(crate) fn utf_16(text: &str, to_bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(to_bytes).collect()
}

const KEEPS: &str = "preserve_leading_whitespaces: true\npreserve_trailing_whitespaces: true";
pub(crate) const GOOD: &str = "<34>1 2021-01-02T03:04:05Z h a p m - text";

/// All forms of messages, over both transports.
fn parsed() -> Vec<Case> {
    let (old, new) = (messages::rfc3164(), messages::rfc5424());
    let raw: Vec<String> = messages::RAW.lines().map(str::to_owned).collect();
    let mut cases = Vec::new();
    for (of_transport, transport) in [("tcp", Transport::Tcp), ("udp", Transport::Udp)] {
        for (name, options) in [
            ("plain", ""),
            ("located", "location: America/New_York"),
            ("dropped", "on_error: drop"),
            ("dropped-quietly", "on_error: drop_quiet"),
            ("sent-quietly", "on_error: send_quiet"),
            ("without-priority", "allow_skip_pri_header: true"),
        ] {
            for (protocol, messages) in [("rfc3164", &old), ("rfc5424", &new), ("none", &raw)] {
                let name = format!("{protocol}-{name}-{of_transport}");
                let options = format!("protocol: {protocol}\n{options}");
                cases.push(Case::syslog(transport, &name, &options).lines(messages));
            }
        }
    }
    for (protocol, messages) in [("rfc3164", &old), ("rfc5424", &new), ("none", &raw)] {
        let options = format!("protocol: {protocol}\nenable_octet_counting: true");
        // See `rfc3164-fraction-counted`.
        let frames = messages.iter().filter(|message| !message.contains("03:04.5 "));
        let frames: Vec<u8> = frames.flat_map(counted).collect();
        let name = format!("{protocol}-counted");
        cases.push(Case::syslog(Transport::Tcp, &name, &options).socket(KEEPS).send(&frames));
        let name = format!("{protocol}-counted-to-70");
        let options = format!("{options}\nmax_octets: 70");
        cases.push(Case::syslog(Transport::Tcp, &name, &options).socket(KEEPS).send(frames));
    }
    let options = "protocol: rfc5424\nnon_transparent_framing_trailer: LF";
    cases.push(Case::syslog(Transport::Tcp, "rfc5424-trailer-lf", options).lines(&new));
    let options = "protocol: RFC5424\nnon_transparent_framing_trailer: LF\non_error: drop";
    cases.push(Case::syslog(Transport::Tcp, "rfc5424-trailer-lf-dropped", options).lines(&new));
    cases
}

/// Frames of RFC 6587, whole and not.
fn framed() -> Vec<Case> {
    let case = |name: &str, more: &str| {
        let options = format!("enable_octet_counting: true\n{more}");
        Case::syslog(Transport::Tcp, name, &options)
    };
    let old = "<34>Oct 11 22:14:15 h a[1]: two\nlines";
    let long = format!("{GOOD}{}", "x".repeat(8192 - GOOD.len()));
    let spaced = |message: &str| [counted(format!("{message} ")), counted(message)].concat();
    vec![
        case("counted-lines", "protocol: rfc3164").socket(KEEPS).send(
            [old, &format!("{old}\n"), &format!("{old}\r\n"), &format!("{old}\n\n")]
                .map(counted)
                .concat(),
        ),
        case("counted-new-lines", "protocol: rfc5424")
            .socket(KEEPS)
            .send(counted(format!("{GOOD}\nof\r\nlines"))),
        case("counted-longest", "protocol: rfc5424").send(counted(&long)),
        case("counted-too-long", "protocol: rfc5424").send(counted(format!("{long}x"))),
        case("counted-spaces", "protocol: rfc5424").socket(KEEPS).send(spaced(GOOD)),
        case("counted-spaces-raw", "protocol: none").socket(KEEPS).send(spaced(" any ")),
        case("counted-cut", "protocol: rfc5424")
            .send(&counted(GOOD)[..20])
            .send([&counted(GOOD), &counted(GOOD)[..20]].concat())
            .send([&counted(GOOD)[..], b"4"].concat())
            .send([&counted(GOOD)[..], b"44"].concat()),
        case("counted-cut-raw", "protocol: none").send(b"20 <34>raw").send(b"20"),
        case("counted-wrongly", "protocol: rfc5424").send(b"50 <34>1 - h a p m -"),
        case("counted-not", "protocol: none")
            .send([&counted(GOOD)[..], b"no length"].concat())
            .send("05 <34>")
            .send("5<34>"),
        case("counted-multiline", "protocol: none")
            .socket("multiline: {line_start_pattern: '^#'}")
            .send([counted("#a\n#b"), counted("#c")].concat()),
        Case::syslog(Transport::Tcp, "multiline", "protocol: rfc5424")
            .socket("multiline: {line_start_pattern: '^<\\d+>'}")
            .send(format!("{GOOD}\n  at main\n\tat lib\n{GOOD}\n<1>\n{GOOD}")),
        Case::syslog(Transport::Tcp, "whole", "protocol: rfc5424")
            .socket("one_log_per_packet: true")
            .send(format!("{GOOD}\n  of lines \n"))
            .send(GOOD),
        Case::syslog(Transport::Udp, "lines-of-a-message", "protocol: rfc5424")
            .send(format!("{GOOD}\n{GOOD}"))
            .send(format!("wrong\n{GOOD}"))
            .send(format!("<34>1 wrong\n{GOOD}\n")),
        Case::syslog(Transport::Udp, "lines-of-an-old-message", "protocol: rfc3164")
            .send("<34>Oct 11 22:14:15 h a: one\ntwo\n")
            .send("<34>Oct 11 22:14:15 h a: one\r\n"),
        Case::syslog(Transport::Udp, "lines-of-a-datagram", "protocol: rfc5424")
            .socket("multiline: {line_end_pattern: '\\n'}")
            .send(format!("{GOOD}\n{GOOD}\n"))
            .send(format!("{GOOD}\n\0\0\n")),
        Case::syslog(Transport::Udp, "spaces-of-datagrams", "protocol: rfc5424")
            .socket(KEEPS)
            .send(format!("{GOOD}  "))
            .send(format!("  {GOOD}\n\n")),
        Case::syslog(Transport::Udp, "datagrams-whole", "protocol: rfc5424")
            .socket("one_log_per_packet: true")
            .send(format!("{GOOD}\nmore \n\0"))
            .send(format!(" {GOOD}")),
    ]
}

/// Options that say where records come from, and those of records.
fn labelled() -> Vec<Case> {
    // Ports are other ones each time.
    let ports = "operators:\n  - type: filter\n    \
                 expr: 'not (attributes[\"net.peer.port\"] matches \"^[0-9]+$\")'\n  \
                 - type: filter\n    \
                 expr: 'not (attributes[\"net.host.port\"] matches \"^[0-9]+$\")'\n  \
                 - {type: remove, field: 'attributes[\"net.peer.port\"]'}\n  \
                 - {type: remove, field: 'attributes[\"net.host.port\"]'}";
    let adds = "add_attributes: true";
    let own = "attributes: {a: b, net.transport: own, e: 'x-EXPR(body)'}";
    let old = "<34>Oct 11 22:14:15 h a[1]: text";
    let syslog = format!("protocol: rfc3164\n{ports}\n{own}");
    let fails = "operators:\n  - {type: json_parser, on_error: drop}";
    vec![
        Case::tcp("tcp-added", &format!("{adds}\n{ports}")).send("a\nb\n").send("c"),
        Case::tcp("tcp-added-beside", &format!("{adds}\n{own}\n{ports}")).send("a\n"),
        Case::udp("udp-added", &format!("{adds}\n{ports}")).send("a").send("b\n"),
        Case::udp("udp-added-beside", &format!("{adds}\n{own}\n{ports}")).send("a"),
        Case::syslog(Transport::Tcp, "syslog-tcp-added", &syslog).socket(adds).send(old),
        Case::syslog(Transport::Udp, "syslog-udp-added", &syslog).socket(adds).send(old),
        Case::tcp("tcp-json", fails).send("{\"a\": 1}\nno\n{\"b\": [true]}\n"),
        Case::udp("udp-json", fails).send("{\"a\": 1}").send("no"),
        Case::syslog(
            Transport::Tcp,
            "syslog-operators",
            "protocol: rfc5424\noperators:\n  \
             - {type: move, from: attributes.message, to: body}\n  \
             - {type: json_parser, if: 'body startsWith \"{\"'}",
        )
        .send("<34>1 2021-01-02T03:04:05Z h a p m - {\"x\": 2}\n"),
    ]
}

/// Where records of the two other receivers end, and their encodings.
fn cut() -> Vec<Case> {
    const LOG: &str = "before\n# one\nmore\n#two end\n#3\n# four\r\n tail end \n# last";
    const SPACES: &str = " a \n\tb\t\r\nc\r\n d\r\r\n\u{a0}e\u{a0}\n\u{b}f\u{b}\n g";
    let mut cases = Vec::new();
    for (name, multiline) in [
        ("start", "{line_start_pattern: '^#', line_end_pattern: ''}"),
        ("start-omitted", "{line_start_pattern: '^#', omit_pattern: true, line_end_pattern: ''}"),
        ("end", "{line_end_pattern: 'end *$'}"),
        ("end-omitted", "{line_end_pattern: 'end *$', omit_pattern: true}"),
        ("end-never", "{line_end_pattern: 'never'}"),
        ("end-line", "{line_end_pattern: '\\n'}"),
    ] {
        for (keeps, options) in [("", ""), ("-spaces", KEEPS)] {
            let options = format!("multiline: {multiline}\n{options}");
            let name = |of: &str| format!("{of}-{name}{keeps}");
            cases.push(Case::tcp(&name("tcp"), &options).send(LOG));
            cases.push(Case::udp(&name("udp"), &options).send(LOG).send(format!("{LOG}\n\0\n")));
        }
    }
    for (name, options) in [
        ("", ""),
        ("-leading", "preserve_leading_whitespaces: true"),
        ("-trailing", "preserve_trailing_whitespaces: true"),
        ("-spaces", KEEPS),
        ("-whole", "one_log_per_packet: true"),
        ("-raw", "encoding: utf-8-raw"),
        ("-bytes", "encoding: nop\nmultiline: {line_end_pattern: ''}"),
    ] {
        cases.push(Case::tcp(&format!("tcp-lines{name}"), options).send(SPACES));
        let case = Case::udp(&format!("udp-lines{name}"), options).send(SPACES);
        cases.push(case.send(format!("{SPACES}\n")).send(" x \t\0\n").send("\u{1}y\u{1f}z\u{7f}"));
    }
    let longest = vec![b'x'; 65_507];
    cases.push(Case::udp("udp-longest", "").send(&longest));
    let longest = [&[b'x'; 65_535][..], b"\ny\n"].concat();
    cases.push(Case::tcp("tcp-longest", "max_log_size: 64KiB").send(longest));
    let whole = "one_log_per_packet: true\nmax_log_size: 64KiB";
    cases.push(Case::tcp("tcp-whole-longer", whole).send(vec![b'x'; 70_000]));
    cases.push(Case::udp("udp-async", "async: {readers: 2, processors: 2}").send("a"));
    cases.push(Case::tcp("tcp-bytes", "").send(b"a\0b\n\xff\xe2\x82\n\xed\xa0\x80\n\xf0\x9f\n"));
    let case = Case::udp("udp-bytes", "").send(b"a\0b").send(b"\xff\xe2\x82");
    cases.push(case.send(b"\xed\xa0\x80 \xf0\x9f"));
    for (encoding, text) in [
        ("iso-8859-1", &b"a\xe4\n\x80\xff\n"[..]),
        ("windows-1252", b"a\xe4\n\x80\x93\xff\n"),
        ("shift_jis", b"\x93\xfa\x96\x7b\nx\x83\x5c\n"),
        ("euc-jp", b"\xc6\xfc\xcb\xdc\nx\n"),
        ("big5", b"\xa4\xa4\xa4\xe5\nx\n"),
        ("gbk", b"\xd6\xd0\xce\xc4\nx\n"),
        ("gb18030", b"\xd6\xd0\x81\x30\x81\x30\nx\n"),
        ("euc-kr", b"\xc7\xd1\xb1\xb9\nx\n"),
        ("koi8-r", b"\xf0\xf2\nx\n"),
        ("ascii", b"a\xe4\nb\n"),
    ] {
        let options = format!("encoding: {encoding}");
        cases.push(Case::tcp(&format!("tcp-{encoding}"), &options).send(text));
        cases.push(Case::udp(&format!("udp-{encoding}"), &options).send(text));
        let message = [GOOD.as_bytes(), b" ", text].concat();
        let options = "protocol: rfc5424";
        let socket = format!("encoding: {encoding}");
        let name = format!("syslog-{encoding}");
        cases.push(Case::syslog(Transport::Tcp, &name, options).socket(&socket).send(message));
    }
    let text = format!("a\u{e4}\nb\u{1f600}\r\n{GOOD}\nlast");
    let little = utf_16(&text, u16::to_le_bytes);
    let big = utf_16(&text, u16::to_be_bytes);
    cases.push(Case::tcp("tcp-utf-16le", "encoding: utf-16le").send(&little));
    cases.push(Case::tcp("tcp-utf-16be", "encoding: utf-16be").send(&big));
    cases.push(Case::udp("udp-utf-16be", "encoding: utf-16be").send(big));
    cases
}

pub(crate) fn all() -> Vec<Case> {
    let mut cases = parsed();
    cases.extend(framed());
    cases.extend(labelled());
    cases.extend(cut());
    cases.extend(differing::cases());
    cases
}
