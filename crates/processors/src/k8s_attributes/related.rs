//! Objects around pods: namespaces, nodes, and what pods belong to.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_kubernetes::Indexed;
use sluice_kubernetes::objects::{Meta, Partial};

use super::rules::{Attributes, From, Rules, Text};

/// An object as it is kept.
pub(super) struct Related {
    /// The name of a namespace or a node, the UID of others.
    key: Text,
    pub(super) uid: Text,
    pub(super) attributes: Box<[(Text, Text)]>,
    /// The deployment of a replica set, the cron job of a job.
    pub(super) parent: Option<Parent>,
}

pub(super) struct Parent {
    pub(super) name: Text,
    pub(super) uid: Text,
}

impl Related {
    pub(super) fn new(from: From, object: &Partial, rules: &Rules, texts: &Interner) -> Related {
        let Partial { metadata } = object;
        let mut attributes = Attributes::new();
        rules.labels_of(from, metadata, &mut attributes);
        rules.annotations_of(from, metadata, &mut attributes);
        let parent = match from {
            From::ReplicaSet => parent(metadata, "Deployment", texts),
            From::Job => parent(metadata, "CronJob", texts),
            _ => None,
        };
        let uid = Text::from(&*metadata.uid);
        let key = match from {
            From::Namespace | From::Node => Text::from(&*metadata.name),
            _ => uid.clone(),
        };
        let attributes = attributes.into_iter();
        let attributes = attributes.map(|(key, value)| (texts.intern(&key), texts.intern(&value)));
        Related { key, uid, attributes: attributes.collect(), parent }
    }
}

fn parent(meta: &Meta, kind: &str, texts: &Interner) -> Option<Parent> {
    let owner = meta.owner_references.iter().find(|it| it.controller && &*it.kind == kind)?;
    Some(Parent { name: texts.intern(&owner.name), uid: texts.intern(&owner.uid) })
}

impl Indexed for Related {
    type Name = ();

    fn key(&self) -> Arc<str> {
        self.key.clone()
    }

    fn names(&self, _: &mut dyn FnMut(())) {}

    fn weight(&self) -> usize {
        let texts = attributes_bytes(&self.attributes);
        size_of::<Related>() + self.key.len() + self.uid.len() + texts
    }
}

/// Memory of attributes. Each object counts texts that it shares with others: it may be the only
/// one that has them.
pub(super) fn attributes_bytes(attributes: &[(Text, Text)]) -> usize {
    attributes.iter().map(|(key, value)| 32 + key.len() + value.len()).sum()
}

/// Texts that many objects have, each in memory once.
#[derive(Default)]
pub(super) struct Interner(Mutex<Interned>);

#[derive(Default)]
struct Interned {
    texts: std::collections::HashSet<Text>,
    /// Texts that no object has any more are dropped when there are this many.
    sweep_at: usize,
}

impl Interner {
    pub(super) fn intern(&self, text: &str) -> Text {
        let mut interned = self.0.lock();
        if let Some(known) = interned.texts.get(text) {
            return known.clone();
        }
        if interned.texts.len() >= interned.sweep_at {
            interned.texts.retain(|text| Arc::strong_count(text) > 1);
            interned.sweep_at = 256 + 2 * interned.texts.len();
        }
        let text = Text::from(text);
        interned.texts.insert(text.clone());
        text
    }
}
