//! The list of a crate's components: each kind with the function that reads its options.

use crate::{Fields, Kind};

/// A kind of component. `C` is the type of its options.
#[derive(Debug)]
pub struct ComponentKind<C, M = ()> {
    kind: Kind,
    /// Its metrics, if they are known without an instance.
    metrics: Option<M>,
    /// None for a kind that is only known by name.
    read: Option<fn(&mut Fields<'_>) -> C>,
}

impl<C, M: Copy> ComponentKind<C, M> {
    pub const fn new(kind: Kind, read: fn(&mut Fields<'_>) -> C) -> Self {
        ComponentKind { kind, metrics: None, read: Some(read) }
    }

    #[must_use]
    pub const fn metrics(mut self, metrics: M) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// A kind that cannot be used; `reason` is the text of the error.
    pub const fn missing(name: &'static str, reason: &'static str) -> Self {
        let kind = Kind { missing: Some(reason), ..Kind::new(name, "") };
        ComponentKind { kind, metrics: None, read: None }
    }
}

/// All kinds of one class that a crate has.
#[derive(Debug)]
pub struct ComponentKinds<C: 'static, M: 'static = ()>(&'static [ComponentKind<C, M>]);

impl<C, M: Copy> ComponentKinds<C, M> {
    pub const fn new(list: &'static [ComponentKind<C, M>]) -> Self {
        ComponentKinds(list)
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.0.iter().map(|known| known.kind).collect()
    }

    /// The metrics of the kinds.
    pub fn metrics(&self) -> impl Iterator<Item = M> {
        self.0.iter().filter_map(|known| known.metrics)
    }

    /// Reads a component's options by its kind's name or one of its aliases. None: no such kind.
    pub fn read(&self, kind: &str, fields: &mut Fields<'_>) -> Option<C> {
        let known = self.0.iter().find(|known| known.kind.is_called(kind))?;
        known.read.map(|read| read(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_text;

    static KINDS: ComponentKinds<String> = ComponentKinds::new(&[
        ComponentKind::new(Kind::new("greeter", "Greets").aliases(&["welcomer"]), |fields| {
            fields.string("greeting", "hello", "What it says.")
        }),
        ComponentKind::missing("shouter", "`shouter` is gone: use `greeter`"),
    ]);

    /// Guarantee: a component is read by its name and its aliases, and a kind that is only known by
    /// name is not read at all.
    #[test]
    fn components_are_read_by_any_of_their_names() {
        let read = |kind: &str| read_text("x", "greeting: hi", |fields| KINDS.read(kind, fields)).0;
        assert_eq!(read("greeter").as_deref(), Some("hi"));
        assert_eq!(read("welcomer").as_deref(), Some("hi"));
        assert_eq!(read("shouter"), None);
        assert_eq!(read("other"), None);
        let names: Vec<_> =
            KINDS.kinds().iter().map(|kind| (kind.name, kind.missing.is_some())).collect();
        assert_eq!(names, [("greeter", false), ("shouter", true)]);
    }
}
