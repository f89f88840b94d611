//! The tables of tests that are written in Go, as values.

#![allow(dead_code, reason = "each test file uses a part of this")]

/// A literal of Go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(Vec<u8>),
    /// A name or a number.
    Word(String),
    Call(String, Vec<Value>),
    List(Vec<Value>),
    Pairs(Vec<(Value, Value)>),
}

/// The text of a function.
pub(crate) fn function<'s>(source: &'s str, name: &str) -> &'s str {
    let start = source.find(&format!("\nfunc {name}(")).unwrap_or_else(|| panic!("has {name}"));
    let text = &source[start..];
    &text[..text.find("\n}\n").expect("has an end")]
}

/// The literal behind the first `marker`.
pub(crate) fn after(text: &str, marker: &str) -> Value {
    let start = text.find(marker).unwrap_or_else(|| panic!("has `{marker}`")) + marker.len();
    Reader { source: text.as_bytes(), at: start }.value()
}

/// The first table of a type that is declared with it: `[]struct { … }{ … }`.
pub(crate) fn table(text: &str) -> Vec<Value> {
    let start = text.find("}{\n").expect("has a table") + 1;
    let Value::List(rows) = (Reader { source: text.as_bytes(), at: start }).value() else {
        panic!("a table has rows")
    };
    rows
}

/// The variable of a text, to which more is added.
pub(crate) fn text_variable(text: &str, name: &str) -> Vec<u8> {
    let mut whole = after(text, &format!("{name} := ")).bytes().to_vec();
    for (start, marker) in text.match_indices(&format!("{name} += ")) {
        let mut reader = Reader { source: text.as_bytes(), at: start + marker.len() };
        whole.extend_from_slice(reader.value().bytes());
    }
    whole
}

impl Value {
    /// The field of a struct.
    pub(crate) fn get(&self, field: &str) -> Option<&Value> {
        let Value::Pairs(pairs) = self else { return None };
        let is_it = |key: &Value| matches!(key, Value::Word(word) if word == field);
        pairs.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let Value::Text(text) = self else { panic!("{self:?} is no text") };
        text
    }

    /// A text, or the name of a constant that is cast to one.
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Text(text) => String::from_utf8(text.clone()).expect("is UTF-8"),
            Value::Word(word) => word.rsplit("MetricType").next().unwrap_or("").to_lowercase(),
            Value::Call(_, arguments) => arguments[0].text(),
            _ => panic!("{self:?} is no text"),
        }
    }

    pub(crate) fn items(&self) -> &[Value] {
        match self {
            Value::List(items) | Value::Call(_, items) => items,
            _ => panic!("{self:?} is no list"),
        }
    }
}

