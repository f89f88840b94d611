//! The frames around messages of syslog (RFC 6587).

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Framing {
    Bare,
    /// The length in bytes and a space stand before a message.
    Counted {
        limit: usize,
    },
    /// This character stands behind a message.
    Trailer(u8),
}

impl Framing {
    /// The message in its frame.
    ///
    /// # Errors
    /// The length is absent, wrong, or beyond the limit.
    pub(super) fn message(self, text: &str) -> Result<&str, String> {
        match self {
            Framing::Bare => Ok(text),
            Framing::Trailer(trailer) => Ok(text.strip_suffix(char::from(trailer)).unwrap_or(text)),
            Framing::Counted { limit } => {
                let (length, rest) = text.split_once(' ').unwrap_or((text, ""));
                let is_plain = length.starts_with(|first: char| matches!(first, '1'..='9'));
                let length: Option<usize> = length.parse().ok().filter(|_| is_plain);
                let length = length.ok_or("the message has no length before it")?;
                if length > limit {
                    return Err(format!(
                        "the message has {length} bytes, more than {limit}: raise `max_octets`"
                    ));
                }
                let message = rest.get(..length).ok_or_else(|| {
                    let found = rest.len();
                    format!("the message has {found} bytes, not {length} as its length says")
                })?;
                match &rest[length..] {
                    // Some senders count a line end behind the message.
                    "" | "\n" => {
                        let line = message.strip_suffix('\n');
                        let line = line.map(|line| line.strip_suffix('\r').unwrap_or(line));
                        Ok(line.unwrap_or(message))
                    }
                    _ => Err("there is text behind the message".to_owned()),
                }
            }
        }
    }

    /// The text behind a length and a space, if it counts and they are there.
    pub(super) fn without_length(self, text: &str) -> &str {
        let Framing::Counted { .. } = self else { return text };
        let rest = text.trim_start_matches(|character: char| character.is_ascii_digit());
        let is_length = rest.len() < text.len() && !text.starts_with('0');
        let behind = rest.strip_prefix([' ', '\t', '\n', '\r', '\u{c}']);
        behind.filter(|_| is_length).unwrap_or(text)
    }
}
