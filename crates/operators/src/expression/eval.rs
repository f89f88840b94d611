//! Evaluates a tree for one record.

use std::borrow::Cow;

use sluice_otlp::AnyValue;

use super::arithmetic::{add, combine, compare, matches};
use super::tree::{Binary, Each, Kind, Node, Pointer, Unary, Variable};
use super::value::{KEY_BYTES, NO_TIME, VALUE_BYTES, Val, depth};
use crate::record::Record;

/// Nodes that one evaluation may visit.
const STEPS_LIMIT: usize = 100_000;
/// Bytes that one evaluation may make.
const BYTES_LIMIT: usize = 8 << 20;
/// Levels of arrays and maps within each other.
const DEPTH_LIMIT: usize = 60;
/// Bytes that are compared or searched in a step.
const STEP_BYTES: usize = 256;

/// Why there is no value.
#[derive(Debug)]
pub(super) enum Stop {
    /// An optional member has nothing before it: the chain is nil.
    Nothing,
    Failed(String),
}

pub(super) type Outcome<T> = Result<T, Stop>;

pub(super) fn failed<T>(reason: String) -> Outcome<T> {
    Err(Stop::Failed(reason))
}

/// An evaluation under way.
pub(super) struct Machine<'a> {
    record: &'a Record,
    variables: Vec<Val<'a>>,
    /// Of the predicates around, the innermost last.
    scopes: Vec<Scope<'a>>,
    steps: usize,
    bytes: usize,
}

