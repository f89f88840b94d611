//! The service of metadata of instances of EC2 (IMDS).

use std::time::Duration;

use http::StatusCode;
use serde_json::Value as Json;

use super::super::surroundings::Surroundings;

const IPV6: &str = "http://[fd00:ec2::254]";
const TOKEN: &str = "x-aws-ec2-metadata-token";
const TOKEN_TTL: &str = "x-aws-ec2-metadata-token-ttl-seconds";
const TOKEN_SECONDS: &str = "300";
/// In a container the answer may not come: it is not allowed as many hops.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Imds<'a> {
    around: &'a Surroundings,
    base: String,
    token: Option<String>,
}

impl Imds<'_> {
    /// With a token (IMDSv2), or without one where the service knows none.
    pub(super) async fn open(around: &Surroundings) -> Result<Imds<'_>, String> {
        let is = |name: &str, value: &str| {
            around.variable(name).is_some_and(|it| it.trim().eq_ignore_ascii_case(value))
        };
        if is("AWS_EC2_METADATA_DISABLED", "true") {
            return Err("AWS_EC2_METADATA_DISABLED is true".to_owned());
        }
        let base = match around.given("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if is("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ipv6") => IPV6.to_owned(),
            None => around.metadata().to_owned(),
        };
        let url = format!("{base}/latest/api/token");
        let asked = around.put(&url, &[(TOKEN_TTL, TOKEN_SECONDS)], TOKEN_TIMEOUT).await;
        let failure = match asked {
            Ok(answer) if answer.status == StatusCode::OK => {
                let token = Some(String::from_utf8_lossy(&answer.body).trim().to_owned());
                return Ok(Imds { around, base, token });
            }
            Ok(answer) if answer.status == StatusCode::BAD_REQUEST => {
                return Err(format!("{url} answers {}", answer.status));
            }
            Ok(answer) => format!("answers {}", answer.status),
            Err(reason) => reason,
        };
        if is("AWS_EC2_METADATA_V1_DISABLED", "true") {
            return Err(format!("no token: {url}: {failure}"));
        }
        Ok(Imds { around, base, token: None })
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        self.token.iter().map(|token| (TOKEN, token.as_str())).collect()
    }

    /// The identity document of the instance.
    pub(super) async fn identity(&self) -> Result<Json, String> {
        let url = format!("{}/latest/dynamic/instance-identity/document", self.base);
        self.around.json(&url, &self.headers()).await
    }

    pub(super) async fn metadata(&self, path: &str) -> Result<String, String> {
        let url = format!("{}/latest/meta-data/{path}", self.base);
        self.around.text(&url, &self.headers()).await
    }
}
