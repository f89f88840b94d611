//! Cross-origin requests of browsers (the Fetch standard, "CORS protocol").

use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::ReplyBody;

/// Browsers request these on their own; the Collector allows them beyond the configured ones.
const ALWAYS_ALLOWED: [&str; 6] =
    ["Origin", "Accept", "Content-Type", "X-Requested-With", "Content-Encoding", "Authorization"];

/// The origins that may send, and the headers of answers to their browsers.
#[derive(Clone, Debug)]
pub struct Cors {
    origins: Vec<String>,
    /// Headers of every answer to an origin that is allowed.
    always: HeaderMap,
    /// Further headers of answers to preflight requests.
    preflight: HeaderMap,
    /// Requests may have any header: they are told those that they ask for. Browsers take `*` for
    /// the name of a header, since credentials are allowed.
    allows_any_header: bool,
}

impl Cors {
    /// `origins`: `https://*.example.com` and the like, `*` for all. `headers`: those that requests
    /// may have beyond the usual, `*` for all.
    pub fn new(
        origins: Vec<String>,
        headers: &[String],
        exposed: &[String],
        max_age: Option<Duration>,
    ) -> Result<Self, String> {
        let value = |text: String| {
            HeaderValue::from_str(&text)
                .map_err(|_| format!("`{text}` cannot be an HTTP header value"))
        };
        let more = headers.iter().map(String::as_str).filter(|name| *name != "*");
        let allowed: Vec<&str> = ALWAYS_ALLOWED.into_iter().chain(more).collect();
        let allows_any_header = headers.iter().any(|name| name == "*");
        let (mut always, mut preflight) = (HeaderMap::new(), HeaderMap::new());
        always.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        if origins.iter().any(|origin| origin == "*") {
            // Browsers refuse it for requests with credentials, which not every page may use.
            always.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        if !exposed.is_empty() {
            always.insert(ACCESS_CONTROL_EXPOSE_HEADERS, value(exposed.join(", "))?);
        }
        preflight.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
        preflight.insert(ACCESS_CONTROL_ALLOW_HEADERS, value(allowed.join(", "))?);
        if let Some(age) = max_age {
            preflight.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(age.as_secs()));
        }
        let origins = origins.into_iter().map(|origin| origin.to_ascii_lowercase()).collect();
        Ok(Cors { origins, always, preflight, allows_any_header })
    }

    /// The answer to a preflight request. `None` if the request is none.
    pub fn preflight(&self, method: &Method, headers: &HeaderMap) -> Option<Response<ReplyBody>> {
        if method != Method::OPTIONS || !headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let mut response = Response::new(ReplyBody::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        if self.apply(headers.get(ORIGIN), answer) {
            answer.extend(self.preflight.clone());
            if self.allows_any_header {
                answer.append(VARY, HeaderValue::from_static("Access-Control-Request-Headers"));
                for names in headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS) {
                    answer.append(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
                }
            }
        }
        Some(response)
    }

    /// Adds the headers for the request's origin to an answer. Returns whether it is allowed.
    pub fn apply(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) -> bool {
        let Some(origin) = origin else { return false };
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if !self.allows(origin) {
            return false;
        }
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        // With `*` it replaces the origin.
        answer.extend(self.always.clone());
        true
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let origin = origin.to_ascii_lowercase();
        self.origins.iter().any(|pattern| matches_pattern(pattern, &origin))
    }
}

/// One `*` in the pattern stands for anything.
fn matches_pattern(pattern: &str, origin: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == origin,
        Some((prefix, suffix)) => {
            origin.len() >= prefix.len() + suffix.len()
                && origin.starts_with(prefix)
                && origin.ends_with(suffix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors() -> Cors {
        let origins = vec!["https://*.Example.com".to_owned(), "http://localhost:3000".to_owned()];
        Cors::new(origins, &["X-Tenant".to_owned()], &[], Some(Duration::from_secs(600)))
            .expect("is valid")
    }

    #[test]
    fn only_configured_origins_are_allowed() {
        for (origin, allowed) in [
            ("https://shop.example.com", true),
            ("http://localhost:3000", true),
            ("https://example.com", false),
            ("https://shop.example.com.evil.org", false),
            ("http://localhost:30000", false),
        ] {
            let mut answer = HeaderMap::new();
            let origin = HeaderValue::from_static(origin);
            assert_eq!(cors().apply(Some(&origin), &mut answer), allowed, "{origin:?}");
            assert_eq!(answer.get(ACCESS_CONTROL_ALLOW_ORIGIN), allowed.then_some(&origin));
            assert_eq!(answer[VARY], "Origin");
        }
    }

    /// Guarantee: no browser lets every page send with the user's credentials.
    #[test]
    fn all_origins_are_answered_as_such() {
        let origins = vec!["https://shop.example.com".to_owned(), "*".to_owned()];
        let cors = Cors::new(origins, &[], &[], None).expect("is valid");
        let mut answer = HeaderMap::new();
        assert!(cors.apply(Some(&HeaderValue::from_static("https://evil.org")), &mut answer));
        let allowed: Vec<_> = answer.get_all(ACCESS_CONTROL_ALLOW_ORIGIN).iter().collect();
        assert_eq!(allowed, ["*"]);
        assert_eq!(answer[VARY], "Origin");
    }

    #[test]
    fn a_preflight_is_answered_and_other_requests_are_not_taken_for_one() {
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static("http://localhost:3000"));
        assert!(cors().preflight(&Method::OPTIONS, &headers).is_none());
        headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        assert!(cors().preflight(&Method::POST, &headers).is_none());
        let response = cors().preflight(&Method::OPTIONS, &headers).expect("is a preflight");
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers()[ACCESS_CONTROL_MAX_AGE], "600");
        let allowed = response.headers()[ACCESS_CONTROL_ALLOW_HEADERS].to_str().expect("is text");
        assert!(allowed.contains("Content-Type") && allowed.contains("X-Tenant"));
    }

    /// Scenario: `allowed_headers: ["*"]`. Guarantee: pages may have the headers that they ask for.
    /// Browsers take a literal `*` for a name, because credentials are allowed.
    #[test]
    fn any_header_is_allowed_by_its_name() {
        let cors = Cors::new(vec!["*".to_owned()], &["*".to_owned()], &[], None).expect("is valid");
        let mut headers = HeaderMap::new();
        headers.insert(ORIGIN, HeaderValue::from_static("http://localhost:3000"));
        headers.insert(ACCESS_CONTROL_REQUEST_METHOD, HeaderValue::from_static("POST"));
        for names in ["x-tenant", "x-tenant,x-region"] {
            headers.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static(names));
            let response = cors.preflight(&Method::OPTIONS, &headers).expect("is a preflight");
            let allowed = response.headers().get_all(ACCESS_CONTROL_ALLOW_HEADERS).iter();
            let allowed: Vec<_> = allowed.filter_map(|value| value.to_str().ok()).collect();
            assert!(allowed.contains(&names) && !allowed.concat().contains('*'), "{allowed:?}");
            let varies = response.headers().get_all(VARY).iter();
            assert!(varies.into_iter().any(|it| it == "Access-Control-Request-Headers"));
        }
    }
}
