//! Lines at the beginning of a file that say something of all of its records.
//!
//! They are read from the file's beginning whenever they are needed, also after a restart or in a
//! compressed file: the checkpoint has nothing of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_config::{Fields, Pattern};
use sluice_operators::{Chain, ChainConfig, Failure, Origin, Record};
use sluice_otlp::AnyValue;
use sluice_tail::{Charset, FileId, Shown, Tail, Turn};

use super::attributes::Attributes;
use super::counters::Counters;

/// The longest header. Less than a window, so that its end is always in the window.
const HEADER_BYTES: usize = 64 << 10;
/// Pause before a file is tried again that could not be read.
const PAUSE: Duration = Duration::from_secs(1);
/// Headers that are kept.
pub(crate) const CACHED_HEADERS: usize = 128;

#[derive(Clone)]
pub struct HeaderConfig {
    /// Lines that it matches are the header.
    pattern: Pattern,
    /// The attributes that come out of them are those of all records. None: [`HEADER_TEXT`] is.
    operators: Option<ChainConfig>,
}

/// The attribute that is a header's text.
pub(crate) const HEADER_TEXT: &str = "log.file.header";

impl HeaderConfig {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Option<HeaderConfig> {
        let doc = "The first lines of a file that it matches are its header. Required.";
        let pattern = fields.parsed("pattern", "a regular expression", None, doc, Pattern::new);
        if pattern.is_none() && !fields.is_given("pattern") {
            fields.error_missing("pattern");
        }
        let key = "metadata_operators";
        let doc = "Operators that parse each line of the header. The attributes that come out are \
                   those of all records of the file. Required.";
        let operators = Chain::read(fields, key, doc);
        if !fields.is_given(key) || fields.is_empty_list(key) {
            fields.error_missing(key);
        }
        Some(HeaderConfig { pattern: pattern?, operators: Some(operators) })
    }

    /// The last of the first lines that match gives its text, as the attribute [`HEADER_TEXT`].
    pub(crate) fn text_of(pattern: Pattern) -> HeaderConfig {
        HeaderConfig { pattern, operators: None }
    }
}

/// A header, as far as the file has it.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// Bytes of its lines.
    len: u64,
    attributes: Attributes,
    /// No further line of it can follow.
    is_whole: bool,
    errors: u64,
    failure: Option<Failure>,
}

/// The headers of files.
pub(crate) struct Headers {
    config: HeaderConfig,
    charset: Charset,
    counters: Arc<Counters>,
    whole: HashMap<FileId, Found>,
}

impl Headers {
    pub(crate) fn new(config: HeaderConfig, charset: Charset, counters: Arc<Counters>) -> Headers {
        Headers { config, charset, counters, whole: HashMap::new() }
    }

    /// Leaves the header out of what is read of the file, whose turn it is. Returns the attributes
    /// that it gives.
    ///
    /// # Errors
    /// Further lines of it may follow, so that no record can be read yet: the end of the turn.
    pub(crate) fn pass(
        &mut self,
        tail: &mut Tail,
        id: FileId,
        window_bytes: usize,
        now: Instant,
    ) -> Result<Attributes, Turn> {
        while !self.whole.contains_key(&id) {
            let Ok((bytes, is_flushed)) = tail.beginning(id, HEADER_BYTES) else {
                tail.again(id, now, PAUSE);
                return Err(Turn::Over);
            };
            let mut found = self.find(&bytes, is_flushed);
            Counters::add(&self.counters.operator_errors, found.errors);
            if let Some(Failure { operator, reason }) = found.failure.take() {
                let path = tail.path(id).map(|path| Shown(path).to_string());
                tracing::warn!(path, operator, reason, "an operator failed on a file's header");
            }
            if found.is_whole {
                if self.whole.len() >= CACHED_HEADERS {
                    self.whole.clear();
                }
                self.whole.insert(id, found);
                break;
            }
            tail.skip_to(id, found.len);
            match tail.fill(id, window_bytes, now) {
                Turn::Lines => {}
                outcome => return Err(outcome),
            }
        }
        let found = &self.whole[&id];
        tail.skip_to(id, found.len);
        Ok(found.attributes.clone())
    }

