//! Operands: literals, variables, calls, and the members and slices behind them.

use sluice_config::nearest;
use sluice_otlp::AnyValue;

use super::{Parser, highest};
use crate::expression::functions::{self, ABSENT};
use crate::expression::lexer::{Fault, Step, Token, fault};
use crate::expression::tree::{Each, Kind, Node, Pointer, Unary, Variable};

/// The precedence of `not` and of signs.
const NOT: u8 = 50;
const SIGN: u8 = 90;

/// Names that the language has, and records do not.
const VARIABLES: &str = "`body`, `attributes`, `resource`, `timestamp`";

impl<'t> Parser<'t> {
    pub(super) fn primary(&mut self) -> Step<Node> {
        let at = self.at();
        let unary = match self.sign() {
            "not" | "!" => Some((Unary::Not, NOT)),
            "-" => Some((Unary::Minus, SIGN)),
            "+" => Some((Unary::Plus, SIGN)),
            _ => None,
        };
        if let Some((unary, precedence)) = unary {
            self.advance();
            let operand = self.expression(precedence)?;
            let node = self.node(at, operand.height, Kind::Unary(unary, Box::new(operand)))?;
            return self.postfix(node);
        }
        let node = match self.sign() {
            "(" => {
                self.advance();
                let node = self.sequence()?;
                self.expect(")")?;
                node
            }
            "#" if self.predicates > 0 => self.pointer(at)?,
            "." if self.predicates > 0 => self.node(at, 0, Kind::Pointer(Pointer::Item))?,
            "::" => {
                self.advance();
                let at = self.at();
                let name = self.name()?;
                self.call(at, name, Vec::new())?
            }
            "[" => self.array(at)?,
            "{" => self.map(at)?,
            _ => return self.secondary(at),
        };
        self.postfix(node)
    }

    fn pointer(&mut self, at: usize) -> Step<Node> {
        self.advance();
        let pointer = match *self.token() {
            Token::Name("index") => Pointer::Index,
            Token::Name("acc") => Pointer::Accumulator,
            Token::Name(_) => return self.unexpected(),
            _ => return self.node(at, 0, Kind::Pointer(Pointer::Item)),
        };
        self.advance();
        self.node(at, 0, Kind::Pointer(pointer))
    }

    fn secondary(&mut self, at: usize) -> Step<Node> {
        let token = self.token().clone();
        let literal = match token {
            Token::Name("true") => AnyValue::Bool(true),
            Token::Name("false") => AnyValue::Bool(false),
            Token::Name("nil") => AnyValue::Empty,
            Token::Number(text) => number(text)
                .ok_or_else(|| Fault { at, reason: format!("`{text}` is no number") })?,
            Token::Text(text) => AnyValue::String(text),
            Token::Bytes(bytes) => AnyValue::Bytes(bytes),
            Token::Name(name) => {
                self.advance();
                let node = match self.sign() {
                    "(" => self.call(at, name, Vec::new())?,
                    _ => self.variable(at, name)?,
                };
                return self.postfix(node);
            }
            Token::Sign(_) | Token::End => return self.unexpected(),
        };
        self.advance();
        let is_text = matches!(literal, AnyValue::String(_) | AnyValue::Bytes(_));
        let node = self.literal(at, literal)?;
        if is_text { self.postfix(node) } else { Ok(node) }
    }

    fn variable(&mut self, at: usize, name: &'t str) -> Step<Node> {
        if let Some(place) = self.variables.iter().rposition(|variable| *variable == name) {
            return self.node(at, 0, Kind::Local(place));
        }
        if name == "$env" {
            let name = self.name_in_env(at)?;
            let warning = format!(
                "`{name}` in `$env` is always nil: it has {VARIABLES}. An environment variable is \
                 `env(\"{name}\")` in an expression, and `${{env:{name}}}` in any option"
            );
            return self.part_of_record(at, &name, warning);
        }
        let warning = format!("`{name}` is always nil: records have {VARIABLES}");
        self.part_of_record(at, name, warning)
    }

