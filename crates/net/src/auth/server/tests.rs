use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::collection::{hash_map, vec};
use proptest::prelude::*;

use super::*;

fn headers(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(name, HeaderValue::from_str(value).expect("a header value"));
    headers
}

fn bearer(tokens: &[&str]) -> BearerOptions {
    BearerOptions {
        header: "authorization".to_owned(),
        scheme: "Bearer".to_owned(),
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        file: None,
        reload_interval: None,
    }
}

#[tokio::test]
async fn only_configured_tokens_are_let_in() {
    let authenticator = Authenticator::bearer(bearer(&["one", "two"])).expect("good options");
    for (value, expected) in [
        ("Bearer one", Ok(())),
        ("bearer two", Ok(())),
        ("Bearer on", Err(AuthError::Wrong)),
        ("Bearer ", Err(AuthError::Wrong)),
        ("Bearer", Err(AuthError::Malformed)),
        ("Basic one", Err(AuthError::Malformed)),
    ] {
        assert_eq!(authenticator.authenticate(&headers("authorization", value)).await, expected, "{value}");
    }
    assert_eq!(authenticator.authenticate(&HeaderMap::new()).await, Err(AuthError::Missing));
    assert_eq!(authenticator.challenge(), "Bearer");
}

#[tokio::test]
async fn another_header_and_no_scheme_work_and_no_token_is_refused_at_the_start() {
    let options = BearerOptions { header: "X-Api-Key".to_owned(), scheme: String::new(), ..bearer(&["k"]) };
    let authenticator = Authenticator::bearer(options).expect("good options");
    assert_eq!(authenticator.authenticate(&headers("x-api-key", "k")).await, Ok(()));
    assert!(matches!(Authenticator::bearer(bearer(&[])), Err(AuthSetupError::NoTokens)));
}

/// Scenario: the token file is rotated while requests come. Guarantee: the new token works soon, the old one no more.
#[tokio::test]
async fn a_token_file_is_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("tokens");
    std::fs::write(&path, "old\nother\n").expect("is written");
    let interval = Some(Duration::from_millis(10));
    let options = BearerOptions { file: Some(path.clone()), reload_interval: interval, ..bearer(&[]) };
    let authenticator = Authenticator::bearer(options).expect("good options");
    assert_eq!(authenticator.authenticate(&headers("authorization", "Bearer other")).await, Ok(()));
    std::fs::write(&path, "new").expect("is written");
    for _ in 0..500 {
        if authenticator.authenticate(&headers("authorization", "Bearer new")).await.is_ok() {
            let old = authenticator.authenticate(&headers("authorization", "Bearer old")).await;
            assert_eq!(old, Err(AuthError::Wrong));
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the new token was never taken");
}

fn basic_header(credentials: &str) -> HeaderMap {
    headers("authorization", &format!("Basic {}", STANDARD.encode(credentials)))
}

#[tokio::test]
async fn every_kind_of_password_hash_is_checked() {
    let bcrypt = bcrypt::hash("s3cret:with colon", 4).expect("a hash");
    // The digest of `s3cret:with colon`, as `htpasswd -s` writes it.
    let sha = STANDARD.encode(<sha1::Sha1 as sha1::Digest>::digest("s3cret:with colon"));
    let inline = format!("# users\nhashed:{bcrypt}\nsha:{{SHA}}{sha}\nplain:s3cret:with colon\n");
    let options = BasicOptions { inline, ..BasicOptions::default() };
    let authenticator = Authenticator::basic(options).expect("good options");
    for user in ["hashed", "sha", "plain"] {
        // Twice, because a good bcrypt password is remembered.
        for _ in 0..2 {
            let good = basic_header(&format!("{user}:s3cret:with colon"));
            assert_eq!(authenticator.authenticate(&good).await, Ok(()), "{user}");
            let wrong = basic_header(&format!("{user}:s3cret"));
            assert_eq!(authenticator.authenticate(&wrong).await, Err(AuthError::Wrong), "{user}");
        }
    }
    let unknown = authenticator.authenticate(&basic_header("nobody:s3cret")).await;
    assert_eq!(unknown, Err(AuthError::Wrong));
    for malformed in ["Basic %%%", "Basic dXNlcg==", "Bearer x"] {
        let result = authenticator.authenticate(&headers("authorization", malformed)).await;
        assert_eq!(result, Err(AuthError::Malformed), "{malformed}");
    }
}

#[test]
fn hashes_that_are_not_supported_are_named_and_not_taken_for_passwords() {
    for line in ["user:$apr1$x$y", "user:{SSHA}abc", "user:$2y$nonsense"] {
        let options = BasicOptions { inline: line.to_owned(), ..BasicOptions::default() };
        let expected = AuthSetupError::UnsupportedHash { user: "user".to_owned() };
        assert_eq!(Authenticator::basic(options).err(), Some(expected), "{line}");
    }
    let options = BasicOptions { inline: "nonsense".to_owned(), ..BasicOptions::default() };
    assert_eq!(Authenticator::basic(options).err(), Some(AuthSetupError::NotAUser { line: 1 }));
    assert_eq!(Authenticator::basic(BasicOptions::default()).err(), Some(AuthSetupError::NoUsers));
}

proptest! {
    /// Who stands in the file is let in, with the right password only.
    #[test]
    fn users_are_read_from_lines(
        users in hash_map("[a-zé][a-zé0-9 ._-]{0,8}", ("[a-zA-Z0-9é!:%]([ -~é]{0,12}[!-~é])?", any::<bool>()), 1..5)
    ) {
        let mut inline = String::from(" # name:password\r\n\n");
        for (user, (password, hashed)) in &users {
            let digest = || STANDARD.encode(<sha1::Sha1 as sha1::Digest>::digest(password));
            let password = if *hashed { format!("{{SHA}}{}", digest()) } else { password.clone() };
            inline.push_str(&format!("{user}:{password} \r\n"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let authenticator = Authenticator::basic(BasicOptions { inline, ..BasicOptions::default() }).expect("users");
        let authenticate = |credentials: String| runtime.block_on(authenticator.authenticate(&basic_header(&credentials)));
        for (user, (password, _)) in &users {
            prop_assert_eq!(authenticate(format!("{user}:{password}")), Ok(()));
            prop_assert_eq!(authenticate(format!("{user}:{password}x")), Err(AuthError::Wrong));
        }
    }

    /// Any file is users or an error: in hashes nothing is where it is expected.
    #[test]
    fn any_lines_are_users_or_an_error(
        lines in vec(prop_oneof!["\\PC{0,20}", "[a-z:#]{0,3}(\\{SHA\\}|\\$2y\\$[0-9$]{2,11}\\$)?[./A-Za-z0-9é=]{0,60}"], 0..4)
    ) {
        let options = BasicOptions { inline: lines.join("\n"), ..BasicOptions::default() };
        match Authenticator::basic(options).err() {
            None | Some(AuthSetupError::UnsupportedHash { .. } | AuthSetupError::NoUsers) => {}
            Some(AuthSetupError::NotAUser { line }) => prop_assert!((1..=lines.len()).contains(&line)),
            Some(other) => panic!("{other:?}"),
        }
    }
}
