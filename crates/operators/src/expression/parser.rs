//! Tokens to a tree, with the precedences of the Collector's language.

use sluice_config::{Pattern, nearest};
use sluice_otlp::AnyValue;

use super::functions::{self, ABSENT};
use super::lexer::{Fault, Step, Token, fault, tokens};
use super::methods::Method;
use super::tree::{Binary, Comparison, Each, Kind, Node, Pointer, Unary, Variable};

/// Levels of parentheses, calls and the like within each other.
const DEPTH_LIMIT: usize = 40;
/// Levels of the tree, which are more: `a + b + c` has two.
const HEIGHT_LIMIT: u16 = 100;

/// The precedence of `not` and of signs.
const NOT: u8 = 50;
const SIGN: u8 = 90;

/// Names that the language has, and records do not.
const VARIABLES: &str = "`body`, `attributes`, `resource`, `timestamp`";

pub(super) struct Parser<'t> {
    tokens: Vec<(Token<'t>, usize)>,
    place: usize,
    depth: usize,
    /// Predicates around the present place.
    predicates: usize,
    variables: Vec<&'t str>,
    /// Names that are nothing, and therefore nil.
    pub unknown: Vec<String>,
}

impl<'t> Parser<'t> {
    pub(super) fn new(text: &'t str) -> Step<Parser<'t>> {
        let (variables, unknown) = (Vec::new(), Vec::new());
        Ok(Parser { tokens: tokens(text)?, place: 0, depth: 0, predicates: 0, variables, unknown })
    }

    pub(super) fn whole(&mut self) -> Step<Node> {
        let node = self.sequence()?;
        if *self.token() == Token::End { Ok(node) } else { self.unexpected() }
    }

    fn token(&self) -> &Token<'t> {
        &self.tokens[self.place].0
    }

    fn at(&self) -> usize {
        self.tokens[self.place].1
    }

    fn advance(&mut self) {
        self.place = (self.place + 1).min(self.tokens.len() - 1);
    }

