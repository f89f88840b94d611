//! Attributes that a receiver's options give its records, with expressions in them.

use sluice_otlp::AnyValue;

use crate::expression::Template;
use crate::field::{Root, put};
use crate::operator::Transform;
use crate::record::Record;

/// An attribute of each record or of its resource, whose text may have `EXPR(…)` in it.
#[derive(Clone, Debug)]
pub struct Label {
    is_resource: bool,
    key: String,
    template: Template,
}

impl Label {
    /// `root`: [`Root::Resource`]; another is the attributes.
    ///
    /// # Errors
    /// The reason, with its place within the expression.
    pub fn new(root: Root, key: &str, text: &str) -> Result<Label, String> {
        let (key, template) = (key.to_owned(), Template::compile(text)?);
        Ok(Label { is_resource: root == Root::Resource, key, template })
    }

    /// Sentences about parts that are probably mistakes.
    pub fn warnings(&self) -> impl Iterator<Item = &String> {
        self.template.warnings()
    }
}

/// The operator that comes before all others.
#[derive(Clone)]
pub(crate) struct Labels(pub(crate) Vec<Label>);

impl Transform for Labels {
    fn apply(&mut self, record: &mut Record) -> Result<(), String> {
        let mut rendered = Vec::new();
        for label in &self.0 {
            let map = if label.is_resource { &record.resource } else { &record.attributes };
            // The receiver's own attributes count more, as in the Collector.
            if map.iter().all(|(key, _)| *key != label.key) {
                rendered.push((label, label.template.render(record)?));
            }
        }
        for (label, text) in rendered {
            let map = if label.is_resource { &mut record.resource } else { &mut record.attributes };
            put(map, &label.key, AnyValue::String(text));
        }
        Ok(())
    }
}
