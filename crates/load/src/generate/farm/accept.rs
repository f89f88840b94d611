//! Which text format a scraper asks for (RFC 9110, section 12.5.1, as far as Prometheus' formats
//! need it).

/// A format of the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    pub(super) const ALL: [Format; 2] = [Format::Text, Format::OpenMetrics];

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format of the highest quality; of equals the first named. The plain text where none is
    /// known.
    pub(super) fn of(accept: &str) -> Format {
        let mut best = (Format::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next() {
                Some("application/openmetrics-text") => Format::OpenMetrics,
                Some("text/plain" | "text/*" | "*/*") => Format::Text,
                _ => continue,
            };
            let quality = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(Some(1.0), |text| text.parse().ok());
            if let Some(quality) = quality.filter(|quality| *quality > best.1) {
                best = (format, quality);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scrapers_preference_decides() {
        let collector = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                         application/openmetrics-text;version=0.0.1;q=0.4,\
                         text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(Format::of(collector), Format::OpenMetrics);
        assert_eq!(Format::of("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Format::Text);
        assert_eq!(
            Format::of("application/openmetrics-text; q=0.1, text/plain; q=0.9"),
            Format::Text
        );
        assert_eq!(Format::of("application/openmetrics-text;q=0"), Format::Text);
        assert_eq!(Format::of("application/vnd.google.protobuf"), Format::Text);
        assert_eq!(Format::of(""), Format::Text);
    }
}
