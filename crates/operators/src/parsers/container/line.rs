//! One line of a log file of a container.

use std::borrow::Cow;
use std::mem;

use sluice_otlp::AnyValue;

use crate::parsers::Numbers;
use crate::parsers::json_text::{Json, Token};
use crate::parsers::time::rfc3339;
use crate::parsers::values::{Map, excerpt};
use crate::step::Format;

#[derive(Debug)]
pub(in crate::parsers) struct Line<'t> {
    pub(in crate::parsers) time_ns: i64,
    pub(in crate::parsers) stream: Stream,
    pub(in crate::parsers) log: Log<'t>,
}

#[derive(Debug)]
pub(in crate::parsers) enum Stream {
    Stdout,
    Stderr,
    /// Docker's, of any kind.
    Other(AnyValue),
}

#[derive(Debug)]
pub(in crate::parsers) enum Log<'t> {
    /// The log is the text from there, in bytes; the tag `F` ends a log.
    Behind { start: usize, tag: &'t str },
    /// The log, and the other members of Docker's object.
    Text(AnyValue, Map),
}

impl Stream {
    pub(super) fn into_value(self) -> AnyValue {
        match self {
            Stream::Stdout => AnyValue::String("stdout".to_owned()),
            Stream::Stderr => AnyValue::String("stderr".to_owned()),
            Stream::Other(value) => value,
        }
    }
}

impl<'t> Line<'t> {
    /// # Errors
    /// The line does not have the format, or without one, any of the three.
    pub(super) fn read(text: &'t str, format: Option<Format>) -> Result<Line<'t>, String> {
        match format {
            Some(Format::Docker) => Line::docker(text),
            None if text.starts_with('{') => Line::docker(text),
            _ => {
                let wrong = || match format {
                    Some(Format::Crio) => format!("{} is no line of CRI-O", excerpt(text)),
                    Some(_) => format!("{} is no line of containerd", excerpt(text)),
                    None => format!("{} is no line of a container", excerpt(text)),
                };
                Line::cri(text, format).ok_or_else(wrong)?
            }
        }
    }

    /// `TIME STREAM TAG LOG`. Only CRI-O writes times with an offset. Nothing if the line has
    /// another form; an error if only its time is wrong.
    pub(in crate::parsers) fn cri(
        text: &'t str,
        format: Option<Format>,
    ) -> Option<Result<Line<'t>, String>> {
        let time_end = memchr::memchr(b' ', text.as_bytes())?;
        let (time, behind) = (&text[..time_end], &text[time_end + 1..]);
        let is_utc = time.ends_with('Z');
        let fits = match format {
            Some(Format::Containerd) => is_utc,
            Some(_) => !is_utc,
            None => true,
        };
        let stream = match behind.get(..7)? {
            "stdout " => Stream::Stdout,
            "stderr " => Stream::Stderr,
            _ => return None,
        };
        let behind = &behind[7..];
        let tag_end = memchr::memchr(b' ', behind.as_bytes()).unwrap_or(behind.len());
        let log_start = (tag_end + 1).min(behind.len());
        let log = &behind[log_start..];
        if !fits || memchr::memchr(b'\n', log.as_bytes()).is_some() {
            return None;
        }
        let Some(time_ns) = rfc3339(time) else {
            return Some(Err(format!("{} is not a time", excerpt(time))));
        };
        let log = Log::Behind { start: text.len() - log.len(), tag: &behind[..tag_end] };
        Some(Ok(Line { time_ns, stream, log }))
    }

    fn docker(text: &'t str) -> Result<Line<'t>, String> {
        let mut json = Json::new(text, Numbers::Doubles);
        let mut map = json.object()?;
        json.end()?;
        let mut take = |key: &str| {
            let place = map.iter().position(|(name, _)| name == key);
            let missing = || format!("the line has no `{key}`, as lines of Docker have");
            Ok::<AnyValue, String>(map.swap_remove(place.ok_or_else(missing)?).1)
        };
        let time = match take("time")? {
            AnyValue::String(time) => rfc3339(&time).ok_or_else(|| excerpt(&time)),
            _ => Err("`time`".to_owned()),
        };
        let time_ns = time.map_err(|time| format!("{time} is not a time"))?;
        let log = take("log")?;
        let stream = match take("stream")? {
            AnyValue::String(name) if name == "stdout" => Stream::Stdout,
            AnyValue::String(name) if name == "stderr" => Stream::Stderr,
            value => Stream::Other(value),
        };
        Ok(Line { time_ns, stream, log: Log::Text(log, map) })
    }
}

/// Time, whether it is of `stderr`, and log of a line of Docker that has three texts and nothing
/// else. Nothing for any other line.
pub(in crate::parsers) fn docker_texts(text: &str) -> Option<(i64, bool, Cow<'_, str>)> {
    let mut json = Json::new(text, Numbers::Doubles);
    let (mut time, mut log, mut stream) = (None, None, None);
    // `null` is no object.
    json.opens().ok()?.then_some(())?;
    let mut is_first = true;
    while json.more(b'}', mem::take(&mut is_first)).ok()? {
        let place = match &*json.key().ok()? {
            "time" => &mut time,
            "log" => &mut log,
            "stream" => &mut stream,
            _ => return None,
        };
        let Token::Text(value) = json.token(1).ok()? else { return None };
        if place.replace(value).is_some() {
            return None;
        }
    }
    json.end().ok()?;
    let is_stderr = match &*stream? {
        "stdout" => false,
        "stderr" => true,
        _ => return None,
    };
    Some((rfc3339(&time?)?, is_stderr, log?))
}
