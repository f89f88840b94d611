//! A client for instant queries of Prometheus' HTTP API.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{anyhow, bail, ensure};
use bytes::Bytes;
use http::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize as _;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::scrape::http_get;

const ANSWER_WITHIN: Duration = Duration::from_secs(15);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// `http://HOST:PORT[/PREFIX]`, without a slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrometheusUrl(String);

const NO_ADDRESS: &str = "give the address of a Prometheus, for instance http://127.0.0.1:9090";
const NO_HTTPS: &str = "https is not spoken here: give an http address, for instance that of \
                        `kubectl port-forward`";
const NO_PASSWORD: &str = "names and passwords are not supported: give an address that needs none";

impl FromStr for PrometheusUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| NO_ADDRESS)?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        match (uri.scheme_str(), uri.host(), uri.query()) {
            (Some("https"), ..) => Err(NO_HTTPS),
            (Some("http"), ..) if has_user => Err(NO_PASSWORD),
            (Some("http"), Some(host), None) if !host.is_empty() => {
                let (port, path) = (uri.port_u16().unwrap_or(80), uri.path());
                Ok(PrometheusUrl(format!("http://{host}:{port}{}", path.trim_end_matches('/'))))
            }
            _ => Err(NO_ADDRESS),
        }
    }
}

impl fmt::Display for PrometheusUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl PrometheusUrl {
    /// The series that a query has at a moment. Values that are no numbers are left out.
    pub async fn query(&self, query: &str, at_unix_s: f64) -> anyhow::Result<Vec<Series>> {
        let encoded = utf8_percent_encode(query, NON_ALPHANUMERIC);
        let url = format!("{self}/api/v1/query?query={encoded}&time={at_unix_s:.3}");
        let (status, body) = self.get_when_ready(&url).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let Some(outcome) = answer["status"].as_str() else {
            bail!(
                "{self} answers, but not as a Prometheus does (status {status}): give the address \
                 at which its own page opens"
            );
        };
        let Some(result) = answer["data"]["result"].as_array().filter(|_| outcome == "success")
        else {
            let reason = answer["error"].as_str().map_or(format!("status {status}"), str::to_owned);
            bail!("{self} refuses the query `{query}`: {reason}");
        };
        let series = result.iter().filter_map(|series| {
            // Seconds since the epoch, and the value as text.
            let value =
                series["value"][1].as_str()?.parse().ok().filter(|one: &f64| one.is_finite());
            Some(Series { labels: BTreeMap::deserialize(&series["metric"]).ok()?, value: value? })
        });
        Ok(series.collect())
    }

    async fn get_when_ready(&self, url: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let until = Instant::now() + ANSWER_WITHIN;
        loop {
            let answer = http_get(url, ANSWER_WITHIN).await;
            let (status, body) = answer.map_err(|reason| {
                anyhow!(
                    "no Prometheus answers at {self} ({reason}): start it, or correct --prometheus"
                )
            })?;
            // A Prometheus that still loads its database answers with this status and no JSON.
            if status != StatusCode::SERVICE_UNAVAILABLE || body.starts_with(b"{") {
                return Ok((status, body));
            }
            ensure!(
                Instant::now() + ASK_AGAIN_AFTER < until,
                "{self} has not been ready for {} s (status 503): wait until it has started",
                ANSWER_WITHIN.as_secs()
            );
            sleep(ASK_AGAIN_AFTER).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// A server that gives every request this answer, and the requests that came.
    async fn answering(
        status: &str,
        body: &str,
    ) -> (PrometheusUrl, tokio::sync::mpsc::UnboundedReceiver<String>) {
        answering_in_turn(&[(status, body)]).await
    }

    /// The last answer is given to all later requests too.
    async fn answering_in_turn(
        answers: &[(&str, &str)],
    ) -> (PrometheusUrl, tokio::sync::mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap()).parse().unwrap();
        let answer = |&(status, body): &(&str, &str)| {
            format!(
                "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
        };
        let mut answers: VecDeque<String> = answers.iter().map(answer).collect();
        let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut buffer = vec![0; 4096];
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                let _ = sender.send(String::from_utf8_lossy(&buffer[..length]).into_owned());
                let _ = stream.write_all(answers[0].as_bytes()).await;
                if answers.len() > 1 {
                    answers.pop_front();
                }
            }
        });
        (url, requests)
    }

    #[tokio::test]
    async fn series_are_read_and_what_is_no_number_is_left_out() {
        let body = r#"{"status":"success","data":{"resultType":"vector","result":[
            {"metric":{"instance":"a:1"},"value":[1700000000.5,"12.5"]},
            {"metric":{},"value":[1700000000.5,"NaN"]}]}}"#;
        let (url, mut requests) = answering("200 OK", body).await;
        let series = url.query("sum(rate(x{a=\"b\"}[8s]))", 1_700_000_000.5).await.unwrap();
        assert_eq!(
            series,
            [Series { labels: [("instance".to_owned(), "a:1".to_owned())].into(), value: 12.5 }]
        );
        let request = requests.recv().await.unwrap();
        let expected = "GET /prefix/api/v1/query\
                        ?query=sum%28rate%28x%7Ba%3D%22b%22%7D%5B8s%5D%29%29\
                        &time=1700000000.500 HTTP/1.1";
        assert_eq!(request.lines().next().unwrap(), expected);
    }

    #[tokio::test]
    async fn a_prometheus_that_starts_is_waited_for() {
        let ready = r#"{"status":"success","data":
            {"resultType":"vector","result":[{"metric":{},"value":[1.0,"2"]}]}}"#;
        let starts = ("503 Service Unavailable", "Service Unavailable");
        let (url, mut requests) = answering_in_turn(&[starts, starts, ("200 OK", ready)]).await;
        assert_eq!(url.query("x", 0.0).await.unwrap()[0].value, 2.0);
        assert_eq!(std::iter::from_fn(|| requests.try_recv().ok()).count(), 3);
    }

    #[tokio::test]
    async fn a_refused_query_another_server_and_none_are_told_apart() {
        let (url, _requests) =
            answering("400 Bad Request", r#"{"status":"error","error":"parse error: }"}"#).await;
        let error = url.query("}", 0.0).await.unwrap_err();
        let expected = format!("{url} refuses the query `}}`: parse error: }}");
        assert_eq!(error.to_string(), expected);
        let (url, _requests) = answering("404 Not Found", "<html>").await;
        let error = url.query("x", 0.0).await.unwrap_err();
        assert!(
            error.to_string().contains("not as a Prometheus does (status 404 Not Found)"),
            "{error}"
        );
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = format!("http://{closed}")
            .parse::<PrometheusUrl>()
            .unwrap()
            .query("x", 0.0)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains(&format!("no Prometheus answers at http://{closed}")),
            "{error}"
        );
    }

    #[test]
    fn an_address_may_have_a_port_and_a_prefix() {
        for (text, expected) in [
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("http://prometheus.monitoring/", "http://prometheus.monitoring:80"),
            ("http://[::1]:9090/a/b/", "http://[::1]:9090/a/b"),
        ] {
            assert_eq!(text.parse::<PrometheusUrl>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_helps() {
        for text in ["", "127.0.0.1:9090", "prometheus", "ftp://a", "http://a/?query=b", "http://"]
        {
            assert_eq!(text.parse::<PrometheusUrl>(), Err(NO_ADDRESS), "{text}");
        }
        assert_eq!("https://a".parse::<PrometheusUrl>(), Err(NO_HTTPS));
        assert_eq!("http://me:secret@a".parse::<PrometheusUrl>(), Err(NO_PASSWORD));
    }
}
