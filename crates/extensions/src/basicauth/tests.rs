use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use sluice_config::Secret;
use sluice_net::auth::client::ClientAuth as _;
use sluice_net::auth::server::{AuthError, ServerAuth};

use super::*;

const NO_USER: &str = "there is no user";
const UNSUPPORTED: &str = "the password hash of user ";

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).expect("a header value"))])
}

fn server(inline: impl Into<String>) -> Result<BasicServer, String> {
    BasicServer::new(&ServerConfig { inline: Secret::new(inline), file: None })
}

/// Scenario: fixed credentials. Guarantee: the header of RFC 7617, and `Debug` hides the password.
#[tokio::test]
async fn a_client_shows_its_credentials_and_debug_hides_them() {
    let config = ClientConfig {
        username: SecretSource::of(None, Secret::new("me")),
        password: SecretSource::of(None, Secret::new("open sesame")),
    };
    let client = config.shown();
    let mut headers = HeaderMap::new();
    client.authenticate(&mut headers, &[]).await.expect("authenticates");
    let value = headers.get(AUTHORIZATION).expect("a header");
    assert!(value.is_sensitive());
    assert_eq!(
        value.to_str().expect("ASCII"),
        format!("Basic {}", STANDARD.encode("me:open sesame"))
    );
    assert!(!format!("{config:?}").contains("sesame"));
}

fn basic_header(credentials: &str) -> HeaderMap {
    headers(&format!("Basic {}", STANDARD.encode(credentials)))
}

#[tokio::test]
async fn every_kind_of_password_hash_is_checked() {
    let bcrypt = bcrypt::hash("s3cret:with colon", 4).expect("a hash");
    // The digest of `s3cret:with colon`, as `htpasswd -s` writes it.
    let sha = STANDARD.encode(<sha1::Sha1 as sha1::Digest>::digest("s3cret:with colon"));
    let inline = format!("# users\nhashed:{bcrypt}\nsha:{{SHA}}{sha}\nplain:s3cret:with colon\n");
    let authenticator = server(inline).expect("good lines");
    for user in ["hashed", "sha", "plain"] {
        // Twice, because a good bcrypt password is remembered.
        for _ in 0..2 {
            let good = basic_header(&format!("{user}:s3cret:with colon"));
            assert_eq!(authenticator.authenticate(&good).await, Ok(()), "{user}");
            let wrong = basic_header(&format!("{user}:s3cret"));
            assert_eq!(authenticator.authenticate(&wrong).await, Err(AuthError::Wrong), "{user}");
        }
    }
    let unknown = authenticator.authenticate(&basic_header("unknown:s3cret")).await;
    assert_eq!(unknown, Err(AuthError::Wrong));
    for malformed in ["Basic %%%", "Basic dXNlcg==", "Bearer x"] {
        let result = authenticator.authenticate(&headers(malformed)).await;
        assert_eq!(result, Err(AuthError::Malformed), "{malformed}");
    }
}

/// Scenario: a hash of the empty password. Guarantee: it lets no sender in.
#[tokio::test]
async fn an_empty_password_is_never_right() {
    let empty = bcrypt::hash("", 4).expect("a hash");
    let authenticator = server(format!("user:{empty}")).expect("good lines");
    assert_eq!(authenticator.authenticate(&basic_header("user:")).await, Err(AuthError::Wrong));
}

/// Scenario: after a start, many requests of one sender at once, at a cost that makes a check take
/// long. Guarantee: one check serves them all, and none is refused as busy.
#[tokio::test]
async fn requests_at_once_with_the_same_credentials_cost_one_check() {
    let hash = bcrypt::hash("right", 12).expect("a hash");
    let authenticator = server(format!("user:{hash}")).expect("good lines");
    let headers = basic_header("user:right");
    let answers = join_all((0..200).map(|_| authenticator.authenticate(&headers))).await;
    assert_eq!(answers, vec![Ok(()); 200]);
}

