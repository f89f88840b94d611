//! Which points count: InfluxQL, and the texts in it.

use std::str::FromStr;

use jiff::Timestamp;

/// A time of RFC 3339, from 1677 to 2262.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Time(Timestamp);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Time, String> {
        let time: Timestamp = text
            .parse()
            .map_err(|error| format!("{error}; write a time as 2026-11-29T14:00:00Z"))?;
        // InfluxDB counts nanoseconds from 1970 in 64 bits.
        match i64::try_from(time.as_nanosecond()) {
            Ok(_) => Ok(Time(time)),
            Err(_) => Err("InfluxDB has times from 1677 to 2262 only".to_owned()),
        }
    }
}

/// A tag that points must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    name: String,
    value: String,
}

impl FromStr for Tag {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Tag, &'static str> {
        let (name, value) = text.split_once('=').ok_or("write a tag as NAME=VALUE")?;
        if name.is_empty() || text.contains(char::is_control) {
            return Err("write a tag as NAME=VALUE, without line breaks");
        }
        Ok(Tag { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The text between quotes of this kind.
fn quoted(text: &str, quote: char) -> String {
    let mut out = String::from(quote);
    for letter in text.chars() {
        match letter {
            '\n' => out.push_str("\\n"),
            '\\' => out.push_str("\\\\"),
            _ if letter == quote => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    out.push(quote);
    out
}

/// The query of a measurement's points: their number, and the sum of their values.
pub(super) fn query(
    measurement: &str,
    (from, to): (Option<&Time>, Option<&Time>),
    tags: &[Tag],
) -> String {
    let from = from.map(|Time(time)| format!("time >= '{time}'"));
    let to = to.map(|Time(time)| format!("time < '{time}'"));
    let tags = tags
        .iter()
        .map(|Tag { name, value }| format!("{} = {}", quoted(name, '"'), quoted(value, '\'')));
    let conditions: Vec<String> = from.into_iter().chain(to).chain(tags).collect();
    let wheres = match conditions.is_empty() {
        true => String::new(),
        false => format!(" WHERE {}", conditions.join(" AND ")),
    };
    let name = quoted(measurement, '"');
    format!("SELECT count(\"value\"), sum(\"value\") FROM {name}{wheres}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: a time is one that exists, and goes to InfluxDB in UTC.
    #[test]
    fn times_are_those_of_rfc_3339() {
        for (good, in_utc) in [
            ("2026-11-29T14:00:00Z", "2026-11-29T14:00:00Z"),
            ("2026-11-29T14:00:00.5Z", "2026-11-29T14:00:00.5Z"),
            ("2026-11-29T14:00:00.123456789+00:00", "2026-11-29T14:00:00.123456789Z"),
            ("2026-11-29T14:00:00+02:00", "2026-11-29T12:00:00Z"),
        ] {
            let time: Time = good.parse().expect(good);
            let query = query("m", (Some(&time), None), &[]);
            assert!(query.ends_with(&format!("time >= '{in_utc}'")), "{good}: {query}");
        }
        for bad in [
            "",
            "now()",
            "2026-11-29",
            "2026-11-29T14:00:00",
            "2026-11-29T14:00:00.Z",
            "2026-13-99T99:99:99Z",
            "2026-02-29T00:00:00Z",
            "2026-11-29T24:00:00Z",
            "2026-11-29T14:00:00.1234567890Z",
            "2026-11-29T14:00:00Z' OR 'a'='a",
            "9999-01-01T00:00:00Z",
        ] {
            assert!(bad.parse::<Time>().is_err(), "{bad}");
        }
    }

    /// Guarantee: no name or value ends its quotes.
    #[test]
    fn names_and_values_stay_within_their_quotes() {
        let time: Time = "2026-11-29T14:00:00Z".parse().expect("a time");
        let tag: Tag = r"run=it's \ a=b".parse().expect("a tag");
        assert_eq!(
            query("odd \"name\"\n", (Some(&time), Some(&time)), &[tag]),
            [
                r#"SELECT count("value"), sum("value") FROM "odd \"name\"\n" WHERE "#,
                "time >= '2026-11-29T14:00:00Z' AND time < '2026-11-29T14:00:00Z'",
                r#" AND "run" = 'it\'s \\ a=b'"#,
            ]
            .concat()
        );
        assert_eq!(
            query("m", (None, None), &[]),
            r#"SELECT count("value"), sum("value") FROM "m""#
        );
        for bad in ["run", "=a", "a\n=b"] {
            assert!(bad.parse::<Tag>().is_err(), "{bad}");
        }
    }
}
