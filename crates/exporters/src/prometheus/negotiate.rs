//! The form of a page that a scraper asks for, as Prometheus' libraries negotiate it.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use sluice_prometheus::exposed::PageFormat;

/// Forms of a page whose content differs are told by this number.
const ESCAPES: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) format: PageFormat,
    /// Of text and OpenMetrics.
    version: &'static str,
    /// The reader takes only names of old.
    pub(super) escapes: bool,
}

impl Form {
    pub(super) fn number(self) -> u8 {
        self.format as u8 | if self.escapes { ESCAPES } else { 0 }
    }

    pub(super) fn content_type(self) -> HeaderValue {
        let version = self.version;
        let media = match self.format {
            PageFormat::Text => format!("text/plain; version={version}; charset=utf-8"),
            PageFormat::OpenMetrics => {
                format!("application/openmetrics-text; version={version}; charset=utf-8")
            }
            PageFormat::Protobuf => "application/vnd.google.protobuf; \
                                     proto=io.prometheus.client.MetricFamily; encoding=delimited"
                .to_owned(),
        };
        let escaping = if self.escapes { "underscores" } else { "allow-utf-8" };
        let value = HeaderValue::try_from(format!("{media}; escaping={escaping}"));
        value.unwrap_or(HeaderValue::from_static("text/plain"))
    }
}

/// The first form of the highest quality that there is; text, if there is none.
pub(super) fn negotiate(headers: &HeaderMap, open_metrics: bool) -> Form {
    let lists = headers.get_all(ACCEPT).iter().filter_map(|list| list.to_str().ok());
    let mut asked: Vec<(f32, Form)> = Vec::new();
    for item in lists.flat_map(|list| list.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(&str, &str)> = parts.filter_map(|it| it.split_once('=')).collect();
        let of = |name: &str| {
            let found = parameters.iter().find(|(own, _)| own.trim().eq_ignore_ascii_case(name));
            found.map_or("", |(_, value)| value.trim().trim_matches('"'))
        };
        let quality = of("q").parse().unwrap_or(1.0);
        let escapes = of("escaping") != "allow-utf-8";
        let (format, version) = match (&*media, of("version")) {
            ("text/plain", "" | "0.0.4") => (PageFormat::Text, "0.0.4"),
            ("text/plain", "1.0.0") => (PageFormat::Text, "1.0.0"),
            ("application/openmetrics-text", "1.0.0") if open_metrics => {
                (PageFormat::OpenMetrics, "1.0.0")
            }
            ("application/openmetrics-text", "" | "0.0.1") if open_metrics => {
                (PageFormat::OpenMetrics, "0.0.1")
            }
            ("application/vnd.google.protobuf", _)
                if of("proto") == "io.prometheus.client.MetricFamily"
                    && of("encoding") == "delimited" =>
            {
                (PageFormat::Protobuf, "")
            }
            _ => continue,
        };
        asked.push((quality, Form { format, version, escapes }));
    }
    asked.sort_by(|left, right| right.0.total_cmp(&left.0));
    let text = Form { format: PageFormat::Text, version: "0.0.4", escapes: true };
    asked.first().filter(|(quality, _)| *quality > 0.0).map_or(text, |(_, form)| *form)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(accept: &str, open_metrics: bool) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_str(accept).expect("a header"));
        let form = negotiate(&headers, open_metrics);
        form.content_type().to_str().expect("text").to_owned()
    }

    /// Guarantee: the forms that Prometheus asks for, and no others.
    #[test]
    fn scrapers_get_the_first_form_that_there_is() {
        const OPEN: &str = "application/openmetrics-text;version=1.0.0;q=0.5,\
                            application/openmetrics-text;version=0.0.1;q=0.75,\
                            text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        const PROTOBUF: &str = "application/vnd.google.protobuf;\
                                proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                                application/openmetrics-text;version=1.0.0;q=0.5";
        const UTF8: &str = "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;q=0.5";
        let text = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
        let open = "application/openmetrics-text; version=0.0.1; charset=utf-8; \
                    escaping=underscores";
        let protobuf = "application/vnd.google.protobuf; \
                        proto=io.prometheus.client.MetricFamily; encoding=delimited; \
                        escaping=underscores";
        let utf8 = "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8";
        for (accept, open_metrics, expected) in [
            ("", true, text),
            ("*/*", true, text),
            ("text/html", true, text),
            (OPEN, true, open),
            (OPEN, false, text),
            (PROTOBUF, true, protobuf),
            (PROTOBUF, false, protobuf),
            ("application/vnd.google.protobuf;encoding=text", true, text),
            ("application/json;q=NaN, ;;=,text/plain;version=9", true, text),
            (UTF8, false, utf8),
        ] {
            assert_eq!(asked(accept, open_metrics), expected, "{accept}");
        }
    }
}
