//! The statements of InfluxQL that clients send before they write.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The longest name of a database that is remembered, and all of them: each SHOW DATABASES repeats
/// them.
const NAME_BYTES: usize = 255;
const REMEMBERED_BYTES: usize = 16 << 10;
/// Statements of one query: each has an answer.
const STATEMENTS: usize = 16;

#[derive(Debug, PartialEq, Eq)]
enum Statement {
    CreateDatabase(String),
    ShowDatabases,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// In double quotes.
    Name(String),
    Semicolon,
    Other,
}

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Token::Word(text) if text.eq_ignore_ascii_case(word))
    }
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            _ if letter.is_whitespace() => {}
            ';' => tokens.push(Token::Semicolon),
            '"' => tokens.push(quoted(&mut letters)),
            _ if letter == '_' || letter.is_alphanumeric() => {
                let mut word = String::from(letter);
                let is_part = |next: &char| *next == '_' || next.is_alphanumeric();
                while let Some(next) = letters.next_if(is_part) {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
            }
            _ => tokens.push(Token::Other),
        }
    }
    tokens
}

/// A name up to its closing quote, in which a backslash stands before a quote or a backslash.
fn quoted(letters: &mut impl Iterator<Item = char>) -> Token {
    let mut name = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => return Token::Name(name),
            '\\' => match letters.next() {
                Some('n') => name.push('\n'),
                Some(next) => name.push(next),
                None => return Token::Other,
            },
            _ => name.push(letter),
        }
    }
    Token::Other
}

fn statement(tokens: &[Token]) -> Option<Statement> {
    match tokens {
        [show, databases] if show.is("show") && databases.is("databases") => {
            Some(Statement::ShowDatabases)
        }
        [create, database, name, rest @ ..] if create.is("create") && database.is("database") => {
            // A duration, or a number of replicas: nothing is stored here.
            if rest.first().is_some_and(|with| !with.is("with")) {
                return None;
            }
            match name {
                Token::Word(name) if name.starts_with(|first: char| first.is_ascii_digit()) => None,
                Token::Word(name) | Token::Name(name) if !name.is_empty() => {
                    Some(Statement::CreateDatabase(name.clone()))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn statements(text: &str) -> Option<Vec<Statement>> {
    let tokens = tokens(text);
    let parts = tokens.split(|token| *token == Token::Semicolon).filter(|part| !part.is_empty());
    let statements = parts.map(statement).collect::<Option<Vec<_>>>()?;
    Some(statements).filter(|statements| !statements.is_empty())
}

/// The databases that clients have created since the receiver began. All can be written to, also
/// those that are too many to be remembered.
#[derive(Default)]
pub(super) struct Databases(Mutex<BTreeSet<String>>);

impl Databases {
    /// Answers a query in InfluxDB's form.
    ///
    /// # Errors
    /// It has a statement that is none of those that clients send before they write, or too many.
    pub(super) fn answer(&self, query: &str) -> Result<Value, String> {
        let Some(statements) = statements(query) else {
            let shown: String = query.chars().take(60).collect();
            return Err(format!(
                "error parsing query: `{shown}` is not answered here: what is written is passed \
                 on, not stored. There are CREATE DATABASE and SHOW DATABASES"
            ));
        };
        if statements.len() > STATEMENTS {
            return Err(format!("a query has at most {STATEMENTS} statements here"));
        }
        let mut known = self.0.lock();
        let mut known_bytes: usize = known.iter().map(String::len).sum();
        let results = statements.into_iter().enumerate().map(|(id, statement)| match statement {
            Statement::CreateDatabase(name) => {
                let (bytes, is_new) = (name.len(), !known.contains(&name));
                if is_new && bytes <= NAME_BYTES && known_bytes + bytes <= REMEMBERED_BYTES {
                    known_bytes += bytes;
                    known.insert(name);
                }
                json!({ "statement_id": id })
            }
            Statement::ShowDatabases => {
                let mut series = json!({ "name": "databases", "columns": ["name"] });
                if !known.is_empty() {
                    series["values"] = known.iter().map(|name| json!([name])).collect();
                }
                json!({ "statement_id": id, "series": [series] })
            }
        });
        let results: Vec<Value> = results.collect();
        Ok(json!({ "results": results }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_created_and_shown() {
        let databases = Databases::default();
        for query in [
            "CREATE DATABASE k6",
            "create database \"a \\\"b\\\"\";",
            "CREATE DATABASE x WITH DURATION 3d REPLICATION 1 NAME \"y\"; SHOW DATABASES",
        ] {
            let answer = databases.answer(query).expect(query);
            assert_eq!(answer["results"][0], json!({ "statement_id": 0 }), "{query}");
        }
        let answer = databases.answer("SHOW DATABASES").expect("is answered");
        let values = &answer["results"][0]["series"][0]["values"];
        assert_eq!(*values, json!([["a \"b\""], ["k6"], ["x"]]));
    }

    /// Guarantee: what is not done is not said to be done.
    #[test]
    fn other_statements_are_errors() {
        let databases = Databases::default();
        for query in [
            "",
            ";",
            "SELECT * FROM cpu",
            "DROP DATABASE a",
            "CREATE DATABASE",
            "CREATE DATABASE \"\"",
            "CREATE DATABASE 1a",
            "CREATE DATABASE \"a",
            "CREATE DATABASE a b",
            "CREATE DATABASE a; DROP DATABASE b",
            "SHOW DATABASES WHERE x",
            "CREATE RETENTION POLICY a ON b DURATION 1d REPLICATION 1",
        ] {
            assert!(databases.answer(query).is_err(), "{query}");
        }
        let answer = databases.answer("SHOW DATABASES").expect("is answered");
        assert_eq!(answer["results"][0]["series"][0].get("values"), None);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let databases = Databases::default();
        for name in 0..REMEMBERED_BYTES / 100 {
            assert!(databases.answer(&format!("CREATE DATABASE d{name:0200}")).is_ok());
        }
        assert!(databases.answer(&format!("CREATE DATABASE {}", "x".repeat(300))).is_ok());
        assert!(databases.answer("CREATE DATABASE k6").is_ok());
        let shown = databases.answer(&"SHOW DATABASES;".repeat(STATEMENTS)).expect("is answered");
        assert!(shown.to_string().len() < 2 * STATEMENTS * REMEMBERED_BYTES);
        assert!(databases.answer(&"SHOW DATABASES;".repeat(STATEMENTS + 1)).is_err());
    }
}
