//! The terminal on standard error: its size, what it can show, and a picture that is drawn over itself.

use std::io::{IsTerminal, Write, stderr};

use super::render::Screen;

const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_LINE: &str = "\x1b[K";

/// Where standard error is a terminal that can be drawn on.
pub(super) fn is_drawable() -> bool {
    stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Looked up before every picture: it may have been resized.
pub(super) fn screen() -> Screen {
    let size = rustix::termios::tcgetwinsize(stderr()).ok();
    // A terminal that does not know its size says 0.
    let known = |cells: Option<u16>, usual: usize| cells.map(usize::from).filter(|&cells| cells > 0).unwrap_or(usual);
    Screen {
        columns: known(size.map(|size| size.ws_col), 80),
        rows: known(size.map(|size| size.ws_row), 24),
        // https://no-color.org: set and not empty.
        has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        has_unicode: has_unicode(|name| std::env::var(name).ok()),
    }
}

/// Of the first of these that is set, as the C library has it.
fn has_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(variable).find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// The picture that stands on the terminal.
#[derive(Debug, Default)]
pub(super) struct Picture {
    /// Visible width of each of its lines.
    widths: Vec<usize>,
    is_cursor_hidden: bool,
}

impl Picture {
    /// Draws over what stands there.
    pub(super) fn draw(&mut self, lines: &[String], columns: usize) {
        let mut text = if self.is_cursor_hidden { String::new() } else { HIDE_CURSOR.to_owned() };
        text += &self.back_to_top(columns);
        for line in lines {
            text += &format!("{line}{CLEAR_LINE}\n");
        }
        text += CLEAR_BELOW;
        write(&text);
        self.widths = lines.iter().map(|line| visible_width(line)).collect();
        self.is_cursor_hidden = true;
    }

    /// Takes it away and gives the cursor back.
    pub(super) fn clear(&mut self, columns: usize) {
        if self.is_cursor_hidden {
            write(&format!("{}{CLEAR_BELOW}{SHOW_CURSOR}", self.back_to_top(columns)));
        }
        *self = Picture::default();
    }

    /// To the first column of its first line. Where the terminal has become narrower, its lines were wrapped.
    fn back_to_top(&self, columns: usize) -> String {
        let rows: usize = self.widths.iter().map(|width| width.div_ceil(columns.max(1)).max(1)).sum();
        if rows == 0 { "\r".to_owned() } else { format!("\r\x1b[{rows}A") }
    }
}

fn visible_width(line: &str) -> usize {
    let mut width = 0;
    let mut is_escape = false;
    for character in line.chars() {
        match (is_escape, character) {
            (false, '\x1b') => is_escape = true,
            (true, 'm') => is_escape = false,
            (true, _) => {}
            (false, _) => width += 1,
        }
    }
    width
}

/// One write a picture, so that it does not flicker. A terminal that is gone is no reason to end a measurement.
pub(super) fn write(text: &str) {
    let mut stderr = stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_whether_there_is_unicode_and_the_stronger_variable_wins() {
        let with = |set: &[(&str, &str)]| {
            has_unicode(|name| set.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(with(&[("LANG", "en_US.UTF-8")]) && with(&[("LC_CTYPE", "C.utf8")]));
        assert!(!with(&[]) && !with(&[("LANG", "C")]) && !with(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LANG", "C.UTF-8")]), "empty is as good as unset");
    }

    #[test]
    fn a_picture_whose_lines_were_wrapped_is_found_again() {
        let picture =
            Picture { widths: vec![0, 10, visible_width("\x1b[1mfifteen columns\x1b[0m")], is_cursor_hidden: true };
        assert_eq!(picture.back_to_top(80), "\r\x1b[3A");
        assert_eq!(picture.back_to_top(10), "\r\x1b[4A");
        assert_eq!(Picture::default().back_to_top(80), "\r");
    }
}
