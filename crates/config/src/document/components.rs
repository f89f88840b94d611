//! The definitions under `receivers`, `processors`, `exporters`, `extensions` and `connectors`.

use crate::catalog::{Catalog, Class, Kind};
use crate::component_id::ComponentId;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::known_components;
use crate::nearest::did_you_mean;
use crate::source::Span;
use crate::yaml::{Entry, Node};

#[derive(Clone, Debug)]
pub struct Component {
    pub id: ComponentId,
    /// The canonical name of its kind: `otlp_http` where the file says `otlphttp`.
    pub kind: &'static str,
    /// Its options.
    pub node: Node,
    /// The place of its id.
    pub span: Span,
    /// Its name in messages: `exporters.otlp/2`.
    pub path: String,
}

/// All definitions of a file, including components that this build does not have, so that
/// references to those are not reported as a second error.
pub(super) struct Definitions(pub(super) Vec<Definition>);

pub(super) struct Definition {
    pub(super) class: Class,
    pub(super) id: ComponentId,
    /// Missing if an error was reported.
    pub(super) kind: Option<Kind>,
    pub(super) span: Span,
    node: Node,
}

impl Definitions {
    pub(super) fn read(root: &Node, catalog: &dyn Catalog, diagnostics: &mut Diagnostics) -> Self {
        let mut all = Definitions(Vec::new());
        for class in Class::ALL {
            let Some(node) = root.get(class.key()) else { continue };
            if node.as_mapping().is_none() && !node.is_null() {
                let (key, kind) = (class.key(), node.kind());
                diagnostics.error(node.span, format!("`{key}` must be a mapping, not {kind}"));
            }
            for entry in node.as_mapping().unwrap_or_default() {
                match all.define(class, entry, catalog, diagnostics) {
                    Ok(definition) => all.0.push(definition),
                    Err(error) => diagnostics.push(error),
                }
            }
        }
        all
    }

    fn define(
        &self,
        class: Class,
        entry: &Entry,
        catalog: &dyn Catalog,
        diagnostics: &mut Diagnostics,
    ) -> Result<Definition, Diagnostic> {
        let Entry { key, key_span: span, value } = entry;
        let id = ComponentId::parse(key).map_err(|why| {
            let class = class.with_article();
            Diagnostic::error(*span, format!("`{key}` cannot be the id of {class}: {why}"))
        })?;
        if let Some(first) = self.find(class, &id) {
            let message = format!("the {} `{id}` is defined twice", class.name());
            return Err(Diagnostic::error(*span, message).with_related(first.span, "first here"));
        }
        let kind = kind_of(class, &id, *span, catalog);
        let kind = kind.map_err(|error| diagnostics.push(error)).ok();
        Ok(Definition { class, id, kind, span: *span, node: value.clone() })
    }

    pub(super) fn find(&self, class: Class, id: &ComponentId) -> Option<&Definition> {
        self.0.iter().find(|definition| definition.class == class && definition.id == *id)
    }

    /// The usable components by class, in the order of [`Class::ALL`].
    pub(super) fn into_components(self) -> [Vec<Component>; 5] {
        let mut lists = [const { Vec::new() }; 5];
        for Definition { class, id, kind, span, node } in self.0 {
            let Some(kind) = kind else { continue };
            let path = format!("{}.{id}", class.key());
            lists[class as usize].push(Component { id, kind: kind.name, node, span, path });
        }
        lists
    }
}

/// Finds the kind, or says why there is none: not in this build or in Sluice, misspelt, elsewhere.
fn kind_of(
    class: Class,
    id: &ComponentId,
    span: Span,
    catalog: &dyn Catalog,
) -> Result<Kind, Diagnostic> {
    let name = id.kind();
    let kinds = catalog.kinds(class);
    if let Some(kind) = kinds.iter().find(|kind| kind.is_called(name)) {
        return match kind.missing {
            Some(text) => Err(Diagnostic::error(span, text)),
            None => Ok(*kind),
        };
    }
    if known_components::is_known(class, name) {
        let message = format!("`{name}` is a Collector component that Sluice does not have yet");
        return Err(Diagnostic::error(span, message));
    }
    let error = Diagnostic::error(span, format!("there is no {} of type `{name}`", class.name()));
    let in_class = |class: Class| {
        catalog.kinds(class).iter().any(|kind| kind.is_called(name) && kind.missing.is_none())
    };
    if let Some(other) = Class::ALL.into_iter().find(|other| *other != class && in_class(*other)) {
        return Err(error.with_hint(format!("`{name}` is one of the `{}`", other.key())));
    }
    let usable = kinds.iter().filter(|kind| kind.missing.is_none());
    let names = usable.flat_map(|kind| kind.aliases.iter().copied().chain([kind.name]));
    let hint = did_you_mean(name, names)
        .unwrap_or_else(|| format!("`sluice components` lists the {} of this build", class.key()));
    Err(error.with_hint(hint))
}
