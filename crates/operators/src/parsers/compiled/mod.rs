//! Chains that write records straight from their lines.
//!
//! These chains are compiled: `container`, a `json_parser` or `regex_parser` that parses the body
//! into attributes, or the one and then the other; behind a parser, or as its section, what takes
//! time and severity from parsed attributes. Their text is borrowed from the line, and attributes
//! are written as they are parsed: a [`Record`](crate::Record) would take some forty allocations a
//! line, which was most of the time. They could not be spared there, as its values are owned: each
//! operator may change any of them.
//!
//! A line that is not as usual is left to the operators: one that is a part of a log, that an
//! operator fails on, that has a name twice. So there is one account of each of those.

mod json;

use std::borrow::Cow;

use sluice_otlp::AnyValue;

use self::json::write_text;
use super::container::{Line, Log, PATH, Pod, STREAM, Stream, TAG, docker_texts};
use super::json_text::Token;
use super::regex::Groups;
use super::values::Map;
use crate::encode::{Encoder, Place, TextRecord, encode_attributes};
use crate::parsers::Numbers;
use crate::step::{Format, Sections, Step};

pub(crate) struct Compiled {
    container: Option<Container>,
    parser: Option<Parser>,
    /// Fields of the record that are taken from parsed attributes.
    sections: Sections,
    /// Of the lines that come now; nothing if they are left to the operators.
    source: Option<Source>,
    /// Attributes that were parsed of a line, kept for its capacity.
    parsed: Vec<u8>,
}

struct Container {
    format: Option<Format>,
    adds_metadata: bool,
    /// Attributes of a line, of `stdout` and of `stderr`.
    docker: [Vec<u8>; 2],
    cri: [Vec<u8>; 2],
}

enum Parser {
    Json(Numbers),
    Regex { pattern: Groups, groups: Vec<(usize, String)> },
}

/// Parts that the records of a stream have in common.
struct Source {
    resource: Map,
    attributes: Vec<u8>,
    /// The names of attributes that all have.
    names: Vec<String>,
    place: Option<Place>,
}

impl Compiled {
    /// Nothing if this is no sequence that can be compiled.
    pub(crate) fn of(steps: Vec<Step>) -> Option<Compiled> {
        let mut steps = steps.into_iter().peekable();
        let container = match steps.next_if(|step| matches!(step, Step::Container { .. })) {
            Some(Step::Container { format, adds_metadata }) => {
                Some(Container::new(format, adds_metadata))
            }
            _ => None,
        };
        let (parser, mut sections) = match steps.next() {
            Some(Step::Json { numbers, sections }) => (Some(Parser::Json(numbers)), sections),
            Some(Step::Regex { pattern, groups, sections }) => {
                (Some(Parser::Regex { pattern, groups }), sections)
            }
            Some(Step::Container { .. } | Step::Sections(_)) => return None,
            None => (None, Sections::default()),
        };
        for step in steps {
            let Step::Sections(Sections { time, severity }) = step else { return None };
            if sections.time.is_some() && time.is_some()
                || sections.severity.is_some() && severity.is_some()
            {
                return None;
            }
            sections.time = sections.time.or(time);
            sections.severity = sections.severity.or(severity);
        }
        let is_some = container.is_some() || parser.is_some();
        let (source, parsed) = (None, Vec::new());
        is_some.then_some(Compiled { container, parser, sections, source, parsed })
    }

    /// Lines of a stream come, whose records have these attributes and this resource before they
    /// enter the chain.
    pub(crate) fn begin(&mut self, attributes: &Map, resource: &Map) {
        self.source = self.source(attributes, resource.clone());
    }

    fn source(&self, attributes: &Map, mut resource: Map) -> Option<Source> {
        let mut names: Vec<String> = attributes.iter().map(|(name, _)| name.clone()).collect();
        if let Some(container) = &self.container {
            if container.adds_metadata {
                let path = attributes.iter().find(|(name, _)| name == PATH);
                let Some((_, AnyValue::String(path))) = path else { return None };
                Pod::read(path).ok()?.add_to(&mut resource);
            }
            let set = [TAG, STREAM].map(str::to_owned);
            if set.iter().any(|name| names.contains(name)) {
                return None;
            }
            names.extend(set);
        }
        if let Some(Parser::Regex { groups, .. }) = &self.parser
            && groups.iter().any(|(_, name)| names.contains(name))
        {
            return None;
        }
        Some(Source { resource, attributes: encode_attributes(attributes), names, place: None })
    }

