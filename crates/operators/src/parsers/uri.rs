//! `uri_parser`: scheme, user, host, port, path and query of a URI become a map.

use std::collections::HashMap;

use sluice_config::Fields;
use sluice_otlp::AnyValue;

use super::parser::Parser;
use super::values::{Budget, Map, excerpt};
use crate::operator::Transform;
use crate::record::Record;

#[derive(Clone)]
struct UriParser(Parser);

pub(crate) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Transform>> {
    Some(Box::new(UriParser(Parser::read(fields)?)))
}

impl Transform for UriParser {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        self.0.apply(record, |text| {
            let mut map = Map::new();
            let read = match text.strip_prefix('?') {
                Some(query) => read_query(query, true, &mut map),
                None => read_uri(text, &mut map),
            };
            read.map_err(|why| format!("{} is no URI: {why}", excerpt(text)))?;
            Ok(AnyValue::Map(map))
        })
    }
}

/// A URI as Go's `url.ParseRequestURI` reads it: absolute, or an absolute path.
fn read_uri(text: &str, map: &mut Map) -> Result<(), &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("it has a control character");
    }
    let add = |map: &mut Map, key: &str, value: String| {
        if !value.is_empty() {
            map.push((key.to_owned(), AnyValue::String(value)));
        }
    };
    let (scheme, rest) = split_scheme(text)?;
    add(map, "scheme", scheme.to_ascii_lowercase());
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !rest.starts_with('/') && rest != "*" {
        if scheme.is_empty() {
            return Err("it has neither a scheme nor an absolute path");
        }
        // `mailto:x`: the rest is opaque, and in no key.
        return read_query(query, false, map);
    }
    let (authority, path) = match rest.strip_prefix("//").filter(|_| !scheme.is_empty()) {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (user_info, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user = user_info.split(':').next().unwrap_or_default();
    if !user_info.bytes().all(|byte| is_unreserved(byte) || b"%!$&'()*+,;=:@".contains(&byte)) {
        return Err("its user has a character that must be escaped");
    }
    const ESCAPE: &str = "it has a `%` without two hexadecimal digits";
    add(map, "user", unescape(user, false).ok_or(ESCAPE)?);
    unescape(user_info, false).ok_or(ESCAPE)?;
    let (host, port) = split_port(host)?;
    add(map, "host", unescape(host, false).ok_or(ESCAPE)?);
    add(map, "port", port.to_owned());
    let decoded = unescape_bytes(path, false).ok_or(ESCAPE)?;
    add(map, "path", escaped_path(path, &decoded));
    read_query(query, false, map)
}

fn split_scheme(text: &str) -> Result<(&str, &str), &'static str> {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    let end = text.bytes().position(|byte| !is_inner(byte)).unwrap_or(text.len());
    match text[end..].strip_prefix(':') {
        Some(_) if end == 0 => Err("it has no scheme before the `:`"),
        Some(rest) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => {
            Ok((&text[..end], rest))
        }
        _ => Ok(("", text)),
    }
}

/// Host, without the brackets of an IPv6 address, and port.
fn split_port(host: &str) -> Result<(&str, &str), &'static str> {
    let (host, port) = match host.strip_prefix('[') {
        Some(address) => address.rsplit_once(']').ok_or("its host has no `]`")?,
        None => {
            let in_host = |byte: u8| {
                is_unreserved(byte) || !byte.is_ascii() || b"!$&'()*+,;=<>\"%".contains(&byte)
            };
            let (host, port) = host.split_at(host.find(':').unwrap_or(host.len()));
            if !host.bytes().all(in_host) {
                return Err("its host has a character that must be escaped");
            }
            (host, port)
        }
    };
    let digits = if port.is_empty() { Some("") } else { port.strip_prefix(':') };
    let digits = digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    Ok((host, digits.ok_or("its port is no number")?))
}

/// The query as a map of lists. Parameters that are wrong are left out, or an error if `strict`.
fn read_query(query: &str, strict: bool, map: &mut Map) -> Result<(), &'static str> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut parameters: Vec<(String, Vec<AnyValue>)> = Vec::new();
    let mut budget = Budget::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        budget.take()?;
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let pair = unescape(key, true).zip(unescape(value, true));
        let Some((key, value)) = pair.filter(|_| !parameter.contains(';')) else {
            if strict {
                return Err("its query has a `;`, or a `%` without two hexadecimal digits");
            }
            continue;
        };
        let place = *places.entry(key).or_insert_with_key(|key| {
            parameters.push((key.clone(), Vec::new()));
            parameters.len() - 1
        });
        parameters[place].1.push(AnyValue::String(value));
    }
    if !parameters.is_empty() {
        let list = |(key, values)| (key, AnyValue::Array(values));
        let parameters = parameters.into_iter().map(list).collect();
        map.push(("query".to_owned(), AnyValue::Map(parameters)));
    }
    Ok(())
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)
}

/// The path as it was, or escaped anew if it has characters that must be escaped.
fn escaped_path(path: &str, decoded: &[u8]) -> String {
    let may_stay = |byte: u8| is_unreserved(byte) || b"!$&'()*+,;=:@[]%/".contains(&byte);
    if path.bytes().all(may_stay) {
        return path.to_owned();
    }
    let mut escaped = String::with_capacity(path.len() * 2);
    for byte in decoded {
        if is_unreserved(*byte) || b"$&+,/:;=@".contains(byte) {
            escaped.push(char::from(*byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

fn unescape(text: &str, is_query: bool) -> Option<String> {
    let bytes = unescape_bytes(text, is_query)?;
    let text = String::from_utf8(bytes);
    Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// Nothing if a `%` has no two digits behind it. In a query, `+` is a space.
fn unescape_bytes(text: &str, is_query: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'%' => {
                let digit = |index: usize| char::from(*behind.get(index)?).to_digit(16);
                rest = behind.get(2..)?;
                (digit(0)? * 16 + digit(1)?) as u8
            }
            b'+' if is_query => b' ',
            byte => *byte,
        });
    }
    Some(bytes)
}
