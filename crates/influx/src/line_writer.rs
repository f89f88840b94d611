//! Writes lines.

use std::io::Write as _;

use crate::escape::{Part, escape, trimmed};
use crate::line::Value;

/// Why line protocol cannot have something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritable {
    /// It is empty, or has backslashes only.
    Empty,
    /// A measurement starts with `#` as a comment does, or with a blank that is skipped.
    Start,
    /// A number is not finite.
    NotFinite,
}

/// Writes one line behind others. Texts are changed as little as needed: see `escape`.
pub struct LineWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    fields: usize,
}

impl<'a> LineWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>, measurement: &str) -> Result<LineWriter<'a>, Unwritable> {
        let measurement = measurement.as_bytes();
        match trimmed(measurement) {
            [] => return Err(Unwritable::Empty),
            [b'#' | b'\t' | 0, ..] => return Err(Unwritable::Start),
            _ => {}
        }
        let start = out.len();
        escape(out, measurement, Part::Measurement);
        Ok(LineWriter { out, start, fields: 0 })
    }

    /// Adds a tag, before all fields. Line protocol has no empty ones: they are left out.
    pub fn tag(&mut self, key: &[u8], value: &[u8]) {
        debug_assert_eq!(self.fields, 0);
        if !trimmed(key).is_empty() && !trimmed(value).is_empty() {
            self.out.push(b',');
            escape(self.out, key, Part::Key);
            self.out.push(b'=');
            escape(self.out, value, Part::Key);
        }
    }

    /// Adds tags and then `number` fields, as written behind the measurement of another line.
    pub fn append(&mut self, tags: &[u8], fields: &[u8], number: usize) {
        debug_assert_eq!(self.fields, 0);
        self.out.extend_from_slice(tags);
        self.out.extend_from_slice(fields);
        self.fields += number;
    }

    pub fn field(&mut self, key: &[u8], value: &Value<'_>) -> Result<(), Unwritable> {
        if trimmed(key).is_empty() {
            return Err(Unwritable::Empty);
        }
        if matches!(value, Value::Float(value) if !value.is_finite()) {
            return Err(Unwritable::NotFinite);
        }
        self.out.push(if self.fields == 0 { b' ' } else { b',' });
        self.fields += 1;
        escape(self.out, key, Part::Key);
        self.out.push(b'=');
        match value {
            Value::Float(value) => float(self.out, *value),
            Value::Integer(value) => {
                integer(self.out, *value);
                self.out.push(b'i');
            }
            Value::Unsigned(value) => {
                digits(self.out, *value);
                self.out.push(b'u');
            }
            Value::Boolean(value) => {
                self.out.extend_from_slice(if *value { b"true" } else { b"false" });
            }
            Value::String(text) => {
                self.out.push(b'"');
                escape(self.out, text.as_bytes(), Part::String);
                self.out.push(b'"');
            }
        }
        Ok(())
    }

    /// Ends the line, with its time since 1970 in the body's unit. False, and nothing written, if
    /// it has no fields.
    pub fn end(self, time: Option<i64>) -> bool {
        if self.fields == 0 {
            self.cancel();
            return false;
        }
        if let Some(time) = time {
            self.out.push(b' ');
            integer(self.out, time);
        }
        self.out.push(b'\n');
        true
    }
}

impl LineWriter<'_> {
    /// Writes nothing of the line.
    pub fn cancel(self) {
        self.out.truncate(self.start);
    }
}

fn digits(out: &mut Vec<u8>, mut value: u64) {
    let (mut text, mut at) = ([0; 20], 20);
    loop {
        at -= 1;
        text[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&text[at..]);
}

fn integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    digits(out, value.unsigned_abs());
}

/// The shortest text that reads as the same number.
fn float(out: &mut Vec<u8>, value: f64) {
    let magnitude = value.abs();
    let written = if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        write!(out, "{value:e}")
    } else if value.fract() == 0.0 && magnitude < 1e15 && value.to_bits() != (-0.0_f64).to_bits() {
        integer(out, value as i64);
        Ok(())
    } else {
        write!(out, "{value}")
    };
    written.expect("memory takes it");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(write: impl FnOnce(&mut LineWriter<'_>)) -> String {
        let mut out = Vec::new();
        let mut line = LineWriter::new(&mut out, "m 1,2=3").expect("a measurement");
        write(&mut line);
        line.end(Some(-5));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn lines_are_written_as_influxdb_reads_them() {
        let text = line(|line| {
            line.tag(b"a b", b"c,d=e");
            line.tag(b"empty", b"");
            for value in [0.0, -0.0, 1e21, 1.5, 1e-7, -3.0, f64::MAX] {
                line.field(b"f,g", &Value::Float(value)).expect("a field");
            }
            line.field(b"i", &Value::Integer(i64::MIN)).expect("a field");
            line.field(b"u", &Value::Unsigned(u64::MAX)).expect("a field");
            line.field(b"b", &Value::Boolean(true)).expect("a field");
            line.field(b"s", &Value::String("a\"b\\\n".into())).expect("a field");
            assert_eq!(line.field(b"", &Value::Boolean(true)), Err(Unwritable::Empty));
            assert_eq!(line.field(b"n", &Value::Float(f64::NAN)), Err(Unwritable::NotFinite));
        });
        let expected = "m\\ 1\\,2=3,a\\ b=c\\,d\\=e f\\,g=0,f\\,g=-0,f\\,g=1e21,f\\,g=1.5,\
                        f\\,g=1e-7,f\\,g=-3,f\\,g=1.7976931348623157e308,i=-9223372036854775808i,\
                        u=18446744073709551615u,b=true,s=\"a\\\"b\\\\\n\" -5\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_left_of_a_line_without_fields() {
        assert_eq!(line(|_| {}), "");
        let mut out = Vec::new();
        assert_eq!(LineWriter::new(&mut out, "#m").err(), Some(Unwritable::Start));
        assert_eq!(LineWriter::new(&mut out, "\\").err(), Some(Unwritable::Empty));
        assert!(out.is_empty());
    }
}
