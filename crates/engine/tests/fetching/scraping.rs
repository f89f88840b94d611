//! The scraper in an engine.

use std::path::Path;
use std::time::Duration;

use sluice_config::SystemEnvironment;
use sluice_engine::plan::{self, Plan};
use tokio::net::TcpListener;

use super::pages::{LINES_A_PAGE, Pages};
use super::{RECEIVERS, backend, metric, start, until};

fn config(folder: &Path, pages: &Pages, backend: std::net::SocketAddr, token: &str) -> String {
    let (folder, server) = (folder.display(), pages.address);
    std::fs::write(format!("{folder}/authority.pem"), &pages.authority).expect("is written");
    format!(
        "receivers:\n  scrape/pages:\n    url: https://{server}/pages\n    directory: {folder}\n    \
         tls: {{ca_file: '{folder}/authority.pem'}}\n    auth: {{authenticator: bearertokenauth}}\n\
         extensions:\n  bearertokenauth: {{token: {token}}}\n  \
         file_storage: {{directory: {folder}/log}}\n\
         exporters: {{otlphttp: {{endpoint: 'http://{backend}', compression: none}}}}\n\
         buffer: {{ack: memory, memory: {{limit_mib: 64}}}}\n\
         service:\n  extensions: [bearertokenauth]\n  \
         telemetry: {{metrics: {{readers: [{{pull: {{exporter: {{prometheus: \
         {{host: 127.0.0.1, port: 0}}}}}}}}]}}}}\n  \
         pipelines:\n    logs: {{receivers: [scrape/pages], exporters: [otlphttp]}}\n"
    )
}

fn read(config: &str) -> Result<Plan, String> {
    let (plan, diagnostics) =
        plan::load_with(&[format!("yaml:{config}")], &SystemEnvironment, &RECEIVERS);
    plan.ok_or_else(|| diagnostics.render(false))
}

/// Scenario: more pages than all the memory while the backend is down. Guarantee: fetching stops at
/// the delivery's limit; when the backend is back each line arrives once, and the checkpoint under
/// the receiver's own name stands at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scraper_is_paced_by_its_delivery() {
    const PAGES: u64 = 800;
    let folder = tempfile::tempdir().expect("a folder");
    let pages = Pages::serve(PAGES, "token").await;
    let backend = backend::free_address().await;
    let engine = start(&config(folder.path(), &pages, backend, "token")).await;
    let metrics = engine.metrics_address().expect("there are metrics");
    let stands = async || {
        let before = pages.served();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        before > 0 && before == pages.served()
    };
    until("fetching stops", stands).await;
    assert!(pages.served() < PAGES, "all was fetched");
    assert_eq!(metric(metrics, "scrape_pages").await, pages.served());
    let checkpoint = || std::fs::read_to_string(folder.path().join("scrape_pages"));
    assert_eq!(checkpoint().expect("is there"), "0");

    let taken = backend::serve(TcpListener::bind(backend).await.expect("is free"), 0);
    let count = || taken.lock().expect("is not poisoned").len();
    until("all lines arrive", async || count() == PAGES as usize * LINES_A_PAGE).await;
    until("the checkpoint is at the end", async || {
        checkpoint().is_ok_and(|next| next == PAGES.to_string())
    })
    .await;
    assert!(taken.lock().expect("is not poisoned").values().all(|times| *times == 1));
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Scenario: the token of the scraper's authenticator is wrong, and a reload mends it. Guarantee:
/// nothing was let in before, and all arrives after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scraper_follows_its_authenticator() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = Pages::serve(20, "right").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let backend = listener.local_addr().expect("an address");
    let taken = backend::serve(listener, 0);
    let mut engine = start(&config(folder.path(), &pages, backend, "wrong")).await;
    until("a request is refused", async || pages.refused() > 0).await;
    assert_eq!(pages.served(), 0);
    let mended = read(&config(folder.path(), &pages, backend, "right")).expect("is planned");
    engine.reload(mended).await.expect("reloads");
    let count = || taken.lock().expect("is not poisoned").len();
    until("all lines arrive", async || count() == 20 * LINES_A_PAGE).await;
    engine.shutdown(Duration::from_secs(5)).await;
}

/// Scenario: the authenticator is misspelt, not started, or cannot authenticate requests.
/// Guarantee: an error that says so.
#[tokio::test]
async fn a_scrapers_authenticator_is_checked() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = Pages::serve(0, "token").await;
    let good = config(folder.path(), &pages, pages.address, "token");
    read(&good).expect("is planned");
    for (name, started, expected) in [
        ("bearertokenaut", "bearertokenauth", "did you mean `bearertokenauth`?"),
        ("file_storage", "bearertokenauth", "is not started"),
        ("file_storage", "file_storage", "cannot authenticate here"),
    ] {
        let config = good
            .replace("authenticator: bearertokenauth", &format!("authenticator: {name}"))
            .replace("extensions: [bearertokenauth]", &format!("extensions: [{started}]"));
        let error = read(&config).err().expect("is an error");
        assert!(error.contains(expected), "{error}");
    }
}
