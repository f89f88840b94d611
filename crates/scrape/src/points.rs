//! The data points of a target: which samples make one up, and its attributes, encoded once. Most
//! attributes are those of many points: each is kept once for all.

use sluice_prometheus::build::{attribute, exemplar};
use sluice_prometheus::native::Native;

use crate::custom::Custom;
use crate::labels::{Labels, NAME};
use crate::metadata::{About, Metric, Role};
use crate::number::{is_stale, nanos_of_millis, nanos_of_seconds, parse_float};
use crate::resource::resource_attributes;
use crate::series::Use;
use crate::table::Table;
use crate::target::Target;
use crate::write::Shape;
use sluice_prometheus::Kind;

const SCOPE_PREFIX: &str = "otel_scope_";
/// Room for bounds that a histogram keeps from one scrape to the next.
const KEPT_BOUNDARIES: usize = 256;

/// Labels that say what the target is: its resource has them.
const OF_TARGET: [&str; 5] = [NAME, "instance", "job", "__metrics_path__", "__scheme__"];

#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) attributes: Vec<(String, String)>,
    /// From the page, in this scrape.
    pub(crate) info: Vec<(Box<str>, Box<str>)>,
    pub(crate) width: usize,
}

/// A scope of a resource.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) resource: u32,
    pub(crate) scope: Scope,
    pub(crate) width: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) schema_url: String,
    pub(crate) attributes: Vec<(String, String)>,
}

#[derive(Debug)]
pub(crate) struct MetricPoints {
    pub(crate) home: u32,
    pub(crate) name: Box<str>,
    pub(crate) kind: Kind,
    pub(crate) shape: Shape,
    pub(crate) about: About,
    /// The points of this scrape, in the order of the page.
    pub(crate) points: Vec<u32>,
    scrape: u64,
    pub(crate) width: usize,
}

/// A data point: what this scrape has said of it.
#[derive(Debug, Default)]
pub(crate) struct Point {
    pub(crate) metric: u32,
    /// Length of its attributes, encoded.
    pub(crate) attribute_bytes: u32,
    scrape: u64,
    time_ms: i64,
    /// All of its series are gone.
    stale: bool,
    pub(crate) start_ns: u64,
    pub(crate) value: Option<f64>,
    pub(crate) parts: Option<Box<Parts>>,
}

/// The parts of a point that is more than a number.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Encoded.
    pub(crate) exemplars: Vec<u8>,
    pub(crate) sum: Option<f64>,
    pub(crate) count: Option<f64>,
    /// Bounds with counts, or quantiles with values, as the page orders them.
    pub(crate) boundaries: Vec<(f64, f64)>,
    pub(crate) native: Option<Native>,
}

impl Point {
    fn parts(&mut self) -> &mut Parts {
        self.parts.get_or_insert_default()
    }

    fn begin(&mut self, scrape: u64, time_ms: i64, stale: bool) {
        (self.scrape, self.time_ms, self.stale) = (scrape, time_ms, stale);
        (self.start_ns, self.value) = (0, None);
        if let Some(parts) = &mut self.parts {
            parts.exemplars = Vec::new();
            (parts.sum, parts.count, parts.native) = (None, None, None);
            parts.boundaries.clear();
        }
    }

    pub(crate) fn time_ns(&self) -> u64 {
        nanos_of_millis(self.time_ms)
    }

    /// Whether it says that there is no value any more.
    pub(crate) fn is_stale(&self) -> bool {
        let parts = self.parts.as_deref();
        let says_so = |value: Option<f64>| value.is_some_and(is_stale);
        self.stale
            || says_so(self.value)
            || says_so(parts.and_then(|parts| parts.count))
            || says_so(parts.and_then(|parts| parts.sum))
            || says_so(parts.and_then(|parts| parts.native.as_ref()).map(|native| native.sum))
    }

