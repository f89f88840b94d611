//! Where a line ends: for lines that are cut or at fault, byte by byte, from any piece on.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before the first byte that is not blank.
    #[default]
    Start,
    Comment,
    /// In the measurement and the tags.
    Head,
    /// In the key of a field, or in blanks before it.
    Key,
    /// Behind the equals sign of a field.
    Value,
    /// In a value without quotes, or behind one with quotes.
    Bare,
    Quoted,
    /// Behind the fields.
    Tail,
}

/// The end of a line, of which any number of bytes was seen. A line that `parse` takes ends here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    state: State,
    /// The byte before was a backslash that counts.
    escaped: bool,
}

impl Extent {
    /// The number of bytes up to the line's end and with its line break, if it ends here.
    pub(crate) fn find(&mut self, bytes: &[u8]) -> Option<usize> {
        bytes.iter().position(|byte| self.step(*byte)).map(|at| at + 1)
    }

    /// A line break would not end the line here.
    pub(crate) fn is_in_string(&self) -> bool {
        self.state == State::Quoted
    }

    /// Whether the byte ends the line.
    fn step(&mut self, byte: u8) -> bool {
        let escaped = std::mem::replace(&mut self.escaped, false);
        if byte == b'\n' && self.state != State::Quoted {
            return true;
        }
        self.state = match (self.state, byte) {
            (State::Start, b' ' | b'\t' | 0) => State::Start,
            (State::Start, b'#') => State::Comment,
            (State::Head, b' ') if !escaped => State::Key,
            (State::Start | State::Head, byte) => {
                self.escaped = byte == b'\\';
                State::Head
            }
            (State::Key, b'=') if !escaped => State::Value,
            (State::Key, byte) => {
                self.escaped = byte == b'\\';
                State::Key
            }
            (State::Value, b'"') => State::Quoted,
            (State::Value | State::Bare, b',') => State::Key,
            (State::Value | State::Bare, b' ') => State::Tail,
            (State::Value | State::Bare, _) => State::Bare,
            (State::Quoted, b'"') if !escaped => State::Bare,
            (State::Quoted, byte) => {
                self.escaped = byte == b'\\' && !escaped;
                State::Quoted
            }
            (State::Comment, _) => State::Comment,
            (State::Tail, _) => State::Tail,
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_break_in_a_string_does_not_end_a_line() {
        for (line, more) in [
            ("m v=1 5\n", "x"),
            ("m,a=\"\n", "b\"\n"),
            ("m,a=b\\ c v=\"x\ny\"\n", "\"\n"),
            ("m v=\"a\\\"\nb\\\\\",w=\"\n\" 1\n", "n"),
            ("# \"comment\n", "\"\n"),
            ("m v=a\"b\n", "\"\n"),
            ("m a\\=\"=1\n", "\"\n"),
            ("  \n", "\n"),
            ("m,a=b\\\n", "c v=1\n"),
        ] {
            let whole = [line, more].concat();
            for cut in 0..line.len() {
                let mut extent = Extent::default();
                assert_eq!(extent.find(&whole.as_bytes()[..cut]), None, "{line:?}");
                let rest = extent.find(&whole.as_bytes()[cut..]);
                assert_eq!(rest, Some(line.len() - cut), "{line:?} {cut}");
            }
        }
    }
}
