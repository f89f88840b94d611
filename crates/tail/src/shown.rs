//! Paths as the log shows them.

use std::fmt::{self, Display, Formatter, Write as _};
use std::path::Path;

/// A path with its control characters escaped: the name of a file cannot end a line of the log, nor
/// change a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'p>(pub &'p Path);

impl Display for Shown<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.to_string_lossy().chars() {
            if letter.is_control() {
                write!(to, "{}", letter.escape_debug())?;
            } else {
                to.write_char(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let path = Path::new("/logs/a\n\u{1b}[31m ERROR \u{9b} é.log");
        let shown = Shown(path).to_string();
        assert_eq!(shown, r"/logs/a\n\u{1b}[31m ERROR \u{9b} é.log");
    }
}
