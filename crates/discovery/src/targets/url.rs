//! The URL of a target, as Go writes it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{METRICS_PATH, PARAM_PREFIX, SCHEME};
use crate::group::ADDRESS;
use crate::labels::{Labels, Text};

/// Characters of a query that are written as codes.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The same of a path. Go leaves an `@`, too: here what stands before it would be a user.
const PATH: &AsciiSet = &QUERY
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=');

/// `params`: of the job. The label `__param_NAME` takes the place of the first value.
pub(super) fn of(labels: &Labels, params: &[(Text, Vec<Text>)]) -> String {
    let mut query: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, values) in params {
        query.entry(name).or_default().extend(values.iter().map(|value| &**value));
    }
    for label in labels.iter() {
        let Some(name) = label.name.strip_prefix(PARAM_PREFIX) else { continue };
        let values = query.entry(name).or_default();
        match values.first_mut() {
            Some(first) => *first = &label.value,
            None => values.push(&label.value),
        }
    }
    let path = labels.get(METRICS_PATH);
    let slash = if path.is_empty() || path.starts_with('/') { "" } else { "/" };
    let path = utf8_percent_encode(path, PATH);
    let mut url = format!("{}://{}{slash}{path}", labels.get(SCHEME), labels.get(ADDRESS));
    let mut separator = '?';
    for (name, values) in query {
        for value in values {
            let _ = write!(url, "{separator}{}={}", encoded(name), encoded(value));
            separator = '&';
        }
    }
    url
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, QUERY).to_string().replace("%20", "+")
}
