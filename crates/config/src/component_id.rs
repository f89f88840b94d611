//! `type[/name]`: the ids of receivers, processors, exporters, extensions and connectors.

use std::fmt;

/// Longest type or name, in characters, as in the Collector.
const TYPE_LIMIT: usize = 63;
const NAME_LIMIT: usize = 1024;

/// The identity of a component, as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComponentId {
    kind: String,
    /// Empty if there is none.
    name: String,
}

impl ComponentId {
    /// Parses `type` or `type/name`. The error continues "`x` is not a component id: ".
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, name) = text.split_once('/').unzip();
        let (kind, name) = (kind.unwrap_or(text).trim(), name.map(str::trim));
        let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
        if kind.is_empty() {
            return Err("the type is missing".to_owned());
        }
        if !kind.starts_with(|first: char| first.is_ascii_alphabetic())
            || !kind.chars().all(is_word)
        {
            return Err(format!(
                "the type `{kind}` may only have letters, digits and `_`, and starts with a letter"
            ));
        }
        if kind.len() > TYPE_LIMIT {
            return Err(format!("the type is longer than {TYPE_LIMIT} characters"));
        }
        if name == Some("") {
            return Err("the name after the slash is missing".to_owned());
        }
        let name = name.unwrap_or_default();
        if name.chars().count() > NAME_LIMIT {
            return Err(format!("the name is longer than {NAME_LIMIT} characters"));
        }
        // The name becomes a label of metrics and a part of messages.
        let mut characters = name.chars();
        if let Some(character) = characters.find(|one| one.is_whitespace() || one.is_control()) {
            return Err(format!("the name has the character {character:?}"));
        }
        Ok(ComponentId { kind: kind.to_owned(), name: name.to_owned() })
    }

    /// The part before the slash.
    pub fn kind(&self) -> &str {
        &self.kind
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.kind)?;
        if self.name.is_empty() { Ok(()) } else { write!(formatter, "/{}", self.name) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_what_the_collector_takes() {
        for (text, kind, name) in [
            ("otlp", "otlp", ""),
            ("otlp/2", "otlp", "2"),
            ("otlp_http/a/b", "otlp_http", "a/b"),
            ("file_storage/größe.1-x", "file_storage", "größe.1-x"),
            (" otlp / 2 ", "otlp", "2"),
        ] {
            let id = ComponentId::parse(text).unwrap();
            assert_eq!((id.kind(), id.name.as_str()), (kind, name), "{text}");
            assert_eq!(ComponentId::parse(&id.to_string()), Ok(id), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_with_a_reason() {
        for (text, reason) in [
            ("", "the type is missing"),
            ("/2", "the type is missing"),
            ("otlp/", "the name after the slash is missing"),
            (
                "2otlp",
                "the type `2otlp` may only have letters, digits and `_`, and starts with a letter",
            ),
            (
                "ot-lp",
                "the type `ot-lp` may only have letters, digits and `_`, and starts with a letter",
            ),
            ("otlp/a b", "the name has the character ' '"),
        ] {
            assert_eq!(ComponentId::parse(text), Err(reason.to_owned()), "{text}");
        }
        assert!(ComponentId::parse(&"x".repeat(64)).is_err());
        assert!(ComponentId::parse(&format!("otlp/{}", "x".repeat(1025))).is_err());
    }
}