    fn part_of_record(&mut self, at: usize, name: &str, warning: String) -> Step<Node> {
        if let Some(variable) = Variable::named(name) {
            return self.node(at, 0, Kind::Variable(variable));
        }
        self.unknown.push(warning);
        self.literal(at, AnyValue::Empty)
    }

    /// The name behind `$env`, which is a map of what records have, as in the Collector. It has no
    /// variables of the process.
    fn name_in_env(&mut self, at: usize) -> Step<String> {
        let is_optional = self.accept("?.");
        let is_point = !is_optional && self.accept(".");
        let is_index = !is_point && self.accept("[");
        let name = match self.token() {
            Token::Text(name) if is_index => name.clone(),
            Token::Name(name) if is_point || (is_optional && !is_index) => (*name).to_owned(),
            _ => {
                let message = "`$env` needs a name behind it, as in `$env.body`. An environment \
                               variable is `env(\"NAME\")` in an expression, and `${env:NAME}` in \
                               any option";
                return fault(at, message);
            }
        };
        self.advance();
        if is_index {
            self.expect("]")?;
        }
        Ok(name)
    }

    /// A call, whose name was read. A pipe has given its first argument.
    pub(super) fn call(&mut self, at: usize, name: &str, mut arguments: Vec<Node>) -> Step<Node> {
        if let Some(each) = Each::named(name) {
            return self.each(at, name, each, arguments);
        }
        let Some(function) = functions::named(name) else {
            if ABSENT.contains(&name) {
                let message = format!("the function `{name}` is not in this build of Sluice");
                return fault(at, message);
            }
            let meant = nearest(name, functions::names());
            let hint = meant.map(|it| format!(", did you mean `{it}`?")).unwrap_or_default();
            return fault(at, format!("there is no function `{name}`{hint}"));
        };
        self.expect("(")?;
        self.items(")", &mut arguments)?;
        if !function.arguments.contains(&arguments.len()) {
            let (least, most) = function.arguments.clone().into_inner();
            let wanted =
                if least == most { format!("{least}") } else { format!("{least} to {most}") };
            let given = arguments.len();
            return fault(at, format!("`{name}` takes {wanted} arguments, not {given}"));
        }
        self.node(at, highest(&arguments), Kind::Call(function, arguments))
    }

    /// Expressions up to a closing bracket, which is read too. The last may have a comma.
    fn items(&mut self, closing: &str, items: &mut Vec<Node>) -> Step<()> {
        while !self.accept(closing) {
            items.push(self.expression(0)?);
            if !self.accept(",") {
                return self.expect(closing);
            }
        }
        Ok(())
    }

    fn each(&mut self, at: usize, name: &str, each: Each, mut nodes: Vec<Node>) -> Step<Node> {
        self.expect("(")?;
        if nodes.is_empty() {
            nodes.push(self.expression(0)?);
            if !self.accept(",") && self.sign() != ")" {
                return self.unexpected();
            }
        }
        if self.sign() != ")" {
            nodes.push(self.predicate()?);
            if self.accept(",") && each == Each::Reduce && self.sign() != ")" {
                nodes.push(self.expression(0)?);
                self.accept(",");
            }
        } else if !matches!(each, Each::Count | Each::Sum) {
            return fault(at, format!("`{name}` needs an array and a predicate"));
        }
        self.expect(")")?;
        self.node(at, highest(&nodes), Kind::Each(each, nodes))
    }

    fn predicate(&mut self) -> Step<Node> {
        self.predicates += 1;
        let node = if self.accept("{") {
            let node = self.sequence()?;
            self.expect("}")?;
            node
        } else {
            self.expression(0)?
        };
        self.predicates -= 1;
        Ok(node)
    }

    fn array(&mut self, at: usize) -> Step<Node> {
        self.advance();
        let mut items = Vec::new();
        self.items("]", &mut items)?;
        let literal = |item: &Node| match &item.kind {
            Kind::Literal(value) => Some(value.clone()),
            _ => None,
        };
        // Made once rather than for each record: `attributes.x in ['a', 'b']`.
        if let Some(values) = items.iter().map(literal).collect() {
            return self.literal(at, AnyValue::Array(values));
        }
        self.node(at, highest(&items), Kind::Array(items))
    }

