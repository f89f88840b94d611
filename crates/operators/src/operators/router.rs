//! `router` sends records to different operators.

use std::sync::Arc;

use sluice_config::{Entry, Fields};
use sluice_otlp::AnyValue;

use crate::expression::{Expression, Template};
use crate::field::put;
use crate::operator::{Refused, Route, Routes, Stage};
use crate::read;
use crate::record::Record;

pub(super) const DOC: &str = "Sends a record to the outputs of the first route whose expression \
                              holds. A record that no route takes is dropped and counted, unless \
                              there is a `default`.";

#[derive(Clone)]
struct Router {
    routes: Arc<[Condition]>,
}

struct Condition {
    /// `None`: the default, which takes all.
    expression: Option<Expression>,
    attributes: Vec<(String, Template)>,
}

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Routes> {
    let doc = "The routes, in order. Required without `default`.";
    let routes = fields.sections("routes", doc, read_route);
    let doc = "Operators for records that no route takes.";
    let outputs = fields.string_list("default", &[], doc);
    if routes.is_empty() && outputs.is_empty() {
        fields.error_missing("routes");
        return None;
    }
    let mut all: Vec<_> = routes.into_iter().collect::<Option<_>>()?;
    if !outputs.is_empty() {
        let condition = Condition { expression: None, attributes: Vec::new() };
        all.push((condition, Route { outputs, span: fields.span_of("default") }));
    }
    let (conditions, routes): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let router = Router { routes: conditions.into() };
    Some((Box::new(router), routes))
}

fn read_route(fields: &mut Fields<'_>) -> Option<(Condition, Route)> {
    let doc = "The route takes the records for which it holds. If it fails for a record, the next \
               route is tried.";
    let expression = read::required_condition(fields, "expr", doc);
    let doc = "Operators to which the records go. Required.";
    let outputs = fields.string_list("output", &[], doc);
    if outputs.is_empty() {
        fields.error_missing("output");
    }
    let doc = "Attributes that records on this route get. Values may have `EXPR(…)` in them.";
    let attributes = read_attributes(fields, doc);
    let route = Route { outputs, span: fields.span_of("output") };
    Some((Condition { expression: Some(expression?), attributes }, route))
}

fn read_attributes(fields: &mut Fields<'_>, doc: &str) -> Vec<(String, Template)> {
    let Some(node) = fields.node("attributes", "map of strings", doc) else { return Vec::new() };
    if node.as_mapping().is_none() && !node.is_null() {
        fields.error_at("attributes", &format!("must be a mapping, not {}", node.kind()));
    }
    let mut attributes = Vec::new();
    for Entry { key, value, .. } in node.as_mapping().unwrap_or_default() {
        let text = value.as_text().and_then(|scalar| {
            // As in the Collector, null is the empty text.
            scalar.as_string().or(scalar.is_null().then_some(""))
        });
        let template = text.ok_or("it is not a string".to_owned()).and_then(Template::compile);
        match template {
            Ok(template) => {
                read::warn(fields, "attributes", template.warnings());
                attributes.push((key.clone(), template));
            }
            Err(why) => fields.error_at("attributes", &format!("has a wrong `{key}`: {why}")),
        }
    }
    attributes
}

impl Router {
    /// The route that takes the record.
    fn route(&self, record: &Record) -> Option<usize> {
        let holds = |condition: &Condition| match &condition.expression {
            Some(expression) => expression.holds(record).unwrap_or(false),
            None => true,
        };
        self.routes.iter().position(holds)
    }
}

impl Stage for Router {
    fn take(&mut self, mut record: Record, out: &mut Vec<(usize, Record)>) -> Result<(), Refused> {
        let Some(route) = self.route(&record) else { return Ok(()) };
        let mut rendered = Vec::new();
        for (key, template) in &self.routes[route].attributes {
            match template.render(&record) {
                Ok(text) => rendered.push((key, text)),
                Err(reason) => return Err(Box::new((record, reason))),
            }
        }
        for (key, text) in rendered {
            put(&mut record.attributes, key, AnyValue::String(text));
        }
        out.push((route, record));
        Ok(())
    }
}