    fn sign(&self) -> &'t str {
        if let Token::Sign(sign) = self.token() { sign } else { "" }
    }

    /// Goes on if the token is this sign.
    fn accept(&mut self, sign: &str) -> bool {
        let is_it = self.sign() == sign;
        if is_it {
            self.advance();
        }
        is_it
    }

    fn expect(&mut self, sign: &str) -> Step<()> {
        if self.accept(sign) {
            return Ok(());
        }
        let found = self.shown();
        fault(self.at(), format!("`{sign}` is expected, not {found}"))
    }

    fn shown(&self) -> String {
        match self.token() {
            Token::End => "the end".to_owned(),
            Token::Name(text) | Token::Number(text) | Token::Sign(text) => format!("`{text}`"),
            Token::Text(_) | Token::Bytes(_) => "a string".to_owned(),
        }
    }

    fn unexpected<T>(&self) -> Step<T> {
        fault(self.at(), format!("{} is not expected here", self.shown()))
    }

    fn node(&self, at: usize, below: u16, kind: Kind) -> Step<Node> {
        if below >= HEIGHT_LIMIT {
            return fault(at, "the expression nests too deeply");
        }
        Ok(Node { at, height: below + 1, kind })
    }

    fn literal(&self, at: usize, value: AnyValue) -> Step<Node> {
        self.node(at, 0, Kind::Literal(value))
    }

    fn name(&mut self) -> Step<&'t str> {
        let Token::Name(name) = *self.token() else {
            return fault(self.at(), format!("a name is expected, not {}", self.shown()));
        };
        self.advance();
        Ok(name)
    }

    fn sequence(&mut self) -> Step<Node> {
        let at = self.at();
        let mut nodes = vec![self.expression(0)?];
        while self.accept(";") {
            if *self.token() == Token::End {
                break;
            }
            nodes.push(self.expression(0)?);
        }
        if nodes.len() == 1 {
            return Ok(nodes.remove(0));
        }
        self.node(at, highest(&nodes), Kind::Sequence(nodes))
    }

    fn expression(&mut self, precedence: u8) -> Step<Node> {
        if self.depth >= DEPTH_LIMIT {
            return fault(self.at(), "the expression nests too deeply");
        }
        self.depth += 1;
        let node = match self.sign() {
            "let" if precedence == 0 => self.declaration(),
            "if" if precedence == 0 => self.condition(),
            _ => self.operation(precedence),
        };
        self.depth -= 1;
        node
    }

    fn declaration(&mut self) -> Step<Node> {
        let at = self.at();
        self.expect("let")?;
        let name = self.name()?;
        self.expect("=")?;
        let value = self.expression(0)?;
        self.expect(";")?;
        self.variables.push(name);
        let rest = self.sequence()?;
        self.variables.pop();
        self.node(at, value.height.max(rest.height), Kind::Let(Box::new([value, rest])))
    }

    fn condition(&mut self) -> Step<Node> {
        let at = self.at();
        self.expect("if")?;
        let condition = self.expression(0)?;
        self.expect("{")?;
        let then = self.sequence()?;
        self.expect("}")?;
        self.expect("else")?;
        let otherwise = match self.sign() {
            "if" => self.expression(0)?,
            _ => {
                self.expect("{")?;
                let node = self.sequence()?;
                self.expect("}")?;
                node
            }
        };
        self.conditional(at, condition, then, otherwise)
    }

    fn conditional(&self, at: usize, condition: Node, then: Node, otherwise: Node) -> Step<Node> {
        let branches = Box::new([condition, then, otherwise]);
        self.node(at, highest(&branches[..]), Kind::Conditional(branches))
    }

    fn operation(&mut self, precedence: u8) -> Step<Node> {
        let mut left = self.primary()?;
        let mut previous = "";
        loop {
            let at = self.at();
            let mut sign = self.sign();
            let is_negated = sign == "not";
            if is_negated {
                sign = match self.tokens.get(self.place + 1) {
                    Some((Token::Sign(next), _)) if may_follow_not(next) => next,
                    _ => return self.unexpected(),
                };
            }
            let Some(of_sign) = precedence_of(sign).filter(|found| *found >= precedence) else {
                break;
            };
            self.place += usize::from(is_negated);
            self.advance();
            if previous == "??" && sign != "??" {
                let message = format!("`??` and `{sign}` need parentheses around one of them");
                return fault(at, message);
            }
            left = match sign {
                "|" => {
                    let at = self.at();
                    let name = self.name()?;
                    self.call(at, name, vec![left])?
                }
                "<" | "<=" | ">" | ">=" => self.comparison(left, sign, at, of_sign)?,
                _ => {
                    let is_right = matches!(sign, "**" | "^");
                    let right = self.expression(of_sign + u8::from(!is_right))?;
                    self.binary(at, sign, left, right)?
                }
            };
            if is_negated {
                let below = left.height;
                left = self.node(at, below, Kind::Unary(Unary::Not, Box::new(left)))?;
            }
            previous = sign;
        }
        while precedence == 0 && self.sign() == "?" {
            let at = self.at();
            self.advance();
            let then = if self.accept(":") {
                // The condition is a boolean, and true here.
                self.literal(at, AnyValue::Bool(true))?
            } else {
                let then = self.expression(0)?;
                self.expect(":")?;
                then
            };
            let otherwise = self.expression(0)?;
            left = self.conditional(at, left, then, otherwise)?;
        }
        Ok(left)
    }

    fn comparison(&mut self, left: Node, sign: &str, at: usize, precedence: u8) -> Step<Node> {
        let (mut signs, mut operands) = (Vec::new(), vec![left]);
        let mut next = comparison_of(sign);
        while let Some(comparison) = next {
            signs.push(comparison);
            operands.push(self.expression(precedence + 1)?);
            next = comparison_of(self.sign());
            if next.is_some() {
                self.advance();
            }
        }
        self.node(at, highest(&operands), Kind::Compare(signs, operands))
    }

    fn binary(&mut self, at: usize, sign: &str, left: Node, right: Node) -> Step<Node> {
        let below = left.height.max(right.height);
        let operation = match sign {
            "and" | "&&" | "or" | "||" => {
                let is_and = matches!(sign, "and" | "&&");
                // A row of operands is one node, so that it may be long.
                let operands = match left.kind {
                    Kind::All(mut operands) if is_and => {
                        operands.push(right);
                        operands
                    }
                    Kind::Any(mut operands) if !is_and => {
                        operands.push(right);
                        operands
                    }
                    _ => vec![left, right],
                };
                let below = highest(&operands);
                let kind = if is_and { Kind::All(operands) } else { Kind::Any(operands) };
                return self.node(at, below, kind);
            }
            "matches" => {
                if let Kind::Literal(AnyValue::String(text)) = &right.kind {
                    let pattern = Pattern::new(text).map_err(|why| Fault {
                        at: right.at,
                        reason: format!("`{text}`: {why}"),
                    })?;
                    return self.node(at, below, Kind::Matches(Box::new(left), pattern));
                }
                Binary::Matches
            }
            "==" => Binary::Equal,
            "!=" => Binary::NotEqual,
            "in" => Binary::In,
            "contains" => Binary::Contains,
            "startsWith" => Binary::StartsWith,
            "endsWith" => Binary::EndsWith,
            ".." => Binary::Range,
            "+" => Binary::Add,
            "-" => Binary::Subtract,
            "*" => Binary::Multiply,
            "/" => Binary::Divide,
            "%" => Binary::Modulo,
            "**" | "^" => Binary::Power,
            _ => Binary::Coalesce,
        };
        self.node(at, below, Kind::Binary(operation, Box::new([left, right])))
    }

    fn primary(&mut self) -> Step<Node> {
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
        let variable = match name {
            "body" | "$" => Variable::Body,
            "attributes" => Variable::Attributes,
            "resource" => Variable::Resource,
            "timestamp" => Variable::Timestamp,
            "$env" => return fault(at, "`$env` is not in this build of Sluice"),
            _ => {
                self.unknown.push(format!("`{name}` is always nil: records have {VARIABLES}"));
                return self.literal(at, AnyValue::Empty);
            }
        };
        self.node(at, 0, Kind::Variable(variable))
    }

    /// A call, whose name was read. A pipe has given its first argument.
    fn call(&mut self, at: usize, name: &str, mut arguments: Vec<Node>) -> Step<Node> {
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
        let member = if self.sign() == "(" {
            let Some(method) = Method::named(name) else {
                return fault(key_at, format!("there is no method `{name}`"));
            };
            self.advance();
            self.expect(")")?;
            self.node(key_at, below, Kind::Method(method, Box::new(inner)))?
        } else {
            let key = Box::new(self.literal(key_at, AnyValue::String(name.to_owned()))?);
            self.node(at, below, Kind::Member { of: Box::new(inner), key, is_optional })?
        };
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

fn highest(nodes: &[Node]) -> u16 {
    nodes.iter().map(|node| node.height).max().unwrap_or(0)
}

fn may_follow_not(sign: &str) -> bool {
    matches!(sign, "contains" | "matches" | "startsWith" | "endsWith" | "in")
}

fn precedence_of(sign: &str) -> Option<u8> {
    Some(match sign {
        "|" => 0,
        "or" | "||" => 10,
        "and" | "&&" => 15,
        "==" | "!=" | "<" | ">" | ">=" | "<=" => 20,
        _ if may_follow_not(sign) => 20,
        ".." => 25,
        "+" | "-" => 30,
        "*" | "/" | "%" => 60,
        "**" | "^" => 100,
        "??" => 200,
        _ => return None,
    })
}

fn comparison_of(sign: &str) -> Option<Comparison> {
    Some(match sign {
        "<" => Comparison::Less,
        "<=" => Comparison::LessOrEqual,
        ">" => Comparison::More,
        ">=" => Comparison::MoreOrEqual,
        _ => return None,
    })
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
