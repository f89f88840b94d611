//! The kinds of components. The engine has the list; this crate only reads it.

use sluice_otlp::Signal;

/// The class of a component. It decides the top-level key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    Receiver,
    Processor,
    Exporter,
    Extension,
    Connector,
}

impl Class {
    pub const ALL: [Class; 5] =
        [Class::Receiver, Class::Processor, Class::Exporter, Class::Extension, Class::Connector];

    /// The top-level key: `receivers`, …
    pub const fn key(self) -> &'static str {
        ["receivers", "processors", "exporters", "extensions", "connectors"][self as usize]
    }

    /// `a receiver`, `an exporter`, …
    pub(crate) fn with_article(self) -> String {
        let article = if matches!(self, Class::Exporter | Class::Extension) { "an" } else { "a" };
        format!("{article} {}", self.name())
    }

    /// One of them: `receiver`, …
    pub const fn name(self) -> &'static str {
        let key = self.key();
        key.split_at(key.len() - 1).0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub name: &'static str,
    /// Other names that mean the same.
    pub aliases: &'static [&'static str],
    /// The supported signals. A connector passes on each as the same signal. Unused for extensions.
    pub signals: &'static [Signal],
    /// The text of the error, for a kind that is known but cannot be used.
    pub missing: Option<&'static str>,
    /// One line for `sluice components`.
    pub summary: &'static str,
}

impl Kind {
    /// A kind for all signals, without other names.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        Kind { name, aliases: &[], signals: &Signal::ALL, missing: None, summary }
    }

    #[must_use]
    pub const fn aliases(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

/// The kinds of components in a build.
pub trait Catalog {
    fn kinds(&self, class: Class) -> Vec<Kind>;
}
