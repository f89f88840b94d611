//! Tokens to a tree, with the precedences of the Collector's language.

mod operands;

use sluice_config::Pattern;
use sluice_otlp::AnyValue;

use super::lexer::{Fault, Step, Token, fault, tokens};
use super::tree::{Binary, Comparison, Kind, Node, Unary};

/// Levels of parentheses, calls and the like within each other.
const DEPTH_LIMIT: usize = 40;
/// Levels of the tree, which are more: `a + b + c` has two.
const HEIGHT_LIMIT: u16 = 100;

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
