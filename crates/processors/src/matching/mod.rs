//! `include` and `exclude`: which items an action is for. They mean what they mean in the Collector
//! 0.160.

mod attributes;
mod config;
mod strings;

use sluice_otlp::{Attributes, Item, Metric, Resource, Scope, Signal, Value};

pub(crate) use attributes::AttributeMatcher;
pub(crate) use config::read;
pub(crate) use strings::Strings;

use crate::fingerprint::Fingerprint;
use crate::text::text_of;

/// What an item has to be. Every property that is given must match; of a list of strings one is
/// enough.
#[derive(Clone, Debug, Default)]
pub(crate) struct Properties {
    /// Against the resource's `service.name`.
    pub services: Option<Strings>,
    pub span_names: Option<Strings>,
    /// Against `SPAN_KIND_SERVER` and so on.
    pub span_kinds: Option<Strings>,
    pub log_bodies: Option<Strings>,
    pub log_severity_texts: Option<Strings>,
    pub log_severity_number: Option<SeverityNumber>,
    pub metric_names: Option<Strings>,
    /// Of the item. All must match.
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

impl Properties {
    pub(crate) fn matches_resource(&self, resource: Resource<'_>) -> bool {
        let is_service = |services: &Strings| match resource.attribute(b"service.name") {
            Some(name) => services.match_text(text_of(name).as_bytes()),
            None => services.match_text(b"<nil-service-name>"),
        };
        self.services.as_ref().is_none_or(is_service)
            && attributes::all_match(&self.resources, resource.attributes())
    }

    pub(crate) fn matches_scope(&self, scope: Scope<'_>) -> bool {
        self.libraries.iter().all(|library| {
            library.name.match_text(scope.name())
                && library
                    .version
                    .as_ref()
                    .is_none_or(|version| version.match_text(scope.version()))
        })
    }

    pub(crate) fn matches_metric(&self, metric: Metric<'_>) -> bool {
        self.metric_names.as_ref().is_none_or(|names| names.match_text(metric.name()))
    }

    pub(crate) fn matches_item(&self, item: Item<'_>, item_attributes: &Attributes<'_>) -> bool {
        let Properties { span_names, span_kinds, log_bodies, log_severity_texts, .. } = self;
        span_names.as_ref().is_none_or(|names| names.match_text(item.span_name()))
            && span_kinds
                .as_ref()
                .is_none_or(|kinds| kinds.match_text(kind_name(item.span_kind()).as_bytes()))
            && log_bodies.as_ref().is_none_or(|bodies| body_matches(bodies, item))
            && log_severity_texts
                .as_ref()
                .is_none_or(|texts| texts.match_text(item.severity_text()))
            && self.log_severity_number.is_none_or(|number| number.matches(item.severity_number()))
            && attributes::all_match(&self.attributes, item_attributes)
    }

    /// Only those properties that items of this signal have.
    #[must_use]
    pub(crate) fn for_signal(mut self, signal: Signal) -> Properties {
        if signal != Signal::Traces {
            (self.services, self.span_names, self.span_kinds) = (None, None, None);
        }
        if signal != Signal::Logs {
            (self.log_bodies, self.log_severity_texts, self.log_severity_number) =
                (None, None, None);
        }
        if signal == Signal::Metrics {
            self.attributes.clear();
            self.libraries.clear();
        } else {
            self.metric_names = None;
        }
        self
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        let Properties { services, span_names, span_kinds, .. } = self;
        let Properties { log_bodies, log_severity_texts, metric_names, .. } = self;
        let strings =
            [services, span_names, span_kinds, log_bodies, log_severity_texts, metric_names];
        fingerprint.list(&strings, |fingerprint, strings| {
            Strings::fingerprint(strings.as_ref(), fingerprint)
        });
        let severity = self
            .log_severity_number
            .map(|severity| format!("{} {}", severity.min, severity.match_undefined));
        fingerprint.optional(severity.as_deref().map(str::as_bytes));
        for attributes in [&self.attributes, &self.resources] {
            fingerprint
                .list(attributes, |fingerprint, attribute| attribute.fingerprint(fingerprint));
        }
        fingerprint.list(&self.libraries, |fingerprint, library| {
            Strings::fingerprint(Some(&library.name), fingerprint);
            Strings::fingerprint(library.version.as_ref(), fingerprint);
        });
    }
}

impl SeverityNumber {
    fn matches(self, number: i32) -> bool {
        if number == 0 { self.match_undefined } else { number >= self.min }
    }
}

fn body_matches(bodies: &Strings, item: Item<'_>) -> bool {
    let body = item.body();
    bodies.match_text(text_of(Value::read(&body)).as_bytes())
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

fn kind_name(kind: i32) -> &'static str {
    usize::try_from(kind).ok().and_then(|kind| SPAN_KINDS.get(kind)).copied().unwrap_or("")
}

/// `include` and `exclude` together, for one signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) include: Option<Properties>,
    pub(crate) exclude: Option<Properties>,
}

/// Decides from the outside in: what the resource and the scope say is found out once for all their
/// items.
#[derive(Clone, Copy)]
pub(crate) struct Selecting<'s> {
    selection: &'s Selection,
    /// Whether the resource, scope and metric at hand have what `exclude` asks of them.
    excluded_by_resource: bool,
    excluded_by_scope: bool,
    excluded_by_metric: bool,
}

impl Selection {
    pub(crate) fn start(&self) -> Selecting<'_> {
        Selecting {
            selection: self,
            excluded_by_resource: false,
            excluded_by_scope: false,
            excluded_by_metric: true,
        }
    }

    pub(crate) fn fingerprint(&self, fingerprint: &mut Fingerprint) {
        for properties in [&self.include, &self.exclude] {
            fingerprint.text(if properties.is_some() { "given" } else { "absent" });
            if let Some(properties) = properties {
                properties.fingerprint(fingerprint);
            }
        }
    }
}

impl Selecting<'_> {
    /// False if no item of the resource can be selected.
    pub(crate) fn resource(&mut self, resource: Resource<'_>) -> bool {
        self.excluded_by_resource = self.excludes(|exclude| exclude.matches_resource(resource));
        self.includes(|include| include.matches_resource(resource))
    }

    pub(crate) fn scope(&mut self, scope: Scope<'_>) -> bool {
        self.excluded_by_scope =
            self.excluded_by_resource && self.excludes(|exclude| exclude.matches_scope(scope));
        self.includes(|include| include.matches_scope(scope))
    }

    pub(crate) fn metric(&mut self, metric: Metric<'_>) -> bool {
        self.excluded_by_metric = self.excludes(|exclude| exclude.matches_metric(metric));
        self.includes(|include| include.matches_metric(metric))
    }

    pub(crate) fn item(&self, item: Item<'_>, attributes: &Attributes<'_>) -> bool {
        let excluded = self.excluded_by_scope
            && self.excluded_by_metric
            && self.excludes(|exclude| exclude.matches_item(item, attributes));
        !excluded && self.includes(|include| include.matches_item(item, attributes))
    }

    fn includes(&self, matches: impl FnOnce(&Properties) -> bool) -> bool {
        self.selection.include.as_ref().is_none_or(matches)
    }

    fn excludes(&self, matches: impl FnOnce(&Properties) -> bool) -> bool {
        self.selection.exclude.as_ref().is_some_and(matches)
    }
}
