//! Regular expressions as Go writes them (RE2), in which Collector configurations are written.
//!
//! Both engines come from RE2 and mean the same by almost everything. The differences are
//! rewritten: in Go `\d`, `\w`, `\s` and `\b` know ASCII only, `\Q…\E` quotes, a brace that is no
//! repetition is a brace, any punctuation may be escaped, brackets contain no set operations, and
//! the name of a group may begin with a digit.

use std::borrow::Cow;
use std::iter::{self, Peekable};
use std::str::Chars;

use regex::Regex;

/// A compiled pattern, and the text that it was written as.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

/// Stands before a name that begins with a digit, which this engine does not allow. No name in Go
/// has a point.
const MARK: &str = "_.";

impl Pattern {
    /// # Errors
    /// The reason, in a line.
    pub fn new(text: &str) -> Result<Pattern, String> {
        match Regex::new(&translate(text)) {
            Ok(regex) => Ok(Pattern { text: text.to_owned(), regex }),
            Err(regex::Error::Syntax(message)) => {
                let mut last_first = message.lines().rev();
                let reason = last_first.find_map(|line| line.trim().strip_prefix("error: "));
                Err(reason.map_or_else(|| message.replace('\n', " "), str::to_owned))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// The compiled pattern, for callers that keep their own buffers.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Whether the pattern matches anywhere in the text. Bytes that are not UTF-8 match nothing.
    pub fn matches(&self, text: &[u8]) -> bool {
        str::from_utf8(text).is_ok_and(|text| self.regex.is_match(text))
    }

    /// Names of the groups, without the whole; nothing for one that has no name.
    pub fn group_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.regex.capture_names().skip(1).map(|name| name.map(given_name))
    }

    /// The name that a group has in [`Pattern::regex`].
    pub fn inner_name(given: &str) -> Cow<'_, str> {
        match given.starts_with(|first: char| first.is_ascii_digit()) {
            true => Cow::Owned(format!("{MARK}{given}")),
            false => Cow::Borrowed(given),
        }
    }

    /// A template of replacements (`$1`, `${name}`, `$$`) for [`Pattern::regex`].
    pub fn template(&self, text: &str) -> String {
        let groups: Vec<&str> = self.group_names().flatten().collect();
        let inner = |name: &str| match groups.contains(&name) {
            true => format!("{{{}}}", Pattern::inner_name(name)),
            false => format!("{{{name}}}"),
        };
        let (mut template, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, behind)) = rest.split_once('$') {
            template.push_str(before);
            template.push('$');
            let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let braced = behind.strip_prefix('{').and_then(|behind| behind.split_once('}'));
            let word = behind.split_at(behind.find(|it| !is_word(it)).unwrap_or(behind.len()));
            rest = match (behind.strip_prefix('$'), braced, word) {
                (Some(behind), ..) => {
                    template.push('$');
                    behind
                }
                (None, None, ("", behind)) => behind,
                (None, Some((name, behind)), _) | (None, None, (name, behind)) => {
                    template.push_str(&inner(name));
                    behind
                }
            };
        }
        template + rest
    }

    /// The compiled pattern alone, for callers that know its groups by their names.
    ///
    /// # Errors
    /// It has another name for a group.
    pub fn into_regex(self) -> Result<Regex, String> {
        let mut names = self.regex.capture_names().flatten();
        match names.find_map(|name| name.strip_prefix(MARK)) {
            None => Ok(self.regex),
            Some(name) => Err(format!("the name of the group `{name}` begins with a digit")),
        }
    }

    /// Named groups of the first match, in order, with their texts; empty for those not in it.
    pub fn named_groups(&self, text: &[u8]) -> Option<Vec<(&str, String)>> {
        let captures = self.regex.captures(str::from_utf8(text).ok()?)?;
        let text_of = |name| captures.name(name).map_or("", |group| group.as_str()).to_owned();
        let names = self.regex.capture_names().flatten();
        Some(names.map(|name| (given_name(name), text_of(name))).collect())
    }
}

fn given_name(inner: &str) -> &str {
    inner.strip_prefix(MARK).unwrap_or(inner)
}

fn translate(go: &str) -> String {
    let mut translation = Translation { rest: go.chars().peekable(), out: String::new() };
    translation.run();
    translation.out
}

struct Translation<'t> {
    rest: Peekable<Chars<'t>>,
    out: String,
}