/// Scenario: passwords are guessed, one after the other and several at once. Guarantee: the time of
/// a refusal does not tell whether there is such a user.
#[tokio::test]
async fn unknown_users_are_refused_no_sooner_than_known_ones() {
    let hash = bcrypt::hash("right", 8).expect("a hash");
    let authenticator = server(format!("user:{hash}\nplain:right")).expect("good lines");
    for guesses in [1, 12] {
        let mut took = Vec::new();
        for user in ["user", "plain", "unknown"] {
            let began = Instant::now();
            let wrong = |guess| basic_header(&format!("{user}:right or {guess}"));
            let wrong: Vec<_> = (0..guesses).map(wrong).collect();
            let refused = join_all(wrong.iter().map(|it| authenticator.authenticate(it))).await;
            assert_eq!(refused, vec![Err(AuthError::Wrong); guesses]);
            took.push(began.elapsed());
        }
        assert!(took.iter().all(|took_too| *took_too > took[0] / 4), "{took:?}");
    }
    // The password that the time is spent on is another user's.
    let other = authenticator.authenticate(&basic_header("unknown:right")).await;
    assert_eq!(other, Err(AuthError::Wrong));
}

/// Scenario: clients show a hundred wrong passwords of unknown names, of one user, and one of each
/// of a hundred users. Guarantee: another user is let in, and none is refused as busy.
#[tokio::test]
async fn wrong_passwords_take_no_other_users_turn() {
    let hash = bcrypt::hash("right", 4).expect("a hash");
    let mut lines = format!("good:{hash}\nguessed:{hash}\n");
    (0..100).for_each(|index| lines.push_str(&format!("user{index}:{hash}\n")));
    let authenticator = server(lines).expect("good lines");
    let wrong =
        |index| [format!("unknown{index}:x"), format!("guessed:{index}"), format!("user{index}:x")];
    let shown: Vec<_> = (0..100).flat_map(wrong).map(|shown| basic_header(&shown)).collect();
    let all = || join_all(shown.iter().map(|headers| authenticator.authenticate(headers)));
    assert!(all().now_or_never().is_none(), "is given up");
    let good = basic_header("good:right");
    let (good, refused) = tokio::join!(authenticator.authenticate(&good), all());
    assert_eq!(good, Ok(()));
    assert_eq!(refused, vec![Err(AuthError::Wrong); 300]);
}

/// Scenario: wrong passwords of a user, and of a name without one, come faster than they can be
/// checked, for longer than a request may wait. Guarantee: passwords are checked all the time, so
/// that the right one is let in; those that would wait too long are told so at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_wrong_passwords_does_not_end_all_checks() {
    const WAIT: Duration = Duration::from_millis(200);
    let hash = bcrypt::hash("right", 8).expect("a hash");
    let mut authenticator = server(format!("user:{hash}")).expect("good lines");
    authenticator.check_wait = WAIT;
    let authenticator = Arc::new(authenticator);
    // The line is as long as checks take.
    for name in ["user", "other"] {
        let first = authenticator.authenticate(&basic_header(&format!("{name}:first"))).await;
        assert_eq!(first, Err(AuthError::Wrong), "{name}");
    }
    let [wrong, busy, late] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let counts = [Arc::clone(&wrong), Arc::clone(&busy), Arc::clone(&late)];
    let flooded = Arc::clone(&authenticator);
    let flood = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(2));
        for number in 0.. {
            ticks.tick().await;
            for name in ["user", "other"] {
                let (flooded, counts) = (Arc::clone(&flooded), counts.clone());
                tokio::spawn(async move {
                    let began = Instant::now();
                    let headers = basic_header(&format!("{name}:{number}"));
                    let is_wrong = flooded.authenticate(&headers).await == Err(AuthError::Wrong);
                    counts[usize::from(!is_wrong)].fetch_add(1, Ordering::Relaxed);
                    if !is_wrong && began.elapsed() > WAIT / 2 {
                        counts[2].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        }
    });
    tokio::time::sleep(3 * WAIT).await;
    let began = Instant::now();
    let right = basic_header("user:right");
    while authenticator.authenticate(&right).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never checked");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    flood.abort();
    let [wrong, busy, late] = [wrong, busy, late].map(|it| it.load(Ordering::Relaxed));
    assert!(wrong > 0 && late * 10 <= busy, "{wrong} wrong, {busy} busy, {late} of these late");
}

/// Scenario: users are added to the file, then one of them has another password. Guarantee: after
/// the reload only the user with the other password is checked again.
#[tokio::test]
async fn a_reload_keeps_what_is_known_of_unchanged_users() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("htpasswd");
    let [first, second] = ["first", "second"].map(|it| bcrypt::hash(it, 4).expect("a hash"));
    let write = |lines| std::fs::write(&path, lines).expect("is written");
    write(format!("a:{first}\nb:{first}"));
    let config = ServerConfig { inline: Secret::default(), file: Some(path.clone()) };
    let authenticator = BasicServer::new(&config).expect("good lines");
    let [a, b, b_second, c] = ["a:first", "b:first", "b:second", "c:second"].map(basic_header);
    for known in [&a, &b] {
        assert_eq!(authenticator.authenticate(known).await, Ok(()));
    }
    write(format!("a:{first}\nb:{second}\nc:{second}"));
    while authenticator.authenticate(&c).await.is_err() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(authenticator.authenticate(&a).now_or_never(), Some(Ok(())));
    assert_eq!(authenticator.authenticate(&b).await, Err(AuthError::Wrong));
    assert_eq!(authenticator.authenticate(&b_second).await, Ok(()));
}

