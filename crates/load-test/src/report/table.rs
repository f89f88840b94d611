//! A table of text, and how it stands in Markdown.

use std::fmt;
use std::iter::repeat_n;

/// Spaces between columns of a turned table.
const GAP: usize = 2;

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

    /// For a terminal of this many columns: as in Markdown where that fits, otherwise turned, with
    /// a line for each figure. As many rows stand beside each other as there is room for.
    pub fn within(&self, width: usize) -> String {
        let markdown = self.to_string();
        if markdown.lines().all(|line| !line.starts_with('|') || line.chars().count() <= width) {
            return markdown;
        }
        let plain = |text: &String| text.replace(|character: char| character.is_control(), " ");
        let heads: Vec<String> = self.columns.iter().map(plain).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.iter().map(plain).collect()).collect();
        let len = |text: &String| text.chars().count();
        let heads_len = heads.iter().map(len).max().unwrap_or(0);
        let row_len = |row: &[String]| row.iter().map(len).max().unwrap_or(0);
        let mut turned = String::new();
        let mut left = &rows[..];
        while let [first, others @ ..] = left {
            let mut taken = heads_len + GAP + row_len(first);
            let fits = |row: &&Vec<String>| {
                taken += GAP + row_len(row);
                taken <= width
            };
            let count = 1 + others.iter().take_while(fits).count();
            let (now, later) = left.split_at(count);
            left = later;
            if !turned.is_empty() {
                turned.push('\n');
            }
            self.add_turned(&mut turned, &heads, now);
        }
        self.notes.iter().for_each(|note| turned.push_str(&format!("\n{}\n", plain(note))));
        turned
    }

    fn add_turned(&self, turned: &mut String, heads: &[String], rows: &[Vec<String>]) {
        let len = |text: &String| text.chars().count();
        let heads_len = heads.iter().map(len).max().unwrap_or(0);
        let lens: Vec<usize> =
            rows.iter().map(|row| row.iter().map(len).max().unwrap_or(0)).collect();
        // The columns at which a group begins; the first column is in none.
        let mut begins = 1;
        let mut groups = self.groups.iter().map(|&(title, columns)| {
            begins += columns;
            (begins - columns, title)
        });
        let mut group = groups.next();
        for (column, head) in heads.iter().enumerate() {
            if let Some((_, title)) = group.filter(|(begins, _)| *begins == column) {
                turned.push_str(&format!("{title}\n"));
                group = groups.next();
            }
            let cells = rows
                .iter()
                .zip(&lens)
                .map(|(row, &len)| format!("{:gap$}{:>len$}", "", row[column], gap = GAP));
            let line = format!("{head:heads_len$}{}", cells.collect::<String>());
            turned.push_str(&format!("{}\n", line.trim_end()));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: usize) -> Table {
        let row = |row: usize| (0..4).map(|column| format!("{row}.{column}")).collect();
        let mut table = Table::new(
            "T",
            &["Name", "Receiver Accepted Metric/sec", "Exporter Exported Metric/sec", "Lost|_"],
            (0..rows).map(row).collect(),
        );
        table.notes.push("a note".to_owned());
        table
    }

    #[test]
    fn a_table_that_fits_stands_as_in_markdown() {
        let table = table(3);
        let widest = table.to_string().lines().map(|line| line.chars().count()).max().unwrap();
        assert_eq!(table.within(widest), table.to_string());
        assert_ne!(table.within(widest - 1), table.to_string());
    }

    #[test]
    fn a_table_that_is_too_wide_has_a_line_for_each_figure() {
        let expected = "\
Name                          0.0  1.0
Receiver Accepted Metric/sec  0.1  1.1
Exporter Exported Metric/sec  0.2  1.2
Lost|_                        0.3  1.3

a note
";
        assert_eq!(table(2).within(60), expected);
    }

    #[test]
    fn rows_that_do_not_fit_beside_each_other_follow_below() {
        for width in 33..70 {
            let turned = table(9).within(width);
            assert!(turned.lines().all(|line| line.chars().count() <= width), "{width}: {turned}");
            for row in 0..9 {
                assert!((0..4).all(|column| turned.contains(&format!("{row}.{column}"))));
            }
            let blocks = turned.matches("Name ").count();
            assert_eq!(blocks, 9usize.div_ceil((width - 28) / 5), "{width}: {turned}");
        }
    }

    #[test]
    fn a_terminal_that_is_narrower_than_one_row_loses_nothing() {
        assert!(table(2).within(1).contains("Exporter Exported Metric/sec  1.2\n"));
    }

    #[test]
    fn groups_stand_above_their_figures() {
        let table = Table { groups: vec![("One", 1), ("Two", 2)], ..table(1) };
        let expected = "\
Name                          0.0
One
Receiver Accepted Metric/sec  0.1
Two
Exporter Exported Metric/sec  0.2
Lost|_                        0.3

a note
";
        assert_eq!(table.within(60), expected);
    }
}