struct Reader<'s> {
    source: &'s [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.source.get(self.at).copied().unwrap_or(0)
    }

    fn skip_to(&mut self, end: &[u8]) {
        while self.at < self.source.len() && !self.source[self.at..].starts_with(end) {
            self.at += 1;
        }
    }

    /// Passes over blanks and comments; answers what is behind them.
    fn next(&mut self) -> u8 {
        loop {
            if self.peek().is_ascii_whitespace() {
                self.at += 1;
            } else if self.source[self.at..].starts_with(b"//") {
                self.skip_to(b"\n");
            } else {
                return self.peek();
            }
        }
    }

    fn value(&mut self) -> Value {
        let mut value = self.operand();
        while self.next() == b'+' {
            self.at += 1;
            let more = self.operand();
            if let (Value::Text(text), Value::Text(more)) = (&mut value, more) {
                text.extend(more);
            }
        }
        value
    }

    fn operand(&mut self) -> Value {
        match self.next() {
            b'"' => self.quoted(),
            b'`' => {
                let start = self.at + 1;
                self.at = start;
                self.skip_to(b"`");
                self.at += 1;
                Value::Text(self.source[start..self.at - 1].to_vec())
            }
            b'{' => self.composite(),
            // Types: `[]`, `[string]` and pointers.
            b'[' => {
                self.skip_to(b"]");
                self.at += 1;
                self.operand()
            }
            b'*' | b'&' => {
                self.at += 1;
                self.operand()
            }
            _ => self.word(),
        }
    }

    fn word(&mut self) -> Value {
        let start = self.at;
        let is_number = self.peek().is_ascii_digit();
        while self.peek().is_ascii_alphanumeric()
            || matches!(self.peek(), b'_' | b'.')
            || self.peek() == b'-' && (self.at == start || is_number)
        {
            self.at += 1;
        }
        let word = String::from_utf8_lossy(&self.source[start..self.at]).into_owned();
        assert!(!word.is_empty(), "nothing known at {start}: {}", self.rest());
        match self.peek() {
            b'(' => Value::Call(word, self.list(b')')),
            b'[' if word == "map" => self.operand(),
            b'{' => self.composite(),
            _ => Value::Word(word),
        }
    }

    fn rest(&self) -> String {
        let end = self.source.len().min(self.at + 60);
        String::from_utf8_lossy(&self.source[self.at..end]).into_owned()
    }

    fn list(&mut self, end: u8) -> Vec<Value> {
        self.at += 1;
        let mut items = Vec::new();
        while self.next() != end {
            items.push(self.value());
            if self.next() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        items
    }

    fn composite(&mut self) -> Value {
        self.at += 1;
        let (mut items, mut pairs) = (Vec::new(), Vec::new());
        while self.next() != b'}' {
            let value = self.value();
            if self.next() == b':' {
                self.at += 1;
                pairs.push((value, self.value()));
            } else {
                items.push(value);
            }
            if self.next() == b',' {
                self.at += 1;
            }
        }
        self.at += 1;
        if pairs.is_empty() { Value::List(items) } else { Value::Pairs(pairs) }
    }

    fn quoted(&mut self) -> Value {
        let mut text = Vec::new();
        self.at += 1;
        while self.peek() != b'"' {
            let byte = self.peek();
            self.at += 1;
            if byte != b'\\' {
                text.push(byte);
                continue;
            }
            let escape = self.peek();
            self.at += 1;
            match escape {
                b'n' => text.push(b'\n'),
                b't' => text.push(b'\t'),
                b'r' => text.push(b'\r'),
                b'x' => text.push(self.code(2) as u8),
                b'u' => {
                    let code = char::from_u32(self.code(4)).expect("is a character");
                    text.extend(code.to_string().bytes());
                }
                _ => text.push(escape),
            }
        }
        self.at += 1;
        Value::Text(text)
    }

    fn code(&mut self, digits: usize) -> u32 {
        let text = String::from_utf8_lossy(&self.source[self.at..self.at + digits]).into_owned();
        self.at += digits;
        u32::from_str_radix(&text, 16).expect("is a number")
    }
}

#[test]
fn literals_of_go_are_read() {
    let source = "\nfunc TestA(t) {\n\ttests := []struct {\n\t\ta string\n\t}{\n\t\t{ // one\n\
                  \t\t\ta: F(map[string]string{\"x\": \"\\x00\\\"\\u00e9\"}, -1, 4.9e-05),\n\
                  \t\t\tb: []*C{{D: model.N{`r\\n` + \"+\"}, E: true}},\n\t\t},\n\t}\n}\nrest";
    let text = |text: &str| Value::Text(text.as_bytes().to_vec());
    let word = |word: &str| Value::Word(word.to_owned());
    let rows = table(function(source, "TestA"));
    let map = Value::Pairs(vec![(text("x"), text("\0\"é"))]);
    let call = Value::Call("F".to_owned(), vec![map, word("-1"), word("4.9e-05")]);
    assert_eq!((rows.len(), rows[0].get("a")), (1, Some(&call)));
    let list = rows[0].get("b").expect("is there").items();
    assert_eq!(list[0].get("D").map(Value::items), Some(&[text("r\\n+")][..]));
    assert_eq!(list[0].get("E"), Some(&word("true")));
}
