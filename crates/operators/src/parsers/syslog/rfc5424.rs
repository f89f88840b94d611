//! Messages of RFC 5424, behind their priority.

use sluice_otlp::AnyValue;

use super::{Message, add, word};
use crate::parsers::time::rfc3339;
use crate::parsers::values::{Budget, Map, keep_last};

/// `1 TIME HOST APP PROCESS ID [id key="value"] TEXT`
pub(super) fn read(text: &str) -> Result<Message, String> {
    let mut message = Message::default();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (version, mut rest) = text.split_at(digits);
    if version.starts_with('0') || !(1..=3).contains(&digits) {
        return Err("the message has no version from 1 to 999 behind its priority".to_owned());
    }
    let version = AnyValue::Int(version.parse().unwrap_or_default());
    message.values.push(("version".to_owned(), version));
    let stamp;
    (stamp, rest) = part(rest, 64).ok_or("the message has no time behind its version")?;
    if stamp != "-" {
        let wrong = || format!("`{stamp}` is not a time of RFC 5424");
        message.time_ns = Some(time(stamp).ok_or_else(wrong)?);
    }
    let parts = [("hostname", 255), ("appname", 48), ("proc_id", 128), ("msg_id", 32)];
    for (key, longest) in parts {
        let value;
        (value, rest) = part(rest, longest).ok_or_else(|| {
            format!("the message has no `{key}` of up to {longest} visible characters, nor a `-`")
        })?;
        add(&mut message.values, key, value);
    }
    rest = rest.strip_prefix(' ').ok_or("the message ends before its structured data")?;
    rest = match rest.strip_prefix('-') {
        Some(rest) => rest,
        None => {
            let (elements, rest) = structured_data(rest)?;
            message.values.push(("structured_data".to_owned(), AnyValue::Map(elements)));
            rest
        }
    };
    let text = if rest.is_empty() { Some("") } else { rest.strip_prefix(' ') };
    let text = text.ok_or("the message has no space behind its structured data")?;
    if !text.is_empty() {
        message.values.push(("message".to_owned(), AnyValue::String(text.to_owned())));
    }
    Ok(message)
}

/// A space and a word.
fn part(text: &str, longest: usize) -> Option<(&str, &str)> {
    word(text.strip_prefix(' ')?, longest)
}

/// RFC 3339 with a point before up to six digits of a fraction, and an offset of less than a day.
fn time(stamp: &str) -> Option<i64> {
    let is_offset = matches!(
        stamp.as_bytes(),
        [.., b'Z']
            | [.., b'0' | b'1', _, b':', b'0'..=b'5', _]
            | [.., b'2', b'0'..=b'3', b':', b'0'..=b'5', _]
    );
    let fraction = stamp.get(19..)?;
    let digits = fraction
        .strip_prefix('.')
        .map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    rfc3339(stamp).filter(|_| is_offset && digits <= 6 && !fraction.starts_with(','))
}

/// `[id key="value" …]`, once or more, and the text behind.
fn structured_data(text: &str) -> Result<(Map, &str), String> {
    const WRONG: &str = "the structured data is not `[id key=\"value\"]`, once or more, nor a `-`";
    let (mut elements, mut budget) = (Map::new(), Budget::default());
    let mut rest = text;
    while let Some(element) = rest.strip_prefix('[') {
        let (id, mut behind) = name(element).ok_or(WRONG)?;
        let mut parameters = Map::new();
        while let Some(parameter) = behind.strip_prefix(' ') {
            let (key, value) = name(parameter).ok_or(WRONG)?;
            let value = value.strip_prefix("=\"").ok_or(WRONG)?;
            let unescaped;
            (unescaped, behind) = quoted(value).ok_or(WRONG)?;
            budget.take()?;
            parameters.push((key.to_owned(), AnyValue::String(unescaped)));
        }
        keep_last(&mut parameters);
        rest = behind.strip_prefix(']').ok_or(WRONG)?;
        budget.take()?;
        elements.push((id.to_owned(), AnyValue::Map(parameters)));
    }
    let count = elements.len();
    keep_last(&mut elements);
    if elements.len() < count {
        return Err("the structured data has an id twice".to_owned());
    }
    if count == 0 { Err(WRONG.to_owned()) } else { Ok((elements, rest)) }
}

fn name(text: &str) -> Option<(&str, &str)> {
    let in_name = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'=' | b']' | b'"');
    let length = text.bytes().take_while(in_name).count();
    (1..=32).contains(&length).then(|| text.split_at(length))
}

/// The text up to its quote, in which a backslash is before `"`, `]` and `\`.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let end = rest.find(['"', '\\', ']'])?;
        value.push_str(&rest[..end]);
        let mark = rest.as_bytes()[end];
        rest = &rest[end + 1..];
        match mark {
            b'"' => return Some((value, rest)),
            b'\\' => {
                let escaped = rest.chars().next()?;
                if !matches!(escaped, '"' | '\\' | ']') {
                    return None;
                }
                value.push(escaped);
                rest = &rest[1..];
            }
            _ => return None,
        }
    }
}
