//! The list of what a translation leaves out, and of what its user has to know.

use std::fmt::Write as _;

use crate::text;

/// Columns of the comments at the head of a file.
const WIDTH: usize = 96;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    LeftOut,
    /// It is translated, and means the same but for this.
    Note,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Remark {
    kind: Kind,
    /// In the file that is translated, from 1.
    line: usize,
    /// The plugin, and the option if it is about one.
    place: String,
    text: String,
}

#[derive(Debug, Default)]
pub(super) struct Report {
    remarks: Vec<Remark>,
}

impl Report {
    /// Something is not translated. `text` says why, and what to do instead.
    pub(super) fn left_out(&mut self, line: usize, place: &str, text: impl Into<String>) {
        self.add(Kind::LeftOut, line, place, text.into());
    }

    pub(super) fn note(&mut self, line: usize, place: &str, text: impl Into<String>) {
        self.add(Kind::Note, line, place, text.into());
    }

    fn add(&mut self, kind: Kind, line: usize, place: &str, text: String) {
        // Names come from the file, and must not draw on a terminal.
        let [place, text] = [place, &text].map(|it| text::cell(it).content());
        let remark = Remark { kind, line, place, text };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    /// Nothing is left out.
    pub(super) fn is_whole(&self) -> bool {
        self.remarks.iter().all(|it| it.kind == Kind::Note)
    }

    fn of(&self, kind: Kind) -> Vec<&Remark> {
        let mut found: Vec<_> = self.remarks.iter().filter(|it| it.kind == kind).collect();
        found.sort_by_key(|it| it.line);
        found
    }

    /// Comments for the head of the file. `name`: the file that was translated.
    pub(super) fn head(&self, name: &str) -> String {
        let mut text = format!("Translated from {name} by `sluice migrate telegraf`.\n");
        for (kind, title) in [(Kind::LeftOut, "Not translated:"), (Kind::Note, "To know:")] {
            let remarks = self.of(kind);
            if remarks.is_empty() {
                continue;
            }
            let _ = write!(text, "\n{title}\n");
            for Remark { line, place, text: said, .. } in remarks {
                let _ = writeln!(text, "  line {line}, {place}: {said}");
            }
        }
        let wrapped = text::wrapped(&text, WIDTH);
        let lines = wrapped.lines().map(|line| format!("# {line}").trim_end().to_owned() + "\n");
        lines.collect::<String>() + "\n"
    }

    /// Lines for the standard error.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        for (kind, title) in [(Kind::LeftOut, "not translated"), (Kind::Note, "note")] {
            for Remark { line, place, text, .. } in self.of(kind) {
                lines.push(format!("{name}:{line}: {title}: {place}: {text}"));
            }
        }
        lines
    }

    #[cfg(test)]
    pub(super) fn left(&self) -> Vec<(usize, String)> {
        let left = self.of(Kind::LeftOut).into_iter();
        left.map(|it| (it.line, format!("{}: {}", it.place, it.text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: remarks stand in the order of the file, each once, and every line of the head is
    /// a comment.
    #[test]
    fn remarks_are_sorted_and_commented() {
        let mut report = Report::default();
        report.note(1, "agent: hostname", "is a tag");
        assert!(report.is_whole());
        for line in [9, 3, 9] {
            report.left_out(line, "inputs.cpu", "is not there; keep Telegraf for it ".repeat(4));
        }
        assert!(!report.is_whole());
        let lines = report.lines("a.conf");
        let starts = ["a.conf:3: not translated: inputs.cpu", "a.conf:9: not", "a.conf:1: note: a"];
        assert_eq!(lines.len(), starts.len());
        assert!(lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{lines:?}");
        let head = report.head("a.conf");
        let fits = |line: &str| line.starts_with('#') && line.len() <= 100;
        assert!(head.trim_end().lines().all(fits), "{head}");
    }

    /// Guarantee: what the file has never moves the cursor, nor begins a line of its own.
    #[test]
    fn control_characters_are_not_shown() {
        let mut report = Report::default();
        report.left_out(1, "inputs.\u{1b}[2Jcpu", "`a\rb: 1\nc` is not there\u{9b}");
        let expected = "a.conf:1: not translated: inputs. [2Jcpu: `a b: 1 c` is not there ";
        assert_eq!(report.lines("a.conf"), [expected]);
        let head = report.head("a.conf");
        assert!(!head.contains(|one: char| one.is_control() && one != '\n'), "{head:?}");
        assert!(head.contains("`a b: 1 c`"), "{head}");
    }
}
