//! Objects as they are known now, by their keys and by other names.
//!
//! Pure: events and times in, look-ups out. An object that is gone is found by its names for a
//! while, because telemetry of it may still come. Of two objects with the same name the later one
//! is meant, whatever the order in which their events come.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::watch::Event;

/// Memory of an object beside its own, in bytes: keys, names, pointers.
const OVERHEAD_BYTES: usize = 128;

/// An object that an [`Index`] can hold.
pub trait Indexed {
    /// Another name, by which the object is looked up.
    type Name: Eq + Hash + Clone;

    /// The same for an object and its later versions, and for no other.
    fn key(&self) -> Arc<str>;

    /// Calls `visit` with each of its names. Always the same ones for the same object.
    fn names(&self, visit: &mut dyn FnMut(Self::Name));

    /// Of two objects with the same name, the one with the higher rank is meant, and the newer
    /// event where they are equal.
    fn rank(&self) -> i64 {
        0
    }

    /// Its memory in bytes.
    fn weight(&self) -> usize;
}

/// Objects by their keys and names.
pub struct Index<T: Indexed> {
    objects: HashMap<Arc<str>, Entry<T>>,
    names: HashMap<T::Name, Arc<T>>,
    /// Objects that are gone, and versions that were replaced, until their names are forgotten.
    leaving: VecDeque<(Instant, Arc<T>)>,
    grace: Duration,
    /// Counts the lists.
    list: u32,
    is_listed: bool,
    weight: usize,
    limit_bytes: usize,
    refused: usize,
    version: u64,
}

struct Entry<T> {
    object: Arc<T>,
    list: u32,
}

impl<T: Indexed> Index<T> {
    /// `grace`: the time for which an object that is gone is found by its names. `limit_bytes`: of
    /// all objects; those that exceed it are not held.
    pub fn new(grace: Duration, limit_bytes: usize) -> Index<T> {
        Index {
            objects: HashMap::new(),
            names: HashMap::new(),
            leaving: VecDeque::new(),
            grace,
            list: 0,
            is_listed: false,
            weight: 0,
            limit_bytes,
            refused: 0,
            version: 0,
        }
    }

    /// Takes an event in.
    pub fn apply(&mut self, event: Event<T>, now: Instant) {
        self.expire(now);
        match event {
            Event::Restarted => {
                self.list = self.list.wrapping_add(1);
                self.refused = 0;
            }
            Event::Added(object) | Event::Modified(object) => self.put(object, now),
            Event::Deleted(object) => self.remove(&object.key(), now),
            Event::Listed => {
                let is_gone = |(key, entry): (&Arc<str>, &Entry<T>)| {
                    (entry.list != self.list).then(|| key.clone())
                };
                let gone: Vec<Arc<str>> = self.objects.iter().filter_map(is_gone).collect();
                gone.iter().for_each(|key| self.remove(key, now));
                self.version += u64::from(!self.is_listed);
                self.is_listed = true;
                self.shrink();
            }
        }
    }

    /// Forgets the names of objects that have been gone for long.
    pub fn expire(&mut self, now: Instant) {
        let mut some = false;
        while self.leaving.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, object)) = self.leaving.pop_front() {
                let names = &mut self.names;
                object.names(&mut |name| {
                    if names.get(&name).is_some_and(|held| Arc::ptr_eq(held, &object)) {
                        names.remove(&name);
                    }
                });
                self.weight = self.weight.saturating_sub(weight(&*object));
                some = true;
            }
        }
        if some && self.leaving.is_empty() {
            self.shrink();
        }
    }

    /// The object with a key.
    pub fn get(&self, key: &str) -> Option<&Arc<T>> {
        self.objects.get(key).map(|entry| &entry.object)
    }

    /// The object with a name: one that is there, or one that is gone since a short time.
    pub fn find(&self, name: &T::Name) -> Option<&Arc<T>> {
        self.names.get(name)
    }

    /// The objects that are there, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.objects.values().map(|entry| &entry.object)
    }

    /// The number of objects that are there.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether all objects have been listed once.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Objects since the last list that were not held, because the limit was reached.
    pub fn refused(&self) -> usize {
        self.refused
    }

    /// Memory of all objects, in bytes, as they count against the limit.
    pub fn weight(&self) -> usize {
        self.weight
    }

    /// A number that grows with each change of what [`Index::iter`] yields.
    pub fn version(&self) -> u64 {
        self.version
    }

    fn put(&mut self, object: T, now: Instant) {
        let (key, bytes) = (object.key(), weight(&object));
        let before = self.objects.get(&key).map_or(0, |entry| weight(&*entry.object));
        if (self.weight + bytes).saturating_sub(before) > self.limit_bytes {
            self.refused += 1;
            self.remove(&key, now);
            return;
        }
        let object = Arc::new(object);
        let names = &mut self.names;
        object.names(&mut |name| match names.get_mut(&name) {
            Some(held) if held.rank() > object.rank() && held.key() != key => {}
            Some(held) => *held = object.clone(),
            None => {
                names.insert(name, object.clone());
            }
        });
        self.weight += bytes;
        self.version += 1;
        let entry = Entry { object, list: self.list };
        if let Some(old) = self.objects.insert(key, entry) {
            self.leave(old.object, now);
        }
    }

    fn remove(&mut self, key: &str, now: Instant) {
        if let Some(old) = self.objects.remove(key) {
            self.version += 1;
            self.leave(old.object, now);
        }
    }

    /// Names that the object alone has are forgotten after the grace. Mostly a new version has all
    /// of them, and nothing of the old one needs to stay.
    fn leave(&mut self, object: Arc<T>, now: Instant) {
        let mut has_names = false;
        object.names(&mut |name| {
            has_names |= self.names.get(&name).is_some_and(|held| Arc::ptr_eq(held, &object));
        });
        if has_names {
            self.leaving.push_back((now + self.grace, object));
        } else {
            self.weight = self.weight.saturating_sub(weight(&*object));
        }
    }

    /// Gives back memory of times when there were many more objects.
    fn shrink(&mut self) {
        if self.objects.capacity() > 64 + 4 * self.objects.len() {
            self.objects.shrink_to_fit();
        }
        if self.names.capacity() > 64 + 4 * self.names.len() {
            self.names.shrink_to_fit();
        }
    }
}

fn weight<T: Indexed>(object: &T) -> usize {
    object.weight() + OVERHEAD_BYTES
}

#[cfg(test)]
mod tests;
