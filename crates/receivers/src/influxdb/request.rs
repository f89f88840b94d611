//! The parameters of requests.

use percent_encoding::percent_decode;
use sluice_influx::Precision;

/// Parameters that have a meaning here. Others take no memory.
const NAMES: [&str; 11] = [
    "accept_partial",
    "bucket",
    "consistency",
    "db",
    "no_sync",
    "p",
    "precision",
    "q",
    "rp",
    "u",
    "verbose",
];

/// The parameters of a URL, or of a form: the first of each name.
pub(super) struct Parameters(Vec<(&'static str, String)>);

fn decode(text: &[u8]) -> String {
    let spaced: Vec<u8> =
        text.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_decode(&spaced).decode_utf8_lossy().into_owned()
}

impl Parameters {
    pub(super) fn parse(text: &[u8]) -> Parameters {
        let mut parameters = Parameters(Vec::new());
        for pair in text.split(|byte| *byte == b'&') {
            let equals = pair.iter().position(|byte| *byte == b'=');
            let (name, value) = pair.split_at(equals.unwrap_or(pair.len()));
            let name = decode(name);
            let known = NAMES.into_iter().find(|known| *known == name);
            if let Some(name) = known.filter(|known| parameters.0.iter().all(|it| it.0 != *known)) {
                parameters.0.push((name, decode(value.get(1..).unwrap_or_default())));
            }
        }
        parameters
    }

    /// The value of the first parameter of this name; empty if there is none.
    pub(super) fn of(&self, name: &str) -> &str {
        debug_assert!(NAMES.contains(&name), "`{name}` is read");
        let found = self.0.iter().find(|(its, _)| *its == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// The API of a request, which decides on the words of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    V1,
    V2,
    V3,
}

/// The parameters of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub api: Api,
    pub database: String,
    /// Empty: that of the database.
    pub retention_policy: String,
    pub precision: Precision,
    /// A line at fault costs all others: nothing is taken before the whole body is judged.
    pub is_whole: bool,
}

impl Target {
    /// # Errors
    /// A parameter is missing, or has a value that InfluxDB would not take either.
    pub(super) fn read(api: Api, parameters: &Parameters) -> Result<Target, String> {
        match api {
            Api::V1 => Target::v1(parameters),
            Api::V2 => Target::v2(parameters),
            Api::V3 => Target::v3(parameters),
        }
    }

    fn v1(parameters: &Parameters) -> Result<Target, String> {
        let database = parameters.of("db").to_owned();
        if database.is_empty() {
            return Err("database is required".to_owned());
        }
        let name = parameters.of("precision");
        let known = ["", "n", "ns", "u", "us", "µ", "µs", "ms", "s", "m", "h"].contains(&name);
        let precision = Precision::named(name).filter(|_| known).ok_or_else(|| {
            format!("invalid precision \"{}\" (use n, u, ms, s, m or h)", shown(name))
        })?;
        let consistency = parameters.of("consistency").to_ascii_lowercase();
        if !["", "any", "one", "quorum", "all"].contains(&consistency.as_str()) {
            return Err("invalid consistency level".to_owned());
        }
        let retention_policy = parameters.of("rp").to_owned();
        Ok(Target { api: Api::V1, database, retention_policy, precision, is_whole: false })
    }

    fn v2(parameters: &Parameters) -> Result<Target, String> {
        let bucket = parameters.of("bucket");
        // As InfluxDB 1.8 reads a bucket.
        let (database, retention_policy) = bucket.split_once('/').unwrap_or((bucket, ""));
        if database.is_empty() {
            return Err("bucket is required: `database` or `database/retention-policy`".to_owned());
        }
        let name = parameters.of("precision");
        let known = ["", "ns", "us", "ms", "s"].contains(&name);
        let precision = Precision::named(name).filter(|_| known).ok_or_else(|| {
            "invalid precision; valid precision units are ns, us, ms, and s".to_owned()
        })?;
        let (database, retention_policy) = (database.to_owned(), retention_policy.to_owned());
        Ok(Target { api: Api::V2, database, retention_policy, precision, is_whole: false })
    }

    fn v3(parameters: &Parameters) -> Result<Target, String> {
        let database = parameters.of("db").to_owned();
        if database.is_empty() {
            return Err("missing query parameter 'db'".to_owned());
        }
        let name = parameters.of("precision");
        let long = ["auto", "nanosecond", "microsecond", "millisecond", "second"];
        let precision = match name {
            "" => Some(Precision::Auto),
            _ if long.contains(&name) || ["n", "ns", "u", "us", "ms", "s"].contains(&name) => {
                Precision::named(name)
            }
            _ => None,
        };
        let precision = precision.ok_or_else(|| {
            format!("unknown precision '{}', expected one of: {}", shown(name), long.join(", "))
        })?;
        let is_whole = match parameters.of("accept_partial") {
            "" | "true" => false,
            "false" => true,
            _ => return Err("accept_partial must be true or false".to_owned()),
        };
        if !["", "true", "false"].contains(&parameters.of("no_sync")) {
            return Err("no_sync must be true or false".to_owned());
        }
        let retention_policy = String::new();
        Ok(Target { api: Api::V3, database, retention_policy, precision, is_whole })
    }
}

/// A value of a sender, as far as it is shown.
fn shown(value: &str) -> String {
    value.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(api: Api, query: &str) -> Result<Target, String> {
        Target::read(api, &Parameters::parse(query.as_bytes()))
    }

    #[test]
    fn parameters_are_decoded() {
        let parameters = Parameters::parse(b"q=CREATE+DATABASE+%22a%20b%22&x&q=other&=&u&p=a=b%");
        assert_eq!(parameters.of("q"), "CREATE DATABASE \"a b\"");
        assert_eq!((parameters.of("u"), parameters.of("p")), ("", "a=b%"));
        assert_eq!(parameters.0.len(), 3, "what has no meaning is not kept");
        assert_eq!(Parameters::parse(b"p=%ff").of("p"), "\u{fffd}");
    }

    #[test]
    fn each_api_has_its_own_names() {
        for (api, query, database, policy, precision) in [
            (Api::V1, "db=a", "a", "", Precision::Nanoseconds),
            (
                Api::V1,
                "db=a&rp=b&precision=%C2%B5&consistency=ONE",
                "a",
                "b",
                Precision::Microseconds,
            ),
            (Api::V1, "db=a/b&precision=h", "a/b", "", Precision::Hours),
            (Api::V2, "org=o&bucket=a%2Fb&precision=s", "a", "b", Precision::Seconds),
            (Api::V2, "bucket=a", "a", "", Precision::Nanoseconds),
            (Api::V3, "db=a", "a", "", Precision::Auto),
            (Api::V3, "db=a&accept_partial=false", "a", "", Precision::Auto),
            (
                Api::V3,
                "db=a&precision=millisecond&accept_partial=true&no_sync=true",
                "a",
                "",
                Precision::Milliseconds,
            ),
        ] {
            let (database, retention_policy) = (database.to_owned(), policy.to_owned());
            let is_whole = query.contains("accept_partial=false");
            let expected = Target { api, database, retention_policy, precision, is_whole };
            assert_eq!(read(api, query), Ok(expected), "{query}");
        }
    }

    /// Guarantee: a unit of another API is not taken for nanoseconds, nor a wish ignored that
    /// cannot be met.
    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (api, query, word) in [
            (Api::V1, "", "database is required"),
            (Api::V1, "db=a&precision=auto", "invalid precision \"auto\""),
            (Api::V1, "db=a&precision=d", "invalid precision"),
            (Api::V1, "db=a&consistency=some", "invalid consistency level"),
            (Api::V2, "org=o", "bucket"),
            (Api::V2, "bucket=/b", "bucket"),
            (Api::V2, "bucket=a&precision=m", "invalid precision"),
            (Api::V3, "", "db"),
            (Api::V3, "db=a&precision=h", "unknown precision"),
            (Api::V3, "db=a&accept_partial=0", "accept_partial"),
            (Api::V3, "db=a&no_sync=1", "no_sync"),
        ] {
            let error = read(api, query).expect_err(query);
            assert!(error.contains(word), "{query}: {error}");
        }
    }
}
