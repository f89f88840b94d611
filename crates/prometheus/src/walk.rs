//! The way through a request of metrics: its resources, scopes, metrics and points.

use sluice_otlp::Malformed;
use sluice_otlp::wire::Fields;

use crate::labels::{
    ATTRIBUTES_LIMIT, Attribute, Fixed, Labels, Rank, external_labels, resource_labels,
    schema_label, scope_labels, service_labels,
};
use crate::point::{Metric, Point, Shape};
use crate::settings::{ResourceLabels, SERVICE_KEYS, Settings};

/// A resource that may be worth a series of its own.
pub(crate) struct Target {
    /// The time of its latest point.
    pub(crate) latest_ns: u64,
    /// It has attributes beside those that `job` and `instance` are made of.
    pub(crate) has_more: bool,
    /// Of `job` and `instance`, as many as it has.
    pub(crate) names: usize,
}

/// Takes what a request has.
pub(crate) trait Visit<'a> {
    type Error: From<Malformed>;

    /// Gets the labels that all following points have.
    fn labels(&mut self) -> &mut Labels;

    /// The points that follow are of this metric.
    fn metric(&mut self, metric: &Metric<'a>, shape: Shape);

    fn point(&mut self, point: &Point<'a>) -> Result<(), Self::Error>;

    /// A resource has ended, and the settings ask for `target_info`: whether it gets one.
    fn wants_target(&mut self, target: Target) -> bool;

    /// A resource has ended that gets a series of its own; its labels are set.
    /// `time_ns`: of its latest point.
    fn target(&mut self, time_ns: u64) -> Result<(), Self::Error>;
}

pub(crate) fn walk<'a, V: Visit<'a>>(
    settings: &Settings,
    request: &'a [u8],
    visitor: &mut V,
) -> Result<(), V::Error> {
    let mut point = Point::default();
    let mut resources = Fields::of(request);
    while let Some(resource) = resources.next_message(1)? {
        let content = &request[resource.content()];
        walk_resource(settings, content, &mut point, visitor)?;
    }
    Ok(())
}

fn walk_resource<'a, V: Visit<'a>>(
    settings: &Settings,
    bytes: &'a [u8],
    point: &mut Point<'a>,
    visitor: &mut V,
) -> Result<(), V::Error> {
    // The resource may stand behind its points.
    let mut resource = Vec::new();
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_message(1)? {
        read_attributes(&bytes[field.content()], 1, &mut resource)?;
    }
    let mut of_resource = service_labels(&resource);
    if settings.resource_labels != ResourceLabels::None {
        let has = |key: &[u8]| settings.resource_labels.has(key);
        of_resource.extend(resource_labels(settings, &resource, has));
    }
    of_resource.extend(external_labels(settings));
    let mut latest_ns = 0;
    let mut scopes = Fields::of(bytes);
    while let Some(scope) = scopes.next_message(2)? {
        let content = &bytes[scope.content()];
        let of_scope =
            if settings.scope_info { read_scope(settings, content)? } else { Vec::new() };
        let labels = of_resource.iter().map(Fixed::copy).chain(of_scope);
        visitor.labels().set_fixed(labels.collect());
        let mut metrics = Fields::of(content);
        while let Some(metric) = metrics.next_message(2)? {
            let metric = Metric::read(&content[metric.content()])?;
            let Some(shape) = metric.shape else { continue };
            visitor.metric(&metric, shape);
            for data in &metric.data {
                let mut points = Fields::of(data);
                while let Some(field) = points.next_message(1)? {
                    point.read(shape, &data[field.content()])?;
                    latest_ns = latest_ns.max(point.time_ns);
                    visitor.point(point)?;
                }
            }
        }
    }
    let has_more = resource.iter().any(|attribute| !SERVICE_KEYS.contains(&attribute.key));
    let names = of_resource.iter().filter(|label| label.rank == Rank::Service).count();
    let target = Target { latest_ns, has_more, names };
    if settings.target_info && visitor.wants_target(target) {
        let mut labels = service_labels(&resource);
        let is_other = |key: &[u8]| !SERVICE_KEYS.contains(&key);
        labels.extend(resource_labels(settings, &resource, is_other));
        if settings.target_external_labels {
            labels.extend(external_labels(settings));
        }
        visitor.labels().set_fixed(labels);
        visitor.target(latest_ns)?;
    }
    Ok(())
}

/// Reads the attributes in a field of a message. Of too many, the first ones.
fn read_attributes<'a>(
    bytes: &'a [u8],
    number: u32,
    attributes: &mut Vec<Attribute<'a>>,
) -> Result<(), Malformed> {
    let mut fields = Fields::of(bytes);
    while let Some(field) = fields.next_message(number)? {
        if attributes.len() < ATTRIBUTES_LIMIT {
            attributes.push(Attribute::read(&bytes[field.content()])?);
        }
    }
    Ok(())
}

fn read_scope(settings: &Settings, bytes: &[u8]) -> Result<Vec<Fixed>, Malformed> {
    let (mut name, mut version, mut attributes) = (&[][..], &[][..], Vec::new());
    let mut fields = Fields::of(bytes);
    while let Some(scope) = fields.next_message(1)? {
        let scope = &bytes[scope.content()];
        read_attributes(scope, 3, &mut attributes)?;
        let mut fields = Fields::of(scope);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => name = &scope[field.content()],
                2 => version = &scope[field.content()],
                _ => {}
            }
        }
    }
    let mut labels = scope_labels(settings, name, version, &attributes);
    if settings.scope_schema_url {
        let mut fields = Fields::of(bytes);
        while let Some(field) = fields.next_message(3)? {
            labels.extend(schema_label(settings, &bytes[field.content()]));
        }
    }
    Ok(labels)
}
