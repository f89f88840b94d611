//! Lists objects, then watches them: one task for each query, which goes on after every failure.

use std::time::Duration;

use serde::Deserialize;
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
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            watch: Duration::from_secs(240),
        }
    }
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<T>>,
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
    let mut watch = Watch { client, query, timing, page_objects: PAGE_OBJECTS, version: None };
    let mut pause = timing.first_pause;
    loop {
        let began = Instant::now();
        let outcome = match watch.version.clone() {
            None => watch.list(&mut sink).await,
            Some(version) => watch.watch(&version, &mut sink).await,
        };
        let lasted = began.elapsed();
        match outcome {
            // A list is followed by a watch at once, a watch that has lasted by the next one.
            Ok(Ended::List) => {
                sink.works();
                continue;
            }
            Ok(Ended::Watch) if lasted >= SHORT_WATCH => {
                sink.works();
                pause = timing.first_pause;
                continue;
            }
            Ok(Ended::Watch) => {}
            Err(Failure::Gone) => watch.version = None,
            Err(Failure::TooLarge) if watch.version.is_none() && watch.page_objects > 1 => {
                watch.page_objects /= 2;
                continue;
            }
            Err(failure) => {
                if failure == Failure::TooLarge {
                    watch.version = None;
                }
                if failure.is_denial() {
                    sink.denied();
                }
                sink.failed(watch.reason(&failure));
                if let Some(wait) = failure.wait() {
                    tokio::time::sleep(wait).await;
                    continue;
                }
            }
        }
        // Not all clients of an API server return at once.
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
        pause = (pause * 2).min(timing.longest_pause);
        if lasted >= timing.longest_pause {
            pause = timing.first_pause;
        }
    }
}

enum Ended {
    List,
    Watch,
}

struct Watch {
    client: Client,
    query: Query,
    timing: Timing,
    page_objects: usize,
    /// Changes since this version are watched. `None`: a list is needed.
    version: Option<String>,
}

impl Watch {
    /// Lists all objects, page by page. They are of one version, whatever changes meanwhile.
    async fn list<T: Object>(&mut self, sink: &mut impl Sink<T>) -> Result<Ended, Failure> {
        sink.event(Event::Restarted);
        let mut from = String::new();
        for _ in 0..PAGES_LIMIT {
            let path = self.query.page(self.page_objects, &from);
            let page = self.client.page(&path, self.query.accept(true)).await?;
            // Megabytes of JSON take a while.
            let read = tokio::task::spawn_blocking(move || serde_json::from_slice(&page));
            let read = read.await.map_err(|error| Failure::Other(error.to_string()))?;
            let page: Page<T> = read.map_err(|error| not_understood(&error))?;
            for object in page.items.unwrap_or_default() {
                sink.event(Event::Added(object));
            }
            from = page.metadata.next;
            if from.is_empty() {
                sink.event(Event::Listed);
                self.version = Some(page.metadata.resource_version);
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
        let mut lines = self.client.lines(&path, self.query.accept(false), limit).await?;
        sink.works();
        while let Some(line) = lines.next().await? {
            let event =
                match serde_json::from_slice(&line).map_err(|error| not_understood(&error))? {
                    Line::Added(object) => Event::Added(object),
                    Line::Modified(object) => Event::Modified(object),
                    Line::Deleted(object) => Event::Deleted(object),
                    Line::Bookmark(Bookmark { metadata }) => {
                        self.advance(&metadata);
                        continue;
                    }
                    Line::Error(status) => return Err(Failure::of_status(status, None)),
                };
            let (Event::Added(object) | Event::Modified(object) | Event::Deleted(object)) = &event
            else {
                continue;
            };
            self.advance(T::meta(object));
            sink.event(event);
        }
        Ok(Ended::Watch)
    }

    fn advance(&mut self, meta: &Meta) {
        if !meta.resource_version.is_empty() {
            self.version = Some(meta.resource_version.to_string());
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
            Failure::Other(reason) => reason.clone(),
        }
    }
}

fn not_understood(error: &serde_json::Error) -> Failure {
    Failure::Other(format!("the answer cannot be understood: {error}"))
}

#[cfg(test)]
mod tests;
