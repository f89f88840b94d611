//! A page that strangers may ask for, in one form or several. However many ask, and however often:
//! it is made by one at a time, takes a small part of one CPU, and few versions are in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use rustix::time::{ClockId, clock_gettime};
use sluice_otlp::Encoding;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

use super::{ReplyBody, reply};
use crate::compress::compress;

/// Making pages takes one part in this many of one CPU in the long run, about 5%.
const CPU_PART: u32 = 20;
/// Beyond that, as much CPU time may be owed. Those who ask seldom get a new page each time.
const OWED_MAX: Duration = Duration::from_millis(200);
/// While more is owed, a page is good for this long at most.
const GOOD_FOR_MAX: Duration = Duration::from_secs(1);

/// A page that takes longer is not made on a thread that receives.
const INLINE_MAX: Duration = Duration::from_millis(2);

/// Versions in memory, of all forms, which slow peers may still read. With as many, no other is
/// made: a peer has a few seconds for reading.
pub const VERSIONS_MAX: usize = 4;

/// A shorter page is not packed: it is not worth it.
pub const PACKED_FROM_BYTES: usize = 1024;

#[derive(Default)]
pub struct SharedPage {
    made: Arc<Mutex<Pages>>,
    /// A reference for each version that is in memory, and this one.
    versions: Arc<()>,
}

/// The newest page, and the CPU time that pages take.
#[derive(Default)]
struct Pages {
    newest: Option<Made>,
    cpu: CpuOwed,
}

/// The CPU time that pages took beyond their part, as of a moment.
#[derive(Default)]
struct CpuOwed {
    owed: Duration,
    at: Option<Instant>,
}

/// A page as one peer gets it.
pub struct Page {
    pub bytes: Bytes,
    pub is_packed: bool,
}

/// The newest version.
struct Made {
    form: u8,
    finished: Instant,
    cpu_time: Duration,
    version: Arc<Version>,
    plain: Bytes,
    packed: Option<Bytes>,
}

/// A text of a version, which counts until the last peer has it.
struct CountedText {
    text: Bytes,
    _version: Arc<Version>,
}

struct Version {
    _counted: Arc<()>,
}

impl SharedPage {
    /// A page that was made while this request waited or not long before, or a new one. `form`: a
    /// number for each form that it has. `None`: the runtime shuts down, or slow peers read as many
    /// versions as there may be and the newest has another form.
    pub async fn get<T: Into<Bytes>>(
        &self,
        form: u8,
        wants_packed: bool,
        render: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Page> {
        let asked = Instant::now();
        let mut pages = Arc::clone(&self.made).lock_owned().await;
        let is_short = pages.cpu.owed_at(Instant::now()) > OWED_MAX;
        let is_full = Arc::strong_count(&self.versions) > VERSIONS_MAX;
        let newest = pages.newest.as_ref();
        let good = newest.filter(|it| it.form == form);
        let good = good.filter(|made| is_full || is_good(made, asked, is_short));
        let is_good = good.is_some();
        if is_full && !is_good {
            return None;
        }
        let is_ready = good.is_some_and(|made| made.has(wants_packed));
        let is_costly = pages.newest.as_ref().is_some_and(|made| made.cpu_time > INLINE_MAX);
        let version = Version { _counted: self.versions.clone() };
        // It takes the lock along, and so goes on if this request's peer leaves.
        let answer = move || {
            let Pages { newest, cpu } = &mut *pages;
            if !is_good {
                *newest = None;
                let made = newest.insert(Made::new(form, version, render));
                cpu.add(made.cpu_time);
            }
            newest.as_mut().map(|made| made.page(wants_packed, cpu))
        };
        match is_costly && !is_ready {
            true => spawn_blocking(answer).await.ok().flatten(),
            false => answer(),
        }
    }
}

fn is_good(made: &Made, asked: Instant, is_short: bool) -> bool {
    made.finished >= asked || is_short && made.finished.elapsed() < GOOD_FOR_MAX
}

/// The answer with a page, if there is one.
pub fn reply_with_page(content_type: HeaderValue, page: Option<Page>) -> Response<ReplyBody> {
    let Some(Page { bytes, is_packed }) = page else {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        return reply(StatusCode::SERVICE_UNAVAILABLE, text, "");
    };
    let is_long = is_packed || bytes.len() >= PACKED_FROM_BYTES;
    let mut answer = reply(StatusCode::OK, content_type, bytes);
    if is_long {
        answer.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    if is_packed {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    answer
}

/// `gzip` or `*` in `accept-encoding`, not with the quality 0 (RFC 9110, section 12.5.3).
pub fn takes_gzip(asked: &HeaderMap) -> bool {
    let lists = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    let lists: Vec<&str> = lists.collect();
    let quality = |name: &str| {
        lists.iter().flat_map(|list| list.split(',')).find_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let is_it = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case(name));
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok());
            is_it.then(|| weight.unwrap_or(1.0))
        })
    };
    quality("gzip").or_else(|| quality("*")).is_some_and(|quality| quality > 0.0)
}

