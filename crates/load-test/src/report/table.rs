//! A table of text, and how it stands in Markdown.

use std::fmt;
use std::iter::repeat_n;

/// A table whose cells are text. The first column names the row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub title: String,
    /// Heads over several columns, with their widths in columns. Empty: one row of heads.
    pub groups: Vec<(&'static str, usize)>,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
}

impl Table {
    /// A table with one row of heads.
    pub fn new(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Table {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        Table { title: title.to_owned(), columns, rows, ..Table::default() }
    }

    /// A table with a row for each item. A column is a head and the text of a cell.
    pub fn of<T>(
        title: &str,
        columns: &[(&str, impl Fn(&T) -> String)],
        rows: impl IntoIterator<Item = T>,
    ) -> Table {
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        let row = |of: T| columns.iter().map(|(_, cell)| cell(&of)).collect();
        Table::new(title, &heads, rows.into_iter().map(row).collect())
    }

    /// `None` where there are no rows.
    pub fn unless_empty(self) -> Option<Table> {
        (!self.rows.is_empty()).then_some(self)
    }

    pub fn with_note(mut self, note: &str) -> Table {
        self.notes.push(note.to_owned());
        self
    }

    /// Heads and rows. Markdown has one row of heads; with groups, names are the first body row.
    fn lines(&self) -> Vec<Vec<String>> {
        let escaped =
            |cells: &Vec<String>| cells.iter().map(|cell| escape(cell)).collect::<Vec<_>>();
        let mut lines = vec![escaped(&self.columns)];
        if !self.groups.is_empty() {
            let mut heads = vec![std::mem::take(&mut lines[0][0])];
            for (title, width) in &self.groups {
                heads.push((*title).to_owned());
                heads.extend(repeat_n(String::new(), width - 1));
            }
            lines.insert(0, heads);
        }
        lines.extend(self.rows.iter().map(escaped));
        lines
    }
}

/// In Markdown, without the title.
impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = |column: usize| {
            lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
        for (number, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, &width)| format!(" {cell:>width$} |"));
            writeln!(formatter, "|{}", cells.collect::<String>())?;
            if number == 0 {
                let rules = widths.iter().map(|&width| format!(" {}: |", "-".repeat(width - 1)));
                writeln!(formatter, "|{}", rules.collect::<String>())?;
            }
        }
        self.notes.iter().try_for_each(|note| write!(formatter, "\n{}\n", escape(note)))
    }
}

/// Names come from the user: none may end a cell or a row, or begin markup.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '|' | '\\' | '`' | '*' | '_' | '[' => escaped.extend(['\\', character]),
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}
