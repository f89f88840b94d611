//! Headers that may be said once only.

use http::{HeaderMap, HeaderName, HeaderValue};

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
