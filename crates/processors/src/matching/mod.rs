//! `include` and `exclude`: the selection of items for an action, as in the Collector 0.160.

mod attributes;
mod config;

use attributes::AttributeMatcher;
use sluice_config::Pattern;
use sluice_otlp::text::text_of;
use sluice_otlp::{Attributes, ItemEditor, Signal, Value, View};

pub(crate) use config::{MatchType, read};

use crate::fingerprint::Fingerprint;

/// Properties of an item. Every given one must match; of a list of strings one is enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Properties {
    /// Matched against the resource's `service.name`.
    pub services: Option<Strings>,
    pub span_names: Option<Strings>,
    /// Matched against `SPAN_KIND_SERVER` and so on.
    pub span_kinds: Option<Strings>,
    pub log_bodies: Option<Strings>,
    pub log_severity_texts: Option<Strings>,
    pub log_severity_number: Option<SeverityNumber>,
    pub metric_names: Option<Strings>,
    /// Attributes of the item. All must match.
    pub attributes: Vec<AttributeMatcher>,
    /// Attributes of the resource. All must match.
    pub resources: Vec<AttributeMatcher>,
    /// All must match, as in the Collector, though its documentation says one.
    pub libraries: Vec<Library>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeverityNumber {
    pub min: i32,
    /// Whether records without a severity match.
    pub match_undefined: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub name: Strings,
    /// Any version, if there is none.
    pub version: Option<Strings>,
}

/// Texts to match against, of which one is enough.
#[derive(Clone, Debug)]
pub(crate) enum Strings {
    Strict(Vec<String>),
    /// Anywhere in the text, unless a pattern says otherwise.
    Regexp(Vec<Pattern>),
}

impl Strings {
    pub(crate) fn match_text(&self, text: &[u8]) -> bool {
        match self {
            Strings::Strict(strings) => strings.iter().any(|string| string.as_bytes() == text),
            Strings::Regexp(patterns) => patterns.iter().any(|pattern| pattern.matches(text)),
        }
    }

    pub(crate) fn fingerprint(strings: Option<&Strings>, fingerprint: &mut Fingerprint) {
        match strings {
            None => fingerprint.add("any"),
            Some(Strings::Strict(strings)) => {
                fingerprint.add("strict");
                fingerprint.list(strings, |out, string| out.add(string));
            }
            Some(Strings::Regexp(patterns)) => {
                fingerprint.add("regexp");
                fingerprint.list(patterns, |out, pattern| out.add(pattern.text()));
            }
        }
    }
}

impl Properties {
    pub(crate) fn matches_resource(&self, resource: &Attributes<'_>) -> bool {
        let is_service = |services: &Strings| match resource.get(b"service.name") {
            Some(name) => services.match_text(text_of(name).as_bytes()),
            None => services.match_text(b"<nil-service-name>"),
        };
        self.services.as_ref().is_none_or(is_service)
            && attributes::all_match(&self.resources, resource)
    }

    pub(crate) fn matches_scope(&self, scope: View<'_>) -> bool {
        self.libraries.iter().all(|library| {
            let version = library.version.as_ref();
            library.name.match_text(scope.name())
                && version.is_none_or(|version| version.match_text(scope.version()))
        })
    }

    pub(crate) fn matches_metric(&self, metric: View<'_>) -> bool {
        self.metric_names.as_ref().is_none_or(|names| names.match_text(metric.name()))
    }

    pub(crate) fn matches_item(&self, item: View<'_>, item_attributes: &Attributes<'_>) -> bool {
        let is_kind = |kinds: &Strings| {
            let kind = usize::try_from(item.span_kind()).ok().and_then(|it| SPAN_KINDS.get(it));
            kinds.match_text(kind.copied().unwrap_or_default().as_bytes())
        };
        let has_body =
            |bodies: &Strings| bodies.match_text(text_of(Value::read(&item.body())).as_bytes());
        self.span_names.as_ref().is_none_or(|names| names.match_text(item.span_name()))
            && self.span_kinds.as_ref().is_none_or(is_kind)
            && self.log_bodies.as_ref().is_none_or(has_body)
            && self.log_severity_texts.as_ref().is_none_or(|it| it.match_text(item.severity_text()))
            && self.log_severity_number.is_none_or(|number| number.matches(item.severity_number()))
            && attributes::all_match(&self.attributes, item_attributes)
    }

    /// The properties that are given, with the signals whose items have them.
    pub(crate) fn given(&self) -> Vec<(&'static str, &'static [Signal])> {
        use Signal::{Logs, Metrics, Traces};
        let all: [(&str, &[Signal], bool); 10] = [
            ("services", &[Traces], self.services.is_some()),
            ("span_names", &[Traces], self.span_names.is_some()),
            ("span_kinds", &[Traces], self.span_kinds.is_some()),
            ("log_bodies", &[Logs], self.log_bodies.is_some()),
            ("log_severity_texts", &[Logs], self.log_severity_texts.is_some()),
            ("log_severity_number", &[Logs], self.log_severity_number.is_some()),
            ("metric_names", &[Metrics], self.metric_names.is_some()),
            ("attributes", &[Traces, Logs], !self.attributes.is_empty()),
            ("libraries", &[Traces, Logs], !self.libraries.is_empty()),
            ("resources", &Signal::ALL, !self.resources.is_empty()),
        ];
        let given = all.into_iter().filter(|(.., is_given)| *is_given);
        given.map(|(name, signals, _)| (name, signals)).collect()
    }

