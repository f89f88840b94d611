//! Operators on two values.

use std::cmp::Ordering;

use sluice_config::Pattern;

use super::eval::{Machine, Outcome, failed};
use super::functions::text;
use super::tree::{Binary, Comparison};
use super::value::{Val, equal, order};
use sluice_otlp::AnyValue;

/// Steps for compiling a pattern that the text of the expression does not give.
const PATTERN_STEPS: usize = 1000;

pub(super) fn as_int(value: &Val<'_>) -> Outcome<i64> {
    match value {
        Val::Int(value) | Val::Duration(value) => Ok(*value),
        Val::Float(value) => Ok(*value as i64),
        other => failed(format!("a whole number is needed, not {}", other.type_name())),
    }
}

pub(super) fn as_float(value: &Val<'_>) -> Outcome<f64> {
    match value {
        Val::Int(value) => Ok(*value as f64),
        Val::Float(value) => Ok(*value),
        other => failed(format!("a number is needed, not {}", other.type_name())),
    }
}

pub(super) fn compare(how: Comparison, one: &Val<'_>, other: &Val<'_>) -> Outcome<bool> {
    let is_float = |value: &Val<'_>| matches!(value, Val::Int(_) | Val::Float(_));
    let Some(order) = order(one, other) else {
        if is_float(one) && is_float(other) {
            // Not a number: no comparison holds.
            return Ok(false);
        }
        let (one, other) = (one.type_name(), other.type_name());
        return failed(format!("{one} and {other} have no order"));
    };
    Ok(match how {
        Comparison::Less => order == Ordering::Less,
        Comparison::LessOrEqual => order != Ordering::Greater,
        Comparison::More => order == Ordering::Greater,
        Comparison::MoreOrEqual => order != Ordering::Less,
    })
}

/// All but [`Binary::Coalesce`], whose right side may go unevaluated.
pub(super) fn combine<'a>(
    machine: &mut Machine<'a>,
    how: Binary,
    one: Val<'a>,
    other: Val<'a>,
) -> Outcome<Val<'a>> {
    let either_is_nil = matches!(one, Val::Nil) || matches!(other, Val::Nil);
    Ok(match how {
        Binary::Equal | Binary::NotEqual => {
            machine.compared(&one, &other)?;
            Val::Bool(equal(&one, &other) == (how == Binary::Equal))
        }
        Binary::In => {
            machine.searched(&other)?;
            Val::Bool(is_in(&one, &other)?)
        }
        Binary::Matches | Binary::Contains | Binary::StartsWith | Binary::EndsWith
            if either_is_nil =>
        {
            Val::Bool(false)
        }
        Binary::Matches => {
            machine.spend(PATTERN_STEPS)?;
            machine.searched(&one)?;
            let pattern = Pattern::new(text(&other)?).or_else(failed)?;
            Val::Bool(matches(&pattern, &one)?)
        }
        Binary::Contains => {
            machine.searched(&one)?;
            Val::Bool(text(&one)?.contains(text(&other)?))
        }
        Binary::StartsWith => Val::Bool(text(&one)?.starts_with(text(&other)?)),
        Binary::EndsWith => Val::Bool(text(&one)?.ends_with(text(&other)?)),
        Binary::Range => {
            let (from, to) = (as_int(&one)?, as_int(&other)?);
            let len = (i128::from(to) - i128::from(from) + 1).max(0);
            machine.charge(usize::try_from(len).unwrap_or(usize::MAX).saturating_mul(32))?;
            return machine.array((from..=to).map(AnyValue::Int).collect());
        }
        Binary::Modulo => {
            let (Val::Int(one), Val::Int(other)) = (&one, &other) else {
                return mismatch("%", &one, &other);
            };
            if *other == 0 {
                return failed("a division by zero".to_owned());
            }
            Val::Int(one.wrapping_rem(*other))
        }
        Binary::Divide => Val::Float(as_float(&one)? / as_float(&other)?),
        Binary::Power => Val::Float(as_float(&one)?.powf(as_float(&other)?)),
        Binary::Add => return add(machine, one, other),
        Binary::Subtract => match (&one, &other) {
            (Val::Int(one), Val::Int(other)) => Val::Int(one.wrapping_sub(*other)),
            (Val::Duration(one), Val::Duration(other)) => Val::Duration(one.wrapping_sub(*other)),
            (Val::Time(one), Val::Duration(other)) => Val::Time(one - i128::from(*other)),
            (Val::Time(one), Val::Time(other)) => {
                let between = (one - other).clamp(i64::MIN.into(), i64::MAX.into());
                Val::Duration(between as i64)
            }
            (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
                Val::Float(as_float(&one)? - as_float(&other)?)
            }
            _ => return mismatch("-", &one, &other),
        },
        Binary::Multiply => match (&one, &other) {
            (Val::Int(one), Val::Int(other)) => Val::Int(one.wrapping_mul(*other)),
            (Val::Duration(one), Val::Int(other)) | (Val::Int(one), Val::Duration(other)) => {
                Val::Duration(one.wrapping_mul(*other))
            }
            (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
                Val::Float(as_float(&one)? * as_float(&other)?)
            }
            _ => return mismatch("*", &one, &other),
        },
        Binary::Coalesce => other,
    })
}

pub(super) fn add<'a>(machine: &mut Machine<'a>, one: Val<'a>, other: Val<'a>) -> Outcome<Val<'a>> {
    Ok(match (&one, &other) {
        (Val::Int(one), Val::Int(other)) => Val::Int(one.wrapping_add(*other)),
        (Val::Duration(one), Val::Duration(other)) => Val::Duration(one.wrapping_add(*other)),
        (Val::Time(time), Val::Duration(length)) | (Val::Duration(length), Val::Time(time)) => {
            Val::Time(time + i128::from(*length))
        }
        (Val::Int(_) | Val::Float(_), Val::Int(_) | Val::Float(_)) => {
            Val::Float(as_float(&one)? + as_float(&other)?)
        }
        (Val::Text(one), Val::Text(other)) => {
            let mut joined = String::with_capacity(one.len() + other.len());
            joined.push_str(one);
            joined.push_str(other);
            return machine.text(joined);
        }
        _ => return mismatch("+", &one, &other),
    })
}

fn mismatch<T>(sign: &str, one: &Val<'_>, other: &Val<'_>) -> Outcome<T> {
    failed(format!("`{sign}` has no meaning for {} and {}", one.type_name(), other.type_name()))
}

pub(super) fn matches(pattern: &Pattern, value: &Val<'_>) -> Outcome<bool> {
    match value {
        Val::Nil => Ok(false),
        Val::Bytes(bytes) => Ok(pattern.matches(bytes)),
        other => Ok(pattern.matches(text(other)?.as_bytes())),
    }
}

fn is_in(item: &Val<'_>, of: &Val<'_>) -> Outcome<bool> {
    match of {
        Val::Nil => Ok(false),
        Val::Array(items) => Ok(items.iter().any(|other| equal(&Val::of(other), item))),
        Val::Map(map) => match item {
            Val::Text(key) => Ok(map.iter().any(|(name, _)| name == key)),
            Val::Nil => Ok(false),
            other => failed(format!("{} is no key of a map", other.type_name())),
        },
        other => failed(format!("`in` has no meaning for {}", other.type_name())),
    }
}
