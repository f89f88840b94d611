//! `syslog_parser`: messages of RFC 3164 and RFC 5424.

mod frame;
mod rfc3164;
mod rfc5424;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use self::frame::Framing;
use super::parser::Parser;
use super::time::Location;
use super::values::Map;
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct SyslogParser {
    parser: Parser,
    protocol: Protocol,
    framing: Framing,
    location: Location,
    may_lack_priority: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Protocol {
    Rfc3164,
    Rfc5424,
    /// Any text, perhaps with a priority before it.
    Raw,
}

/// A message that was read: its values in the order of the RFC, and its time.
#[derive(Debug, Default, PartialEq)]
struct Message {
    values: Map,
    priority: Option<u8>,
    time_ns: Option<i64>,
}

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "security", "console", "cron2", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// For each severity of syslog, its text and the severity of OTLP.
const SEVERITIES: [(&str, u8); 8] = [
    ("emerg", 21),
    ("alert", 19),
    ("crit", 18),
    ("err", 17),
    ("warning", 13),
    ("notice", 10),
    ("info", 9),
    ("debug", 5),
];

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    let parser = Parser::read(fields);
    let syslog = read_syslog(fields);
    Some(Box::new(SyslogParser { parser: parser?, ..syslog? }))
}

/// Reads the options of the protocol: the parser reads the body and sets attributes.
fn read_syslog(fields: &mut Fields<'_>) -> Option<SyslogParser> {
    let protocols =
        [("rfc3164", Protocol::Rfc3164), ("rfc5424", Protocol::Rfc5424), ("none", Protocol::Raw)];
    let doc = "The form of messages; `none` takes any text, perhaps with a priority before it. \
               Required.";
    let protocol = fields.optional_choice("protocol", &protocols, doc);
    let doc = "The time zone of RFC 3164's times, which name none.";
    let location = fields.parsed("location", "a time zone", Some("UTC"), doc, Location::named);
    let doc = "The length of each message stands before it (octet counting of RFC 6587).";
    let counts_octets = fields.boolean("enable_octet_counting", false, doc);
    let doc = "With `enable_octet_counting`: the longest message, in bytes. 0: 8192.";
    let max_octets = fields.integer("max_octets", 0_usize, 0..=1 << 30, doc);
    let doc = "A message may come without its priority; then there is no severity. Not with \
               `enable_octet_counting`.";
    let may_lack_priority = fields.boolean("allow_skip_pri_header", false, doc);
    let trailers = [("LF", b'\n'), ("NUL", 0)];
    let doc = "For `rfc5424`: the character behind each message (RFC 6587).";
    let key = "non_transparent_framing_trailer";
    let trailer = fields.optional_choice(key, &trailers, doc);
    if !fields.is_given("protocol") {
        fields.error_missing("protocol");
    }
    if may_lack_priority && counts_octets {
        let why = "has no effect: with `enable_octet_counting` each message needs its priority";
        fields.warn_at("allow_skip_pri_header", why);
    }
    if trailer.is_some() && counts_octets {
        fields.error_at(key, "and `enable_octet_counting` cannot be given both");
    } else if trailer.is_some() && protocol.is_some_and(|it| it != Protocol::Rfc5424) {
        fields.error_at(key, "is only for `protocol: rfc5424`");
    }
    let framing = match (counts_octets, trailer) {
        (true, _) => Framing::Counted { limit: if max_octets == 0 { 8192 } else { max_octets } },
        (false, Some(trailer)) => Framing::Trailer(trailer),
        (false, None) => Framing::Bare,
    };
    Some(SyslogParser {
        parser: Parser::plain(),
        protocol: protocol?,
        framing,
        location: location?,
        may_lack_priority: may_lack_priority && !counts_octets,
    })
}

/// The options of syslog of a receiver, as those of `syslog_parser` have them.
#[derive(Clone)]
pub struct Syslog(SyslogParser);

impl Syslog {
    /// `None`: an option is wrong, which the diagnostics say.
    pub fn read(fields: &mut Fields<'_>) -> Option<Syslog> {
        read_syslog(fields).map(Syslog)
    }

