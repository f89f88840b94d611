//! The functions of the language that take values.

use std::borrow::Cow;
use std::env;
use std::ops::RangeInclusive;
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_config::duration;
use sluice_otlp::AnyValue;

use super::arithmetic::{as_float, as_int};
use super::eval::{Machine, Outcome, failed};
use super::value::Val;

pub(super) struct Function {
    pub name: &'static str,
    pub arguments: RangeInclusive<usize>,
    /// The type of its result in words, if it has one only.
    pub result: Option<&'static str>,
    pub call: for<'a> fn(&mut Machine<'a>, &mut Vec<Val<'a>>) -> Outcome<Val<'a>>,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Functions of the Collector's language that are not here.
pub(super) const ABSENT: [&str; 36] = [
    "abs",
    "bitand",
    "bitnand",
    "bitnot",
    "bitor",
    "bitshl",
    "bitshr",
    "bitushr",
    "bitxor",
    "ceil",
    "concat",
    "date",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flatten",
    "floor",
    "fromBase64",
    "fromJSON",
    "fromPairs",
    "groupBy",
    "max",
    "mean",
    "median",
    "min",
    "reverse",
    "round",
    "sort",
    "sortBy",
    "splitAfter",
    "take",
    "timezone",
    "toBase64",
    "toJSON",
    "toPairs",
    "uniq",
];

const TEXT: Option<&str> = Some("a string");
const NUMBER: Option<&str> = Some("a number");
const ARRAY: Option<&str> = Some("an array");

macro_rules! function {
    ($name:literal, $arguments:expr, $result:expr, $call:expr) => {
        Function { name: $name, arguments: $arguments, result: $result, call: $call }
    };
}

static FUNCTIONS: [Function; 27] = [
    function!("len", 1..=1, NUMBER, |machine, of| match &of[0] {
        whole @ Val::Text(text) => {
            machine.searched(whole)?;
            Ok(count(text.chars().count()))
        }
        Val::Bytes(bytes) => Ok(count(bytes.len())),
        Val::Array(items) => Ok(count(items.len())),
        Val::Map(map) => Ok(count(map.len())),
        other => failed(format!("`len` has no meaning for {}", other.type_name())),
    }),
    function!("type", 1..=1, TEXT, |_, of| Ok(Val::Text(Cow::Borrowed(of[0].type_name())))),
    function!("string", 1..=1, TEXT, |machine, of| {
        let shown = of[0].shown();
        machine.text(shown)
    }),
    function!("int", 1..=1, NUMBER, |_, of| match &of[0] {
        Val::Text(text) => match text.parse() {
            Ok(value) => Ok(Val::Int(value)),
            Err(_) => failed(format!("`{}` is no whole number", shortened(text))),
        },
        other => Ok(Val::Int(as_int(other)?)),
    }),
    function!("float", 1..=1, NUMBER, |_, of| match &of[0] {
        Val::Text(text) => match text.parse() {
            Ok(value) => Ok(Val::Float(value)),
            Err(_) => failed(format!("`{}` is no number", shortened(text))),
        },
        other => Ok(Val::Float(as_float(other)?)),
    }),
    function!("env", 1..=1, TEXT, |machine, of| {
        let name = text(&of[0])?;
        let is_name = !name.is_empty() && !name.contains(['=', '\0']);
        machine.text(is_name.then(|| env::var(name).ok()).flatten().unwrap_or_default())
    }),
    function!("os_env_func", 1..=1, TEXT, |machine, of| (named("env").unwrap().call)(machine, of)),
    function!("trim", 1..=2, TEXT, |machine, of| match of.len() {
        1 => machine.text(text(&of[0])?.trim().to_owned()),
        _ => {
            let characters = text(&of[1])?;
            machine.text(text(&of[0])?.trim_matches(|it| characters.contains(it)).to_owned())
        }
    }),
    function!("trimPrefix", 1..=2, TEXT, |machine, of| {
        let (whole, part) = (text(&of[0])?, optional_text(of, 1)?.unwrap_or(" "));
        machine.text(whole.strip_prefix(part).unwrap_or(whole).to_owned())
    }),
    function!("trimSuffix", 1..=2, TEXT, |machine, of| {
        let (whole, part) = (text(&of[0])?, optional_text(of, 1)?.unwrap_or(" "));
        machine.text(whole.strip_suffix(part).unwrap_or(whole).to_owned())
    }),
    function!("upper", 1..=1, TEXT, |machine, of| machine.text(upper(text(&of[0])?))),
    function!("lower", 1..=1, TEXT, |machine, of| machine.text(lower(text(&of[0])?))),
    function!("split", 2..=3, ARRAY, |machine, of| split(machine, of)),
    function!("replace", 3..=4, TEXT, |machine, of| {
        let (whole, old, new) = (text(&of[0])?, text(&of[1])?, text(&of[2])?);
        let most = of.get(3).map(as_int).transpose()?.filter(|most| *most >= 0);
        let most = most.map_or(usize::MAX, |most| most as usize);
        let places = if old.is_empty() { whole.len() + 1 } else { whole.len() / old.len() };
        machine.charge(whole.len().saturating_add(places.min(most).saturating_mul(new.len())))?;
        machine.text(whole.replacen(old, new, most))
    }),
    function!("repeat", 2..=2, TEXT, |machine, of| {
        let (part, times) = (text(&of[0])?, as_int(&of[1])?);
        let Ok(times) = usize::try_from(times) else {
            return failed("`repeat` needs a number of 0 or more".to_owned());
        };
        machine.charge(part.len().saturating_mul(times))?;
        machine.text(part.repeat(times))
    }),
    function!("join", 1..=2, TEXT, |machine, of| {
        let glue = optional_text(of, 1)?.unwrap_or_default();
        let mut joined = String::new();
        for (index, item) in array(&of[0])?.iter().enumerate() {
            let AnyValue::String(part) = item else {
                return failed("`join` needs an array of strings".to_owned());
            };
            machine.charge(part.len() + glue.len())?;
            joined.push_str(if index > 0 { glue } else { "" });
            joined.push_str(part);
        }
        Ok(Val::Text(Cow::Owned(joined)))
    }),
    function!("indexOf", 2..=2, NUMBER, |machine, of| {
        machine.searched(&of[0])?;
        Ok(text(&of[0])?.find(text(&of[1])?).map_or(Val::Int(-1), count))
    }),
    function!("lastIndexOf", 2..=2, NUMBER, |machine, of| {
        machine.searched(&of[0])?;
        Ok(text(&of[0])?.rfind(text(&of[1])?).map_or(Val::Int(-1), count))
    }),
    function!("hasPrefix", 2..=2, None, |_, of| {
        Ok(Val::Bool(text(&of[0])?.starts_with(text(&of[1])?)))
    }),
    function!("hasSuffix", 2..=2, None, |_, of| {
        Ok(Val::Bool(text(&of[0])?.ends_with(text(&of[1])?)))
    }),
    function!("now", 0..=0, Some("a time"), |_, _| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Val::Time(since.as_nanos() as i128))
    }),
    function!("duration", 1..=1, Some("a duration"), |_, of| {
        let given = text(&of[0])?;
        let (is_negative, length) = match given.strip_prefix('-') {
            Some(length) if !length.starts_with('+') => (true, length),
            _ => (false, given),
        };
        match duration::parse(length) {
            Ok(length) => {
                let nanoseconds = length.as_nanos() as i64;
                Ok(Val::Duration(if is_negative { -nanoseconds } else { nanoseconds }))
            }
            Err(why) => failed(format!("`{}` is no duration: {why}", shortened(given))),
        }
    }),
    function!("first", 1..=1, None, |machine, of| {
        let list = take(of, 0);
        Ok(machine.member(list, &Val::Int(0)).unwrap_or(Val::Nil))
    }),
    function!("last", 1..=1, None, |machine, of| {
        let list = take(of, 0);
        Ok(machine.member(list, &Val::Int(-1)).unwrap_or(Val::Nil))
    }),
    function!("get", 2..=2, None, |machine, of| {
        let key = take(of, 1);
        let from = take(of, 0);
        Ok(machine.member(from, &key).unwrap_or(Val::Nil))
    }),
    function!("keys", 1..=1, ARRAY, |machine, of| {
        machine.charge(of[0].size())?;
        let keys: Vec<_> =
            map(&of[0])?.iter().map(|(key, _)| AnyValue::String(key.clone())).collect();
        machine.array(keys)
    }),
    function!("values", 1..=1, ARRAY, |machine, of| {
        machine.charge(of[0].size())?;
        let values: Vec<_> = map(&of[0])?.iter().map(|(_, value)| value.clone()).collect();
        machine.array(values)
    }),
];

