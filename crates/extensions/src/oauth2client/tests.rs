//! With a token endpoint over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use parking_lot::Mutex;
use sluice_config::read_text;
use sluice_net::auth::client::ClientAuth as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// The requests, head and body.
type Asked = Arc<Mutex<Vec<String>>>;

/// Status, content type and body.
type Answer = (&'static str, &'static str, &'static str);

/// An endpoint that answers by the request.
async fn endpoint(answer: fn(&str) -> Answer) -> (SocketAddr, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (mut request, mut chunk) = (String::new(), [0; 4096]);
            // The body is the last to come, and ends with one of these.
            while !request.ends_with("client_credentials") && !request.ends_with("=hush") {
                let length = stream.read(&mut chunk).await.expect("reads");
                assert!(length > 0, "{request}");
                request.push_str(&String::from_utf8_lossy(&chunk[..length]));
            }
            let (status, content_type, body) = answer(&request);
            noted.lock().push(request);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n"
            );
            stream.write_all((head + body).as_bytes()).await.expect("writes");
        }
    });
    (address, asked)
}

fn client(address: SocketAddr) -> OAuth2Client {
    let text =
        format!("{{token_url: 'http://{address}/token', client_id: me, client_secret: hush}}");
    let (config, diagnostics) = read_text("extensions.oauth2client", &text, Config::read);
    assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
    OAuth2Client::new(&config).expect("builds")
}

async fn token(client: &OAuth2Client) -> Result<String, String> {
    let mut headers = HeaderMap::new();
    client.authenticate(&mut headers, &[]).await.map_err(|error| error.reason)?;
    Ok(headers[AUTHORIZATION].to_str().expect("is text").to_owned())
}

/// Scenario: an endpoint reads credentials in the form only, and fails over those in a header: with
/// an error of its own, or with a page instead of a token. Guarantee: the form is tried, as Go's
/// clients do, and from then on the first to be.
#[tokio::test]
async fn credentials_are_sent_in_the_form_after_any_failure() {
    const TOKEN: Answer =
        ("200 OK", "application/x-www-form-urlencoded", "access_token=t&token_type=bearer");
    let failing: [fn(&str) -> Answer; 4] = [
        |it| if it.ends_with("=hush") { TOKEN } else { ("401 Who", "text/plain", "") },
        |it| if it.ends_with("=hush") { TOKEN } else { ("403 No", "text/plain", "") },
        |it| if it.ends_with("=hush") { TOKEN } else { ("500 Oh", "text/plain", "") },
        |it| if it.ends_with("=hush") { TOKEN } else { ("200 OK", "text/html", "<p>") },
    ];
    for (index, answer) in failing.into_iter().enumerate() {
        let (address, asked) = endpoint(answer).await;
        let client = client(address);
        for _ in 0..2 {
            assert_eq!(token(&client).await.as_deref(), Ok("Bearer t"), "{index}");
            client.refused().await;
        }
        let in_form: Vec<_> = asked.lock().iter().map(|it| it.ends_with("=hush")).collect();
        assert_eq!(in_form, [false, true, true], "{index}");
    }
}

/// Scenario: an endpoint that takes the header is overloaded for a while. Guarantee: it is asked
/// once for each attempt, and no secret is sent in a form.
#[tokio::test]
async fn the_form_is_not_tried_where_the_header_was_taken() {
    static IS_BUSY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    use std::sync::atomic::Ordering::Relaxed;
    let (address, asked) = endpoint(|_| match IS_BUSY.load(Relaxed) {
        true => ("503 Busy", "text/plain", ""),
        false => ("200 OK", "application/json", r#"{"access_token":"t"}"#),
    })
    .await;
    let client = client(address);
    assert_eq!(token(&client).await.as_deref(), Ok("Bearer t"));
    client.refused().await;
    IS_BUSY.store(true, Relaxed);
    let error = token(&client).await.expect_err("is busy");
    assert!(error.contains("503"), "{error}");
    let asked = asked.lock();
    assert!(asked.len() == 2 && !asked.iter().any(|it| it.contains("hush")), "{asked:?}");
}
