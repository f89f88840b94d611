//! Lines that were not taken, and why, in InfluxDB's words.

use std::borrow::Cow;
use std::fmt;

/// Faults of a body of which the line is kept.
const KEPT: usize = 32;

/// Bytes of a line that are kept.
const EXCERPT_BYTES: usize = 512;

pub(crate) type Reason = Cow<'static, str>;

/// A line that was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number in the body, from 1. A line break in a string does not count.
    pub line: u64,
    /// Its beginning, at most 512 bytes.
    pub excerpt: String,
    pub reason: Reason,
}

/// As InfluxDB 1.x words it.
impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "unable to parse '{}': {}", self.excerpt, self.reason)
    }
}

/// The faults of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// All of them.
    pub count: u64,
    /// The first ones, at most 32.
    pub first: Vec<Fault>,
}

impl Faults {
    pub(crate) fn add(&mut self, line: u64, bytes: &[u8], reason: Reason) {
        self.count += 1;
        if self.first.len() < KEPT {
            let start = bytes.iter().position(|byte| !matches!(byte, b' ' | b'\t' | 0));
            let bytes = &bytes[start.unwrap_or(0)..];
            let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
            let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
            let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]);
            self.first.push(Fault { line, excerpt: excerpt.into_owned(), reason });
        }
    }

    /// Adds to the reason of the last fault, which is this line's, if it was kept.
    pub(crate) fn add_to_last(&mut self, line: u64, note: &str) {
        if let Some(last) = self.first.last_mut().filter(|fault| fault.line == line) {
            last.reason.to_mut().push_str(note);
        }
    }
}

/// One fault a line, and how many more there are.
impl fmt::Display for Faults {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.first.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(formatter, "{separator}{fault}")?;
        }
        match self.count - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(formatter, "\n{more} more lines are at fault"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_faults_are_counted_and_the_first_ones_named() {
        let mut faults = Faults::default();
        for line in 1..=40 {
            faults.add(line, b" \x00cpu\r\n", "missing fields".into());
        }
        let text = faults.to_string();
        assert!(text.starts_with("unable to parse 'cpu': missing fields\nunable"), "{text}");
        assert!(text.ends_with("\n8 more lines are at fault"), "{text}");
        faults.add(41, &vec![b'x'; 5000], "missing fields".into());
        assert_eq!((faults.count, faults.first.len()), (41, 32));
    }
}
