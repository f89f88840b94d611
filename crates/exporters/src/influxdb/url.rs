//! The URLs of InfluxDB's APIs for writing.

use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sluice_influx::Precision;

const IN_QUERIES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    V1,
    V2,
    V3,
}

/// Where lines are stored.
pub(super) struct Place {
    pub(super) api: Api,
    /// The bucket in 2.x.
    pub(super) database: String,
    pub(super) retention_policy: String,
    pub(super) org: String,
}

/// The URL that requests are posted to. A path that the endpoint has stays as it is, and so does
/// its query.
pub(super) fn url(endpoint: &Uri, place: &Place, precision: Precision) -> String {
    let own = endpoint.path();
    let path = match place.api {
        _ if !own.is_empty() && own != "/" => own,
        Api::V1 => "/write",
        Api::V2 => "/api/v2/write",
        Api::V3 => "/api/v3/write_lp",
    };
    let mut parameters = match place.api {
        Api::V1 => vec![("db", &*place.database), ("rp", &*place.retention_policy)],
        Api::V2 => vec![("org", &*place.org), ("bucket", &*place.database)],
        Api::V3 => vec![("db", &*place.database)],
    };
    parameters.push(("precision", unit(place.api, precision)));
    let mut query = endpoint.query().unwrap_or_default().to_owned();
    for (name, value) in parameters.into_iter().filter(|(_, value)| !value.is_empty()) {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(name);
        query.push('=');
        query.extend(utf8_percent_encode(value, IN_QUERIES));
    }
    let scheme = endpoint.scheme_str().unwrap_or("http");
    let authority = endpoint.authority().map_or("", |authority| authority.as_str());
    format!("{scheme}://{authority}{path}?{query}")
}

/// The URL of queries of 1.x, beside that of writes. `None`: the endpoint's path is not one of
/// writes.
pub(super) fn query_url(endpoint: &Uri) -> Option<String> {
    let prefix = match endpoint.path() {
        "" | "/" => "",
        own => own.strip_suffix("/write")?,
    };
    let scheme = endpoint.scheme_str().unwrap_or("http");
    let authority = endpoint.authority().map_or("", |authority| authority.as_str());
    let query = endpoint.query().map(|query| format!("?{query}")).unwrap_or_default();
    Some(format!("{scheme}://{authority}{prefix}/query{query}"))
}

/// The name of a unit, which differs by API.
fn unit(api: Api, precision: Precision) -> &'static str {
    let names = match precision {
        Precision::Microseconds => ["u", "us", "microsecond"],
        Precision::Milliseconds => ["ms", "ms", "millisecond"],
        Precision::Seconds => ["s", "s", "second"],
        _ => ["n", "ns", "nanosecond"],
    };
    match api {
        Api::V1 => names[0],
        Api::V2 => names[1],
        Api::V3 => names[2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_of_each_api() {
        for (api, endpoint, precision, expected) in [
            (
                Api::V1,
                "http://a:8086",
                Precision::Nanoseconds,
                "http://a:8086/write?db=k%206%2Fb&rp=one%26two&precision=n",
            ),
            (
                Api::V2,
                "https://a/",
                Precision::Microseconds,
                "https://a/api/v2/write?org=my-org&bucket=k%206%2Fb&precision=us",
            ),
            (
                Api::V3,
                "http://[::1]:8181",
                Precision::Seconds,
                "http://[::1]:8181/api/v3/write_lp?db=k%206%2Fb&precision=second",
            ),
            (
                Api::V1,
                "http://a/insert/0/influx/write?extra_label=a=b",
                Precision::Milliseconds,
                "http://a/insert/0/influx/write?extra_label=a=b&db=k%206%2Fb&rp=one%26two&\
                 precision=ms",
            ),
        ] {
            let place = Place {
                api,
                database: "k 6/b".to_owned(),
                retention_policy: "one&two".to_owned(),
                org: "my-org".to_owned(),
            };
            let endpoint: Uri = endpoint.parse().expect("a URL");
            assert_eq!(url(&endpoint, &place, precision), expected);
        }
    }

    #[test]
    fn queries_go_beside_writes() {
        for (endpoint, expected) in [
            ("http://a:8086", Some("http://a:8086/query")),
            ("https://a/?u=me", Some("https://a/query?u=me")),
            ("http://a/influx/write?u=me&p=x", Some("http://a/influx/query?u=me&p=x")),
            ("http://a/write", Some("http://a/query")),
            ("http://a/influx/", None),
        ] {
            let endpoint: Uri = endpoint.parse().expect("a URL");
            assert_eq!(query_url(&endpoint).as_deref(), expected, "{endpoint}");
        }
    }

    #[test]
    fn nothing_is_said_of_the_databases_own_retention_policy() {
        let place = Place {
            api: Api::V1,
            database: "k6".to_owned(),
            retention_policy: String::new(),
            org: String::new(),
        };
        let endpoint: Uri = "http://a".parse().expect("a URL");
        let url = url(&endpoint, &place, Precision::Nanoseconds);
        assert_eq!(url, "http://a/write?db=k6&precision=n");
    }
}