impl Translation<'_> {
    fn run(&mut self) {
        while let Some(character) = self.rest.next() {
            match character {
                '\\' => self.escape(false),
                '[' => self.class(),
                '(' => self.group(),
                '{' if !self.is_repetition() => self.out.push_str("\\{"),
                _ => self.out.push(character),
            }
        }
    }

    /// The beginning of a group, whose parenthesis was read, up to a name that begins with a digit.
    fn group(&mut self) {
        self.out.push('(');
        let mut ahead = self.rest.clone();
        let is_named = ahead.next() == Some('?')
            && (ahead.next_if_eq(&'P').is_some() || ahead.peek() == Some(&'<'))
            && ahead.next() == Some('<');
        if is_named && ahead.peek().is_some_and(char::is_ascii_digit) {
            self.out.push_str("?P<");
            self.out.push_str(MARK);
            self.rest = ahead;
        }
    }

    /// Whether the text after an opening brace makes it a repetition: `n}`, `n,}` or `n,m}`.
    fn is_repetition(&self) -> bool {
        let (mut has_low, mut has_comma) = (false, false);
        for character in self.rest.clone() {
            match character {
                '0'..='9' => has_low |= !has_comma,
                ',' if !has_comma => has_comma = true,
                '}' => return has_low,
                _ => return false,
            }
        }
        false
    }

    /// Translates the rest of an escape, behind its backslash.
    fn escape(&mut self, in_class: bool) {
        let Some(character) = self.rest.next() else {
            self.out.push('\\');
            return;
        };
        match character {
            'd' => self.out.push_str("[0-9]"),
            'D' => self.out.push_str("[^0-9]"),
            'w' => self.out.push_str("[0-9A-Za-z_]"),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            's' => self.out.push_str("[\\t\\n\\f\\r ]"),
            'S' => self.out.push_str("[^\\t\\n\\f\\r ]"),
            'b' if !in_class => self.out.push_str("(?-u:\\b)"),
            'Q' if !in_class => self.quoted(),
            '0'..='7' => self.octal(character),
            _ if character.is_ascii_punctuation() => self.literal(character),
            _ => {
                self.out.extend(['\\', character]);
                if matches!(character, 'x' | 'p' | 'P') && self.rest.peek() == Some(&'{') {
                    self.copy_through('}');
                }
            }
        }
    }

    /// `\Q…\E`, or to the end of the pattern.
    fn quoted(&mut self) {
        while let Some(character) = self.rest.next() {
            if character == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.out.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
        }
    }

    /// An octal code: `\0` and up to two more digits, or two or three (one: a back-reference).
    fn octal(&mut self, first: char) {
        let more = iter::from_fn(|| self.rest.next_if(|next| next.is_digit(8))).take(2);
        let digits: String = iter::once(first).chain(more).collect();
        match u32::from_str_radix(&digits, 8).ok().and_then(char::from_u32) {
            Some(character) if first == '0' || digits.len() > 1 => self.literal(character),
            _ => self.out.extend(['\\', first]),
        }
    }

    /// Copies the text up to the first `last`, inclusive.
    fn copy_through(&mut self, last: char) {
        for character in self.rest.by_ref() {
            self.out.push(character);
            if character == last {
                return;
            }
        }
    }

    fn literal(&mut self, character: char) {
        self.out.push_str(&format!("\\x{{{:x}}}", character as u32));
    }

    /// A bracketed class, whose opening bracket was read. A hyphen is written as one only where it
    /// makes a range: two of them mean a difference of classes here, and none in Go.
    fn class(&mut self) {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let (mut is_first, mut may_begin_range) = (true, false);
        while let Some(character) = self.rest.next() {
            let may_range = may_begin_range && self.rest.peek().is_some_and(|next| *next != ']');
            may_begin_range = match character {
                ']' if !is_first => {
                    self.out.push(']');
                    return;
                }
                '-' if may_range => {
                    self.out.push('-');
                    self.one_of_class();
                    false
                }
                _ => self.of_class(character),
            };
            is_first = false;
        }
    }

    /// Translates the next thing in a class, whatever it is.
    fn one_of_class(&mut self) {
        if let Some(character) = self.rest.next() {
            self.of_class(character);
        }
    }

    /// Translates what begins with this character in a class. Whether it is a single character,
    /// which a range may begin with.
    fn of_class(&mut self, character: char) -> bool {
        match character {
            '\\' => {
                let next = self.rest.peek().copied();
                self.escape(true);
                return !next.is_some_and(|next| "dDsSwWpP".contains(next));
            }
            '[' if self.rest.peek() == Some(&':') => {
                self.out.push('[');
                self.copy_through(']');
                return false;
            }
            '[' | ']' | '&' | '~' | '-' => self.literal(character),
            _ => self.out.push(character),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(text.as_bytes())
    }

    /// Patterns that Go accepts are accepted and mean the same.
    #[test]
    fn gos_dialect_is_understood() {
        assert!(matches(r"^\d+$", "12") && !matches(r"^\d+$", "١٢"), "digits are ASCII");
        assert!(matches(r"^\w+$", "a_1") && !matches(r"^\w+$", "é"), "word characters are ASCII");
        assert!(
            matches(r"^[\d.]+$", "1.2") && matches(r"^[^\s]+$", "ab"),
            "classes within brackets"
        );
        assert!(matches(r"\bfoo\b", "éfoo!"), "word boundaries are ASCII");
        assert!(matches(r"^\Qa.b*\E+$", "a.b**") && !matches(r"^\Qa.b\E$", "axb"), "quoting");
        assert!(
            matches("^{foo}$", "{foo}") && matches("^a{2}$", "aa") && matches("^a{,3}$", "a{,3}"),
            "braces"
        );
        assert!(matches(r"^\<\/\_\-$", "</_-"), "escaped punctuation");
        assert!(
            matches("^[[&~]+$", "[&~") && matches("^[]a]+$", "]a") && matches("^[[:alpha:]]$", "x"),
            "brackets"
        );
        for (pattern, taken, left) in [
            (r"^[\w--a]$", "w-5a", "~"),
            ("^[+--]$", "+,-", ".*"),
            ("^[--z]$", "-.az", "+"),
            ("^[a-c-]$", "abc-", "d"),
            (r"^[!--\]]$", "!]&-", "^~"),
            (r"^[\-a-c]$", "-b", "d"),
            ("^[-a]$", "-a", "b"),
            ("^[^--]$", "a", "-"),
        ] {
            for character in taken.chars() {
                assert!(matches(pattern, &character.to_string()), "{pattern}: {character}");
            }
            for character in left.chars() {
                assert!(!matches(pattern, &character.to_string()), "{pattern}: {character}");
            }
        }
        assert!(matches(r"^\101$", "A"), "octal");
        assert!(
            matches("(?i)^k$", "K") && matches(r"^\pL$", "é") && matches(r"^\x{e9}$", "é"),
            "left as they are"
        );
    }

    /// Scenario: a pattern of nothing but braces. Guarantee: the time grows with its length, not
    /// with the square of it, which would be minutes.
    #[test]
    fn many_braces_take_little_time() {
        let began = std::time::Instant::now();
        let translated = translate(&"{".repeat(400_000));
        assert_eq!(translated.len(), 800_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
        for (go, expected) in
            [("{1}{2,}{3,4}", "{1}{2,}{3,4}"), ("{,1}{}{1,2,", "\\{,1}\\{}\\{1,2,")]
        {
            assert_eq!(translate(go), expected);
        }
    }

    /// A pattern that Go refuses, or that this engine cannot match, is refused with a reason in one
    /// line.
    #[test]
    fn errors_fit_a_line() {
        for pattern in ["(", "a**b(", r"\C", "(?P<n", "[a"] {
            let error = Pattern::new(pattern).unwrap_err();
            assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        }
    }

    /// Groups that take no part in a match are empty strings.
    #[test]
    fn groups_are_named() {
        let pattern = Pattern::new("^(?P<method>[A-Z]+) (?:(?P<path>/.*)|(?<other>.*))$").unwrap();
        let groups = pattern.named_groups(b"GET /x").unwrap();
        let expected = [("method", "GET"), ("path", "/x"), ("other", "")]
            .map(|(name, text)| (name, text.to_owned()));
        assert_eq!(groups, expected);
        assert_eq!(pattern.named_groups(b"nothing"), None);
    }

    /// Guarantee: a group's name may begin with a digit, as in Go, also beside one whose name only
    /// has a character more, and in the template of a replacement.
    #[test]
    fn names_of_groups_may_begin_with_a_digit() {
        let pattern = Pattern::new(r"(?P<5xx>5\d\d)|(?<4xx>4\d\d)|(?P<_5xx>6)|\(?P?<7>").unwrap();
        let names: Vec<_> = pattern.group_names().flatten().collect();
        assert_eq!(names, ["5xx", "4xx", "_5xx"]);
        let groups = pattern.named_groups(b"503").unwrap();
        assert_eq!(groups[0], ("5xx", "503".to_owned()));
        for (template, expected) in [
            ("<$5xx>", "<503>"),
            ("${5xx}$$5xx$1", "503$5xx503"),
            ("$5xxa${1}a$ ${", "503a$ ${"),
            ("$_5xx.", "."),
        ] {
            let template = pattern.template(template);
            assert_eq!(pattern.regex().replace("503", &*template), expected, "{template}");
        }
        assert!(
            pattern.into_regex().is_err() && Pattern::new("(?P<a>x)").unwrap().into_regex().is_ok()
        );
    }
}
