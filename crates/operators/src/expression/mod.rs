//! The language of `if`, `expr` and `EXPR(…)`: that of the Collector, which is expr-lang/expr.
//!
//! `lexer`, `parser` and `tree` read a text once; `eval`, `arithmetic` and `functions` evaluate
//! it for a record, borrowing from it: a condition allocates only if a function does.
//!
//! An evaluation is bounded in steps, memory and depth. A name that is nothing is nil, as in the
//! Collector, with a warning.

mod arithmetic;
mod eval;
mod functions;
mod lexer;
mod parser;
mod tree;
mod value;

use std::sync::Arc;

use sluice_otlp::AnyValue;

use self::eval::{Machine, Stop};
use self::lexer::{Fault, Step};
use self::parser::Parser;
use self::tree::Node;
use self::value::Val;
pub(crate) use self::value::{same_maps, weight};
use crate::record::Record;

/// The functions of the language that are here, but for a second name of one, in any order.
pub(crate) fn function_names() -> impl Iterator<Item = &'static str> {
    let names = functions::names().filter(|name| *name != "os_env_func");
    names.chain(tree::EACH.iter().map(|(name, _)| *name))
}

const TEXT_LIMIT: usize = 16 << 10;

/// A compiled expression. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    root: Arc<Node>,
    text: Arc<str>,
    warnings: Arc<[String]>,
}

impl Expression {
    /// # Errors
    /// The reason with its line and column within the text.
    pub(crate) fn compile(text: &str) -> Result<Expression, String> {
        let compiled = compile(text);
        compiled.map_err(|Fault { at, reason }| format!("{reason} ({})", place(text, at)))
    }

    /// As [`Expression::compile`], for a text that must have a boolean.
    ///
    /// # Errors
    /// As there; also if its value is surely something else.
    pub(crate) fn condition(text: &str) -> Result<Expression, String> {
        let expression = Expression::compile(text)?;
        match expression.root.kind.surely() {
            Some(kind) => Err(format!("it gives {kind}, and a boolean is needed")),
            None => Ok(expression),
        }
    }

    /// Sentences about parts that are probably mistakes.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether the condition holds; nil does not.
    ///
    /// # Errors
    /// The reason, in a line.
    pub(crate) fn holds(&self, record: &Record) -> Result<bool, String> {
        match self.run(record)? {
            Val::Bool(value) => Ok(value),
            Val::Nil => Ok(false),
            other => Err(self.failure(format!("a boolean is needed, not {}", other.type_name()))),
        }
    }

    /// The value for the record.
    ///
    /// # Errors
    /// The reason, in a line.
    pub(crate) fn value(&self, record: &Record) -> Result<AnyValue, String> {
        Ok(self.run(record)?.into_value())
    }

    fn run<'a>(&'a self, record: &'a Record) -> Result<Val<'a>, String> {
        match Machine::new(record).eval(&self.root) {
            Ok(value) => Ok(value),
            Err(Stop::Nothing) => Ok(Val::Nil),
            Err(Stop::Failed(reason)) => Err(self.failure(reason)),
        }
    }

    fn failure(&self, reason: String) -> String {
        let text: String = self.text.chars().take(100).collect();
        format!("`{text}`: {reason}")
    }
}

fn compile(text: &str) -> Step<Expression> {
    if text.len() > TEXT_LIMIT {
        return lexer::fault(TEXT_LIMIT, format!("it is longer than {TEXT_LIMIT} bytes"));
    }
    let mut parser = Parser::new(text)?;
    let root = Arc::new(parser.whole()?);
    Ok(Expression { root, text: text.into(), warnings: parser.unknown.into() })
}

fn place(text: &str, at: usize) -> String {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    format!("line {line}, column {column}")
}

/// A text with expressions in it: `host-EXPR(resource.host)`.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// A text before each expression, and the one behind the last.
    texts: Vec<String>,
    expressions: Vec<Expression>,
}

const START: &str = "EXPR(";

impl Template {
    /// # Errors
    /// The reason with its line and column within the expression.
    pub(crate) fn compile(text: &str) -> Result<Template, String> {
        let (mut texts, mut expressions) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let Some(start) = rest.find(START) {
            let inside = &rest[start + START.len()..];
            // An expression ends at the last bracket before the next one.
            let next = inside.find(START).unwrap_or(inside.len());
            let Some(end) = inside[..next].rfind(')') else { break };
            texts.push(rest[..start].to_owned());
            expressions.push(Expression::compile(&inside[..end])?);
            rest = &inside[end + 1..];
        }
        texts.push(rest.to_owned());
        Ok(Template { texts, expressions })
    }

    pub(crate) fn warnings(&self) -> impl Iterator<Item = &String> {
        self.expressions.iter().flat_map(|expression| expression.warnings())
    }

    /// The text for the record.
    ///
    /// # Errors
    /// The reason, in a line; also if an expression has no string.
    pub(crate) fn render(&self, record: &Record) -> Result<String, String> {
        let mut rendered = self.texts[0].clone();
        for (expression, text) in self.expressions.iter().zip(&self.texts[1..]) {
            match expression.run(record)? {
                Val::Text(part) => rendered.push_str(&part),
                other => {
                    let reason = format!("a string is needed, not {}", other.type_name());
                    return Err(expression.failure(reason));
                }
            }
            rendered.push_str(text);
        }
        Ok(rendered)
    }
}

#[cfg(test)]
mod tests;
