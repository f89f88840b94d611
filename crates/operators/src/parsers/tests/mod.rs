//! The parsers as a configuration makes them.

mod container;
mod parser;
mod properties;
mod severity;
mod syslog;
mod texts;
mod time;

use sluice_config::read_text;
use sluice_otlp::AnyValue;

use super::PARSERS;
use crate::operator::{Read, Stage, Transform};
use crate::record::{Origin, Record};

/// 2026-11-27T12:00:00Z: the time at which records were read.
const NOW_NS: i64 = 1_795_780_800_000_000_000;

fn reader(name: &str) -> Read {
    PARSERS.iter().find(|parser| parser.name == name).expect("a parser").read
}

/// Builds a parser. Fails with all that there is to say about the options.
fn built(name: &str, options: &str) -> Result<Box<dyn Transform>, String> {
    let Read::Transform(read) = reader(name) else { panic!("{name} is a stage") };
    let (parser, diagnostics) = read_text("operators[0]", options, read);
    match parser {
        Some(parser) if !diagnostics.has_errors() => Ok(parser),
        _ => Err(diagnostics.render(false)),
    }
}

fn stage(options: &str) -> Result<Box<dyn Stage>, String> {
    let Read::Stage(read) = reader("container") else { panic!("it is a transform") };
    let (stage, diagnostics) = read_text("operators[0]", options, read);
    match stage {
        Some(stage) if !diagnostics.has_errors() => Ok(stage),
        _ => Err(diagnostics.render(false)),
    }
}

fn text(text: &str) -> AnyValue {
    AnyValue::String(text.to_owned())
}

fn map<const N: usize>(entries: [(&str, AnyValue); N]) -> AnyValue {
    AnyValue::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn record(body: AnyValue) -> Record {
    Record::new(body, NOW_NS, Origin { stream: 1, range: 0..10 })
}

/// The record behind a parser, or the parser's error.
fn applied(name: &str, options: &str, body: AnyValue) -> Result<Record, String> {
    let mut parser = built(name, options).unwrap_or_else(|why| panic!("{options}: {why}"));
    let mut record = record(body);
    parser.apply(&mut record).map(|()| record)
}

/// The attributes that a parser makes of a text, sorted by their keys.
fn parsed(name: &str, options: &str, body: &str) -> Result<AnyValue, String> {
    applied(name, options, text(body)).map(|record| sorted(AnyValue::Map(record.attributes)))
}

fn sorted(value: AnyValue) -> AnyValue {
    match value {
        AnyValue::Map(mut map) => {
            map.sort_by(|one, other| one.0.cmp(&other.0));
            AnyValue::Map(map.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        value => value,
    }
}

/// A parser's options can be described, and each parser is named once.
#[test]
fn every_parser_describes_its_options() {
    for parser in PARSERS {
        let options = match parser.read {
            Read::Transform(read) => sluice_config::Fields::describe(read),
            Read::Stage(read) => sluice_config::Fields::describe(read),
            Read::Router(_) => panic!("{} is a parser", parser.name),
        };
        assert!(!options.is_empty(), "{}", parser.name);
        assert!(options.iter().all(|option| option.kind != "string" || !option.doc.is_empty()));
        assert_eq!(PARSERS.iter().filter(|other| other.name == parser.name).count(), 1);
        assert!(parser.summary.ends_with('.'));
    }
}
