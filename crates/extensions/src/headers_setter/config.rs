use http::HeaderName;
use sluice_config::{Fields, Secret};

/// Options of `headers_setter`.
#[derive(Clone, Debug, Default)]
pub struct Config {
    pub headers: Vec<HeaderRule>,
    /// Another extension whose headers are set first.
    pub additional_auth: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    /// Only if the request does not have the header.
    Insert,
    /// Only if it has.
    Update,
    Upsert,
    Delete,
}

/// What is done with one header.
#[derive(Clone, Debug)]
pub struct HeaderRule {
    pub action: HeaderAction,
    pub key: HeaderName,
    pub value: Option<Secret>,
    /// Name of request metadata, in lower case.
    pub from_context: Option<String>,
    pub default_value: Option<Secret>,
}

const ACTIONS: [(&str, HeaderAction); 4] = [
    ("insert", HeaderAction::Insert),
    ("update", HeaderAction::Update),
    ("upsert", HeaderAction::Upsert),
    ("delete", HeaderAction::Delete),
];

impl Config {
    pub fn read(fields: &mut Fields<'_>) -> Config {
        let headers = fields.sections(
            "headers",
            "What is done with which headers, in this order.",
            read_rule,
        );
        let additional_auth = fields.optional_string(
            "additional_auth",
            "Another authentication extension whose headers are set first.",
        );
        Config { headers: headers.into_iter().flatten().collect(), additional_auth }
    }
}

fn read_rule(fields: &mut Fields<'_>) -> Option<HeaderRule> {
    let action = fields.choice(
        "action",
        HeaderAction::Upsert,
        &ACTIONS,
        "`insert`: only if absent; `update`: only if there; `upsert`: either way; `delete`.",
    );
    let key = fields.required_string("key", "Name of the header.");
    let value = fields.secret("value", "A fixed value.");
    let from_context = fields
        .optional_string("from_context", "The request metadata of the sender that has the value.");
    let default_value =
        fields.secret("default_value", "The value where the sender's request did not have it.");
    fields.not_yet("value_file", "header values from files");
    fields.not_yet("from_attribute", "header values from authentication attributes");
    let sources = usize::from(value.is_some()) + usize::from(from_context.is_some());
    if action != HeaderAction::Delete && sources != 1 && !fields.is_describing() {
        fields.error("needs exactly one of `value` and `from_context`");
    }
    let name = HeaderName::try_from(key.as_str()).ok();
    if name.is_none() && !key.is_empty() {
        fields.error_at("key", "is no header name");
    }
    let from_context = from_context.map(|name| name.to_ascii_lowercase());
    name.map(|key| HeaderRule { action, key, value, from_context, default_value })
}
