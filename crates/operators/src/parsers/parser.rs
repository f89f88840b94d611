//! The options that all parsers share, and the common course of a parse.

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::scope_name::ScopeName;
use super::severity::Severity;
use super::time::Time;
use super::trace::Trace;
use super::values::{read_source, text_at};
use crate::field::Field;
use crate::record::Record;
use crate::step::Sections;

/// Reads a text, puts the result, and then works on the embedded sections.
#[derive(Clone)]
pub(super) struct Parser {
    from: Field,
    to: Field,
    body: Option<Field>,
    time: Option<Time>,
    severity: Option<Severity>,
    trace: Option<Trace>,
    scope_name: Option<ScopeName>,
}

impl Parser {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Parser> {
        let from = read_source(fields, Some("body"), "The text to parse.");
        let doc = "The place of the result: `attributes`, `body`, `resource`, or a field in them. \
                   A map that is there already is extended.";
        let kind = "a field";
        let to = fields.parsed("parse_to", kind, Some("attributes"), doc, Field::parse);
        let doc = "After parsing, the body is replaced by the value of this field.";
        let body = fields.parsed("body", kind, None, doc, Field::parse);
        if body.is_some() && to.as_ref().is_some_and(|to| *to == Field::body()) {
            fields.error_at("body", "cannot be given with `parse_to: body`: remove one of them");
        }
        let doc = "Takes the time of the record from a parsed field, as `time_parser` does.";
        let time = fields.section_unless_empty("timestamp", doc, Time::read);
        let doc = "Takes the severity from a parsed field, as `severity_parser` does.";
        let severity = fields.section_unless_empty("severity", doc, Severity::read);
        let doc = "Takes the ids of trace and span from parsed fields, as `trace_parser` does.";
        let trace = fields.section_unless_empty("trace", doc, Trace::read);
        let doc = "Takes the name of the scope from a parsed field, as `scope_name_parser` does.";
        let scope_name = fields.section_unless_empty("scope_name", doc, ScopeName::read);
        let parser = Parser {
            from: from?,
            to: to?,
            body,
            time: flat(time)?,
            severity: flat(severity)?,
            trace: flat(trace)?,
            scope_name: flat(scope_name)?,
        };
        Some(parser)
    }

    /// If it only parses the body into attributes: what it takes from those.
    pub(super) fn sections(&self) -> Option<Sections> {
        let Parser { from, to, body, time, severity, trace, scope_name } = self;
        let has_more = body.is_some() || trace.is_some() || scope_name.is_some();
        if has_more || *from != Field::body() || *to != Field::attributes() {
            return None;
        }
        let time = time.as_ref().map(Time::section);
        let severity = severity.as_ref().map(Severity::section);
        Some(Sections { time: flat(time)?, severity: flat(severity)? })
    }

    /// From the body to the attributes, without embedded sections.
    pub(super) fn plain() -> Parser {
        Parser {
            from: Field::body(),
            to: Field::attributes(),
            body: None,
            time: None,
            severity: None,
            trace: None,
            scope_name: None,
        }
    }

    /// True if a section `timestamp` says where the time comes from.
    pub(super) fn has_time(&self) -> bool {
        self.time.is_some()
    }

    /// The whole course: `parse` turns the text into a value.
    ///
    /// # Errors
    /// The reason, in a line. If only an embedded section failed, the parsed value is in the
    /// record, as in the Collector.
    pub(super) fn apply(
        &self,
        record: &mut Record,
        parse: impl FnOnce(&str) -> Result<AnyValue, String>,
    ) -> Result<(), String> {
        let value = parse(self.text(record)?)?;
        self.finish(record, value)
    }

    /// The text to parse.
    pub(super) fn text<'r>(&self, record: &'r Record) -> Result<&'r str, String> {
        text_at(&self.from, record)
    }

    /// Puts the value and works on the embedded sections. All are tried; the first error counts.
    pub(super) fn finish(&self, record: &mut Record, value: AnyValue) -> Result<(), String> {
        self.to.set(record, value)?;
        if let Some(body) = self.body.as_ref().and_then(|field| field.copied(record)) {
            record.body = body;
        }
        let time = self.time.as_ref().map_or(Ok(()), |time| time.set(record));
        let severity = self.severity.as_ref().map_or(Ok(()), |severity| severity.set(record));
        let trace = self.trace.as_ref().map_or(Ok(()), |trace| trace.set(record));
        let scope = self.scope_name.as_ref().map_or(Ok(()), |scope| scope.set(record));
        time.map_err(|why| format!("timestamp: {why}"))?;
        severity.map_err(|why| format!("severity: {why}"))?;
        trace.map_err(|why| format!("trace: {why}"))?;
        scope.map_err(|why| format!("scope_name: {why}"))
    }
}

/// Declares the options that parsers share, for the documentation.
pub(crate) fn describe_shared(fields: &mut Fields<'_>) {
    Parser::read(fields);
}

/// A section that is absent is fine, one with errors is not.
fn flat<T>(section: Option<Option<T>>) -> Option<Option<T>> {
    match section {
        Some(None) => None,
        Some(some) => Some(some),
        None => Some(None),
    }
}
