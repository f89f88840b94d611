//! Messages of RFC 3164, behind their priority: `Jan  2 15:04:05 host app[1]: text`.

use sluice_otlp::AnyValue;

use super::{Message, add, word};
use crate::parsers::time::{Location, days_since_1970, recent};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `now_ns` decides the year. In a frame with a length the text may have several lines.
pub(super) fn read(
    text: &str,
    location: &Location,
    now_ns: i64,
    has_lines: bool,
) -> Result<Message, String> {
    let text = text.trim_start_matches(' ');
    let (stamp, rest) = text.split_at_checked(15).ok_or("the message ends before its time")?;
    let time_ns = time(stamp, location, now_ns)
        .ok_or_else(|| format!("`{stamp}` is not a time as `Jan  2 15:04:05`"))?;
    let rest = if has_lines { rest } else { rest.strip_suffix('\n').unwrap_or(rest) };
    let is_visible = |byte: u8| {
        byte == b'\t' || byte >= b' ' && byte != 0x7f || has_lines && matches!(byte, b'\n' | b'\r')
    };
    if !rest.bytes().all(is_visible) {
        return Err("the message has a control character".to_owned());
    }
    let content = rest.trim_start_matches(' ');
    if content.len() == rest.len() || content.is_empty() {
        return Err("there is no message behind the time".to_owned());
    }
    let mut message = Message { time_ns: Some(time_ns), ..Message::default() };
    let host =
        word(content, 255).filter(|(host, behind)| !host.contains(':') && behind.starts_with(' '));
    let content = host.map_or(content, |(host, behind)| {
        add(&mut message.values, "hostname", host);
        // As in the Collector, a lone word is the text as well.
        Some(behind.trim_start_matches(' ')).filter(|it| !it.is_empty()).unwrap_or(content)
    });
    let (tag, process, text) = split_tag(content).unwrap_or(("", "", content));
    add(&mut message.values, "appname", tag);
    add(&mut message.values, "proc_id", process);
    if !text.is_empty() {
        message.values.push(("message".to_owned(), AnyValue::String(text.to_owned())));
    }
    Ok(message)
}

/// `TAG: TEXT` or `TAG[PROCESS]: TEXT`. Where no text follows in this form, all is the text, also
/// the tag. Nothing if the content does not begin with a tag.
fn split_tag(content: &str) -> Option<(&str, &str, &str)> {
    let in_tag = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b':' | b'[');
    let length = content.bytes().take_while(|byte| in_tag(byte)).count();
    if !(1..=48).contains(&length) {
        return None;
    }
    let (tag, rest) = content.split_at(length);
    let (process, rest) = match rest.strip_prefix('[') {
        Some(rest) => {
            let process = rest.split_once(']').filter(|(process, _)| !process.contains('['));
            process.unwrap_or(("", ""))
        }
        None if rest.starts_with(':') => ("", rest),
        None => return None,
    };
    let text = rest.strip_prefix(": ").filter(|text| !text.is_empty());
    Some((tag, process, text.unwrap_or(content)))
}

/// `Jan  2 15:04:05`, where the day may also have a zero before it.
fn time(stamp: &str, location: &Location, now_ns: i64) -> Option<i64> {
    let bytes = stamp.as_bytes();
    let month = (1..).zip(MONTHS).find(|(_, name)| bytes.starts_with(name.as_bytes()))?.0;
    let number = |place: usize| match bytes[place..place + 2] {
        [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
            Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
        }
        [b' ', ones @ b'0'..=b'9'] if place == 4 => Some(i64::from(ones - b'0')),
        _ => None,
    };
    let (day, hour, minute, second) = (number(4)?, number(7)?, number(10)?, number(13)?);
    let marks = [(3, b' '), (6, b' '), (9, b':'), (12, b':')];
    // A leap year: February may have 29 days.
    let length = days_since_1970(2000, month + 1, 1) - days_since_1970(2000, month, 1);
    let fits = marks.iter().all(|(place, mark)| bytes[*place] == *mark)
        && (1..=length).contains(&day)
        && hour < 24
        && minute < 60
        && second < 60;
    if !fits {
        return None;
    }
    let unix = |year| {
        let days = days_since_1970(year, month, 1) + day - 1;
        Ok(location.unix(((days * 24 + hour) * 60 + minute) * 60 + second))
    };
    recent(now_ns, unix).ok()?.checked_mul(1_000_000_000)
}
