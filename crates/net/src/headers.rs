//! Headers that may have only one value, and those that the configuration adds.

use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::Fields;

/// There are several different values. It is unknown which of them a proxy before Sluice has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differing;

/// The value of a header, which may be repeated. `None`: it is not there.
pub fn sole<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, Differing> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.all(|other| Some(other) == value) { Ok(value) } else { Err(Differing) }
}

/// Reads a map of headers, whose values are secrets. Those that the protocol sets itself, which are
/// `reserved` or begin with a colon, are errors.
pub fn read(fields: &mut Fields<'_>, key: &str, doc: &str, reserved: &[&str]) -> HeaderMap {
    let given = fields.secret_map(key, doc);
    let mut headers = HeaderMap::with_capacity(given.len());
    for (name, value) in given {
        let lower = name.to_ascii_lowercase();
        let problem = match (HeaderName::try_from(&lower), HeaderValue::from_str(value.expose())) {
            _ if reserved.contains(&lower.as_str()) || lower.starts_with(':') => {
                format!("cannot set `{name}`: the protocol does")
            }
            (Ok(header), Ok(value)) => {
                headers.insert(header, value);
                continue;
            }
            (Err(_), _) => format!("has `{name}`, which is no header name"),
            (_, Err(_)) => {
                format!("has a value for `{name}` with characters that no header may have")
            }
        };
        fields.error_at(key, &problem);
    }
    headers
}
