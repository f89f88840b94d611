use http::{HeaderMap, HeaderName, HeaderValue};
use sluice_config::read_text;
use sluice_net::auth::client::{ClientAuth, ClientAuths};

use super::*;

async fn applied(
    text: &str,
    headers: &[(&'static str, &'static str)],
    metadata: &[(&str, &str)],
) -> Vec<(String, String)> {
    let (config, diagnostics) = read_text("extensions.headers_setter", text, Config::read);
    assert!(diagnostics.errors().next().is_none(), "{text}");
    let auth = HeadersSetter::new(&config, &ClientAuths::new()).expect("builds");
    let mut map: HeaderMap = headers
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect();
    let metadata: Vec<_> = metadata
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect();
    auth.authenticate(&mut map, &metadata).await.expect("applies");
    let mut found: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().expect("ASCII").to_owned()))
        .collect();
    found.sort();
    found
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// Scenario: the four actions, on headers that are there and that are not. Guarantee: each does
/// what its name says, with the sender's value, the default, or the fixed value.
#[tokio::test]
async fn headers_are_set_as_configured() {
    let text = "headers: [{action: insert, key: a, value: new}, {action: update, key: b, value: new}, \
                {action: upsert, key: X-Scope-OrgID, from_context: Tenant, default_value: fallback}, \
                {action: delete, key: gone}]";
    let existing = [("a", "old"), ("gone", "x")];
    let found = applied(text, &existing, &[("tenant", "blue")]).await;
    assert_eq!(found, [pair("a", "old"), pair("x-scope-orgid", "blue")]);
    let found = applied(text, &[("b", "old")], &[]).await;
    assert_eq!(found, [pair("a", "new"), pair("b", "new"), pair("x-scope-orgid", "fallback")]);
}

/// Scenario: a header is to hold the user whom the receiver has authenticated. Guarantee: a warning
/// says that it does not, and it holds nothing that any sender may forge.
#[tokio::test]
async fn an_authenticated_user_is_not_read_from_a_header() {
    for (name, default, expected) in
        [("auth.username", "", ""), ("Auth.Subject", ", default_value: none", "none")]
    {
        let text = format!("headers: [{{key: x-tenant, from_context: {name}{default}}}]");
        let (_, diagnostics) = read_text("extensions.headers_setter", &text, Config::read);
        let warning = &diagnostics.warnings().next().expect("is warned of").message;
        assert!(warning.contains("from_context") && warning.contains("fixed `value`"), "{warning}");
        let forged = [("auth.username", "root"), ("auth.subject", "root")];
        assert_eq!(applied(&text, &[], &forged).await, [pair("x-tenant", expected)]);
    }
}

/// Scenario: a sender shows two tenants. Guarantee: its data is refused rather than sent for the
/// first; other repeated headers do not matter.
#[test]
fn a_repeated_header_is_not_chosen_from() {
    let text = "headers: [{key: X-Scope-OrgID, from_context: Tenant}]";
    let (config, _) = read_text("extensions.headers_setter", text, Config::read);
    let auth = HeadersSetter::new(&config, &ClientAuths::new()).expect("builds");
    let refused = |metadata: &[(&str, &str)]| {
        let metadata: Vec<_> = metadata
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
            .collect();
        auth.refuses(&metadata)
    };
    let reason = refused(&[("tenant", "t1"), ("tenant", "t2")]).expect("is refused");
    assert!(reason.contains("`tenant`"), "{reason}");
    assert_eq!(refused(&[("tenant", "t1"), ("other", "a"), ("other", "b")]), None);
    assert_eq!(refused(&[]), None);
}
