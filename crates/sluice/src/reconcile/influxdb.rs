//! The contents of InfluxDB 1.x, of each measurement, by InfluxQL.

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use sluice_net::auth::client::basic_credentials;

use super::arguments::ReconcileArguments;
use super::filter::query;
use super::server::Server;
use super::summary::Summary;
use crate::text;

/// Statements of a request.
const STATEMENTS: usize = 50;

/// Points of a measurement: their number, and the sum of their values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    pub count: f64,
    pub sum: f64,
}

pub(super) struct InfluxDb<'a> {
    arguments: &'a ReconcileArguments,
    server: Server,
    headers: HeaderMap,
}

impl<'a> InfluxDb<'a> {
    pub(super) fn new(arguments: &'a ReconcileArguments) -> Result<InfluxDb<'a>> {
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        if let (Some(user), Some(variable)) = (&arguments.user, &arguments.password_env) {
            let password = std::env::var(variable)
                .with_context(|| format!("--password-env: the variable {variable}"))?;
            let credentials = basic_credentials(format!("{user}:{password}"));
            let mut value = HeaderValue::try_from(credentials)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let server = Server::new("--influxdb", &arguments.influxdb)?;
        Ok(InfluxDb { arguments, server, headers })
    }

    /// The points of each measurement that the summary tells something of.
    pub(super) async fn count(&self, summary: &Summary) -> Result<BTreeMap<String, Found>> {
        let mut found = BTreeMap::new();
        for expected in summary.expected.chunks(STATEMENTS) {
            let names: Vec<&str> = expected.iter().map(|it| it.measurement.as_str()).collect();
            let results = self.query(&names).await?;
            if results.len() != names.len() {
                let (asked, answered) = (names.len(), results.len());
                bail!("InfluxDB answers {answered} of {asked} statements");
            }
            for (name, result) in names.iter().zip(&results) {
                let of = || format!("measurement `{}`", text::cell(name).content());
                found.insert((*name).to_owned(), read(result).with_context(of)?);
            }
        }
        Ok(found)
    }

    async fn query(&self, measurements: &[&str]) -> Result<Vec<Value>> {
        let ReconcileArguments { database, from, to, tag, .. } = self.arguments;
        let range = (from.as_ref(), to.as_ref());
        let statements: Vec<String> =
            measurements.iter().map(|name| query(name, range, tag)).collect();
        let body = format!("db={}&q={}", encoded(database), encoded(&statements.join("; ")));
        let answer = self.server.post("/query", &self.headers, Bytes::from(body)).await?;
        let content = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
        let said = content["error"].as_str().map(|said| format!(": {said}")).unwrap_or_default();
        match answer.status {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => {
                bail!("InfluxDB does not know the user or its password (401{said}): see --user")
            }
            StatusCode::FORBIDDEN => {
                bail!("the user of InfluxDB may not read database `{database}` (403{said})")
            }
            StatusCode::NOT_FOUND => {
                bail!("404{said}: is it an InfluxDB 1.x? --influxdb is its URL without a path")
            }
            status => bail!("InfluxDB answers {status}{said}"),
        }
        match content["results"].as_array() {
            Some(results) => Ok(results.clone()),
            None => bail!("the answer is not from InfluxDB: is --influxdb the URL of one?"),
        }
    }
}

/// The result of a statement.
fn read(result: &Value) -> Result<Found> {
    if let Some(error) = result["error"].as_str() {
        return Err(match error.contains("database not found") {
            true => anyhow!("{error}: see --database"),
            false => anyhow!("InfluxDB says: {error}"),
        });
    }
    // Without a point there is no series.
    let Some(series) = result["series"].get(0) else { return Ok(Found::default()) };
    let value = |name: &str| -> Option<f64> {
        let column = series["columns"].as_array()?.iter().position(|column| column == name)?;
        series["values"].get(0)?.get(column)?.as_f64()
    };
    let count = value("count").context("the answer has no `count`")?;
    // A field of text or of booleans has none.
    Ok(Found { count, sum: value("sum").unwrap_or(0.0) })
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_read_by_their_columns() {
        let result = json!({"statement_id": 0, "series": [{"name": "m",
            "columns": ["time", "count", "sum"], "values": [["1970-01-01T00:00:00Z", 3, 4.5]]}]});
        assert_eq!(read(&result).expect("is read"), Found { count: 3.0, sum: 4.5 });
        assert_eq!(read(&json!({"statement_id": 0})).expect("is empty"), Found::default());
        for (error, words) in [
            ("database not found: k6", "see --database"),
            ("unsupported sum iterator type: *query.booleanCountIterator", "InfluxDB says"),
        ] {
            let error = read(&json!({ "error": error })).expect_err(error).to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(read(&json!({"series": [{"columns": ["x"], "values": [[1]]}]})).is_err());
    }

    #[test]
    fn a_form_has_no_sign_that_means_something() {
        assert_eq!(encoded("a&b=c d\"é"), "a%26b%3Dc%20d%22%C3%A9");
    }
}
