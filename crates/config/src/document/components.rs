//! The definitions under `receivers`, `processors`, `exporters`, `extensions` and `connectors`.

use crate::catalog::{Catalog, Class, Kind};
use crate::component_id::ComponentId;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::known_components;
use crate::nearest::nearest;
use crate::source::Span;
use crate::yaml::{Entry, Node};

/// A component that the file defines.
#[derive(Clone, Debug)]
pub struct Component {
    pub id: ComponentId,
    /// The canonical name of its kind: `otlp_http` where the file says `otlphttp`.
    pub kind: &'static str,
    /// Its options, to be read with [`crate::read_component`].
    pub node: Node,
    /// Where its id stands.
    pub span: Span,
    /// Its name in messages: `exporters.otlp/2`.
    pub path: String,
}

/// All definitions of a file, including components that this build does not have, so that
/// references to those are not reported as a second error.
pub(super) struct Definitions<'c> {
    definitions: Vec<Definition<'c>>,
}

pub(super) struct Definition<'c> {
    pub(super) class: Class,
    pub(super) id: ComponentId,
    /// Missing if an error was reported.
    pub(super) kind: Option<&'c Kind>,
    pub(super) span: Span,
    node: Node,
}

impl<'c> Definitions<'c> {
    pub(super) fn read(
        root: &Node,
        catalog: &'c dyn Catalog,
        diagnostics: &mut Diagnostics,
    ) -> Self {
        let mut all = Definitions { definitions: Vec::new() };
        for class in Class::ALL {
            let Some(node) = root.get(class.key()) else { continue };
            match node.as_mapping() {
                Some(entries) => {
                    entries.iter().for_each(|entry| all.define(class, entry, catalog, diagnostics))
                }
                None if node.is_null() => {}
                None => diagnostics.error(
                    node.span,
                    format!("`{}` must be a mapping, not {}", class.key(), node.kind()),
                ),
            }
        }
        all
    }

    fn define(
        &mut self,
        class: Class,
        entry: &Entry,
        catalog: &'c dyn Catalog,
        diagnostics: &mut Diagnostics,
    ) {
        let id = match ComponentId::parse(&entry.key) {
            Ok(id) => id,
            Err(why) => {
                diagnostics.error(
                    entry.key_span,
                    format!("`{}` cannot be the id of {}: {why}", entry.key, class.with_article()),
                );
                return;
            }
        };
        if let Some(first) = self.find(class, &id) {
            let error = Diagnostic::error(
                entry.key_span,
                format!("the {} `{id}` is defined twice", class.name()),
            );
            diagnostics.push(error.with_related(first.span, "first here"));
            return;
        }
        let span = entry.key_span;
        let kind = kind_of(class, &id, catalog)
            .map_err(|error| diagnostics.push(Diagnostic { span: Some(span), ..error }))
            .ok();
        self.definitions.push(Definition { class, id, kind, span, node: entry.value.clone() });
    }

    pub(super) fn find(&self, class: Class, id: &ComponentId) -> Option<&Definition<'c>> {
        self.definitions.iter().find(|definition| definition.class == class && definition.id == *id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Definition<'c>> {
        self.definitions.iter()
    }

    /// The usable components by class, in the order of [`Class::ALL`].
    pub(super) fn into_components(self) -> [Vec<Component>; 5] {
        let mut lists = [const { Vec::new() }; 5];
        for definition in self.definitions {
            let Some(kind) = definition.kind else { continue };
            let path = format!("{}.{}", definition.class.key(), definition.id);
            let Definition { class, id, span, node, .. } = definition;
            let component = Component { id, kind: kind.name, node, span, path };
            let position = Class::ALL.iter().position(|listed| *listed == class);
            lists[position.expect("every class is listed")].push(component);
        }
        lists
    }
}

/// Finds the kind, or says why there is none: not in this build, not in Sluice, of another class,
/// or misspelt.
fn kind_of<'c>(
    class: Class,
    id: &ComponentId,
    catalog: &'c dyn Catalog,
) -> Result<&'c Kind, Diagnostic> {
    let name = id.kind();
    let kinds = catalog.kinds(class);
    if let Some(kind) = kinds.iter().find(|kind| kind.is_called(name)) {
        return match kind.missing {
            Some(text) => Err(Diagnostic::error(None, text)),
            None => Ok(kind),
        };
    }
    if known_components::is_known(class, name) {
        return Err(Diagnostic::error(
            None,
            format!("`{name}` is a Collector component that Sluice does not have yet"),
        ));
    }
    let error = Diagnostic::error(None, format!("there is no {} of type `{name}`", class.name()));
    let in_class = |class: Class| {
        catalog.kinds(class).iter().any(|kind| kind.is_called(name) && kind.missing.is_none())
    };
    if let Some(other) = Class::ALL.into_iter().find(|other| *other != class && in_class(*other)) {
        return Err(error.with_hint(format!("`{name}` is one of the `{}`", other.key())));
    }
    let usable = kinds.iter().filter(|kind| kind.missing.is_none());
    let names = usable.flat_map(|kind| kind.aliases.iter().copied().chain([kind.name]));
    let hint = match nearest(name, names) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => format!("`sluice components` lists the {}s of this build", class.name()),
    };
    Err(error.with_hint(hint))
}