    /// Whether enough of it was on the page.
    pub(crate) fn is_whole(&self, shape: Shape) -> bool {
        let parts = self.parts.as_deref();
        match shape {
            Shape::Gauge | Shape::Sum | Shape::Counter => self.value.is_some(),
            Shape::Histogram | Shape::Summary => parts.is_some_and(|parts| parts.count.is_some()),
            Shape::Exponential => self.stale || parts.is_some_and(|parts| parts.native.is_some()),
        }
    }
}

/// All data points of a target.
#[derive(Debug, Default)]
pub(crate) struct Points {
    pub(crate) resources: Table<Resource>,
    pub(crate) homes: Table<Home>,
    pub(crate) metrics: Table<MetricPoints>,
    /// By the number of their metric, then those of their attributes.
    pub(crate) points: Table<Point>,
    /// Encoded.
    pub(crate) attributes: Table<()>,
    /// The metrics of this scrape, in the order of the page.
    pub(crate) order: Vec<u32>,
    scrape: u64,
}

/// Finds or makes a value that uses `parent`, a use of which was taken for it.
fn take_within<P, T>(
    parents: &mut Table<P>,
    parent: u32,
    table: &mut Table<T>,
    key: &[u8],
    make: impl FnOnce() -> T,
) -> u32 {
    let (id, is_new) = table.take(key, make);
    if !is_new {
        parents.release(parent);
    }
    id
}

/// The numbers of a point's attributes, in their order.
pub(crate) fn attribute_ids(key: &[u8]) -> impl Iterator<Item = u32> {
    let (ids, _) = key.as_chunks::<4>();
    ids.iter().skip(1).map(|id| u32::from_le_bytes(*id))
}

fn push_text(key: &mut Vec<u8>, text: &str) {
    key.extend_from_slice(&(text.len() as u32).to_le_bytes());
    key.extend_from_slice(text.as_bytes());
}

impl Points {
    /// Begins a scrape, and forgets what was said in the last one.
    pub(crate) fn begin(&mut self) {
        self.scrape += 1;
        self.order.clear();
        for id in 0..self.resources.end() {
            if let Some(resource) = self.resources.value_mut(id) {
                resource.info.clear();
            }
        }
    }

    /// The resource of these labels, with one use more.
    pub(crate) fn resource(&mut self, labels: &Labels<'_>, target: &Target) -> u32 {
        let of_target = |name: &str| {
            let found = target.labels.iter().find(|(known, _)| known == name);
            found.map_or("", |(_, value)| value)
        };
        let [job, instance] = ["job", "instance"].map(|name| match labels.get(name) {
            "" => of_target(name),
            value => value,
        });
        let mut key = Vec::with_capacity(job.len() + instance.len() + 8);
        push_text(&mut key, job);
        push_text(&mut key, instance);
        let (id, _) = self.resources.take(&key, || {
            let mut attributes = resource_attributes(job, instance, &target.scheme);
            attributes.extend(target.resource.iter().cloned());
            Resource { attributes, info: Vec::new(), width: 1 }
        });
        id
    }

    pub(crate) fn release_resource(&mut self, id: u32) {
        self.resources.release(id);
    }