    /// The length of each message stands before it.
    pub fn counts_octets(&self) -> bool {
        matches!(self.0.framing, Framing::Counted { .. })
    }

    /// The byte behind each message, if the options name one.
    pub fn trailer(&self) -> Option<u8> {
        if let Framing::Trailer(trailer) = self.0.framing { Some(trailer) } else { None }
    }

    pub(crate) fn parser(&self) -> Box<dyn Transform> {
        Box::new(self.0.clone())
    }
}

impl Transform for SyslogParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let text = self.parser.text(record)?;
        let message = self.message(text, record.observed_ns)?;
        let Message { mut values, priority, time_ns } = message;
        let priority = priority.map(|priority| {
            let (facility, severity) = split_priority(priority);
            values.push(("priority".to_owned(), AnyValue::Int(i64::from(priority))));
            values.push(("facility".to_owned(), AnyValue::Int(i64::from(priority / 8))));
            values.push(("facility_text".to_owned(), AnyValue::String(facility.to_owned())));
            severity
        });
        self.parser.finish(record, AnyValue::Map(values))?;
        if let Some((text, severity)) = priority {
            record.severity = severity;
            record.severity_text = text.to_owned();
        }
        if !self.parser.has_time() {
            record.time_ns = time_ns.or(record.time_ns);
        }
        Ok(())
    }
}

impl SyslogParser {
    fn message(&self, text: &str, now_ns: i64) -> Result<Message, String> {
        if self.protocol == Protocol::Raw {
            return Ok(raw(self.framing.without_length(text)));
        }
        let is_counted = matches!(self.framing, Framing::Counted { .. });
        let text = self.framing.message(text)?;
        let (priority, rest) = match read_priority(text) {
            Some((priority, rest)) => (Some(priority), rest),
            None if self.may_lack_priority && !text.starts_with('<') => (None, text),
            None => return Err("the message has no priority from 0 to 191 in `<…>`".to_owned()),
        };
        let message = match self.protocol {
            Protocol::Rfc5424 => rfc5424::read(rest)?,
            _ => rfc3164::read(rest, &self.location, now_ns, is_counted)?,
        };
        Ok(Message { priority, ..message })
    }
}

/// Any text is a message. Its priority stays in the text, as in the Collector.
fn raw(text: &str) -> Message {
    let values = vec![("message".to_owned(), AnyValue::String(text.to_owned()))];
    let priority = text.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let digits = priority.map(|(digits, _)| digits);
    let is_number = |text: &&str| {
        (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let priority = digits.filter(is_number).and_then(|text| text.parse().ok());
    Message { values, priority: priority.filter(|value| *value <= 191), time_ns: None }
}

/// `<PRIORITY>` at the start, without zeros before it, and the text behind.
fn read_priority(text: &str) -> Option<(u8, &str)> {
    let (digits, rest) = text.strip_prefix('<')?.split_once('>')?;
    let is_plain = digits == "0" || digits.starts_with(|first: char| matches!(first, '1'..='9'));
    let priority = digits.parse().ok().filter(|value| is_plain && *value <= 191)?;
    Some((priority, rest))
}

fn split_priority(priority: u8) -> (&'static str, (&'static str, u8)) {
    let facility = FACILITIES[usize::from(priority / 8) % FACILITIES.len()];
    (facility, SEVERITIES[usize::from(priority % 8)])
}

/// Adds a text, unless it is empty or `-`, which stands for none.
fn add(values: &mut Map, key: &str, text: &str) {
    if !text.is_empty() && text != "-" {
        values.push((key.to_owned(), AnyValue::String(text.to_owned())));
    }
}

/// A word of up to `longest` visible characters of ASCII, and the text behind it.
fn word(text: &str, longest: usize) -> Option<(&str, &str)> {
    let length = text.bytes().take_while(u8::is_ascii_graphic).count();
    (1..=longest).contains(&length).then(|| text.split_at(length))
}
