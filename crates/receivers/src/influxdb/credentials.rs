//! Users and tokens, in all the forms in which InfluxDB's clients show them.
//!
//! The extensions that authenticate read `Authorization: Basic` or `Bearer`. A token of InfluxDB
//! may be a user with a password there, and a password may be a token: releases of InfluxDB are
//! compatible with each other in these ways.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use sluice_net::auth::client::basic_credentials;
use sluice_net::auth::server::{AuthError, ServerAuth};

use super::request::Parameters;

/// Checks the credentials of a request.
///
/// # Errors
/// None of their forms is known to the authenticator.
pub(super) async fn check(
    authenticator: &Arc<dyn ServerAuth>,
    headers: &HeaderMap,
    parameters: &Parameters,
) -> Result<(), AuthError> {
    let mut worst = AuthError::Missing;
    for form in forms(headers, parameters) {
        match authenticator.authenticate(form.as_ref().unwrap_or(headers)).await {
            Ok(()) => return Ok(()),
            Err(AuthError::Busy) => return Err(AuthError::Busy),
            Err(AuthError::Wrong) => worst = AuthError::Wrong,
            Err(AuthError::Malformed) if worst == AuthError::Missing => {
                worst = AuthError::Malformed;
            }
            Err(_) => {}
        }
    }
    Err(worst)
}

/// The headers that are tried, one after the other. `None`: those of the request.
fn forms(headers: &HeaderMap, parameters: &Parameters) -> Vec<Option<HeaderMap>> {
    let (user, password) = (parameters.of("u"), parameters.of("p"));
    if !user.is_empty() && !password.is_empty() {
        // In the URL they come first, as in InfluxDB.
        return [basic(&format!("{user}:{password}")), bearer(password)].map(Some).into();
    }
    let mut forms = vec![None];
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().unwrap_or_default(),
        _ => "",
    };
    let (scheme, rest) = value.trim().split_once(' ').unwrap_or_default();
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("token") && !rest.is_empty() {
        let pair = rest.split_once(':');
        if pair.is_some_and(|(user, password)| !user.is_empty() && !password.is_empty()) {
            forms.push(Some(basic(rest)));
        }
        forms.push(Some(bearer(rest)));
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD.decode(rest).ok().and_then(|it| String::from_utf8(it).ok());
        let password = decoded.as_deref().and_then(|it| it.split_once(':')).map(|(_, it)| it);
        let password = password.filter(|password| !password.is_empty());
        forms.extend(password.map(|password| Some(bearer(password))));
    }
    forms
}

fn basic(credentials: &str) -> HeaderMap {
    authorization(&basic_credentials(credentials))
}

fn bearer(token: &str) -> HeaderMap {
    authorization(&format!("Bearer {token}"))
}

/// Empty if the text is no value of a header: no client can have such a token.
fn authorization(text: &str) -> HeaderMap {
    let value = HeaderValue::from_str(text).ok().map(|mut value| {
        value.set_sensitive(true);
        (AUTHORIZATION, value)
    });
    value.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(header: &str, query: &str) -> Vec<String> {
        let mut headers = HeaderMap::new();
        if !header.is_empty() {
            headers.insert(AUTHORIZATION, header.parse().expect("a value"));
        }
        let forms = forms(&headers, &Parameters::parse(query.as_bytes()));
        let text = |headers: HeaderMap| {
            let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        forms.into_iter().map(|form| form.map_or("as sent".to_owned(), text)).collect()
    }

    /// Guarantee: each form of InfluxDB's clients becomes those that extensions know, and nothing
    /// that is empty becomes one.
    #[test]
    fn forms_of_credentials() {
        let all = |forms: &[&str]| forms.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        for (header, query, expected) in [
            ("", "", &["as sent"][..]),
            ("Bearer t", "", &["as sent"]),
            ("Token t", "", &["as sent", "Bearer t"]),
            ("token u:p", "", &["as sent", "Basic dTpw", "Bearer u:p"]),
            ("Token u:", "", &["as sent", "Bearer u:"]),
            ("Token ", "", &["as sent"]),
            ("Token", "", &["as sent"]),
            ("Basic dTpw", "", &["as sent", "Bearer p"]),
            ("Basic dTo=", "", &["as sent"]),
            ("Basic ?", "", &["as sent"]),
            ("Token t", "u=u&p=p", &["Basic dTpw", "Bearer p"]),
            ("", "u=u&p=", &["as sent"]),
            ("", "u=&p=p", &["as sent"]),
            ("", "u=u&p=a%0Ab", &["Basic dTphCmI=", ""]),
        ] {
            assert_eq!(shown(header, query), all(expected), "{header} {query}");
        }
    }
}