    /// The header at the beginning of these bytes. `is_flushed`: their last line has no end, and
    /// will have none.
    fn find(&self, bytes: &[u8], is_flushed: bool) -> Found {
        let mut chain = self.config.operators.as_ref().map(ChainConfig::build);
        let mut records = Vec::new();
        let (mut found, mut at) = (Found::default(), 0);
        loop {
            let rest = &bytes[at..];
            let (text, next) = match self.charset.line(rest) {
                Some((stop, next)) => (&rest[..stop], next),
                None if is_flushed && !rest.is_empty() => (rest, rest.len()),
                None => break,
            };
            let text = self.charset.decode(text);
            let text = String::from_utf8_lossy(&text);
            let text = text.trim_matches(['\r', '\n']);
            if !self.config.pattern.regex().is_match(text) {
                found.is_whole = true;
                break;
            }
            at += next;
            let origin = Origin { stream: 0, range: 0..0 };
            let text = AnyValue::String(text.to_owned());
            match &mut chain {
                Some(chain) => chain.process(Record::new(text, 0, origin), &mut records),
                None => found.attributes = vec![(HEADER_TEXT.to_owned(), text)],
            }
        }
        if let Some(chain) = &mut chain {
            chain.flush(Duration::MAX, &mut records);
            (found.errors, found.failure) = (chain.counts().errors, chain.take_failure());
        }
        for (key, value) in records.into_iter().flat_map(|record| record.attributes) {
            match found.attributes.iter_mut().find(|(known, _)| *known == key) {
                Some(known) => known.1 = value,
                None => found.attributes.push((key, value)),
            }
        }
        found.len = at as u64;
        found.is_whole |= bytes.len() >= HEADER_BYTES;
        found
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::load::read_text;

    use super::*;

    const PARSED: &str = "pattern: '^#', metadata_operators: [{type: regex_parser, \
                          regex: '^#(?P<key>[a-z]+):(?P<value>.*)$'}]";

    fn headers(options: &str, charset: &str) -> Headers {
        let (config, diagnostics) =
            read_text("receivers.filelog.header", &format!("{{{options}}}"), HeaderConfig::read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let charset = Charset::named(charset).expect("is known");
        Headers::new(config.expect("is read"), charset, Arc::default())
    }

    /// Length, wholeness, and the texts of `key` and `value`.
    fn found(content: &str, is_flushed: bool) -> (u64, bool, Vec<String>) {
        let found = headers(PARSED, "utf-8").find(content.as_bytes(), is_flushed);
        let texts = found.attributes.into_iter().map(|(_, value)| match value {
            AnyValue::String(text) => text,
            other => panic!("{other:?}"),
        });
        (found.len, found.is_whole, texts.collect())
    }

    #[test]
    fn a_header_ends_before_the_first_line_that_is_none_of_it() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(found("#a:b\nx\n#c:d\n", false), (5, true, texts(&["a", "b"])));
        assert_eq!(found("#a:b\r\n#c:d\r\nx", false), (12, false, texts(&["c", "d"])));
        assert_eq!(found("#a:b\nx", true), (5, true, texts(&["a", "b"])));
        assert_eq!(found("#a:b\n#c:d", false), (5, false, texts(&["a", "b"])));
        assert_eq!(found("#a:b\n#c:d", true), (9, false, texts(&["c", "d"])));
        assert_eq!(found("x\n#a:b\n", false), (0, true, texts(&[])));
        assert_eq!(found("\n#a:b\n", false), (0, true, texts(&[])));
        assert_eq!(found("", false), (0, false, texts(&[])));
    }

    #[test]
    fn a_line_that_its_operators_cannot_parse_is_of_the_header_all_the_same() {
        let found = headers(PARSED, "utf-8").find(b"#\n#a:b\n#?\nx\n", false);
        assert_eq!((found.len, found.errors, found.attributes.len()), (10, 2, 2));
        assert_eq!(found.failure.expect("is told").operator, "regex_parser");
    }

    #[test]
    fn a_header_has_the_encoding_of_its_file() {
        let wide: Vec<u8> = "#ä:b\n#c:ö\nx\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
        let found = headers(PARSED, "utf-16be").find(&wide, false);
        assert_eq!((found.len, found.is_whole), (20, true));
        assert_eq!(found.attributes[1].1, AnyValue::String("ö".to_owned()));
    }

    #[test]
    fn a_header_has_an_end() {
        let lines = "#a:b\n".repeat(HEADER_BYTES);
        let found = headers(PARSED, "utf-8").find(&lines.as_bytes()[..HEADER_BYTES], false);
        assert_eq!((found.len, found.is_whole), (HEADER_BYTES as u64 / 5 * 5, true));
        let long = "#".repeat(HEADER_BYTES);
        assert_eq!(headers(PARSED, "utf-8").find(long.as_bytes(), false).len, 0);
    }
}
