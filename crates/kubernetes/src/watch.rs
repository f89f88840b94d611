//! Lists objects, then watches them: one task for each query, which goes on after every failure.

use std::fmt;
use std::time::Duration;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::Instant;

use crate::client::Client;
use crate::failure::{Failure, Status};
use crate::objects::{Meta, Object};
use crate::resource::Query;

/// Objects of a page. A page that is too large is asked for again as a smaller one.
const PAGE_OBJECTS: usize = 250;
/// Pages of a list: more are a server that does not mean well.
const PAGES_LIMIT: usize = 100_000;
/// A watch that ends sooner is followed by a pause.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// The API server may end a watch later than it was asked to.
const LATE: Duration = Duration::from_secs(15);
/// After so many events at one version that are errors or cannot be read, or so many failures of a
/// page, the next attempt lists from the beginning.
const FAILURES_AT_VERSION: u32 = 3;
/// A page has the objects that were asked for, or all that fit into its bytes if the API server
/// does not know pages. More are smaller than objects are, and take far more memory than bytes.
const PAGE_ITEMS_LIMIT: usize = 10_000;

/// A change of the objects that a query means.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// A list begins. What is known stays until it has ended.
    Restarted,
    /// The object is there: as a list has it, or new.
    Added(T),
    Modified(T),
    Deleted(T),
    /// A list has ended: objects that it did not have are gone.
    Listed,
}

impl<T> Event<T> {
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Event<U> {
        match self {
            Event::Restarted => Event::Restarted,
            Event::Added(object) => Event::Added(map(object)),
            Event::Modified(object) => Event::Modified(map(object)),
            Event::Deleted(object) => Event::Deleted(map(object)),
            Event::Listed => Event::Listed,
        }
    }
}

/// Where events go.
pub trait Sink<T>: Send {
    fn event(&mut self, event: Event<T>);

    /// The API server does not give us these objects: it does not know their kind, or a permission
    /// is missing. [`Sink::failed`] follows.
    fn denied(&mut self) {}

    /// Nothing is known of changes for now, for this reason. Called for each attempt.
    fn failed(&mut self, reason: String);

    /// The objects are known, and their changes are followed. Called now and then.
    fn works(&mut self);
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The first pause after a failure; each further one is twice as long.
    pub first_pause: Duration,
    pub longest_pause: Duration,
    /// The API server ends a watch after this time, or up to twice as long.
    pub watch: Duration,
    /// A watch without a byte for this long is made again from its version: API servers send
    /// bookmarks each minute, and of a connection that is dead nothing else is seen.
    pub idle: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            watch: Duration::from_secs(240),
            idle: Duration::from_secs(90),
        }
    }
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Items<T>>,
}