    fn map(&mut self, at: usize) -> Step<Node> {
        self.advance();
        let (mut pairs, mut below) = (Vec::new(), 0);
        while !self.accept("}") {
            let at = self.at();
            let key = match self.token().clone() {
                Token::Name(text) | Token::Number(text) => {
                    self.advance();
                    self.literal(at, AnyValue::String(text.to_owned()))?
                }
                Token::Text(text) => {
                    self.advance();
                    self.literal(at, AnyValue::String(text))?
                }
                Token::Sign("(") => self.expression(0)?,
                _ => return self.unexpected(),
            };
            self.expect(":")?;
            let value = self.expression(0)?;
            below = below.max(key.height).max(value.height);
            pairs.push((key, value));
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        self.node(at, below, Kind::Map(pairs))
    }

    fn postfix(&mut self, mut node: Node) -> Step<Node> {
        loop {
            let at = self.at();
            let is_optional = self.sign() == "?.";
            match self.sign() {
                "." | "?." => {
                    self.advance();
                    if is_optional && self.sign() == "[" {
                        self.advance();
                        node = self.index(at, node, true)?;
                        continue;
                    }
                    node = self.member(at, node, is_optional)?;
                }
                "[" => {
                    self.advance();
                    node = self.index(at, node, false)?;
                }
                _ => return Ok(node),
            }
        }
    }

    fn member(&mut self, at: usize, node: Node, is_optional: bool) -> Step<Node> {
        let name = match *self.token() {
            Token::Name(name) => name,
            // Words that are operators may be keys.
            Token::Sign(word) if word.starts_with(char::is_alphabetic) => word,
            _ => return fault(self.at(), format!("a key is expected, not {}", self.shown())),
        };
        let key_at = self.at();
        self.advance();
        let (is_chain, inner) = match node.kind {
            Kind::Chain(inner) => (true, *inner),
            kind => (false, Node { kind, ..node }),
        };
        let below = inner.height;
        if self.sign() == "(" {
            return fault(key_at, format!("the method `{name}` is not in this build of Sluice"));
        }
        let key = Box::new(self.literal(key_at, AnyValue::String(name.to_owned()))?);
        let kind = Kind::Member { of: Box::new(inner), key, is_optional };
        let member = self.node(at, below, kind)?;
        if !is_chain && !is_optional {
            return Ok(member);
        }
        self.node(at, member.height, Kind::Chain(Box::new(member)))
    }

    /// An index or a slice, whose bracket was read.
    fn index(&mut self, at: usize, node: Node, is_optional: bool) -> Step<Node> {
        let from = if self.sign() == ":" { None } else { Some(self.expression(0)?) };
        if self.accept(":") {
            let to = if self.sign() == "]" { None } else { Some(self.expression(0)?) };
            self.expect("]")?;
            let ends = [&from, &to].into_iter().flatten().map(|end| end.height).max();
            let below = node.height.max(ends.unwrap_or(0));
            let (from, to) = (from.map(Box::new), to.map(Box::new));
            return self.node(at, below, Kind::Slice { of: Box::new(node), from, to });
        }
        let Some(key) = from else { return self.unexpected() };
        self.expect("]")?;
        let below = node.height.max(key.height);
        let kind = Kind::Member { of: Box::new(node), key: Box::new(key), is_optional };
        let member = self.node(at, below, kind)?;
        if !is_optional {
            return Ok(member);
        }
        self.node(at, member.height, Kind::Chain(Box::new(member)))
    }
}

fn number(text: &str) -> Option<AnyValue> {
    let text = text.replace('_', "").to_ascii_lowercase();
    let whole = |digits: &str, radix| i64::from_str_radix(digits, radix).ok().map(AnyValue::Int);
    match text.as_bytes() {
        [b'0', b'x', ..] => whole(&text[2..], 16),
        [b'0', b'o', ..] => whole(&text[2..], 8),
        [b'0', b'b', ..] => whole(&text[2..], 2),
        _ if text.contains(['.', 'e']) => {
            text.parse().ok().filter(|value: &f64| value.is_finite()).map(AnyValue::Double)
        }
        _ => whole(&text, 10),
    }
}