#[test]
fn hashes_that_are_not_supported_are_named_and_not_taken_for_passwords() {
    for line in ["user:$apr1$x$y", "user:{SSHA}abc", "user:$2y$nonsense"] {
        let error = server(line).err().expect("an error");
        assert!(error.starts_with(UNSUPPORTED) && error.contains("`user`"), "{line}: {error}");
    }
    let not_a_user = "line 1 is not `user:password-hash`".to_owned();
    assert_eq!(server("user:").err().as_ref(), Some(&not_a_user), "an empty password");
    assert_eq!(server("nonsense").err(), Some(not_a_user));
    assert_eq!(server("").err().as_deref(), Some(NO_USER));
}

proptest! {
    /// Every user of the file is let in, with the right password only.
    #[test]
    fn users_are_read_from_lines(
        users in hash_map(
            "[a-zé][a-zé0-9 ._-]{0,8}",
            ("[a-zA-Z0-9é!:%]([ -~é]{0,12}[!-~é])?", any::<bool>()),
            1..5
        )
    ) {
        let mut inline = String::from(" # name:password\r\n\n");
        for (user, (password, hashed)) in &users {
            let digest = || STANDARD.encode(<sha1::Sha1 as sha1::Digest>::digest(password));
            let password = if *hashed { format!("{{SHA}}{}", digest()) } else { password.clone() };
            inline.push_str(&format!("{user}:{password} \r\n"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let authenticator = server(inline).expect("users");
        let authenticate = |credentials: String| {
            runtime.block_on(authenticator.authenticate(&basic_header(&credentials)))
        };
        for (user, (password, _)) in &users {
            prop_assert_eq!(authenticate(format!("{user}:{password}")), Ok(()));
            prop_assert_eq!(authenticate(format!("{user}:{password}x")), Err(AuthError::Wrong));
        }
    }

    /// Any file is users or an error: in hashes nothing is where it is expected.
    #[test]
    fn any_lines_are_users_or_an_error(
        lines in vec(prop_oneof!["\\PC{0,20}",
            "[a-z:#]{0,3}(\\{SHA\\}|\\$2y\\$[0-9$]{2,11}\\$)?[./A-Za-z0-9é=]{0,60}"], 0..4)
    ) {
        match server(lines.join("\n")).err() {
            None => {}
            Some(error) if error == NO_USER || error.starts_with(UNSUPPORTED) => {}
            Some(error) => {
                let line = error.strip_prefix("line ").and_then(|rest| rest.split(' ').next());
                let line = line.and_then(|line| line.parse::<usize>().ok());
                prop_assert!(line.is_some_and(|line| (1..=lines.len()).contains(&line)), "{error}");
            }
        }
    }
}
