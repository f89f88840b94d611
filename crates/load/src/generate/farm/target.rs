//! A target: its page, written once, then patched in place, in the format that the scraper prefers
//! (RFC 9110, section 12.5.1, as far as Prometheus' formats need it); and the HTTP side.
//!
//! A scrape counts when hyper drops its page, having written it to the end. A scraper that leaves
//! with a part unread resets the connection: the scrape then counts as failed.

use std::convert::Infallible;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, copy, sink};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::{Farm, Scrape, Shared, Stage};
use crate::identity::{Identity, SAMPLE_DIGITS};

const CYCLE_DIGITS: usize = 6;
/// Connections open at once at one target.
const CONNECTIONS_LIMIT: usize = 64;
/// Pages that are kept between scrapes.
const KEPT_PAGES: usize = 16;

/// One page with the offsets of its variable parts.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    format: Format,
    bytes: Vec<u8>,
    values_at: Vec<u32>,
    cycles_at: Vec<u32>,
    cycle: u64,
}

impl Page {
    fn build(farm: &Farm, format: Format) -> Page {
        let mut page = Page { format, ..Page::default() };
        let labels: String = (0..farm.labels)
            .map(|label| format!("label_key_kkkkk_{label}=\"label_val_vvvvv_{label}\","))
            .collect();
        for metric in 0..farm.metrics {
            page.push_metric(farm, metric, &labels);
        }
        if format == Format::OpenMetrics {
            page.push(format_args!("# EOF\n"));
        }
        page
    }

    /// Head and series of one metric. OpenMetrics' head of a counter is without the suffix.
    fn push_metric(&mut self, farm: &Farm, metric: u32, labels: &str) {
        let base = format!("avalanche_metric_mmmmm_0_{metric:04}");
        let is_counter = metric < farm.counters;
        let (suffix, kind) = if is_counter { ("_total", "counter") } else { ("", "gauge") };
        let name = format!("{base}{suffix}");
        let head = if self.format == Format::OpenMetrics { &base } else { &name };
        self.push(format_args!("# HELP {head} A tasty metric morsel\n# TYPE {head} {kind}\n"));
        for series in 0..farm.series {
            let at = self.push(format_args!("{name}{{cycle_id=\""));
            self.cycles_at.push(at);
            let at =
                self.push(format_args!("{:0CYCLE_DIGITS$}\",{labels}series_id=\"{series}\"}} ", 0));
            self.values_at.push(at);
            self.push(format_args!("{:0SAMPLE_DIGITS$}\n", 0));
        }
    }

    /// Appends text. Returns the length of the page after it.
    fn push(&mut self, text: std::fmt::Arguments<'_>) -> u32 {
        self.bytes.write_fmt(text).expect("a vector takes everything");
        u32::try_from(self.bytes.len()).expect("the number of series bounds a page")
    }

    /// Number of the generation of series that is shown after this time.
    fn cycle(farm: &Farm, elapsed: Duration) -> u64 {
        let every_s = farm.churn_every.map_or(f64::INFINITY, |every| every.as_secs_f64());
        (elapsed.as_secs_f64() / every_s) as u64 % 10_u64.pow(CYCLE_DIGITS as u32)
    }