    /// The use of a new series, whose labels are sorted. None if it cannot be a part of its metric.
    pub(crate) fn place(
        &mut self,
        labels: &Labels<'_>,
        metric: Metric,
        target: &Target,
    ) -> Option<Use> {
        let shape = Shape::of(metric.kind, metric.role);
        let boundary_label = match shape {
            Shape::Histogram | Shape::Exponential => "le",
            Shape::Summary => "quantile",
            Shape::Gauge | Shape::Sum | Shape::Counter => "",
        };
        let boundary = match metric.role {
            Role::Boundary => parse_float(labels.get(boundary_label).as_bytes())
                .filter(|boundary| !boundary.is_nan())?,
            _ => 0.0,
        };
        let home = self.home(labels, target);
        let mut key = home.to_le_bytes().to_vec();
        key.extend([metric.kind as u8, shape as u8]);
        push_text(&mut key, &metric.name);
        let id = take_within(&mut self.homes, home, &mut self.metrics, &key, || MetricPoints {
            home,
            name: metric.name,
            kind: metric.kind,
            shape,
            about: About::Nothing,
            points: Vec::new(),
            scrape: 0,
            width: 1,
        });
        // A description may have come later than the metric.
        self.metrics.get_mut(id).about = metric.about;
        key.clear();
        key.extend(id.to_le_bytes());
        let (mut encoded, mut attribute_bytes) = (Vec::new(), 0);
        for (name, value) in labels.iter() {
            let is_attribute = !OF_TARGET.contains(&name)
                && name != boundary_label
                && !name.starts_with(SCOPE_PREFIX);
            if is_attribute {
                encoded.clear();
                attribute(&mut encoded, shape.attributes_field(), name, value);
                attribute_bytes += encoded.len() as u32;
                let (attribute, _) = self.attributes.take(&encoded, || ());
                key.extend(attribute.to_le_bytes());
            }
        }
        let make = || Point { metric: id, attribute_bytes, ..Point::default() };
        let (group, is_new) = self.points.take(&key, make);
        if !is_new {
            self.metrics.release(id);
            self.release_attributes(&key);
        }
        Some(Use::Sample { group, role: metric.role, boundary })
    }

    /// The resource and scope of these labels, with one use more.
    fn home(&mut self, labels: &Labels<'_>, target: &Target) -> u32 {
        let mut scope = Scope::default();
        for (name, value) in labels.iter() {
            match name.strip_prefix(SCOPE_PREFIX) {
                Some("name") => scope.name = value.to_owned(),
                Some("version") => scope.version = value.to_owned(),
                Some("schema_url") => scope.schema_url = value.to_owned(),
                Some(name) => scope.attributes.push((name.to_owned(), value.to_owned())),
                None => {}
            }
        }
        if scope == Scope::default() {
            (scope.name, scope.version) = target.scope.clone();
        }
        let resource = self.resource(labels, target);
        let mut key = resource.to_le_bytes().to_vec();
        for text in [&scope.name, &scope.version, &scope.schema_url] {
            push_text(&mut key, text);
        }
        for (name, value) in &scope.attributes {
            push_text(&mut key, name);
            push_text(&mut key, value);
        }
        take_within(&mut self.resources, resource, &mut self.homes, &key, || Home {
            resource,
            scope,
            width: 1,
        })
    }

    /// Ends the use of a point by a series.
    pub(crate) fn release(&mut self, group: u32) {
        let Some((key, point)) = self.points.release(group) else { return };
        self.release_attributes(&key);
        if let Some((_, metric)) = self.metrics.release(point.metric)
            && let Some((_, home)) = self.homes.release(metric.home)
        {
            self.resources.release(home.resource);
        }
    }

    /// Ends the uses by a point.
    fn release_attributes(&mut self, key: &[u8]) {
        for attribute in attribute_ids(key) {
            self.attributes.release(attribute);
        }
    }

    /// Gives back the memory of a target that once was large.
    pub(crate) fn trim(&mut self) {
        self.points.trim();
        self.attributes.trim();
        self.metrics.trim();
        self.homes.trim();
        self.resources.trim();
    }

    fn touch(&mut self, group: u32, time_ms: i64, stale: bool) -> Option<&mut Point> {
        let point = self.points.get_mut(group);
        if point.scrape == self.scrape {
            // Series that are gone have no say in a point that others still make up.
            return (point.time_ms == time_ms && point.stale == stale).then_some(point);
        }
        point.begin(self.scrape, time_ms, stale);
        let metric = self.metrics.get_mut(point.metric);
        if metric.scrape != self.scrape {
            metric.scrape = self.scrape;
            metric.points.clear();
            self.order.push(point.metric);
        }
        metric.points.push(group);
        Some(point)
    }

