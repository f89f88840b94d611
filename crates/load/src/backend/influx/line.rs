//! One line of InfluxDB's line protocol, as far as a sum needs it.

/// Parts of a line as they are written, with their escapes.
#[derive(Debug, PartialEq)]
pub(super) struct Point<'a> {
    pub(super) measurement: &'a [u8],
    /// Measurement and tags.
    pub(super) series: &'a [u8],
    fields: &'a [u8],
    /// Empty: the time of its arrival.
    pub(super) time: &'a [u8],
}

impl<'a> Point<'a> {
    /// `None`: no fields.
    pub(super) fn parse(line: &'a [u8]) -> Option<Point<'a>> {
        let (series, rest) = split(line, b' ', false)?;
        let (measurement, _) = split(series, b',', false).unwrap_or((series, &[]));
        let (fields, time) = split(rest, b' ', true).unwrap_or((rest, &[]));
        fields.contains(&b'=').then_some(Point { measurement, series, fields, time })
    }

    /// The value of a field that is a number.
    pub(super) fn number(&self, name: &[u8]) -> Option<f64> {
        let mut rest = self.fields;
        while !rest.is_empty() {
            let (field, others) = split(rest, b',', true).unwrap_or((rest, &[]));
            rest = others;
            let Some((key, value)) = split(field, b'=', false) else { continue };
            if key == name {
                return str::from_utf8(value).ok()?.trim_end_matches(['i', 'u']).parse().ok();
            }
        }
        None
    }
}

/// Splits at the first of these bytes that is not escaped, nor within a text in quotes.
fn split(bytes: &[u8], at: u8, has_quotes: bool) -> Option<(&[u8], &[u8])> {
    let (mut is_escaped, mut is_quoted) = (false, false);
    for (index, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' if has_quotes => is_quoted = !is_quoted,
            byte if *byte == at && !is_quoted => {
                return Some((&bytes[..index], &bytes[index + 1..]));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: escapes and texts hide what would separate, and only numbers have a value.
    #[test]
    fn a_line_is_read_as_influxdb_reads_it() {
        let line = br#"a\ b\,c,url=x\=1 url="q, \"w value=3",value=1.5,n=7i,on=t 12"#;
        let point = Point::parse(line).unwrap();
        assert_eq!(point.measurement, br"a\ b\,c");
        assert_eq!((point.series, point.time), (&br"a\ b\,c,url=x\=1"[..], &b"12"[..]));
        assert_eq!((point.number(b"value"), point.number(b"n")), (Some(1.5), Some(7.0)));
        assert_eq!(
            (point.number(b"on"), point.number(b"url"), point.number(b"x")),
            (None, None, None)
        );
        let point = Point::parse(b"vus value=3").unwrap();
        assert_eq!((point.time, point.number(b"value")), (&b""[..], Some(3.0)));
        assert_eq!((Point::parse(b"vus"), Point::parse(b"vus 3")), (None, None));
    }
}
