//! The fields that all records of a resource have.

use std::borrow::Cow;

use sluice_config::Fields;
use sluice_otlp::Malformed;
use sluice_otlp::wire::Fields as WireFields;

use super::notation::{MAP_DEPTH, Notation, RECORD_DEPTH, key_and_value, write_value};
use super::record::unique;
use super::{Stop, check_fields};

/// Attributes of the resource that Fluent Bit's filter has under another name.
const KUBERNETES: [(&str, &str); 8] = [
    ("k8s.pod.name", "pod_name"),
    ("k8s.namespace.name", "namespace_name"),
    ("k8s.pod.uid", "pod_id"),
    ("k8s.pod.ip", "pod_ip"),
    ("k8s.node.name", "host"),
    ("k8s.container.name", "container_name"),
    ("container.id", "docker_id"),
    ("container.image.name", "container_image"),
];
/// The beginnings of the names of labels and annotations. The Collector has used both spellings.
const LABELS: [&str; 2] = ["k8s.pod.labels.", "k8s.pod.label."];
const ANNOTATIONS: [&str; 2] = ["k8s.pod.annotations.", "k8s.pod.annotation."];

/// The switches of records: those of Kyma's `LogPipeline`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub dedot: bool,
    pub drop_labels: bool,
    pub keep_annotations: bool,
}

/// A field, and its value in the notation in which it is written.
pub(super) type Written = (&'static str, Vec<u8>);

/// The map in which an attribute of a resource stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Kubernetes,
    Labels,
    Annotations,
    Resource,
}

impl Place {
    /// The depth of the values in it: see [`write_value`]. They are attributes with a map around
    /// them, or two.
    fn depth(self) -> usize {
        let maps = if matches!(self, Place::Labels | Place::Annotations) { 2 } else { 1 };
        RECORD_DEPTH + 1 + maps * MAP_DEPTH
    }
}

/// The place of an attribute, and its name there.
type Name<'a> = (Place, Cow<'a, [u8]>);

/// Attributes and their encoded values. Each occurs once.
struct Placed<'a>(Vec<(Name<'a>, &'a [u8])>);

impl Layout {
    pub(crate) fn read(fields: &mut Fields<'_>) -> Layout {
        let doc = "Replace dots and slashes in the names of labels and annotations by \
                   underscores: Elasticsearch and OpenSearch take dots for objects.";
        let dedot = fields.boolean("dedot", false, doc);
        let doc = "Leave out `kubernetes.labels`.";
        let drop_labels = fields.boolean("drop_labels", false, doc);
        let doc = "Keep `kubernetes.annotations`.";
        let keep_annotations = fields.boolean("keep_annotations", false, doc);
        Layout { dedot, drop_labels, keep_annotations }
    }

    /// The fields of all records of an encoded `ResourceLogs`.
    pub(super) fn resource_fields<N: Notation>(
        &self,
        resource: &[u8],
        limit_bytes: usize,
    ) -> Result<Vec<Written>, Stop> {
        let mut attributes = 0;
        each_attribute(resource, |_, _| attributes += 1)?;
        check_fields(attributes, limit_bytes)?;
        let mut placed = Placed(Vec::with_capacity(attributes));
        each_attribute(resource, |key, value| placed.0.push((self.place(key), value)))?;
        // Without its dots and slashes a name may be that of another one.
        unique(&mut placed.0);
        let nested = [
            ("labels", Place::Labels, !self.drop_labels),
            ("annotations", Place::Annotations, self.keep_annotations),
        ];
        let nested =
            nested.into_iter().filter(|(_, place, is_kept)| *is_kept && placed.len(*place) > 0);
        let nested: Vec<_> = nested.map(|(name, place, _)| (name, place)).collect();
        let mut written = Vec::new();
        for (name, place, nested) in
            [("kubernetes", Place::Kubernetes, nested), ("resource", Place::Resource, Vec::new())]
        {
            let len = placed.len(place) + nested.len();
            if len == 0 {
                continue;
            }
            let (mut out, mut index) = (Vec::new(), 0);
            N::begin_map(&mut out, len);
            placed.write::<N>(&mut out, place, &mut index, limit_bytes)?;
            for (name, place) in nested {
                write_key::<N>(&mut out, name.as_bytes(), &mut index);
                N::begin_map(&mut out, placed.len(place));
                placed.write::<N>(&mut out, place, &mut 0, limit_bytes)?;
                N::end_map(&mut out);
            }
            N::end_map(&mut out);
            written.push((name, out));
        }
        Ok(written)
    }

    fn place<'a>(&self, key: &'a [u8]) -> Name<'a> {
        let known = KUBERNETES.into_iter().find(|(from, _)| from.as_bytes() == key);
        if let Some((_, name)) = known {
            (Place::Kubernetes, name.as_bytes().into())
        } else if let Some(name) = behind(key, LABELS) {
            (Place::Labels, self.dedotted(name))
        } else if let Some(name) = behind(key, ANNOTATIONS) {
            (Place::Annotations, self.dedotted(name))
        } else {
            (Place::Resource, key.into())
        }
    }

    fn dedotted<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let is_replaced = |byte: u8| matches!(byte, b'.' | b'/');
        if !self.dedot || !name.iter().any(|byte| is_replaced(*byte)) {
            return name.into();
        }
        let bytes = name.iter().map(|byte| if is_replaced(*byte) { b'_' } else { *byte });
        bytes.collect::<Vec<_>>().into()
    }
}

fn behind<'a>(key: &'a [u8], beginnings: [&str; 2]) -> Option<&'a [u8]> {
    beginnings.into_iter().find_map(|beginning| key.strip_prefix(beginning.as_bytes()))
}

/// The attributes of the `Resource` of an encoded `ResourceLogs`: keys and encoded values.
fn each_attribute<'a>(
    resource: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]),
) -> Result<(), Malformed> {
    let mut resources = WireFields::of(resource);
    while let Some(field) = resources.next_message(1)? {
        let resource = &resource[field.content()];
        let mut fields = WireFields::of(resource);
        while let Some(field) = fields.next_message(1)? {
            let (key, value) = key_and_value(&resource[field.content()])?;
            visit(key, value);
        }
    }
    Ok(())
}

pub(super) fn write_key<N: Notation>(out: &mut Vec<u8>, key: &[u8], index: &mut usize) {
    N::part(out, *index);
    N::text(out, key);
    N::colon(out);
    *index += 1;
}

impl Placed<'_> {
    fn len(&self, place: Place) -> usize {
        self.0.iter().filter(|((its, _), _)| *its == place).count()
    }

    /// The pairs of a map.
    fn write<N: Notation>(
        &self,
        out: &mut Vec<u8>,
        place: Place,
        index: &mut usize,
        limit_bytes: usize,
    ) -> Result<(), Stop> {
        for ((_, key), value) in self.0.iter().filter(|((its, _), _)| *its == place) {
            write_key::<N>(out, key, index);
            write_value::<N>(out, value, place.depth())?;
            if out.len() > limit_bytes {
                return Err(Stop::TooLarge { limit_bytes });
            }
        }
        Ok(())
    }
}
