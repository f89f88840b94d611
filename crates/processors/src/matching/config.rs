//! Reads `include` and `exclude`.

use sluice_config::{Fields, Pattern};
use sluice_otlp::AnyValue;

use super::attributes::{AttributeMatcher, ValueMatcher};
use super::{Library, Properties, SPAN_KINDS, SeverityNumber, Strings};

/// The way to compare strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatchType {
    Strict,
    Regexp,
    /// An error if there is a string to compare.
    Unset,
}

const WHY_NO_CACHE: &str = "matching needs no cache here";
const WITHOUT_MATCH_TYPE: &str =
    "can only be compared if `match_type` says how: `strict` or `regexp`";

pub(crate) fn read(fields: &mut Fields<'_>) -> Properties {
    let match_type = MatchType::read(fields);
    let read = |fields: &mut Fields<'_>, key: &str, doc: &str| {
        let strings = fields.string_list(key, &[], doc);
        if strings.is_empty() { None } else { Some(match_type.compile(fields, key, strings)) }
    };
    let properties = Properties {
        services: read(fields, "services", "Spans: `service.name` of the resource."),
        span_names: read(fields, "span_names", "Spans: the name."),
        span_kinds: read(fields, "span_kinds", "Spans: the kind, for instance `SPAN_KIND_SERVER`."),
        log_bodies: read(fields, "log_bodies", "Log records: the body as text."),
        log_severity_texts: read(fields, "log_severity_texts", "Log records: the severity text."),
        log_severity_number: {
            let doc = "Log records: the severity number.";
            fields.section_unless_empty("log_severity_number", doc, read_severity)
        },
        metric_names: read(fields, "metric_names", "Metrics: the name."),
        attributes: {
            let doc = "Spans and log records: attributes. All must match.";
            match_type.attributes(fields, "attributes", doc)
        },
        resources: {
            let doc = "Attributes of the resource. All must match.";
            match_type.attributes(fields, "resources", doc)
        },
        libraries: match_type.libraries(fields),
    };
    check_span_kinds(&properties, fields);
    properties
}

fn read_severity(fields: &mut Fields<'_>) -> SeverityNumber {
    let doc = "The lowest severity that matches (9 is INFO, 13 WARN, 17 ERROR, 21 FATAL).";
    let min = fields.integer("min", 0, 0..=24, doc);
    let doc = "If true, records without a severity match.";
    SeverityNumber { min, match_undefined: fields.boolean("match_undefined", false, doc) }
}

impl MatchType {
    pub(crate) fn read(fields: &mut Fields<'_>) -> MatchType {
        let types = [("strict", MatchType::Strict), ("regexp", MatchType::Regexp)];
        let doc = "Compare strings exactly (`strict`) or by regular expression, which matches \
                   anywhere in the text unless it is anchored. Required if there is a string to \
                   compare.";
        let match_type = fields.optional_choice("match_type", &types, doc);
        let match_type = match_type.unwrap_or(MatchType::Unset);
        fields.section("regexp", "Options of `match_type: regexp`.", |fields| {
            fields.no_effect("cacheenabled", WHY_NO_CACHE);
            fields.no_effect("cachemaxnumentries", WHY_NO_CACHE);
        });
        match_type
    }

    pub(crate) fn is_set(self) -> bool {
        self != MatchType::Unset
    }

    pub(crate) fn compile(
        self,
        fields: &mut Fields<'_>,
        key: &str,
        strings: Vec<String>,
    ) -> Strings {
        match self {
            MatchType::Strict => Strings::Strict(strings),
            MatchType::Regexp => {
                let compile = |string: &String| {
                    let invalid = |reason| format!("has the invalid pattern `{string}`: {reason}");
                    let pattern = Pattern::new(string).map_err(invalid);
                    pattern.map_err(|message| fields.error_at(key, &message)).ok()
                };
                Strings::Regexp(strings.iter().filter_map(compile).collect())
            }
            MatchType::Unset => {
                fields.error_at(key, WITHOUT_MATCH_TYPE);
                Strings::Strict(strings)
            }
        }
    }

    fn attributes(self, fields: &mut Fields<'_>, key: &str, doc: &str) -> Vec<AttributeMatcher> {
        fields.sections(key, doc, |fields| {
            let key = fields.required_string("key", "The attribute's key.");
            let doc = "Its value, with its type. Unset: any value. With `match_type: regexp`: a \
                       pattern, matched against the text of strings, numbers and booleans.";
            let node = fields.node("value", "string, number, boolean, list or map", doc);
            let Some(node) = node.filter(|node| !node.is_null()) else {
                return AttributeMatcher { key, value: ValueMatcher::Any };
            };
            let value = match (self, node.any_value()) {
                (MatchType::Strict, Some(value)) => Ok(ValueMatcher::Equal(value)),
                (MatchType::Strict, None) => {
                    Err("holds a number that does not fit into 64 bits with a sign")
                }
                (MatchType::Regexp, Some(AnyValue::String(text))) => {
                    Ok(ValueMatcher::Matches(self.compile(fields, "value", vec![text])))
                }
                (MatchType::Regexp, _) => Err("must be a string with `match_type: regexp`"),
                (MatchType::Unset, _) => Err(WITHOUT_MATCH_TYPE),
            };
            let value = value.unwrap_or_else(|message| {
                fields.error_at("value", message);
                ValueMatcher::Any
            });
            AttributeMatcher { key, value }
        })
    }

    fn libraries(self, fields: &mut Fields<'_>) -> Vec<Library> {
        let doc = "Spans and log records: the instrumentation scope. All must match, as in the \
                   Collector.";
        let libraries = fields.sections("libraries", doc, |fields| {
            let name = fields.string("name", "", "Name of the scope.");
            let version = fields.optional_string("version", "Version of the scope. Unset: any.");
            Library {
                name: self.compile(fields, "name", vec![name]),
                version: version.map(|version| self.compile(fields, "version", vec![version])),
            }
        });
        if libraries.len() > 1 {
            let message =
                "must all match, as in the Collector: a scope seldom matches more than one";
            fields.warn_at("libraries", message);
        }
        libraries
    }
}

fn check_span_kinds(properties: &Properties, fields: &mut Fields<'_>) {
    if let Some(Strings::Strict(kinds)) = &properties.span_kinds
        && let Some(unknown) = kinds.iter().find(|kind| !SPAN_KINDS[1..].contains(&kind.as_str()))
    {
        let message = format!("has `{unknown}`, which is no kind of span");
        let hint = format!("possible are {}", SPAN_KINDS[1..].join(", "));
        fields.error_at_with_hint("span_kinds", &message, &hint);
    }
}
