//! Sluice's ledger, as `GET /ledger` tells it.

use anyhow::{Context, Result, bail};
use http::StatusCode;
use serde_json::Value;

use super::server::Server;

/// Points by figure, as the page names them: `received`, `written`, and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures(serde_json::Map<String, Value>);

/// A delivery.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    /// `metrics → influxdb`.
    pub name: String,
    pub balanced: Option<bool>,
    pub reason: Option<String>,
    pub missing: Option<i64>,
    /// By measurement. None if its exporter does not count so.
    rows: Option<Vec<(String, Figures)>>,
    /// Of all measurements.
    pub points: Figures,
    /// Points of before the start that have not been delivered.
    pub found_left: i64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    /// Deliveries that count by measurement.
    pub sheets: Vec<Sheet>,
}

impl Ledger {
    /// `url`: of the endpoint of metrics, with or without the path.
    pub(super) async fn fetch(url: &str) -> Result<Ledger> {
        let base = url.trim_end_matches('/').trim_end_matches("/ledger");
        let answer = Server::new("--ledger", base)?.get("/ledger").await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => {
                bail!("--ledger: {base} has no ledger: is it the endpoint of Sluice's metrics?")
            }
            status => bail!("--ledger: {base} answers {status}"),
        }
        let page = serde_json::from_slice(&answer.body);
        let page: Value = page.with_context(|| format!("--ledger: {base} answers no JSON"))?;
        Ledger::read(&page).with_context(|| format!("--ledger: {base}"))
    }

    fn read(page: &Value) -> Result<Ledger> {
        let deliveries = page["deliveries"].as_array().context("the answer is no ledger")?;
        let sheets = deliveries.iter().map(Sheet::read).filter(|sheet| sheet.rows.is_some());
        let sheets: Vec<Sheet> = sheets.collect();
        if sheets.is_empty() {
            bail!("no delivery counts by measurement: those to an `influxdb` exporter do");
        }
        Ok(Ledger { sheets })
    }
}

impl Sheet {
    fn read(delivery: &Value) -> Sheet {
        let text = |key: &str| delivery[key].as_str().unwrap_or_default();
        let rows = delivery["measurements"].as_array().map(|rows| {
            let named =
                |row: &Value| Some((row["measurement"].as_str()?.to_owned(), Figures::read(row)));
            rows.iter().filter_map(named).collect()
        });
        Sheet {
            name: format!("{} → {}", text("pipeline"), text("exporter")),
            balanced: delivery["balanced"].as_bool(),
            reason: delivery["reason"].as_str().map(str::to_owned),
            missing: delivery["missing"].as_i64(),
            rows,
            points: Figures::read(&delivery["points"]),
            found_left: delivery["found_left"].as_i64().unwrap_or(0),
        }
    }

    pub(super) fn row(&self, measurement: &str) -> Option<&Figures> {
        let mut rows = self.rows.iter().flatten();
        rows.find(|(name, _)| name == measurement).map(|(_, row)| row)
    }

    /// Some measurements have no row of their own.
    pub(super) fn has_others(&self) -> bool {
        self.row("#others").is_some()
    }
}

impl Figures {
    /// The members of an object that are numbers.
    fn read(object: &Value) -> Figures {
        let members = object.as_object().into_iter().flatten();
        let numbers = members.filter(|(_, it)| it.is_i64());
        Figures(numbers.map(|(name, it)| (name.clone(), it.clone())).collect())
    }

    /// Zero for a figure that is not there.
    pub(super) fn of(&self, name: &str) -> i64 {
        self.0.get(name).and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn json(&self) -> Value {
        Value::Object(self.0.clone())
    }
}

#[cfg(test)]
pub(super) fn of_json(page: &Value) -> Ledger {
    Ledger::read(page).expect("is a ledger")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_page_that_is_no_ledger_is_refused() {
        for (page, words) in [
            (json!({}), "no ledger"),
            (json!({"deliveries": []}), "no delivery"),
            (json!({"deliveries": [{"pipeline": "metrics", "measurements": null}]}), "no delivery"),
        ] {
            let error = Ledger::read(&page).expect_err("is none").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
