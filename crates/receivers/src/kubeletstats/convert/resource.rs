//! Attributes of resources, and which of them are sent.

use std::borrow::Cow;

use sluice_config::Pattern;

macro_rules! attributes {
    ($($kind:ident $name:literal $is_on:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Attribute {
            $($kind),*
        }

        /// Their names, and whether they are sent by default.
        pub(in crate::kubeletstats) const ATTRIBUTES: &[(&str, bool)] = &[$(($name, $is_on)),*];
    };
}

attributes! {
    AwsVolumeId "aws.volume.id" false,
    ContainerId "container.id" true,
    FsType "fs.type" false,
    GcePdName "gce.pd.name" false,
    GlusterEndpoints "glusterfs.endpoints.name" false,
    GlusterPath "glusterfs.path" false,
    ContainerName "k8s.container.name" true,
    NamespaceName "k8s.namespace.name" true,
    NodeName "k8s.node.name" true,
    SystemContainerName "k8s.node.system_container.name" true,
    PersistentVolumeClaimName "k8s.persistentvolumeclaim.name" true,
    PodName "k8s.pod.name" true,
    PodUid "k8s.pod.uid" true,
    VolumeName "k8s.volume.name" true,
    VolumeType "k8s.volume.type" true,
    Partition "partition" false,
}

/// One of [`ATTRIBUTES`] as it is configured.
#[derive(Clone, Default)]
pub(in crate::kubeletstats) struct AttributeChoice {
    pub(in crate::kubeletstats) is_on: bool,
    /// If there are any, values of which one matches are sent.
    pub(in crate::kubeletstats) include: Vec<Filter>,
    pub(in crate::kubeletstats) exclude: Vec<Filter>,
}

#[derive(Clone)]
pub(in crate::kubeletstats) enum Filter {
    Strict(String),
    Regexp(Pattern),
}

impl Filter {
    fn matches(&self, value: &str) -> bool {
        match self {
            Filter::Strict(text) => text == value,
            Filter::Regexp(pattern) => pattern.matches(value.as_bytes()),
        }
    }
}

/// The attributes of one resource, each once.
#[derive(Default)]
pub(super) struct Attributes<'a>(Vec<(Attribute, Cow<'a, str>)>);

impl<'a> Attributes<'a> {
    pub(super) fn set(&mut self, attribute: Attribute, value: impl Into<Cow<'a, str>>) {
        let place = self.0.iter().position(|(known, _)| *known == attribute);
        match place {
            Some(place) => self.0[place].1 = value.into(),
            None => self.0.push((attribute, value.into())),
        }
    }

    /// Those that are sent, with their names; nothing if the resource is filtered out. Filters see
    /// only attributes that are sent.
    pub(super) fn sent<'s>(
        &'s self,
        choices: &'s [AttributeChoice],
    ) -> Option<impl Iterator<Item = (&'static str, &'s str)>> {
        let on = self.0.iter().map(|(attribute, value)| (*attribute as usize, &**value));
        let on = on.filter(move |(at, _)| choices[*at].is_on);
        let any = |filters: &[Filter], value: &str| filters.iter().any(|it| it.matches(value));
        let is_out = on.clone().any(|(at, value)| {
            let AttributeChoice { include, exclude, .. } = &choices[at];
            !include.is_empty() && !any(include, value) || any(exclude, value)
        });
        (!is_out).then(|| on.map(|(at, value)| (ATTRIBUTES[at].0, value)))
    }
}
