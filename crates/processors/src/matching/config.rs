//! Reads `include` and `exclude`.

use sluice_config::Fields;

use super::attributes::ValueMatcher;
use super::{AttributeMatcher, Library, Properties, SPAN_KINDS, SeverityNumber, Strings};
use crate::actions::value_of;
use crate::go_regexp::Pattern;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatchType {
    Strict,
    Regexp,
}

const WHY_NO_CACHE: &str = "matching needs no cache here";

/// Reads one of the two sections.
pub fn read(fields: &mut Fields<'_>) -> Properties {
    let types = [("strict", MatchType::Strict), ("regexp", MatchType::Regexp)];
    let match_type = fields.optional_choice(
        "match_type",
        &types,
        "How strings are compared: exactly, or by regular expression (which may match anywhere in the text unless it says otherwise). \
         Required where there is a string to compare.",
    );
    fields.section("regexp", "Options of `match_type: regexp`.", |fields| {
        fields.no_effect("cacheenabled", WHY_NO_CACHE);
        fields.no_effect("cachemaxnumentries", WHY_NO_CACHE);
    });
    let read = |fields: &mut Fields<'_>, key: &str, doc: &str| {
        let strings = fields.string_list(key, &[], doc);
        if strings.is_empty() { None } else { Some(compile(strings, match_type, fields, key)) }
    };
    let properties = Properties {
        services: read(fields, "services", "Spans: `service.name` of the resource."),
        span_names: read(fields, "span_names", "Spans: the name."),
        span_kinds: read(fields, "span_kinds", "Spans: the kind, as `SPAN_KIND_SERVER`."),
        log_bodies: read(fields, "log_bodies", "Log records: the body as text."),
        log_severity_texts: read(fields, "log_severity_texts", "Log records: the severity text."),
        log_severity_number: fields.section("log_severity_number", "Log records: the severity number.", read_severity),
        metric_names: read(fields, "metric_names", "Metrics: the name."),
        attributes: read_attributes(
            fields,
            match_type,
            "attributes",
            "Spans and log records: attributes. All must match.",
        ),
        resources: read_attributes(fields, match_type, "resources", "Attributes of the resource. All must match."),
        libraries: read_libraries(fields, match_type),
    };
    check_span_kinds(&properties, fields);
    properties
}

/// Without a match type there is an error, and the strings are kept as they are.
fn compile(strings: Vec<String>, match_type: Option<MatchType>, fields: &mut Fields<'_>, key: &str) -> Strings {
    match match_type {
        Some(MatchType::Strict) => Strings::Strict(strings),
        Some(MatchType::Regexp) => {
            let mut patterns = Vec::new();
            for string in &strings {
                match Pattern::new(string) {
                    Ok(pattern) => patterns.push(pattern),
                    Err(reason) => fields.error_at(key, &format!("has the invalid pattern `{string}`: {reason}")),
                }
            }
            Strings::Regexp(patterns)
        }
        None => {
            fields.error_at(key, "can only be compared if `match_type` says how: `strict` or `regexp`");
            Strings::Strict(strings)
        }
    }
}

fn read_severity(fields: &mut Fields<'_>) -> SeverityNumber {
    SeverityNumber {
        min: fields.integer(
            "min",
            0,
            0..=24,
            "The lowest severity that matches (9 is INFO, 13 WARN, 17 ERROR, 21 FATAL).",
        ),
        match_undefined: fields.boolean("match_undefined", false, "Whether records without a severity match."),
    }
}

fn read_attributes(
    fields: &mut Fields<'_>,
    match_type: Option<MatchType>,
    key: &str,
    doc: &str,
) -> Vec<AttributeMatcher> {
    fields.sections(key, doc, |fields| {
        let key = fields.required_string("key", "The attribute's key.");
        let doc = "Its value, with its type; any if not given. With `match_type: regexp` a pattern, which is matched \
                   against strings, numbers and booleans as text.";
        let node = fields.node("value", "string, number, boolean, list or map", doc);
        let value = node.filter(|node| !node.is_null()).map(|node| value_of(node).ok_or(()));
        let value = match (value, match_type) {
            (None, _) => ValueMatcher::Any,
            (Some(Ok(sluice_otlp::AnyValue::String(text))), Some(MatchType::Regexp)) => {
                ValueMatcher::Matches(compile(vec![text], match_type, fields, "value"))
            }
            (Some(_), Some(MatchType::Regexp)) => {
                fields.error_at("value", "must be a string with `match_type: regexp`");
                ValueMatcher::Any
            }
            (Some(_), None) => {
                fields.error_at("value", "can only be compared if `match_type` says how: `strict` or `regexp`");
                ValueMatcher::Any
            }
            (Some(Err(())), Some(MatchType::Strict)) => {
                fields.error_at("value", "holds a number that does not fit into 64 bits with a sign");
                ValueMatcher::Any
            }
            (Some(Ok(value)), Some(MatchType::Strict)) => ValueMatcher::Equal(value),
        };
        AttributeMatcher { key, value }
    })
}

fn read_libraries(fields: &mut Fields<'_>, match_type: Option<MatchType>) -> Vec<Library> {
    let doc = "Spans and log records: the instrumentation scope. All must match, as in the Collector.";
    let libraries = fields.sections("libraries", doc, |fields| {
        let name = fields.string("name", "", "Name of the scope.");
        let version = fields.optional_string("version", "Version of the scope; any if not given.");
        Library {
            name: compile(vec![name], match_type, fields, "name"),
            version: version.map(|version| compile(vec![version], match_type, fields, "version")),
        }
    });
    if libraries.len() > 1 {
        fields.warn_at("libraries", "must all match, as in the Collector: a scope seldom matches more than one");
    }
    libraries
}

fn check_span_kinds(properties: &Properties, fields: &mut Fields<'_>) {
    if let Some(Strings::Strict(kinds)) = &properties.span_kinds
        && let Some(unknown) = kinds.iter().find(|kind| !SPAN_KINDS[1..].contains(&kind.as_str()))
    {
        let hint = format!("possible are {}", SPAN_KINDS[1..].join(", "));
        fields.error_at_with_hint("span_kinds", &format!("has `{unknown}`, which is no kind of span"), &hint);
    }
}