/// At most [`PAGE_ITEMS_LIMIT`] objects.
struct Items<T>(Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Items<T>, D::Error> {
        deserializer.deserialize_seq(Items(Vec::new()))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
    type Value = Items<T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of objects")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Items<T>, A::Error> {
        while let Some(item) = items.next_element()? {
            if self.0.len() == PAGE_ITEMS_LIMIT {
                let reason = format!("a page has more than {PAGE_ITEMS_LIMIT} objects");
                return Err(A::Error::custom(reason));
            }
            self.0.push(item);
        }
        Ok(self)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Line<T> {
    Added(T),
    Modified(T),
    Deleted(T),
    Bookmark(Bookmark),
    Error(Status),
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: Meta,
}

/// Follows the objects that a query means, for as long as the future is polled.
pub async fn follow<T: Object>(
    client: Client,
    query: Query,
    timing: Timing,
    mut sink: impl Sink<T>,
) {
    let mut watch = Watch {
        client,
        query,
        timing,
        page_objects: PAGE_OBJECTS,
        list: List::default(),
        version: None,
        failures: 0,
        is_suspect: false,
    };
    let mut pause = timing.first_pause;
    loop {
        let (began, pages) = (Instant::now(), watch.list.pages);
        let outcome = match watch.version.clone() {
            None => watch.list(&mut sink).await,
            Some(version) => watch.watch(&version, &mut sink).await,
        };
        let lasted = began.elapsed();
        // A list that gets on is no failure that repeats.
        if lasted >= timing.longest_pause || watch.list.pages > pages {
            pause = timing.first_pause;
        }
        let mut wait = None;
        match outcome {
            // A list is followed by a watch at once, a watch that has lasted by the next one.
            Ok(Ended::List) => continue,
            Ok(Ended::Watch) if lasted >= SHORT_WATCH => {
                pause = timing.first_pause;
                continue;
            }
            Ok(Ended::Watch) => {}
            Err(Failure::Gone) => watch.start_anew(),
            Err(Failure::TooLarge) if watch.version.is_none() && watch.page_objects > 1 => {
                watch.page_objects /= 2;
                continue;
            }
            Err(failure) => {
                watch.turn(&failure);
                if failure.is_denial() {
                    sink.denied();
                }
                sink.failed(watch.reason(&failure));
                wait = failure.wait();
            }
        }
        // Not all clients of an API server return at once.
        let jitter = fastrand::f64();
        tokio::time::sleep(match wait {
            Some(wait) => wait.max(pause).mul_f64(1.0 + jitter / 4.0),
            None => pause.mul_f64(1.0 - jitter / 2.0),
        })
        .await;
        pause = (pause * 2).min(timing.longest_pause);
    }
}

enum Ended {
    List,
    Watch,
}

/// A list that has begun.
#[derive(Default)]
struct List {
    /// Where the next page begins. Empty: at the beginning.
    from: String,
    pages: usize,
}

struct Watch {
    client: Client,
    query: Query,
    timing: Timing,
    page_objects: usize,
    list: List,
    /// Changes since this version are watched. `None`: a list is needed.
    version: Option<String>,
    /// Events at this version that were errors, or could not be read; or failures of this page.
    failures: u32,
    /// The last event was one of these, or the last watch was lost before its first event: an
    /// answer alone does not say that the watch works.
    is_suspect: bool,
}

impl Watch {
    /// Lists all objects, page by page. They are of one version, whatever changes meanwhile. Goes
    /// on with a list that has begun.
    async fn list<T: Object>(&mut self, sink: &mut impl Sink<T>) -> Result<Ended, Failure> {
        if self.list.from.is_empty() {
            self.list.pages = 0;
            sink.event(Event::Restarted);
        }
        while self.list.pages < PAGES_LIMIT {
            let path = self.query.page(self.page_objects, &self.list.from);
            let page = self.client.page(&path, self.query.accept(true)).await?;
            // Megabytes of JSON take a while.
            let read = tokio::task::spawn_blocking(move || serde_json::from_slice(&page));
            let read = read.await.map_err(|error| Failure::Other(error.to_string()))?;
            let page: Page<T> = read.map_err(|error| not_understood(&error))?;
            for object in page.items.map(|items| items.0).unwrap_or_default() {
                sink.event(Event::Added(object));
            }
            self.list.pages += 1;
            self.failures = 0;
            self.list.from = page.metadata.next;
            if self.list.from.is_empty() {
                sink.event(Event::Listed);
                if !self.is_suspect {
                    sink.works();
                }
                self.version = Some(page.metadata.resource_version);
                self.failures = 0;
                self.page_objects = (self.page_objects * 2).min(PAGE_OBJECTS);
                return Ok(Ended::List);
            }
        }
        Err(Failure::Other("the list does not end".to_owned()))
    }

    /// Watches changes since a version, until the API server ends the watch.
    async fn watch<T: Object>(
        &mut self,
        version: &str,
        sink: &mut impl Sink<T>,
    ) -> Result<Ended, Failure> {
        // Watches that began together do not end together.
        let seconds = self.timing.watch.mul_f64(1.0 + fastrand::f64()).as_secs().max(1);
        let path = self.query.watch(version, seconds);
        let limit = Duration::from_secs(seconds) + LATE;
        let accept = self.query.accept(false);
        let lines = self.client.lines(&path, accept, limit, self.timing.idle).await;
        // One that is away, or that refuses us, has the version still when it is back.
        self.failures += u32::from(matches!(lines, Err(Failure::Other(_))));
        let mut lines = lines?;
        if !self.is_suspect {
            sink.works();
        }
        let mut has_event = false;
        loop {
            let line = match lines.next().await {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(failure) => {
                    self.is_suspect |= !has_event;
                    return Err(failure);
                }
            };
            let event = match serde_json::from_slice(&line) {
                Ok(Line::Added(object)) => Some(Event::Added(object)),
                Ok(Line::Modified(object)) => Some(Event::Modified(object)),
                Ok(Line::Deleted(object)) => Some(Event::Deleted(object)),
                Ok(Line::Bookmark(Bookmark { metadata })) => {
                    self.advance(&metadata);
                    None
                }
                Ok(Line::Error(status)) if status.code == 410 => return Err(Failure::Gone),
                Ok(Line::Error(status)) => return Err(self.bad(Failure::of_status(status, None))),
                Err(error) => return Err(self.bad(not_understood(&error))),
            };
            if let Some(event) = event {
                if let Event::Added(it) | Event::Modified(it) | Event::Deleted(it) = &event {
                    self.advance(T::meta(it));
                }
                sink.event(event);
            }
            has_event = true;
            if std::mem::take(&mut self.is_suspect) {
                sink.works();
            }
        }
        self.failures = 0;
        self.is_suspect = false;
        sink.works();
        Ok(Ended::Watch)
    }

    fn advance(&mut self, meta: &Meta) {
        let version = &*meta.resource_version;
        if !version.is_empty() && self.version.as_deref() != Some(version) {
            self.version = Some(version.to_owned());
            self.failures = 0;
        }
    }

    /// An event failed: the next attempt meets it again, if it is not a passing error.
    fn bad(&mut self, failure: Failure) -> Failure {
        self.failures += 1;
        self.is_suspect = true;
        failure
    }

    fn start_anew(&mut self) {
        self.version = None;
        self.list.from.clear();
    }

    /// Decides where the next attempt begins.
    fn turn(&mut self, failure: &Failure) {
        let is_of_page = self.version.is_none() && matches!(failure, Failure::Unavailable(_));
        self.failures += u32::from(is_of_page);
        let is_over = match self.version {
            // The pages that were read of a list stay while the next one may come.
            None => !failure.may_pass() || self.failures >= FAILURES_AT_VERSION,
            Some(_) => *failure == Failure::TooLarge || self.failures >= FAILURES_AT_VERSION,
        };
        if is_over {
            self.start_anew();
        }
    }

    /// The cause of a failure, and the remedy if we know one.
    fn reason(&self, failure: &Failure) -> String {
        let query = &self.query;
        match failure {
            Failure::Gone => "its version is gone".to_owned(),
            Failure::Forbidden(message) => {
                let (name, group) = (query.resource.name(), query.resource.group());
                let role = match (&query.namespace, query.resource.is_namespaced()) {
                    (Some(namespace), true) => format!("a Role in the namespace `{namespace}`"),
                    _ => "a ClusterRole".to_owned(),
                };
                format!(
                    "a permission is missing for {}: {role} must allow `list` and `watch` of the \
                     resource `{name}` in the API group `{group}` ({message})",
                    query.purpose
                )
            }
            Failure::NotFound(message) => {
                let (name, group) = (query.resource.name(), query.resource.group());
                format!(
                    "the API server does not have the resource `{name}` in the API group `{group}` \
                     ({message})"
                )
            }
            Failure::Unauthorized(message) => {
                format!("the API server does not accept our credentials ({message})")
            }
            Failure::Busy { reason, .. } => format!("the API server has no time ({reason})"),
            Failure::TooLarge => "an object is larger than any may be".to_owned(),
            Failure::Unavailable(reason) | Failure::Other(reason) => reason.clone(),
        }
    }
}

fn not_understood(error: &serde_json::Error) -> Failure {
    Failure::Other(format!("the answer cannot be understood: {error}"))
}

#[cfg(test)]
mod tests;