struct Scope<'a> {
    item: Val<'a>,
    index: usize,
    accumulator: Val<'a>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(record: &'a Record) -> Machine<'a> {
        let (variables, scopes) = (Vec::new(), Vec::new());
        Machine { record, variables, scopes, steps: 0, bytes: 0 }
    }

    /// Notes work beyond that of a node.
    pub(super) fn spend(&mut self, steps: usize) -> Outcome<()> {
        self.steps = self.steps.saturating_add(steps);
        match self.steps {
            0..=STEPS_LIMIT => Ok(()),
            _ => failed(format!("the expression takes more than {STEPS_LIMIT} steps")),
        }
    }

    /// Asks for memory before it is used.
    pub(super) fn charge(&mut self, bytes: usize) -> Outcome<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        match self.bytes {
            0..=BYTES_LIMIT => Ok(()),
            _ => failed(format!("the expression needs more than {BYTES_LIMIT} bytes")),
        }
    }

    /// Notes the work of searching a text, a list, or the keys of a map.
    pub(super) fn searched(&mut self, value: &Val<'_>) -> Outcome<()> {
        let bytes = match value {
            Val::Map(map) => map.len() * (KEY_BYTES + VALUE_BYTES),
            value => value.size(),
        };
        self.spend(bytes / STEP_BYTES)
    }

    /// Notes the work of comparing two values: no more than the smaller one is read.
    pub(super) fn compared(&mut self, one: &Val<'_>, other: &Val<'_>) -> Outcome<()> {
        let are_alike = match (one, other) {
            (Val::Text(_), Val::Text(_)) | (Val::Bytes(_), Val::Bytes(_)) => true,
            (Val::Array(one), Val::Array(other)) => one.len() == other.len(),
            (Val::Map(one), Val::Map(other)) => one.len() == other.len(),
            _ => false,
        };
        let bytes = if are_alike { one.size().min(other.size()) } else { 0 };
        self.spend(bytes / STEP_BYTES)
    }

    /// A value that is kept, which is copied if it is borrowed.
    fn kept(&mut self, value: Val<'a>) -> Outcome<AnyValue> {
        self.charge(VALUE_BYTES + value.size())?;
        Ok(value.into_value())
    }

    pub(super) fn text(&mut self, text: String) -> Outcome<Val<'a>> {
        self.charge(text.len())?;
        Ok(Val::Text(Cow::Owned(text)))
    }

    pub(super) fn array(&mut self, items: Vec<AnyValue>) -> Outcome<Val<'a>> {
        self.composed(Val::Array(Cow::Owned(items)))
    }

    fn composed(&mut self, value: Val<'a>) -> Outcome<Val<'a>> {
        self.charge(value.size())?;
        self.nested(value)
    }

    /// The value, unless it nests too deeply. Its parts were charged.
    fn nested(&self, value: Val<'a>) -> Outcome<Val<'a>> {
        let below = match &value {
            Val::Array(items) => items.iter().map(depth).max(),
            Val::Map(map) => map.iter().map(|(_, value)| depth(value)).max(),
            _ => None,
        };
        if below.unwrap_or(0) >= DEPTH_LIMIT {
            return failed("the value nests too deeply".to_owned());
        }
        Ok(value)
    }

    pub(super) fn eval(&mut self, node: &'a Node) -> Outcome<Val<'a>> {
        self.spend(1)?;
        Ok(match &node.kind {
            Kind::Literal(value) => Val::of(value),
            Kind::Variable(Variable::Body) => Val::of(&self.record.body),
            Kind::Variable(Variable::Attributes) => {
                Val::Map(Cow::Borrowed(&self.record.attributes))
            }
            Kind::Variable(Variable::Resource) => Val::Map(Cow::Borrowed(&self.record.resource)),
            Kind::Variable(Variable::Timestamp) => {
                Val::Time(self.record.time_ns.map_or(NO_TIME, i128::from))
            }
            Kind::Local(place) => {
                self.charge(self.variables.get(*place).map_or(0, Val::owned_size))?;
                self.variables.get(*place).cloned().unwrap_or(Val::Nil)
            }
            Kind::Pointer(pointer) => return self.pointer(*pointer),
            Kind::Unary(Unary::Not, of) => Val::Bool(!self.boolean(of)?),
            Kind::Unary(sign, of) => match (self.eval(of)?, sign) {
                (Val::Int(value), Unary::Minus) => Val::Int(value.wrapping_neg()),
                (Val::Float(value), Unary::Minus) => Val::Float(-value),
                (value @ (Val::Int(_) | Val::Float(_)), _) => value,
                (other, _) => {
                    return failed(format!("{} has no sign", other.type_name()));
                }
            },
            Kind::All(nodes) => Val::Bool(self.first_is(nodes, false)?.is_none()),
            Kind::Any(nodes) => Val::Bool(self.first_is(nodes, true)?.is_some()),
            Kind::Compare(signs, nodes) => {
                let mut left = self.eval(&nodes[0])?;
                for (sign, node) in signs.iter().zip(&nodes[1..]) {
                    let right = self.eval(node)?;
                    self.compared(&left, &right)?;
                    if !compare(*sign, &left, &right)? {
                        return Ok(Val::Bool(false));
                    }
                    left = right;
                }
                Val::Bool(true)
            }
            Kind::Binary(how, sides) => {
                let left = self.eval(&sides[0])?;
                if *how == Binary::Coalesce && !matches!(left, Val::Nil) {
                    return Ok(left);
                }
                let right = self.eval(&sides[1])?;
                return combine(self, *how, left, right);
            }
            Kind::Matches(of, pattern) => {
                let of = self.eval(of)?;
                self.searched(&of)?;
                Val::Bool(matches(pattern, &of)?)
            }
            Kind::Member { of, key, is_optional } => {
                let of = self.eval(of)?;
                if *is_optional && matches!(of, Val::Nil) {
                    return Err(Stop::Nothing);
                }
                let key = self.eval(key)?;
                return self.member(of, &key);
            }
            Kind::Chain(inner) => match self.eval(inner) {
                Err(Stop::Nothing) => Val::Nil,
                outcome => return outcome,
            },
            Kind::Slice { of, from, to } => {
                let of = self.eval(of)?;
                let from = from.as_ref().map(|node| self.whole(node)).transpose()?;
                let to = to.as_ref().map(|node| self.whole(node)).transpose()?;
                return self.slice(of, from.unwrap_or(0), to.unwrap_or(i64::MAX));
            }
            Kind::Conditional(parts) => {
                let branch = if self.boolean(&parts[0])? { &parts[1] } else { &parts[2] };
                return self.eval(branch);
            }
            Kind::Array(nodes) => {
                let mut items = Vec::new();
                for node in nodes {
                    let item = self.eval(node)?;
                    items.push(self.kept(item)?);
                }
                return self.nested(Val::Array(Cow::Owned(items)));
            }
            Kind::Map(pairs) => {
                let mut map = Vec::new();
                for (key, value) in pairs {
                    let Val::Text(key) = self.eval(key)? else {
                        return failed("a key of a map must be a string".to_owned());
                    };
                    let value = self.eval(value)?;
                    self.charge(KEY_BYTES + key.len())?;
                    crate::field::put(&mut map, &key, self.kept(value)?);
                }
                return self.nested(Val::Map(Cow::Owned(map)));
            }
            Kind::Let(inside) => {
                let value = self.eval(&inside[0])?;
                self.variables.push(value);
                let result = self.eval(&inside[1]);
                self.variables.pop();
                return result;
            }
            Kind::Sequence(nodes) => {
                let mut last = Val::Nil;
                for node in nodes {
                    last = self.eval(node)?;
                }
                last
            }
            Kind::Call(function, nodes) => {
                let mut arguments = Vec::with_capacity(nodes.len());
                for node in nodes {
                    arguments.push(self.eval(node)?);
                }
                return (function.call)(self, &mut arguments);
            }
            Kind::Each(each, nodes) => return self.each(*each, nodes),
        })
    }

    pub(super) fn boolean(&mut self, node: &'a Node) -> Outcome<bool> {
        match self.eval(node)? {
            Val::Bool(value) => Ok(value),
            other => failed(format!("a boolean is needed, not {}", other.type_name())),
        }
    }

    fn whole(&mut self, node: &'a Node) -> Outcome<i64> {
        super::arithmetic::as_int(&self.eval(node)?)
    }

    /// The first operand with this value.
    fn first_is(&mut self, nodes: &'a [Node], wanted: bool) -> Outcome<Option<usize>> {
        for (index, node) in nodes.iter().enumerate() {
            if self.boolean(node)? == wanted {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    fn pointer(&mut self, pointer: Pointer) -> Outcome<Val<'a>> {
        let of = |scope: &Scope<'a>| match pointer {
            Pointer::Item => scope.item.owned_size(),
            Pointer::Index => 0,
            Pointer::Accumulator => scope.accumulator.owned_size(),
        };
        self.charge(self.scopes.last().map_or(0, of))?;
        Ok(self.scopes.last().map_or(Val::Nil, |scope| match pointer {
            Pointer::Item => scope.item.clone(),
            Pointer::Index => Val::Int(scope.index as i64),
            Pointer::Accumulator => scope.accumulator.clone(),
        }))
    }

    /// The value under a key, or at an index: a negative one counts from the end.
    pub(super) fn member(&mut self, of: Val<'a>, key: &Val<'_>) -> Outcome<Val<'a>> {
        Ok(match (of, key) {
            (Val::Map(map), Val::Text(key)) => match map {
                Cow::Borrowed(map) => {
                    map.iter().find(|(name, _)| name == key).map_or(Val::Nil, |it| Val::of(&it.1))
                }
                Cow::Owned(map) => {
                    let found = map.into_iter().find(|(name, _)| name == key);
                    found.map_or(Val::Nil, |(_, value)| Val::owned(value))
                }
            },
            (Val::Map(_), Val::Nil) => Val::Nil,
            (Val::Array(items), Val::Int(_) | Val::Float(_)) => {
                let place = place(key, items.len())?;
                match items {
                    Cow::Borrowed(items) => Val::of(&items[place]),
                    Cow::Owned(mut items) => Val::owned(items.swap_remove(place)),
                }
            }
            (Val::Text(text), Val::Int(_) | Val::Float(_)) => {
                Val::Int(text.as_bytes()[place(key, text.len())?].into())
            }
            (Val::Bytes(bytes), Val::Int(_) | Val::Float(_)) => {
                Val::Int(bytes[place(key, bytes.len())?].into())
            }
            (of, Val::Text(key)) => {
                let key: String = key.chars().take(40).collect();
                return failed(format!("there is no `{key}` in {}", of.type_name()));
            }
            (of, key) => {
                return failed(format!("{} is no key of {}", key.type_name(), of.type_name()));
            }
        })
    }

    pub(super) fn slice(&mut self, of: Val<'a>, from: i64, to: i64) -> Outcome<Val<'a>> {
        let len = match &of {
            Val::Text(text) => text.len(),
            Val::Bytes(bytes) => bytes.len(),
            Val::Array(items) => items.len(),
            other => return failed(format!("{} has no slices", other.type_name())),
        };
        let end = |at: i64| match at {
            0.. => len.min(usize::try_from(at).unwrap_or(usize::MAX)),
            _ => len.saturating_sub(usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX)),
        };
        let range = end(from).min(end(to))..end(to);
        Ok(match of {
            // The ends are bytes. Part of a character becomes a replacement character.
            Val::Text(Cow::Borrowed(text)) => match text.get(range.clone()) {
                Some(part) => Val::Text(Cow::Borrowed(part)),
                None => {
                    let part = String::from_utf8_lossy(&text.as_bytes()[range]).into_owned();
                    return self.text(part);
                }
            },
            Val::Text(Cow::Owned(text)) => {
                let part = String::from_utf8_lossy(&text.as_bytes()[range]).into_owned();
                return self.text(part);
            }
            Val::Bytes(Cow::Borrowed(bytes)) => Val::Bytes(Cow::Borrowed(&bytes[range])),
            Val::Array(Cow::Borrowed(items)) => Val::Array(Cow::Borrowed(&items[range])),
            Val::Bytes(Cow::Owned(bytes)) => Val::Bytes(Cow::Owned(bytes[range].to_vec())),
            Val::Array(Cow::Owned(items)) => return self.array(items[range].to_vec()),
            other => other,
        })
    }

    /// A function with a predicate. The nodes: array, predicate, initial value.
    fn each(&mut self, each: Each, nodes: &'a [Node]) -> Outcome<Val<'a>> {
        let items: Vec<Val<'a>> = match self.eval(&nodes[0])? {
            Val::Array(Cow::Borrowed(items)) => items.iter().map(Val::of).collect(),
            Val::Array(Cow::Owned(items)) => items.into_iter().map(Val::owned).collect(),
            other => return failed(format!("an array is needed, not {}", other.type_name())),
        };
        self.spend(items.len())?;
        let len = items.len();
        let mut accumulator = match each {
            Each::Sum => Val::Int(0),
            Each::Reduce => nodes.get(2).map_or(Ok(Val::Nil), |node| self.eval(node))?,
            _ => Val::Nil,
        };
        let (mut found, mut kept) = (0_usize, Vec::new());
        for (index, mut item) in items.into_iter().enumerate() {
            if each == Each::Reduce && nodes.len() < 3 && index == 0 {
                accumulator = item;
                continue;
            }
            let value = match nodes.get(1) {
                Some(predicate) => {
                    self.scopes.push(Scope { item, index, accumulator });
                    let value = self.eval(predicate);
                    let Some(scope) = self.scopes.pop() else { return Ok(Val::Nil) };
                    (item, accumulator) = (scope.item, scope.accumulator);
                    value?
                }
                None => std::mem::replace(&mut item, Val::Nil),
            };
            match each {
                Each::Map => {
                    kept.push(self.kept(value)?);
                    continue;
                }
                Each::Sum => {
                    accumulator = add(self, accumulator, value)?;
                    continue;
                }
                Each::Reduce => {
                    accumulator = value;
                    continue;
                }
                _ => {}
            }
            let Val::Bool(holds) = value else {
                return failed(format!("a boolean is needed, not {}", value.type_name()));
            };
            match (each, holds) {
                (Each::All, false) => return Ok(Val::Bool(false)),
                (Each::Any, true) => return Ok(Val::Bool(true)),
                (Each::None, true) => return Ok(Val::Bool(false)),
                (Each::Find, true) => return Ok(item),
                (Each::Filter, true) => kept.push(self.kept(item)?),
                (_, holds) => found += usize::from(holds),
            }
        }
        match each {
            Each::All | Each::None => Ok(Val::Bool(true)),
            Each::Any => Ok(Val::Bool(false)),
            Each::One => Ok(Val::Bool(found == 1)),
            Each::Count => Ok(Val::Int(found as i64)),
            Each::Filter | Each::Map => self.nested(Val::Array(Cow::Owned(kept))),
            Each::Reduce if len == 0 && nodes.len() < 3 => {
                failed("`reduce` of an empty array needs an initial value".to_owned())
            }
            Each::Sum | Each::Reduce => Ok(accumulator),
            _ => Ok(Val::Nil),
        }
    }
}

fn place(index: &Val<'_>, len: usize) -> Outcome<usize> {
    let index = super::arithmetic::as_int(index)?;
    let from_start = if index < 0 { index.saturating_add(len as i64) } else { index };
    match usize::try_from(from_start) {
        Ok(place) if place < len => Ok(place),
        _ => failed(format!("there is no index {index} in {len}")),
    }
}
