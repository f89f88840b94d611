//! `severity_parser`: the severity from a field, by a table of values.

use std::borrow::Cow;
use std::collections::HashMap;

use sluice_config::{Fields, Node, ScalarValue, Value, nearest};
use sluice_otlp::AnyValue;

use super::json_text::Token;
use super::values::{kind_of, read_source, value_at};
use crate::field::Field;
use crate::operator::Transform;
use crate::record::Record;
use crate::step::{Sections, SeverityOf, Step};

#[derive(Clone)]
pub(crate) struct Severity {
    from: Field,
    /// In lower case.
    texts: HashMap<String, u8>,
    /// Inclusive; of ranges that overlap, the first counts.
    ranges: Vec<(i64, i64, u8)>,
    preset: HashMap<String, u8>,
    /// The longest text of both tables, in bytes.
    longest: usize,
    overwrite_text: bool,
}

const LEVELS: [&str; 6] = ["trace", "debug", "info", "warn", "error", "fatal"];

const CANONICAL: [&str; 24] = [
    "TRACE", "TRACE2", "TRACE3", "TRACE4", "DEBUG", "DEBUG2", "DEBUG3", "DEBUG4", "INFO", "INFO2",
    "INFO3", "INFO4", "WARN", "WARN2", "WARN3", "WARN4", "ERROR", "ERROR2", "ERROR3", "ERROR4",
    "FATAL", "FATAL2", "FATAL3", "FATAL4",
];

#[derive(Clone, Copy, PartialEq)]
enum Preset {
    Default,
    Otel,
    None,
}

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(Severity::read(fields)?))
}

impl Severity {
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Severity> {
        let from = read_source(fields, None, "The field with the severity.");
        let presets = [
            ("default", Preset::Default),
            ("otel", Preset::Otel),
            ("aliases", Preset::Otel),
            ("none", Preset::None),
            ("", Preset::Default),
        ];
        let doc = "The values that are known without `mapping`. `otel` and `aliases`: names \
                   (`info2`) and numbers of severities. `default`: also `warning` and `err`. \
                   `none`: no value.";
        let preset = fields.choice("preset", Preset::Default, &presets, doc);
        let kind = "map of severities to values";
        let doc = "For each severity (`info`, `error2`, `17`) a value, a list of values, a range \
                   `{min: 400, max: 499}`, or one of `2xx`, `3xx`, `4xx` and `5xx`. Texts match in \
                   any letter case.";
        let node = fields.node("mapping", kind, doc);
        let (mut texts, mut ranges) = (HashMap::new(), Vec::new());
        let mapped = node.map_or(Ok(()), |node| read_mapping(node, &mut texts, &mut ranges));
        let doc = "The severity's text becomes the name of the severity instead of the value.";
        let overwrite_text = fields.boolean("overwrite_text", false, doc);
        if let Err(why) = mapped {
            fields.error_at("mapping", &why);
            return None;
        }
        let preset = preset_texts(preset);
        let longest = texts.keys().chain(preset.keys()).map(String::len).max().unwrap_or(0);
        Some(Severity { from: from?, texts, ranges, preset, longest, overwrite_text })
    }

    pub(super) fn set(&self, record: &mut Record) -> Result<(), String> {
        let value = value_at(&self.from, record)?;
        let wrong = || format!("`{}` is {}, not a severity", self.from, kind_of(value));
        let text = match value {
            AnyValue::String(text) => text.clone(),
            AnyValue::Bytes(bytes) => str::from_utf8(bytes).map_err(|_| wrong())?.to_owned(),
            AnyValue::Int(number) => number.to_string(),
            AnyValue::Double(number) => whole_text(*number).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        let (severity, name) = self.find_named(&text);
        record.severity = severity;
        record.severity_text = name.map_or(text, str::to_owned);
        Ok(())
    }

    /// The attribute with the severity, if it is one, and how its value is read.
    pub(super) fn section(&self) -> Option<(String, SeverityOf)> {
        let severity = self.clone();
        Some((self.from.attribute()?.to_owned(), Box::new(move |value| severity.of(value))))
    }

    /// The severity and its text that a record has with this value in its field. Nothing if it has
    /// none.
    fn of<'v>(&self, value: &'v Token<'_>) -> Option<(u8, Cow<'v, str>)> {
        let text = match value {
            Token::Text(text) => Cow::Borrowed(&**text),
            Token::Int(number) => Cow::Owned(number.to_string()),
            Token::Double(number) => Cow::Owned(whole_text(*number)?),
            _ => return None,
        };
        let (severity, name) = self.find_named(&text);
        Some((severity, name.map_or(text, Cow::Borrowed)))
    }

    /// As [`Severity::find`], with the text that the record has instead of this one, if it has.
    fn find_named(&self, text: &str) -> (u8, Option<&'static str>) {
        let severity = self.find(text);
        let name = severity.checked_sub(1).and_then(|index| CANONICAL.get(usize::from(index)));
        (severity, name.copied().filter(|_| self.overwrite_text))
    }

