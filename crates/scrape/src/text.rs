//! Pages of text: Prometheus 0.0.4, which is lenient, and OpenMetrics 1.0, which is not.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memmem, memrchr};

use crate::error::{ScrapeError, excerpt};
use crate::lex::{self, Mistake, Part, Result, mistake};
use crate::number::{parse_float, parse_seconds};
use crate::series::{AllSeries, Fingerprint};
use sluice_prometheus::Kind;

const NO_END: &str = "the page does not end with # EOF";

/// The next thing on a page.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Kind(Cow<'a, str>, Kind),
    Help(Cow<'a, str>, Cow<'a, str>),
    Unit(Cow<'a, str>, Cow<'a, str>),
    Sample(Sample<'a>),
}

#[derive(Debug)]
pub(crate) struct Sample<'a> {
    /// The text before the value: it identifies the series.
    pub(crate) series: &'a [u8],
    /// If the series is known.
    pub(crate) known: Option<u32>,
    pub(crate) value: f64,
    pub(crate) time_ms: Option<i64>,
    pub(crate) exemplar: Option<Exemplar<'a>>,
}

#[derive(Debug)]
pub(crate) struct Exemplar<'a> {
    /// From behind the opening brace.
    labels: &'a [u8],
    pub(crate) value: f64,
    pub(crate) time_ms: Option<i64>,
}

impl<'a> Exemplar<'a> {
    pub(crate) fn visit(&self, mut label: impl FnMut(&str, &str)) {
        // They were read before: no mistake is left.
        let _ = lex::exemplar_labels(self.labels, 0, &mut |part| {
            if let Part::Label(name, value) = part
                && let (Some(name), Some(value)) =
                    (lex::unescape(name, true), lex::unescape(value, true))
            {
                label(&name, &value);
            }
        });
    }
}

