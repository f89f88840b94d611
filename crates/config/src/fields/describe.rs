//! The documentation of an option.

/// One option, as its read function declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionDoc {
    /// Relative to the component: `protocols.grpc.endpoint`, `attributes[].key`.
    pub path: String,
    /// For people: "string", "integer (1 to 4096)", "one of `gzip`, `zstd`".
    pub kind: String,
    /// As Markdown: "`5s`"; empty if there is none.
    pub default: String,
    /// Sentences in Markdown.
    pub doc: String,
    pub effect: Effect,
}

impl OptionDoc {
    /// The path is set when the option is declared.
    pub(super) fn new(kind: impl Into<String>, default: impl Into<String>, doc: &str) -> Self {
        let (path, effect) = (String::new(), Effect::Used);
        OptionDoc { path, kind: kind.into(), default: default.into(), doc: doc.to_owned(), effect }
    }
}

/// Whether setting an option has an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// Accepted, because Collector files have it, with a warning that gives the reason.
    NoEffect(String),
    /// An error that says that a later release will have it.
    NotYet(String),
}