    /// 0 if the text is in no table.
    fn find(&self, text: &str) -> u8 {
        let mut buffer = [0; 32];
        let lowered;
        let key = match buffer.get_mut(..text.len()) {
            Some(buffer) if text.is_ascii() => {
                buffer.copy_from_slice(text.as_bytes());
                buffer.make_ascii_lowercase();
                str::from_utf8(buffer).unwrap_or_default()
            }
            // Letters of either case differ in length by less than this.
            _ if text.len() / 4 > self.longest => return 0,
            _ => {
                lowered = text.to_lowercase();
                &lowered
            }
        };
        let in_range = || {
            // Only as numbers are written: `0200` and `+200` are texts.
            let is_plain = key == "0" || !key.trim_start_matches('-').starts_with(['0', '+']);
            let number: i64 = key.parse().ok().filter(|_| is_plain)?;
            let found = self.ranges.iter().find(|(min, max, _)| (*min..=*max).contains(&number));
            found.map(|(_, _, severity)| *severity)
        };
        let known = self.texts.get(key).copied();
        let known = known.or_else(|| if self.ranges.is_empty() { None } else { in_range() });
        known.or_else(|| self.preset.get(key).copied()).unwrap_or(0)
    }
}

impl Transform for Severity {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.set(record)
    }

    fn step(&self) -> Option<Step> {
        Some(Step::Sections(Sections { time: None, severity: Some(self.section()?) }))
    }
}

/// The digits of a whole number.
fn whole_text(number: f64) -> Option<String> {
    let is_whole = number.fract() == 0.0 && number.abs() < 1e18;
    is_whole.then(|| (number as i64).to_string())
}

fn preset_texts(preset: Preset) -> HashMap<String, u8> {
    let mut texts = HashMap::new();
    if preset == Preset::None {
        return texts;
    }
    for (number, name) in (1..).zip(CANONICAL) {
        texts.insert(name.to_lowercase(), number);
        texts.insert(number.to_string(), number);
    }
    if preset == Preset::Default {
        for (suffix, place) in ["", "2", "3", "4"].into_iter().zip(0..) {
            texts.insert(format!("warning{suffix}"), 13 + place);
            texts.insert(format!("err{suffix}"), 17 + place);
        }
    }
    texts
}

fn read_mapping(
    node: &Node,
    texts: &mut HashMap<String, u8>,
    ranges: &mut Vec<(i64, i64, u8)>,
) -> Result<(), String> {
    if node.is_null() {
        return Ok(());
    }
    let names = preset_texts(Preset::Otel);
    let entries = node.as_mapping().ok_or("must be a mapping of severities to values")?;
    for entry in entries {
        let name = entry.key.to_lowercase();
        let severity = match names.get(&name) {
            Some(severity) => *severity,
            None if name == "default" => 0,
            None => {
                let meant = nearest(&name, LEVELS)
                    .map_or(String::new(), |level| format!(" (did you mean `{level}`?)"));
                return Err(format!("has `{}`, which is no severity{meant}", entry.key));
            }
        };
        match entry.value.as_list() {
            Some(values) => {
                values.iter().try_for_each(|value| read_value(value, severity, texts, ranges))?
            }
            None => read_value(&entry.value, severity, texts, ranges)?,
        }
    }
    Ok(())
}

fn read_value(
    node: &Node,
    severity: u8,
    texts: &mut HashMap<String, u8>,
    ranges: &mut Vec<(i64, i64, u8)>,
) -> Result<(), String> {
    let integer = |node: &Node| {
        let value = node.as_scalar().and_then(|scalar| scalar.as_integer());
        value.and_then(|value| i64::try_from(value).ok())
    };
    match &node.value {
        Value::Scalar(scalar) => match (scalar.value, scalar.text.as_str()) {
            (ScalarValue::Integer(number), _) => {
                texts.insert(number.to_string(), severity);
            }
            (ScalarValue::String, text @ ("2xx" | "3xx" | "4xx" | "5xx")) => {
                let first = i64::from(text.as_bytes()[0] - b'0') * 100;
                ranges.push((first, first + 99, severity));
            }
            (ScalarValue::String, text) => {
                texts.insert(text.to_lowercase(), severity);
            }
            _ => {
                let kind = scalar.kind();
                return Err(format!("has {kind} as a value: write a text or a whole number"));
            }
        },
        Value::Mapping(entries) => {
            let bound = |key| node.get(key).and_then(integer);
            let (Some(min), Some(max), 2) = (bound("min"), bound("max"), entries.len()) else {
                return Err("has a range without whole numbers as `min` and `max`".to_owned());
            };
            ranges.push((min.min(max), min.max(max), severity));
        }
        Value::List(_) => return Err("has a list within a list".to_owned()),
    }
    Ok(())
}
