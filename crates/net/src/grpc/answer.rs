//! Reads the few small protobuf messages in backends' answers: statuses with their details, partial
//! successes.

pub enum Value<'a> {
    /// A varint.
    Number(u64),
    /// A string, bytes, a message or a packed list.
    Bytes(&'a [u8]),
    /// Four or eight bytes.
    Fixed(&'a [u8]),
}

/// The fields of one message, in order. Groups are malformed here.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Fields(message)
    }

    /// Number and value of the next field; `Some(None)` at the end; `None` if malformed.
    // Not an iterator: a malformed answer ends the reading with `?`.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<Option<(u64, Value<'a>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            1 => Value::Fixed(self.take(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.take(4)?),
            _ => return None,
        };
        Some(Some((tag >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}