    /// Writes the record of a line. False if the line is left to the operators.
    pub(crate) fn write(&mut self, line: &str, observed_ns: i64, out: &mut Encoder) -> bool {
        let Some(source) = &mut self.source else { return false };
        let (time_ns, attributes, text) = match &self.container {
            None => (None, &[][..], Cow::Borrowed(line)),
            Some(container) => match container.read(line) {
                Some((time_ns, attributes, text)) => (Some(time_ns), attributes, text),
                None => return false,
            },
        };
        self.parsed.clear();
        let wanted = self.sections.wanted();
        let taken = match &mut self.parser {
            None => Some(Taken::default()),
            Some(Parser::Json(numbers)) => {
                json::write(&text, *numbers, &source.names, wanted, &mut self.parsed)
            }
            Some(Parser::Regex { pattern, groups }) => pattern.find(&text).then(|| {
                let mut taken = Taken::default();
                for (index, name) in groups.iter() {
                    let value = pattern.text(*index, &text);
                    write_text(&mut self.parsed, name, value);
                    for (wanted, taken) in wanted.iter().zip(&mut taken) {
                        if *wanted == Some(name.as_str()) {
                            *taken = Some(Token::Text(Cow::Borrowed(value)));
                        }
                    }
                }
                taken
            }),
        };
        let Some(taken) = taken else { return false };
        let Some((time, severity)) = self.sections.read(&taken, observed_ns) else { return false };
        let record = TextRecord {
            time_ns: time.or(time_ns),
            severity: severity.0,
            severity_text: &severity.1,
            observed_ns,
            body: &text,
            attributes: [&source.attributes[..], attributes, &self.parsed],
        };
        out.push_text(&mut source.place, &source.resource, &record);
        true
    }
}

/// The names of attributes with time and severity, and their values.
type Wanted<'w> = [Option<&'w str>; 2];
type Taken<'t> = [Option<Token<'t>>; 2];
/// A severity and its text.
type Level<'v> = (u8, Cow<'v, str>);

impl Sections {
    fn wanted(&self) -> Wanted<'_> {
        let time = self.time.as_ref().map(|(name, _)| name.as_str());
        [time, self.severity.as_ref().map(|(name, _)| name.as_str())]
    }

    /// The time, and the severity with its text. Nothing if one is wanted and cannot be read.
    fn read<'v>(
        &self,
        [time, severity]: &'v Taken<'_>,
        observed_ns: i64,
    ) -> Option<(Option<i64>, Level<'v>)> {
        let time_ns = match &self.time {
            Some((_, reader)) => Some(reader(time.as_ref()?, observed_ns)?),
            None => None,
        };
        let severity = match &self.severity {
            Some((_, reader)) => reader(severity.as_ref()?)?,
            None => (0, Cow::Borrowed("")),
        };
        Some((time_ns, severity))
    }
}

impl Container {
    fn new(format: Option<Format>, adds_metadata: bool) -> Container {
        let encoded = |names: &[(&str, &str)]| {
            let attribute = |(name, value): &(&str, &str)| {
                (str::to_owned(name), AnyValue::String(str::to_owned(value)))
            };
            encode_attributes(&names.iter().map(attribute).collect())
        };
        let streams = ["stdout", "stderr"];
        Container {
            format,
            adds_metadata,
            docker: streams.map(|stream| encoded(&[(STREAM, stream)])),
            cri: streams.map(|stream| encoded(&[(TAG, "F"), (STREAM, stream)])),
        }
    }

    /// Time, encoded attributes and log of a line that is a whole log.
    fn read<'l>(&self, line: &'l str) -> Option<(i64, &[u8], Cow<'l, str>)> {
        let is_docker = match self.format {
            Some(format) => format == Format::Docker,
            None => line.starts_with('{'),
        };
        if is_docker {
            let (time_ns, is_stderr, log) = docker_texts(line)?;
            return Some((time_ns, &self.docker[usize::from(is_stderr)], log));
        }
        let Line { time_ns, stream, log } = Line::cri(line, self.format)?.ok()?;
        let Log::Behind { start, tag: "F" } = log else { return None };
        let is_stderr = matches!(stream, Stream::Stderr);
        Some((time_ns, &self.cri[usize::from(is_stderr)], Cow::Borrowed(&line[start..])))
    }
}

#[cfg(test)]
mod tests;
