//! `http_sd_configs`: a URL that answers with groups in JSON.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use sluice_config::shown_url;
use sluice_net::client::Answer;
use tokio::time::MissedTickBehavior;

use super::fetch::Fetcher;
use super::outlet::Outlet;
use crate::group::{Group, from_json, numbered};
use crate::labels::Text;
use crate::scrape_config::HttpSd;

const LABEL: &str = "__meta_url";

pub(super) async fn run(config: HttpSd, mut outlet: Outlet) {
    let shown = shown_url(&config.url).to_string();
    let mut fetcher = match Fetcher::new(&config.url, config.http.clone()) {
        Ok(fetcher) => fetcher,
        Err(reason) => return outlet.failed(&shown, reason),
    };
    let mut ticks = tokio::time::interval(config.refresh_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match look(&config, &mut fetcher).await {
            Ok(groups) => outlet.found(&shown, groups),
            Err(reason) => outlet.failed(&shown, reason),
        }
    }
}

async fn look(config: &HttpSd, fetcher: &mut Fetcher) -> Result<Vec<Arc<Group>>, String> {
    let mut headers = HeaderMap::new();
    let seconds = config.refresh_interval.as_secs_f64().to_string();
    if let Ok(seconds) = HeaderValue::from_str(&seconds) {
        headers.insert("x-prometheus-refresh-interval-seconds", seconds);
    }
    let answer = fetcher.get("application/json", headers, config.refresh_interval).await?;
    if !is_json(&answer) {
        return Err("the answer's content type is not application/json".to_owned());
    }
    let url = config.url.clone();
    // Megabytes of JSON take a while.
    let read = tokio::task::spawn_blocking(move || {
        let (name, value) = (Text::from(LABEL), Text::from(&*url));
        from_json(&answer.body, numbered(&shown_url(&url)), Some((&name, &value)))
    });
    let groups = read.await.map_err(|error| error.to_string())?;
    let groups = groups.map_err(|reason| format!("the answer cannot be understood: {reason}"))?;
    Ok(groups.into_iter().map(Arc::new).collect())
}

/// `application/json`, in UTF-8 if a character set is named.
fn is_json(answer: &Answer) -> bool {
    let value = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let value = value.unwrap_or_default().trim();
    let (kind, parameter) = value.split_once(';').unwrap_or((value, "charset=utf-8"));
    let charset =
        parameter.trim().split_once('=').map(|(name, value)| (name, value.trim_matches('"')));
    kind.eq_ignore_ascii_case("application/json")
        && charset.is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("charset") && value.eq_ignore_ascii_case("utf-8")
        })
}

#[cfg(test)]
mod tests;