impl CpuOwed {
    fn owed_at(&mut self, now: Instant) -> Duration {
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now - at);
        self.owed = self.owed.saturating_sub(passed / CPU_PART);
        self.owed
    }

    fn add(&mut self, took: Duration) {
        self.owed += took;
    }
}

impl Made {
    fn new<T: Into<Bytes>>(form: u8, version: Version, render: impl FnOnce() -> T) -> Made {
        let (text, cpu_time) = timed(render);
        let version = Arc::new(version);
        let plain = counted(&version, text.into());
        Made { form, finished: Instant::now(), cpu_time, version, plain, packed: None }
    }

    /// Whether nothing is left to do for a peer that takes gzip or not.
    fn has(&self, packed: bool) -> bool {
        !packed || self.packed.is_some() || self.plain.len() < PACKED_FROM_BYTES
    }

    fn page(&mut self, wants_packed: bool, cpu: &mut CpuOwed) -> Page {
        if !self.has(wants_packed) {
            let plain = std::slice::from_ref(&self.plain);
            let (packed, cpu_time) = timed(|| compress(Encoding::Gzip, plain, None).ok());
            self.packed = packed.map(|packed| counted(&self.version, packed));
            self.cpu_time += cpu_time;
            cpu.add(cpu_time);
        }
        match self.packed.as_ref().filter(|_| wants_packed) {
            Some(packed) => Page { bytes: packed.clone(), is_packed: true },
            None => Page { bytes: self.plain.clone(), is_packed: false },
        }
    }
}

fn counted(version: &Arc<Version>, text: Bytes) -> Bytes {
    Bytes::from_owner(CountedText { text, _version: version.clone() })
}