pub(super) fn named(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    FUNCTIONS.iter().map(|function| function.name)
}

fn count(number: usize) -> Val<'static> {
    Val::Int(number as i64)
}

fn take<'a>(arguments: &mut [Val<'a>], index: usize) -> Val<'a> {
    std::mem::replace(&mut arguments[index], Val::Nil)
}

pub(super) fn text<'v>(value: &'v Val<'_>) -> Outcome<&'v str> {
    match value {
        Val::Text(text) => Ok(text),
        other => failed(format!("a string is needed, not {}", other.type_name())),
    }
}

fn optional_text<'v>(arguments: &'v [Val<'_>], index: usize) -> Outcome<Option<&'v str>> {
    arguments.get(index).map(text).transpose()
}

fn array<'v>(value: &'v Val<'_>) -> Outcome<&'v [AnyValue]> {
    match value {
        Val::Array(items) => Ok(items),
        other => failed(format!("an array is needed, not {}", other.type_name())),
    }
}

fn map<'v>(value: &'v Val<'_>) -> Outcome<&'v [(String, AnyValue)]> {
    match value {
        Val::Map(map) => Ok(map),
        other => failed(format!("a map is needed, not {}", other.type_name())),
    }
}

/// The start of a text for a message.
fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

/// Go maps each character to one; of several, as `SS` for `ß`, there is none.
fn upper(text: &str) -> String {
    let one = |character: char| match (single(character.to_uppercase()), character) {
        (Some(upper), _) => upper,
        // Greek letters with a iota below them: one character has both as capitals.
        (None, '\u{1f80}'..='\u{1faf}') => offset(character, 8 - (character as u32 & 8)),
        (None, '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}') => offset(character, 9),
        (None, _) => character,
    };
    text.chars().map(one).collect()
}

fn lower(text: &str) -> String {
    // Only `İ` becomes two characters.
    text.chars().map(|character| single(character.to_lowercase()).unwrap_or('i')).collect()
}

fn single(mut characters: impl ExactSizeIterator<Item = char>) -> Option<char> {
    if characters.len() == 1 { characters.next() } else { None }
}

fn offset(character: char, by: u32) -> char {
    char::from_u32(character as u32 + by).unwrap_or(character)
}

fn split<'a>(machine: &mut Machine<'a>, of: &[Val<'a>]) -> Outcome<Val<'a>> {
    let (whole, at) = (text(&of[0])?, text(&of[1])?);
    let most = of.get(2).map(as_int).transpose()?.unwrap_or(-1);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let mut rest = whole;
    while parts.len() + 1 < most {
        // Without a separator each character is a part.
        let end = match (at.is_empty(), rest.chars().next()) {
            (false, _) => rest.find(at),
            (true, Some(first)) if rest.len() > first.len_utf8() => Some(first.len_utf8()),
            (true, _) => None,
        };
        let Some(end) = end else { break };
        machine.charge(32 + end)?;
        parts.push(AnyValue::String(rest[..end].to_owned()));
        rest = &rest[end + at.len()..];
    }
    let has_last = most > 0 && !(at.is_empty() && rest.is_empty());
    parts.extend(has_last.then(|| AnyValue::String(rest.to_owned())));
    machine.array(parts)
}
