//! Rust's tokens, as far as it takes to find paths: without comments, literals and lifetimes.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A name, a keyword or a number.
    Word(String),
    /// `::`
    Colons,
    Mark(char),
    /// The tokens between two brackets, with the opening one.
    Group(char, Vec<Token>),
}

impl Token {
    pub(crate) fn is_word(&self, wanted: &str) -> bool {
        matches!(self, Token::Word(word) if word == wanted)
    }
}

pub(crate) fn tokens_of(text: &str) -> Vec<Token> {
    let mut rest = text;
    let tokens = group(&mut rest);
    assert!(rest.is_empty(), "a bracket is not opened, before {:?}", rest.lines().next());
    tokens
}

/// Reads up to the bracket that closes the group, or to the end.
fn group(rest: &mut &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        if let Some(bytes) = ignored_bytes(rest) {
            *rest = &rest[bytes..];
            continue;
        }
        let word_bytes = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        if word_bytes > 0 {
            tokens.push(Token::Word(rest[..word_bytes].to_owned()));
            *rest = &rest[word_bytes..];
        } else if let Some(after) = rest.strip_prefix("::") {
            tokens.push(Token::Colons);
            *rest = after;
        } else if "([{".contains(first) {
            *rest = &rest[1..];
            tokens.push(Token::Group(first, group(rest)));
            *rest = rest.get(1..).expect("the bracket is closed");
        } else if ")]}".contains(first) {
            break;
        } else {
            tokens.push(Token::Mark(first));
            *rest = &rest[first.len_utf8()..];
        }
    }
    tokens
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of a space, a comment, a literal of characters, or a lifetime. `None`: something else
/// begins here.
fn ignored_bytes(text: &str) -> Option<usize> {
    let up_to = |end: &str, from: usize| text[from..].find(end).map(|at| from + at + end.len());
    if text.starts_with(char::is_whitespace) {
        return Some(text.len() - text.trim_start().len());
    }
    if text.starts_with("//") {
        return up_to("\n", 2).or(Some(text.len()));
    }
    if text.starts_with("/*") {
        return up_to("*/", 2);
    }
    let unprefixed = text.trim_start_matches(['b', 'c', 'r']);
    let prefix_bytes = text.len() - unprefixed.len();
    let hashes = unprefixed.len() - unprefixed.trim_start_matches('#').len();
    if text[..prefix_bytes].ends_with('r') && unprefixed[hashes..].starts_with('"') {
        let end = format!("\"{}", &unprefixed[..hashes]);
        return up_to(&end, prefix_bytes + hashes + 1);
    }
    let quote = unprefixed.chars().next().filter(|c| "\"'".contains(*c))?;
    let mut literal = unprefixed[1..].char_indices();
    let first = literal.clone().next()?.1;
    let is_lifetime = quote == '\'' && first != '\\' && literal.clone().nth(1)?.1 != '\'';
    if is_lifetime {
        return Some(1 + text[1..].find(|c| !is_of_word(c))?);
    }
    while let Some((at, c)) = literal.next() {
        if c == '\\' {
            literal.next();
        } else if c == quote {
            return Some(prefix_bytes + 1 + at + 1);
        }
    }
    None
}