    /// Adds a sample; false if its point has another time.
    pub(crate) fn add(
        &mut self,
        group: u32,
        role: Role,
        boundary: f64,
        value: f64,
        time_ms: i64,
    ) -> bool {
        let Some(point) = self.touch(group, time_ms, false) else { return false };
        match role {
            Role::Value => point.value = Some(value),
            Role::Sum => point.parts().sum = Some(value),
            Role::Count => point.parts().count = Some(value),
            Role::Created => point.start_ns = nanos_of_seconds(value),
            Role::Boundary => point.parts().boundaries.push((boundary, value)),
            Role::Native | Role::Custom => return false,
        }
        true
    }

    /// Adds a native histogram; false if its point has another time.
    pub(crate) fn add_native(&mut self, group: u32, native: Native, time_ms: i64) -> bool {
        let Some(point) = self.touch(group, time_ms, false) else { return false };
        point.parts().native = Some(native);
        true
    }

    /// Adds a histogram with custom buckets; false if its point has another time, or if it has a
    /// sum of nothing.
    pub(crate) fn add_custom(&mut self, group: u32, custom: &Custom, time_ms: i64) -> bool {
        if custom.count == 0.0 && custom.sum != 0.0 && !is_stale(custom.sum) {
            return false;
        }
        let Some(point) = self.touch(group, time_ms, false) else { return false };
        let parts = point.parts();
        (parts.sum, parts.count) = (Some(custom.sum), Some(custom.count));
        parts.boundaries.clone_from(&custom.buckets);
        true
    }

    /// Frees the large histograms of this scrape: buckets may take much memory.
    pub(crate) fn drop_natives(&mut self) {
        for id in &self.order {
            let metric = self.metrics.get(*id);
            let has_buckets = matches!(metric.shape, Shape::Exponential | Shape::Histogram);
            for point in metric.points.iter().filter(|_| has_buckets) {
                let parts = &mut self.points.get_mut(*point).parts;
                let is_large = |it: &Parts| it.boundaries.capacity() > KEPT_BOUNDARIES;
                if metric.shape == Shape::Exponential || parts.as_deref().is_some_and(is_large) {
                    *parts = None;
                }
            }
        }
    }

    /// Adds that a series is gone.
    pub(crate) fn add_end(&mut self, used: &Use, time_ms: i64) {
        let Use::Sample { group, role, boundary } = used else { return };
        let Some(point) = self.touch(*group, time_ms, true) else { return };
        match role {
            Role::Value => point.value = Some(0.0),
            Role::Count | Role::Custom => point.parts().count = Some(0.0),
            Role::Boundary => point.parts().boundaries.push((*boundary, 0.0)),
            Role::Sum | Role::Created | Role::Native => {}
        }
    }

    /// Sets a number, or ends it, whatever the page has said of it.
    pub(crate) fn set_value(&mut self, group: u32, value: Option<f64>, time_ms: i64) {
        self.touch(group, time_ms, value.is_none());
        let point = self.points.get_mut(group);
        (point.time_ms, point.stale) = (time_ms, value.is_none());
        point.value = value.or(Some(0.0));
    }

    pub(crate) fn set_start(&mut self, group: u32, start_ns: u64) {
        self.points.get_mut(group).start_ns = start_ns;
    }

    pub(crate) fn metric_name(&self, group: u32) -> &str {
        &self.metrics.get(self.points.get(group).metric).name
    }

    /// Adds an exemplar: `labels` calls its argument with each of them.
    pub(crate) fn add_exemplar(
        &mut self,
        group: u32,
        time_ms: i64,
        value: f64,
        labels: impl FnOnce(&mut dyn FnMut(&str, &str)),
    ) {
        let point = self.points.get_mut(group);
        let shape = self.metrics.get(point.metric).shape;
        if let Some(field) = shape.exemplars_field() {
            let time_ns = nanos_of_millis(time_ms);
            exemplar(&mut point.parts().exemplars, field, time_ns, value, labels);
        }
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory(&self) -> usize {
        let Points { resources, homes, metrics, points, attributes, .. } = self;
        // Values own texts and parts beside their keys.
        let above = resources.memory() * 3 + homes.memory() * 2 + metrics.memory() * 2;
        above + points.memory() + attributes.memory()
    }
}
