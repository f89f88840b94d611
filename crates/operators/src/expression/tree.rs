//! An expression as a tree.

use sluice_config::Pattern;
use sluice_otlp::AnyValue;

use super::functions::Function;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// The byte of the text to which errors point.
    pub at: usize,
    /// Levels below this node, which bound the depth of the evaluation.
    pub height: u16,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Literal(AnyValue),
    Variable(Variable),
    /// A `let` variable, by its place on the stack of variables.
    Local(usize),
    Pointer(Pointer),
    Unary(Unary, Box<Node>),
    /// Operands of `and`.
    All(Vec<Node>),
    /// Operands of `or`.
    Any(Vec<Node>),
    /// `a < b <= c`: one operator less than operands.
    Compare(Vec<Comparison>, Vec<Node>),
    Binary(Binary, Box<[Node; 2]>),
    /// `matches` with a pattern that is known.
    Matches(Box<Node>, Pattern),
    Member {
        of: Box<Node>,
        key: Box<Node>,
        is_optional: bool,
    },
    /// Is nil as a whole if an optional member within has nothing before it.
    Chain(Box<Node>),
    Slice {
        of: Box<Node>,
        from: Option<Box<Node>>,
        to: Option<Box<Node>>,
    },
    /// Condition, then, else.
    Conditional(Box<[Node; 3]>),
    Array(Vec<Node>),
    Map(Vec<(Node, Node)>),
    /// A variable's value, and the rest in which it is known.
    Let(Box<[Node; 2]>),
    Sequence(Vec<Node>),
    Call(&'static Function, Vec<Node>),
    /// A function that evaluates a predicate for each item: array, predicate, initial value.
    Each(Each, Vec<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variable {
    Body,
    Attributes,
    Resource,
    Timestamp,
}

impl Variable {
    pub(super) fn named(name: &str) -> Option<Variable> {
        Some(match name {
            "body" | "$" => Variable::Body,
            "attributes" => Variable::Attributes,
            "resource" => Variable::Resource,
            "timestamp" => Variable::Timestamp,
            _ => return None,
        })
    }
}

/// `#` and its kin, within a predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    Item,
    Index,
    Accumulator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unary {
    Not,
    Minus,
    Plus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Equal,
    NotEqual,
    In,
    Matches,
    Contains,
    StartsWith,
    EndsWith,
    Range,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Coalesce,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Each {
    All,
    Any,
    None,
    One,
    Filter,
    Map,
    Count,
    Sum,
    Find,
    Reduce,
}

pub(super) const EACH: [(&str, Each); 10] = [
    ("all", Each::All),
    ("any", Each::Any),
    ("none", Each::None),
    ("one", Each::One),
    ("filter", Each::Filter),
    ("map", Each::Map),
    ("count", Each::Count),
    ("sum", Each::Sum),
    ("find", Each::Find),
    ("reduce", Each::Reduce),
];

impl Each {
    pub(super) fn named(name: &str) -> Option<Each> {
        EACH.iter().find(|(known, _)| *known == name).map(|(_, each)| *each)
    }
}

impl Kind {
    /// The type that the value surely has, where the text shows it.
    pub(super) fn surely(&self) -> Option<&'static str> {
        Some(match self {
            Kind::Literal(AnyValue::String(_)) => "a string",
            Kind::Literal(AnyValue::Int(_) | AnyValue::Double(_)) => "a number",
            Kind::Literal(AnyValue::Bytes(_)) => "bytes",
            Kind::Literal(AnyValue::Array(_)) => "an array",
            Kind::Variable(Variable::Attributes | Variable::Resource) | Kind::Map(_) => "a map",
            Kind::Variable(Variable::Timestamp) => "a time",
            Kind::Array(_) => "an array",
            Kind::Binary(Binary::Range, _) | Kind::Each(Each::Filter | Each::Map, _) => "an array",
            Kind::Unary(Unary::Minus | Unary::Plus, _) => "a number",
            Kind::Binary(Binary::Divide | Binary::Modulo | Binary::Power, _) => "a number",
            Kind::Let(inside) => inside[1].kind.surely()?,
            Kind::Sequence(nodes) => nodes.last()?.kind.surely()?,
            Kind::Call(function, _) => function.result?,
            _ => return None,
        })
    }
}
