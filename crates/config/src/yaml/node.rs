//! The spanned node tree.

use std::fmt;

use sluice_otlp::AnyValue;

use crate::source::Span;

/// A node and its position. The span of a mapping or list may cover only its first character.
#[derive(Clone)]
pub struct Node {
    pub value: Value,
    pub span: Span,
    /// For a list or a mapping that was a `${…}`: its text, for options that want a string.
    pub text: Option<Box<Scalar>>,
    /// For an empty value that had a `${…}`.
    pub emptied_by: Option<EmptiedBy>,
}

/// The references that left a value empty.
#[derive(Clone)]
pub struct EmptiedBy {
    /// For messages, without their defaults, which may be secrets.
    pub references: Box<str>,
    /// A default in the file is empty, which is a choice.
    pub is_chosen: bool,
}

#[derive(Clone)]
pub enum Value {
    Scalar(Scalar),
    List(Vec<Node>),
    Mapping(Vec<Entry>),
}

/// One key of a mapping and its value. Keys are unique within a mapping, in the order of the file.
#[derive(Clone)]
pub struct Entry {
    pub key: String,
    pub key_span: Span,
    pub value: Node,
}

/// A scalar with its text: `0644` has the value 420 and the text `0644`.
#[derive(Clone)]
pub struct Scalar {
    pub value: ScalarValue,
    pub text: String,
    /// The scalar was a `${…}`: a string option takes the text, whatever it looks like.
    pub expanded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalarValue {
    Null,
    Boolean(bool),
    /// In the range of `i64` or `u64`.
    Integer(i128),
    Float(f64),
    String,
}

impl Scalar {
    pub fn is_null(&self) -> bool {
        self.value == ScalarValue::Null
    }

    /// The text, if an option that wants a string may take it.
    pub fn as_string(&self) -> Option<&str> {
        (self.value == ScalarValue::String || self.expanded).then_some(self.text.as_str())
    }

    pub fn as_boolean(&self) -> Option<bool> {
        if let ScalarValue::Boolean(value) = self.value { Some(value) } else { None }
    }

    /// The value as a whole number; floats without fraction count, as they do for the Collector.
    pub fn as_integer(&self) -> Option<i128> {
        match self.value {
            ScalarValue::Integer(value) => Some(value),
            ScalarValue::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => {
                Some(value as i128)
            }
            _ => None,
        }
    }

    pub fn as_float(&self) -> Option<f64> {
        match self.value {
            ScalarValue::Integer(value) => Some(value as f64),
            ScalarValue::Float(value) => Some(value),
            _ => None,
        }
    }

    /// The kind of the value, for messages: "a string", "an integer", …
    pub fn kind(&self) -> &'static str {
        match self.value {
            ScalarValue::Null => "null",
            ScalarValue::Boolean(_) => "a boolean",
            ScalarValue::Integer(_) => "an integer",
            ScalarValue::Float(_) => "a number with a fraction",
            ScalarValue::String => "a string",
        }
    }
}

impl Node {
    pub fn null(span: Span) -> Self {
        let (value, text) = (ScalarValue::Null, String::new());
        Node::new(Value::Scalar(Scalar { value, text, expanded: false }), span)
    }

    pub fn new(value: Value, span: Span) -> Self {
        Node { value, span, text: None, emptied_by: None }
    }

    /// The value of an attribute that it stands for. `None`: a number does not fit into 64 bits.
    pub fn any_value(&self) -> Option<AnyValue> {
        match &self.value {
            Value::Scalar(scalar) => Some(match scalar.value {
                ScalarValue::Null => AnyValue::Empty,
                ScalarValue::Boolean(value) => AnyValue::Bool(value),
                ScalarValue::Integer(value) => AnyValue::Int(value.try_into().ok()?),
                ScalarValue::Float(value) => AnyValue::Double(value),
                ScalarValue::String => AnyValue::String(scalar.text.clone()),
            }),
            Value::List(items) => {
                Some(AnyValue::Array(items.iter().map(Node::any_value).collect::<Option<_>>()?))
            }
            Value::Mapping(entries) => {
                let entry = |entry: &Entry| Some((entry.key.clone(), entry.value.any_value()?));
                Some(AnyValue::Map(entries.iter().map(entry).collect::<Option<_>>()?))
            }
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(scalar) if scalar.is_null())
    }

    pub fn as_scalar(&self) -> Option<&Scalar> {
        if let Value::Scalar(scalar) = &self.value { Some(scalar) } else { None }
    }

    /// True for null, blank text, and a list or a mapping without items.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.is_null() || scalar.text.trim().is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Mapping(entries) => entries.is_empty(),
        }
    }

    /// The scalar, or the text of a `${…}` that is a list or a mapping.
    pub fn as_text(&self) -> Option<&Scalar> {
        self.as_scalar().or(self.text.as_deref())
    }

    pub fn as_list(&self) -> Option<&[Node]> {
        if let Value::List(items) = &self.value { Some(items) } else { None }
    }

    pub fn as_mapping(&self) -> Option<&[Entry]> {
        if let Value::Mapping(entries) = &self.value { Some(entries) } else { None }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_mapping()?.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The kind of the node, for messages: "a list", "a mapping", "a string", …
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar(scalar) => scalar.kind(),
            Value::List(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }
}

/// Shows the kind only: any scalar may be a password.
impl fmt::Debug for Node {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "<{}>", self.kind())
    }
}