impl AsRef<[u8]> for CountedText {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// The result and the CPU time of this thread, which other processes do not lengthen.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let before = now();
    let result = work();
    (result, now().saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use super::*;

    const LONG: usize = 2 * PACKED_FROM_BYTES;

    fn no_page() -> String {
        panic!("a second page")
    }

    async fn text(page: &SharedPage, text: &'static str) -> Page {
        page.get(0, false, move || text.to_owned()).await.expect("a page")
    }

    /// As if the page had been made so long ago and had taken so long, and this were owed.
    async fn set(page: &SharedPage, age: Duration, cpu_time: Duration, owed: Duration) {
        let mut pages = page.made.lock().await;
        pages.cpu = CpuOwed { owed, at: Some(Instant::now()) };
        let made = pages.newest.as_mut().expect("a page");
        (made.finished, made.cpu_time) = (Instant::now() - age, cpu_time);
    }

    /// Scenario: a hundred peers ask while a page is being made. Guarantee: all get that one, which
    /// is packed once.
    #[tokio::test]
    async fn peers_that_wait_share_a_page() {
        let page = Arc::new(SharedPage::default());
        let mut making = page.made.clone().lock_owned().await;
        let peers: Vec<_> = (0..100)
            .map(|_| {
                let page = page.clone();
                tokio::spawn(async move { page.get(0, true, no_page).await })
            })
            .collect();
        // Each has asked, and waits. The page and the guard have a reference each, too.
        while Arc::strong_count(&page.made) < 100 + 2 {
            tokio::task::yield_now().await;
        }
        let version = Version { _counted: page.versions.clone() };
        let made = Made::new(0, version, || "x".repeat(LONG));
        making.newest = Some(Made { cpu_time: Duration::ZERO, ..made });
        drop(making);
        let mut pages = Vec::new();
        for peer in peers {
            pages.push(peer.await.expect("no panic").expect("a page"));
        }
        let packed = &pages[0].bytes;
        assert!(pages.iter().all(|it| it.is_packed && it.bytes.as_ptr() == packed.as_ptr()));
    }

    /// Guarantee: each request gets a new page, unless pages took far more than their part of the
    /// CPU lately. Then the page is good until they have not, for a second at most.
    #[tokio::test]
    async fn a_page_is_shared_only_if_many_ask() {
        let page = SharedPage::default();
        let ms = Duration::from_millis;
        for new in ["first", "second", "third"] {
            assert_eq!(text(&page, new).await.bytes, new);
        }
        set(&page, ms(1), ms(10), OWED_MAX + ms(100)).await;
        assert_eq!(text(&page, "fourth").await.bytes, "third");
        set(&page, ms(1), ms(10), OWED_MAX - ms(100)).await;
        assert_eq!(text(&page, "fourth").await.bytes, "fourth");
        set(&page, ms(1000), ms(10), OWED_MAX + ms(100)).await;
        assert_eq!(text(&page, "fifth").await.bytes, "fifth");
    }

    /// Guarantee: a twentieth of the time that passes is no longer owed.
    #[test]
    fn what_is_owed_becomes_less_with_time() {
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let mut cpu = CpuOwed::default();
        assert_eq!(cpu.owed_at(start), ms(0));
        cpu.add(ms(30));
        assert_eq!(cpu.owed_at(start + ms(200)), ms(20));
        cpu.add(ms(5));
        assert_eq!(cpu.owed_at(start + ms(400)), ms(15));
        assert_eq!(cpu.owed_at(start + ms(60_000)), ms(0));
    }

    /// Scenario: peers read slowly, and each asked for another version. Guarantee: four are in
    /// memory at most.
    #[tokio::test]
    async fn few_versions_are_in_memory() {
        let page = SharedPage::default();
        let mut read = Vec::new();
        for version in ["1", "2", "3", "4", "5", "6"] {
            read.push(text(&page, version).await);
            set(&page, Duration::from_secs(10), Duration::ZERO, Duration::ZERO).await;
        }
        let texts: Vec<_> = read.iter().map(|page| page.bytes.clone()).collect();
        assert_eq!(texts, ["1", "2", "3", "4", "4", "4"]);
        assert!(page.get(1, false, no_page).await.is_none(), "another form has no room");
        drop(texts);
        read.remove(0);
        assert_eq!(text(&page, "7").await.bytes, "7");
    }

    /// Guarantee: a page that took long is made on a thread that does not receive.
    #[tokio::test]
    async fn a_costly_page_is_made_elsewhere() {
        let page = SharedPage::default();
        let (told, maker) = std::sync::mpsc::channel::<ThreadId>();
        for cpu_time in [Duration::ZERO, INLINE_MAX * 2] {
            let told = told.clone();
            let render = move || format!("{:?}", told.send(current().id()));
            page.get(0, false, render).await.expect("a page");
            set(&page, Duration::from_secs(10), cpu_time, Duration::ZERO).await;
        }
        let render = move || format!("{:?}", told.send(current().id()));
        page.get(0, false, render).await.expect("a page");
        let makers: Vec<_> = maker.iter().map(|maker| maker == current().id()).collect();
        assert_eq!(makers, [true, true, false]);
    }

    #[test]
    fn gzip_is_for_those_that_take_it() {
        for (asked, takes) in [
            (vec![], false),
            (vec!["gzip"], true),
            (vec!["deflate, GZIP;q=0.5"], true),
            (vec!["br", "gzip"], true),
            (vec!["gzip;q=0, *"], false),
            (vec!["*"], true),
            (vec!["identity, br;q=1"], false),
        ] {
            let mut headers = HeaderMap::new();
            for list in &asked {
                headers.append(ACCEPT_ENCODING, HeaderValue::from_static(list));
            }
            assert_eq!(takes_gzip(&headers), takes, "{asked:?}");
        }
    }
}