    /// Only those properties that items of this signal have. Spans have none of the properties that
    /// only log records have, and the reverse: a pipeline with them was refused.
    pub(crate) fn for_signal(self, signal: Signal) -> Properties {
        match signal {
            Signal::Metrics => Properties {
                metric_names: self.metric_names,
                resources: self.resources,
                ..Properties::default()
            },
            Signal::Traces | Signal::Logs => Properties { metric_names: None, ..self },
        }
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        let of_spans = [&self.services, &self.span_names, &self.span_kinds];
        let others = [&self.log_bodies, &self.log_severity_texts, &self.metric_names];
        fingerprint.list(&[of_spans, others].concat(), |out, strings| {
            Strings::fingerprint(strings.as_ref(), out)
        });
        let severity = self.log_severity_number;
        let severity = severity.map(|number| format!("{} {}", number.min, number.match_undefined));
        fingerprint.optional(severity);
        for attributes in [&self.attributes, &self.resources] {
            fingerprint.list(attributes, |out, attribute| attribute.fingerprint(out));
        }
        fingerprint.list(&self.libraries, |out, library| {
            Strings::fingerprint(Some(&library.name), out);
            Strings::fingerprint(library.version.as_ref(), out);
        });
    }
}

impl SeverityNumber {
    fn matches(self, number: i32) -> bool {
        if number == 0 { self.match_undefined } else { number >= self.min }
    }
}

/// The kinds of spans that a strict match may name, and the one that is none of them.
pub(crate) const SPAN_KINDS: [&str; 6] = [
    "SPAN_KIND_UNSPECIFIED",
    "SPAN_KIND_INTERNAL",
    "SPAN_KIND_SERVER",
    "SPAN_KIND_CLIENT",
    "SPAN_KIND_PRODUCER",
    "SPAN_KIND_CONSUMER",
];

/// `include` and `exclude` together, for one signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) include: Option<Properties>,
    pub(crate) exclude: Option<Properties>,
}

/// Hands the attributes of selected items to `edit`. Decides from the outside in: the properties of
/// the resource and the scope are checked once for all their items.
pub(crate) struct Selecting<'s, E> {
    selection: &'s Selection,
    edit: E,
    /// Whether the resource, scope and metric at hand match `exclude`.
    excluded_by_resource: bool,
    excluded_by_scope: bool,
    excluded_by_metric: bool,
}

impl Selection {
    pub(crate) fn start<E: FnMut(&mut Attributes<'_>)>(&self, edit: E) -> Selecting<'_, E> {
        Selecting {
            selection: self,
            edit,
            excluded_by_resource: false,
            excluded_by_scope: false,
            excluded_by_metric: true,
        }
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for properties in [&self.include, &self.exclude] {
            fingerprint.add(if properties.is_some() { "given" } else { "absent" });
            if let Some(properties) = properties {
                properties.fingerprint(fingerprint);
            }
        }
    }
}

impl<E: FnMut(&mut Attributes<'_>)> ItemEditor for Selecting<'_, E> {
    fn resource(&mut self, resource: &Attributes<'_>) -> bool {
        self.excluded_by_resource = self.excludes(|exclude| exclude.matches_resource(resource));
        self.includes(|include| include.matches_resource(resource))
    }

    fn scope(&mut self, scope: View<'_>) -> bool {
        self.excluded_by_scope =
            self.excluded_by_resource && self.excludes(|exclude| exclude.matches_scope(scope));
        self.includes(|include| include.matches_scope(scope))
    }

    fn metric(&mut self, metric: View<'_>) -> bool {
        self.excluded_by_metric = self.excludes(|exclude| exclude.matches_metric(metric));
        self.includes(|include| include.matches_metric(metric))
    }

    fn item(&mut self, item: View<'_>, attributes: &mut Attributes<'_>) {
        let excluded = self.excluded_by_scope
            && self.excluded_by_metric
            && self.excludes(|exclude| exclude.matches_item(item, attributes));
        if !excluded && self.includes(|include| include.matches_item(item, attributes)) {
            (self.edit)(attributes);
        }
    }
}

impl<E> Selecting<'_, E> {
    fn includes(&self, matches: impl FnOnce(&Properties) -> bool) -> bool {
        self.selection.include.as_ref().is_none_or(matches)
    }

    fn excludes(&self, matches: impl FnOnce(&Properties) -> bool) -> bool {
        self.selection.exclude.as_ref().is_some_and(matches)
    }
}
