//! The contract of detectors: the surroundings in, attributes out.

use std::collections::BTreeMap;
use std::fmt::Debug;

use sluice_config::Fields;
use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::surroundings::Surroundings;

/// The schema that the names of attributes are taken from.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.40.0";

/// Finds attributes of one kind of surroundings. Its debug text says all that decides on them.
pub(super) trait Detector: Send + Sync + Debug {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected>;

    /// Whether missing metadata is an error, whatever the processor's own option says.
    fn fails_on_missing(&self) -> bool {
        false
    }
}

pub(super) type Detected = Result<Resource, Failure>;

/// The reason for which nothing is detected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The process does not seem to be where the detector looks for it.
    Missing(String),
    /// It may work the next time.
    Broken(String),
    /// It will not.
    Final(String),
}

/// Attributes that are detected.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resource {
    /// Each key once.
    pub(super) attributes: Vec<(String, AnyValue)>,
    /// Empty: none.
    pub(super) schema_url: &'static str,
    /// Reasons for which some attributes are not there.
    pub(super) lacks: Vec<String>,
}

impl Resource {
    /// Takes what it does not have yet.
    pub(super) fn merge(&mut self, other: Resource) {
        for (key, value) in other.attributes {
            if !self.attributes.iter().any(|(known, _)| *known == key) {
                self.attributes.push((key, value));
            }
        }
        if self.schema_url.is_empty() {
            self.schema_url = other.schema_url;
        }
    }
}

/// Attributes of a detector, and whether each is wanted.
#[derive(Clone, Debug)]
pub(super) struct Enabled(BTreeMap<&'static str, bool>);

impl Enabled {
    /// Reads `resource_attributes`. `known`: the attributes, and whether they are on by default.
    pub(super) fn read(fields: &mut Fields<'_>, known: &'static [(&'static str, bool)]) -> Enabled {
        let mut enabled = Enabled(known.iter().copied().collect());
        let doc = "Attributes by their names: see [Attributes](#attributes).";
        fields.named_sections("resource_attributes", doc, |name, fields| {
            let known = known.iter().find(|(known, _)| *known == name);
            let doc = "Add it. The table above has what is added by default.";
            let is_on = fields.boolean("enabled", known.is_none_or(|it| it.1), doc);
            match known {
                Some((name, _)) => {
                    enabled.0.insert(name, is_on);
                }
                None if fields.is_describing() => {}
                None => {
                    let names: Vec<&str> = enabled.0.keys().copied().collect();
                    let hint = format!("its attributes are {}", names.join(", "));
                    fields.error_with_hint("is no attribute of this detector", &hint);
                }
            }
        });
        enabled
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.get(name).copied().unwrap_or(false)
    }

    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// A resource of this detector, without attributes yet.
    pub(super) fn resource(&self) -> Builder<'_> {
        let resource = Resource { schema_url: SCHEMA_URL, ..Resource::default() };
        Builder { enabled: self, resource }
    }
}

/// Takes the attributes that are wanted.
pub(super) struct Builder<'a> {
    enabled: &'a Enabled,
    resource: Resource,
}

impl Builder<'_> {
    pub(super) fn set(&mut self, name: &str, value: AnyValue) {
        if self.enabled.has(name) {
            self.add(name.to_owned(), value);
        }
    }

    pub(super) fn text(&mut self, name: &str, text: impl Into<String>) {
        self.set(name, AnyValue::String(text.into()));
    }

    pub(super) fn texts(&mut self, name: &str, texts: impl IntoIterator<Item = String>) {
        let values = texts.into_iter().map(AnyValue::String).collect();
        self.set(name, AnyValue::Array(values));
    }

    /// A text that may not be there.
    pub(super) fn found(&mut self, name: &str, text: Option<impl Into<String>>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// A text, or the reason for which it is not there.
    pub(super) fn try_text(&mut self, name: &str, text: Result<impl Into<String>, String>) {
        match text {
            Ok(text) => self.text(name, text),
            Err(reason) => self.lacks(reason),
        }
    }

    pub(super) fn lacks(&mut self, reason: String) {
        self.resource.lacks.push(reason);
    }

    /// An attribute whose name is not among those that can be chosen.
    pub(super) fn add(&mut self, name: String, value: AnyValue) {
        self.resource.attributes.push((name, value));
    }

    pub(super) fn done(self) -> Detected {
        Ok(self.resource)
    }
}
