//! `headers_setter`: headers of requests to backends, fixed or from the senders' metadata.

mod client;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use http::HeaderName;
use sluice_config::{ComponentKind, Fields, Kind, Secret};

use crate::extension::{ClientExtension, Extension};

use client::HeadersSetter;

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "headers_setter",
        "Headers of requests to backends, from the senders' request metadata.",
    ),
    |fields| {
        let config = Config::read(fields);
        let metadata_keys =
            config.headers.iter().filter_map(|rule| rule.from_context.clone()).collect();
        let client = ClientExtension {
            builds_on: config.additional_auth.clone(),
            is_foundation: false,
            build: Box::new(move |others| Ok(Arc::new(HeadersSetter::new(&config, others)?))),
        };
        Extension { client: Some(client), metadata_keys, ..Extension::default() }
    },
);

#[derive(Debug)]
struct Config {
    headers: Vec<HeaderRule>,
    /// Another extension whose headers are set first.
    additional_auth: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderAction {
    Insert,
    Update,
    Upsert,
    Delete,
}

#[derive(Clone, Debug)]
struct HeaderRule {
    action: HeaderAction,
    key: HeaderName,
    value: Option<Secret>,
    /// Name of request metadata, in lower case.
    from_context: Option<String>,
    default_value: Option<Secret>,
}

const ACTIONS: [(&str, HeaderAction); 4] = [
    ("insert", HeaderAction::Insert),
    ("update", HeaderAction::Update),
    ("upsert", HeaderAction::Upsert),
    ("delete", HeaderAction::Delete),
];

impl Config {
    fn read(fields: &mut Fields<'_>) -> Config {
        let doc = "Rules that set or delete headers, applied in this order.";
        let headers = fields.sections("headers", doc, read_rule);
        let doc = "Another authentication extension whose headers are set first.";
        let additional_auth = fields.optional_string("additional_auth", doc);
        if !fields.is_given("headers") || fields.is_empty_list("headers") {
            fields.error_missing("headers");
        }
        Config { headers: headers.into_iter().flatten().collect(), additional_auth }
    }
}

fn read_rule(fields: &mut Fields<'_>) -> Option<HeaderRule> {
    let doc = "`insert` sets the header if it is absent, `update` if it is present, `upsert` in \
               both cases; `delete` removes it.";
    let action = fields.choice("action", HeaderAction::Upsert, &ACTIONS, doc);
    let key = fields.required_string("key", "Name of the header.");
    let value = fields.secret("value", "A fixed value.");
    let doc = "Name of the sender's request metadata (header) that holds the value.";
    let from_context = fields.optional_string("from_context", doc);
    let doc = "The value if the sender's request has no such metadata.";
    let default_value = fields.secret("default_value", doc);
    fields.not_yet("value_file", "header values from files");
    fields.not_yet("from_attribute", "header values from authentication attributes");
    let has_one_source = value.is_some() != from_context.is_some();
    if action != HeaderAction::Delete && !has_one_source && !fields.is_describing() {
        fields.error("needs exactly one of `value` and `from_context`");
    }
    let name = HeaderName::try_from(&key).ok();
    if name.is_none() && !key.is_empty() {
        fields.error_at("key", "is no header name");
    }
    let from_context = from_context.map(|name| name.to_ascii_lowercase());
    if from_context.as_deref().is_some_and(|name| name.starts_with("auth.")) {
        let message = "yields nothing: attributes of an authenticated client (`auth.`) are not in \
                       this build of Sluice, and no sender may choose them; to know tenants \
                       apart, give each a receiver of its own and a fixed `value`";
        fields.warn_at("from_context", message);
        let (value, default_value) = (default_value, None);
        return name.map(|key| HeaderRule {
            action,
            key,
            value,
            from_context: None,
            default_value,
        });
    }
    name.map(|key| HeaderRule { action, key, value, from_context, default_value })
}