    /// Writes this cycle, and identities from `first` on.
    fn stamp(&mut self, first: Identity, cycle: u64) {
        for (index, &at) in self.values_at.iter().enumerate() {
            let identity = Identity(first.0 + index as u64);
            let mut value = &mut self.bytes[at as usize..][..SAMPLE_DIGITS];
            write!(value, "{:0SAMPLE_DIGITS$}", identity.to_sample()).expect("room for the digits");
        }
        if cycle != self.cycle {
            let digits = format!("{cycle:0CYCLE_DIGITS$}");
            for &at in &self.cycles_at {
                self.bytes[at as usize..][..CYCLE_DIGITS].copy_from_slice(digits.as_bytes());
            }
            self.cycle = cycle;
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Format {
    /// Prometheus' text format 0.0.4.
    #[default]
    Text,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl Format {
    fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format of the highest quality, of equals the first. Plain text where none is known.
    fn of(accept: &str) -> Format {
        let mut best = (Format::Text, 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let format = match parts.next() {
                Some("application/openmetrics-text") => Format::OpenMetrics,
                Some("text/plain" | "text/*" | "*/*") => Format::Text,
                _ => continue,
            };
            let quality = parts
                .find_map(|part| part.strip_prefix("q="))
                .map_or(Some(1.0), |text| text.parse().ok());
            if let Some(quality) = quality.filter(|quality| *quality > best.1) {
                best = (format, quality);
            }
        }
        best.0
    }
}

pub(super) async fn serve(shared: Arc<Shared>, target: usize, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            Ok((stream, _)) = listener.accept(), if connections.len() < CONNECTIONS_LIMIT => {
                // Failure means a connection that is already gone.
                let _ = stream.set_nodelay(true);
                connections.spawn(serve_one(Arc::clone(&shared), target, stream));
            }
        }
    }
}

async fn serve_one(shared: Arc<Shared>, target: usize, stream: TcpStream) {
    let latest: Mutex<Option<Scrape>> = Mutex::new(None);
    let (shared, latest) = (&shared, &latest);
    let service = service_fn(move |request| async move {
        // The scraper asks again, so it has read the answer before.
        latest.lock().take();
        let answer = match scrape(shared, target, &request).await {
            Ok((scrape, page)) => {
                *latest.lock() = Some(scrape.clone());
                let content_type = page.format.content_type();
                let served = Served { shared: Arc::clone(shared), scrape, page };
                let body = Full::new(Bytes::from_owner(served));
                Response::builder().header(CONTENT_TYPE, content_type).body(body)
            }
            Err(status) => Response::builder().status(status).body(Full::default()),
        };
        Ok::<_, Infallible>(answer.expect("constants"))
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let is_read = match connection.without_shutdown().await {
        Ok(parts) => is_read_to_its_end(parts.io.into_inner()).await,
        Err(_) => false,
    };
    if let Some(scrape) = latest.lock().take().filter(|_| !is_read) {
        shared.cut_off(scrape);
    }
}

/// Whether the scraper has read everything when it closes the connection.
async fn is_read_to_its_end(mut stream: TcpStream) -> bool {
    // Hyper takes a reset for an end, but a socket that was reset has no peer any more.
    stream.peer_addr().is_ok()
        && stream.shutdown().await.is_ok()
        && copy(&mut stream, &mut sink()).await.is_ok()
}

/// The scrape and the page that answer a request, or the status of its refusal.
async fn scrape(
    shared: &Shared,
    target: usize,
    request: &Request<Incoming>,
) -> Result<(Scrape, Page), StatusCode> {
    if request.method() != Method::GET {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if request.uri().path() != "/metrics" {
        return Err(StatusCode::NOT_FOUND);
    }
    shared.stage.send_modify(|stage| *stage = (*stage).max(Stage::Wanted));
    // The sender is here: no error.
    let _ = shared.stage.subscribe().wait_for(|stage| *stage == Stage::Started).await;
    let scrape = shared.begin_scrape(target).ok_or(StatusCode::SERVICE_UNAVAILABLE)?;
    let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::of(accept.unwrap_or_default());
    let idle = {
        let mut pages = shared.idle_pages.lock();
        let index = pages.iter().position(|page| page.format == format);
        index.map(|index| pages.swap_remove(index))
    };
    let mut page = idle.unwrap_or_else(|| Page::build(&shared.farm, format));
    let first = Identity::new(shared.progress.report().generator, scrape.start);
    page.stamp(first, Page::cycle(&shared.farm, shared.began.elapsed()));
    Ok((scrape, page))
}

/// A page on its way, which hyper drops when it has written it.
struct Served {
    shared: Arc<Shared>,
    scrape: Scrape,
    page: Page,
}

impl AsRef<[u8]> for Served {
    fn as_ref(&self) -> &[u8] {
        &self.page.bytes
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.shared.complete(&self.scrape, self.page.bytes.len());
        let mut idle = self.shared.idle_pages.lock();
        if idle.len() < KEPT_PAGES {
            idle.push(std::mem::take(&mut self.page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(farm: &Farm, format: Format, first: u64, cycle: u64) -> String {
        let mut page = Page::build(farm, format);
        page.stamp(Identity::new(3, first), cycle);
        String::from_utf8(page.bytes).unwrap()
    }

    fn small() -> Farm {
        Farm { metrics: 2, series: 2, counters: 1, labels: 1, ..Farm::default() }
    }

    #[test]
    fn the_plain_format_names_a_counter_with_its_suffix() {
        let value = |sequence| Identity::new(3, sequence).to_sample();
        let total = "avalanche_metric_mmmmm_0_0000_total";
        let label = "label_key_kkkkk_0=\"label_val_vvvvv_0\"";
        let expected = format!(
            "# HELP avalanche_metric_mmmmm_0_0000_total A tasty metric morsel\n\
             # TYPE avalanche_metric_mmmmm_0_0000_total counter\n\
             {total}{{cycle_id=\"000007\",{label},series_id=\"0\"}} {}\n\
             {total}{{cycle_id=\"000007\",{label},series_id=\"1\"}} {}\n\
             # HELP avalanche_metric_mmmmm_0_0001 A tasty metric morsel\n\
             # TYPE avalanche_metric_mmmmm_0_0001 gauge\n\
             avalanche_metric_mmmmm_0_0001{{cycle_id=\"000007\",{label},series_id=\"0\"}} {}\n\
             avalanche_metric_mmmmm_0_0001{{cycle_id=\"000007\",{label},series_id=\"1\"}} {}\n",
            value(100),
            value(101),
            value(102),
            value(103)
        );
        assert_eq!(text(&small(), Format::Text, 100, 7), expected);
    }

    #[test]
    fn open_metrics_names_it_without_and_ends_with_eof() {
        let text = text(&small(), Format::OpenMetrics, 0, 0);
        assert!(text.contains("# TYPE avalanche_metric_mmmmm_0_0000 counter\n"), "{text}");
        assert!(
            text.contains("\navalanche_metric_mmmmm_0_0000_total{cycle_id=\"000000\","),
            "{text}"
        );
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn a_page_that_is_stamped_again_has_nothing_left_of_before() {
        let mut page = Page::build(&small(), Format::Text);
        page.stamp(Identity::new(65_000, (1 << 32) - 4), 999_999);
        page.stamp(Identity::new(3, 5), 1);
        assert_eq!(String::from_utf8(page.bytes).unwrap(), text(&small(), Format::Text, 5, 1));
    }

    #[test]
    fn the_series_are_new_after_each_cycle() {
        let farm = Farm { churn_every: Some(Duration::from_millis(500)), ..small() };
        let cycles = [0, 499, 500, 1_700]
            .map(|elapsed_ms| Page::cycle(&farm, Duration::from_millis(elapsed_ms)));
        assert_eq!(cycles, [0, 0, 1, 3]);
        let lasting = Farm { churn_every: None, ..small() };
        assert_eq!(Page::cycle(&lasting, Duration::from_secs(3600)), 0);
    }

    #[test]
    fn a_series_is_about_as_long_as_avalanches() {
        let farm = Farm { metrics: 10, ..Farm::default() };
        let bytes =
            Page::build(&farm, Format::Text).bytes.len() as f64 / farm.series_per_target() as f64;
        assert!((400.0..550.0).contains(&bytes), "{bytes}");
    }

    #[test]
    fn the_scrapers_preference_decides() {
        let collector = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                         application/openmetrics-text;version=0.0.1;q=0.4,\
                         text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        assert_eq!(Format::of(collector), Format::OpenMetrics);
        assert_eq!(Format::of("text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Format::Text);
        assert_eq!(
            Format::of("application/openmetrics-text; q=0.1, text/plain; q=0.9"),
            Format::Text
        );
        assert_eq!(Format::of("application/openmetrics-text;q=0"), Format::Text);
        assert_eq!(Format::of("application/vnd.google.protobuf"), Format::Text);
        assert_eq!(Format::of(""), Format::Text);
    }
}