/// Reads a page from its start to its end.
pub(crate) struct Reader<'a> {
    page: &'a [u8],
    at: usize,
    /// OpenMetrics.
    strict: bool,
    /// The type that was read last.
    pub(crate) kind: Kind,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(page: &'a [u8], strict: bool) -> Self {
        Reader { page, at: 0, strict, kind: Kind::Unknown }
    }

    /// The next item. Of a series that is known, only the value is read.
    pub(crate) fn next(&mut self, series: &AllSeries) -> Result<Option<Item<'a>>, ScrapeError> {
        let start = self.at;
        self.read(series).map_err(|found| {
            // A page that ends early is a mistake of its last line.
            let at = found.at.min(self.page.len()).max(start);
            let before = &self.page[..at];
            let line_start = memrchr(b'\n', before).map_or(0, |at| at + 1);
            let line = &self.page[line_start..];
            let line = &line[..memchr(b'\n', line).unwrap_or(line.len())];
            ScrapeError::Line {
                line: memchr_iter(b'\n', before).count() + 1,
                reason: found.reason,
                excerpt: excerpt(line),
            }
        })
    }

    /// The labels of a series that was read: its name, then the others.
    pub(crate) fn labels(
        &self,
        series: &'a [u8],
        mut label: impl FnMut(Cow<'a, str>, Cow<'a, str>),
    ) -> Result<(), &'static str> {
        let mut reason = None;
        let mut text = |bytes: &'a [u8]| -> Cow<'a, str> {
            lex::unescape(bytes, true).unwrap_or_else(|| {
                reason = Some("has a name that is not UTF-8");
                Cow::Borrowed("")
            })
        };
        let read = lex::series(series, 0, self.strict, &mut |part| match part {
            Part::Name(name) => label(crate::labels::NAME.into(), text(name)),
            Part::Label(name, value) => label(text(name), text(value)),
        });
        match (read, reason) {
            (Err(found), _) => Err(found.reason),
            (_, Some(reason)) => Err(reason),
            _ => Ok(()),
        }
    }

    fn read(&mut self, series: &AllSeries) -> Result<Option<Item<'a>>> {
        let expected = series.expected();
        loop {
            if let Some(end) = expected.and_then(|expected| self.end_of(expected)) {
                return self.sample(end, Some(series.expected_id())).map(Some);
            }
            if !self.strict {
                self.at = lex::after_blanks(self.page, self.at);
            }
            match self.page.get(self.at) {
                None if self.strict => return mistake(self.at, NO_END),
                // A zero ends a page of the older format.
                None | Some(0) if !self.strict => return Ok(None),
                Some(b'\n') if !self.strict => self.at += 1,
                Some(b'#') if self.strict => match self.strict_comment()? {
                    None => return Ok(None),
                    item => return Ok(item),
                },
                Some(b'#') => {
                    if let Some(item) = self.comment()? {
                        return Ok(Some(item));
                    }
                }
                _ => {
                    // Most series are known, and end where they seem to: then they need no reading.
                    let likely = self.likely_end();
                    let known = series.find(&self.page[self.at..likely]);
                    if known.is_some() && self.ends_at(likely) {
                        return self.sample(likely, known).map(Some);
                    }
                    let end = lex::series(self.page, self.at, self.strict, &mut |_| {})?;
                    let found = match end == likely {
                        true => known,
                        false => series.find(&self.page[self.at..end]),
                    };
                    return self.sample(end, found).map(Some);
                }
            }
        }
    }

    /// The end of this series, if it starts here.
    fn end_of(&self, expected: &Fingerprint) -> Option<usize> {
        let end = self.at + expected.len();
        let raw = self.page.get(self.at..end)?;
        (self.ends_at(end) && Fingerprint::of(raw) == *expected).then_some(end)
    }

    /// The end of the series that starts here, if its labels and its exemplar are ordinary ones.
    fn likely_end(&self) -> usize {
        let line = &self.rest()[..memchr(b'\n', self.rest()).unwrap_or(self.rest().len())];
        let exemplar = if self.strict { memmem::find(line, b" # {") } else { None };
        match memrchr(b'}', &line[..exemplar.unwrap_or(line.len())]) {
            Some(brace) => self.at + brace + 1,
            None => lex::name_end(self.page, self.at, true),
        }
    }

    /// Whether a series that ends here is not the start of another one.
    fn ends_at(&self, end: usize) -> bool {
        if end > self.at && self.page[end - 1] == b'}' {
            return true;
        }
        match self.page.get(end) {
            Some(b' ') if self.strict => true,
            Some(b' ' | b'\t') => self.page.get(lex::after_blanks(self.page, end)) != Some(&b'{'),
            _ => false,
        }
    }

    fn rest(&self) -> &'a [u8] {
        &self.page[self.at..]
    }

    /// The bytes from here to the next one that `ends` them.
    fn token(&mut self, ends: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = self.rest();
        let len = rest.iter().position(|byte| ends(*byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// The sample whose series starts here, and ends there.
    fn sample(&mut self, end: usize, known: Option<u32>) -> Result<Item<'a>> {
        let series = &self.page[self.at..end];
        let (value, time_ms, exemplar);
        self.at = end;
        if self.strict {
            value = self.strict_value()?;
            (time_ms, exemplar) = self.strict_end()?;
        } else {
            self.at = lex::after_blanks(self.page, self.at);
            let at = self.at;
            let token = self.token(|byte| matches!(byte, b'{' | b' ' | b'\t' | b'\n'));
            value = float(at, token)?;
            time_ms = self.end()?;
            exemplar = None;
        }
        Ok(Item::Sample(Sample { series, known, value, time_ms, exemplar }))
    }

    /// The optional time in milliseconds, and the end of the line, in the older format.
    fn end(&mut self) -> Result<Option<i64>> {
        self.at = lex::after_blanks(self.page, self.at);
        let mut time_ms = None;
        let at = self.at;
        let digits = self.token(|byte| !byte.is_ascii_digit());
        if !digits.is_empty() {
            let time = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            time_ms = Some(time.ok_or(Mistake { at, reason: "the time is out of range" })?);
            self.at = lex::after_blanks(self.page, self.at);
        }
        match self.page.get(self.at) {
            None => Ok(time_ms),
            Some(b'\n') => {
                self.at += 1;
                Ok(time_ms)
            }
            Some(_) => mistake(self.at, "the end of the line or a time is expected"),
        }
    }

    /// One blank and a number.
    fn strict_value(&mut self) -> Result<f64> {
        let at = self.at;
        if self.page.get(at) != Some(&b' ') {
            return mistake(at, "one blank and a value are expected");
        }
        self.at += 1;
        float(at, self.token(|byte| matches!(byte, b' ' | b'\n')))
    }

    /// The optional time in seconds, the optional exemplar, and the end of the line.
    fn strict_end(&mut self) -> Result<(Option<i64>, Option<Exemplar<'a>>)> {
        let time_ms = if self.rest().starts_with(b" # {") { None } else { self.strict_time()? };
        if !self.rest().starts_with(b" # {") {
            return self.strict_line_end().map(|()| (time_ms, None));
        }
        let start = self.at + 4;
        self.at = lex::exemplar_labels(self.page, start, &mut |_| {})?;
        let labels = &self.page[start..self.at];
        let value = self.strict_value()?;
        let exemplar = Exemplar { labels, value, time_ms: self.strict_time()? };
        self.strict_line_end().map(|()| (time_ms, Some(exemplar)))
    }

    fn strict_time(&mut self) -> Result<Option<i64>> {
        if self.page.get(self.at) != Some(&b' ') {
            return Ok(None);
        }
        self.at += 1;
        let at = self.at;
        let time = parse_seconds(self.token(|byte| matches!(byte, b' ' | b'\n')));
        time.ok_or(Mistake { at, reason: "the time is not a number of seconds" }).map(Some)
    }

    fn strict_line_end(&mut self) -> Result<()> {
        match self.page.get(self.at) {
            Some(b'\n') => self.at += 1,
            None => return mistake(self.at, NO_END),
            Some(_) => return mistake(self.at, "the end of the line is expected"),
        }
        Ok(())
    }

    /// A comment of the older format, which may be metadata.
    fn comment(&mut self) -> Result<Option<Item<'a>>> {
        let text = lex::after_blanks(self.page, self.at + 1);
        let word = &self.page[text..self.page.len().min(text + 4)];
        let name = lex::after_blanks(self.page, text + 4);
        let is_metadata =
            text > self.at + 1 && (word == b"HELP" || word == b"TYPE") && name > text + 4;
        if !is_metadata {
            self.token(|byte| byte == b'\n');
            return Ok(None);
        }
        self.at = name;
        let name = self.metric_name()?;
        let at = self.at;
        let rest = self.token(|byte| byte == b'\n');
        // The first byte behind the name counts as the blank that belongs there.
        let rest = rest.get(1..).unwrap_or_default();
        if word == b"HELP" {
            let Some(help) = lex::unescape(rest, false) else {
                return mistake(at, "the help is not UTF-8");
            };
            return Ok(Some(Item::Help(name, help)));
        }
        self.kind = match rest {
            b"counter" => Kind::Counter,
            b"gauge" => Kind::Gauge,
            b"histogram" => Kind::Histogram,
            b"summary" => Kind::Summary,
            b"untyped" => Kind::Unknown,
            _ => return mistake(at, "the type is not a known one"),
        };
        Ok(Some(Item::Kind(name, self.kind)))
    }

    /// Metadata, or none at the end of the page: OpenMetrics has no comments.
    fn strict_comment(&mut self) -> Result<Option<Item<'a>>> {
        let rest = self.rest();
        if let Some(rest) = rest.strip_prefix(b"# EOF") {
            return match rest {
                b"" | b"\n" => Ok(None),
                _ => mistake(self.at, "the page goes on behind # EOF"),
            };
        }
        let word = rest.get(2..6).unwrap_or_default();
        let is_known = matches!(word, b"HELP" | b"TYPE" | b"UNIT");
        if !rest.starts_with(b"# ") || !is_known || rest.get(6) != Some(&b' ') {
            return mistake(self.at, "a line that starts with # has HELP, TYPE, UNIT or EOF");
        }
        self.at += 7;
        let name = self.metric_name()?;
        let at = self.at;
        let rest = self.token(|byte| byte == b'\n');
        let Some((b' ', text)) = rest.split_first() else {
            return mistake(at, "a text is expected behind the name");
        };
        self.strict_line_end()?;
        let text_of = |bytes| {
            lex::unescape(bytes, true).ok_or(Mistake { at, reason: "the text is not UTF-8" })
        };
        match word {
            b"HELP" => return Ok(Some(Item::Help(name, text_of(text)?))),
            b"UNIT" => {
                let unit = text_of(text)?;
                let stem = name.strip_suffix(&*unit);
                if !unit.is_empty() && !stem.is_some_and(|stem| stem.ends_with('_')) {
                    return mistake(at, "the unit does not end the name of the metric");
                }
                return Ok(Some(Item::Unit(name, unit)));
            }
            _ => {}
        }
        self.kind = match text {
            b"counter" => Kind::Counter,
            b"gauge" => Kind::Gauge,
            b"histogram" => Kind::Histogram,
            b"gaugehistogram" => Kind::GaugeHistogram,
            b"summary" => Kind::Summary,
            b"info" => Kind::Info,
            b"stateset" => Kind::StateSet,
            b"unknown" => Kind::Unknown,
            _ => return mistake(at, "the type is not a known one"),
        };
        Ok(Some(Item::Kind(name, self.kind)))
    }

    /// The name that metadata is for, in quotes or not.
    fn metric_name(&mut self) -> Result<Cow<'a, str>> {
        let start = self.at;
        let name = if self.page.get(start) == Some(&b'"') {
            let (name, end) = lex::quoted(self.page, start, false)?;
            self.at = end;
            name
        } else {
            self.at = lex::name_end(self.page, start, true);
            &self.page[start..self.at]
        };
        if self.at == start {
            return mistake(start, "the name of a metric is expected");
        }
        let mistake = Mistake { at: start, reason: "the name of a metric is not UTF-8" };
        lex::unescape(name, true).ok_or(mistake)
    }
}

fn float(at: usize, token: &[u8]) -> Result<f64> {
    parse_float(token).ok_or(Mistake { at, reason: "the value is not a number" })
}
