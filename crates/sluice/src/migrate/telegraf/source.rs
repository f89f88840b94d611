//! Telegraf's TOML as sections whose options know their lines, and are taken one after the other:
//! what is left at the end is not translated.

use toml_edit::{Document, Item, Table, TableLike, Value as Toml};

use super::values;
use crate::migrate::report::Report;

/// The value of an option.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    List(Vec<Value>),
    Section(Section),
    /// As `[[a.b]]`.
    Sections(Vec<Section>),
}

impl Value {
    fn is_empty(&self) -> bool {
        match self {
            Value::Text(text) => text.is_empty(),
            Value::List(items) => items.is_empty(),
            Value::Section(section) => section.options.is_empty(),
            Value::Sections(sections) => sections.is_empty(),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => false,
        }
    }

    /// Empty, `false` or zero, which is what an option that is not there means.
    fn is_off(&self) -> bool {
        match self {
            Value::Integer(number) => *number == 0,
            Value::Boolean(is_on) => !is_on,
            Value::Text(text) => {
                let is_zero = values::parsed(text).is_some_and(|duration| duration.is_zero());
                text.is_empty() || is_zero || values::bytes(text) == Some(0)
            }
            other => other.is_empty(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    line: usize,
    value: Value,
}

/// A table of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Section {
    /// As `inputs.tail`.
    pub name: String,
    /// In the file, from 1.
    pub line: usize,
    options: Vec<Entry>,
}

/// Options of all plugins that change nothing that Sluice does.
const INERT: [&str; 5] =
    ["alias", "log_level", "startup_error_behavior", "collection_jitter", "flush_jitter"];

impl Section {
    /// The value of an option and its line, once.
    pub(super) fn take(&mut self, key: &str) -> Option<(usize, Value)> {
        let at = self.options.iter().position(|it| it.key == key)?;
        let Entry { line, value, .. } = self.options.remove(at);
        Some((line, value))
    }

    /// The line of an option that is not empty.
    pub(super) fn line_of(&self, key: &str) -> Option<usize> {
        let entry = self.options.iter().find(|it| it.key == key && !it.value.is_empty())?;
        Some(entry.line)
    }

    /// Reads an option that Telegraf has removed by the name that it has now, which counts if both
    /// are there.
    pub(super) fn rename_removed(&mut self, old: &str, new: &str, report: &mut Report) {
        let Some((line, value)) = self.take(old).filter(|(_, value)| !value.is_empty()) else {
            return;
        };
        let place = self.place(old);
        if self.line_of(new).is_some() {
            let text =
                format!("Telegraf has removed this name, and `{new}` is there too: it counts");
            report.left_out(line, &place, text);
            return;
        }
        report.note(line, &place, format!("Telegraf has removed this name: it is read as `{new}`"));
        self.ignore(&[new]);
        self.options.push(Entry { key: new.to_owned(), line, value });
    }

    /// The place of an option, for the report.
    pub(super) fn place(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}: {key}", self.name) }
    }

    fn wrong(&self, line: usize, key: &str, wanted: &str, report: &mut Report) {
        report.left_out(line, &self.place(key), format!("is no {wanted}"));
    }

    /// As it stands in the file, variables included; an empty one is none.
    pub(super) fn text(&mut self, key: &str, report: &mut Report) -> Option<(usize, String)> {
        match self.take(key)? {
            (line, Value::Text(text)) => (!text.is_empty()).then_some((line, text)),
            (line, Value::Integer(number)) => Some((line, number.to_string())),
            (line, Value::Float(number)) => Some((line, number.to_string())),
            (line, Value::Boolean(is_on)) => Some((line, is_on.to_string())),
            (line, _) => {
                self.wrong(line, key, "text", report);
                None
            }
        }
    }

    /// One text is a list of one.
    pub(super) fn texts(&mut self, key: &str, report: &mut Report) -> Option<(usize, Vec<String>)> {
        let (line, value) = self.take(key)?;
        let items = match value {
            Value::List(items) => items,
            item => vec![item],
        };
        let texts = items.into_iter().map(|item| match item {
            Value::Text(text) => Some(text),
            Value::Integer(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            _ => None,
        });
        let texts: Option<Vec<String>> = texts.collect();
        if texts.is_none() {
            self.wrong(line, key, "list of texts", report);
        }
        Some((line, texts?))
    }

    pub(super) fn boolean(&mut self, key: &str, report: &mut Report) -> Option<bool> {
        match self.take(key)? {
            (_, Value::Boolean(is_on)) => Some(is_on),
            (_, Value::Text(text)) if text == "true" || text == "false" => Some(text == "true"),
            (line, _) => {
                let wanted = "`true` or `false`, which a translation has to know";
                self.wrong(line, key, wanted, report);
                None
            }
        }
    }

    pub(super) fn section(&mut self, key: &str, report: &mut Report) -> Option<Section> {
        match self.take(key)? {
            (_, Value::Section(section)) => Some(section),
            (line, _) => {
                self.wrong(line, key, "table", report);
                None
            }
        }
    }

    /// Tables `[[…]]`; one `[…]` counts as one.
    pub(super) fn sections(&mut self, key: &str, report: &mut Report) -> Vec<Section> {
        match self.take(key) {
            None => Vec::new(),
            Some((_, Value::Sections(sections))) => sections,
            Some((_, Value::Section(section))) => vec![section],
            Some((line, _)) => {
                self.wrong(line, key, "table", report);
                Vec::new()
            }
        }
    }

    /// Pairs of texts, each with its line.
    pub(super) fn pairs(&mut self, key: &str, report: &mut Report) -> Vec<(usize, String, String)> {
        self.section(key, report).map_or_else(Vec::new, |section| section.into_pairs(report))
    }

    /// All options as texts.
    pub(super) fn into_pairs(mut self, report: &mut Report) -> Vec<(usize, String, String)> {
        let keys: Vec<String> = self.options.iter().map(|it| it.key.clone()).collect();
        let mut pairs = Vec::new();
        for key in keys {
            if let Some((line, text)) = self.text(&key, report) {
                pairs.push((line, key, text));
            }
        }
        pairs
    }

    /// Takes options that have no effect in Sluice, or one that needs none there.
    pub(super) fn ignore(&mut self, keys: &[&str]) {
        self.options.retain(|it| !keys.contains(&it.key.as_str()));
    }

    /// Reports options that cannot be translated, with the remedy for each: not those that are
    /// empty, `false` or zero, as Telegraf's own example has them.
    pub(super) fn refuse(&mut self, options: &[(&str, &str)], report: &mut Report) {
        for (key, remedy) in options {
            if let Some((line, value)) = self.take(key)
                && !value.is_off()
            {
                report.left_out(line, &self.place(key), *remedy);
            }
        }
    }

    /// Reports everything that was not taken.
    pub(super) fn finish(mut self, report: &mut Report) {
        self.ignore(&INERT);
        for Entry { key, line, .. } in &self.options {
            let text = "has no counterpart in Sluice: see whether it is needed";
            report.left_out(*line, &self.place(key), text);
        }
    }

    /// Each key with its sections: the plugins of a kind, in their order in the file.
    pub(super) fn plugins(self, report: &mut Report) -> Vec<(String, Section)> {
        let mut plugins = Vec::new();
        for Entry { key, line, value } in self.options {
            match value {
                Value::Section(section) => plugins.push((key, section)),
                Value::Sections(sections) => {
                    plugins.extend(sections.into_iter().map(|section| (key.clone(), section)));
                }
                _ => report.left_out(line, &format!("{}.{key}", self.name), "is no plugin"),
            }
        }
        plugins.sort_by_key(|(_, section)| section.line);
        plugins
    }
}

/// Reads a file. The error has its line.
pub(super) fn read(text: &str) -> Result<Section, String> {
    let text = quote_variables(text);
    let document = Document::parse(text.as_str()).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        format!("line {}: {}", line_of(&text, start), error.message())
    })?;
    Ok(section(&text, "", 1, document.as_table()))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count()
}

fn section(text: &str, name: &str, line: usize, table: &dyn TableLike) -> Section {
    let mut options = Vec::new();
    for (key, item) in table.iter() {
        let span = table.key(key).and_then(|key| key.span()).or_else(|| item.span());
        let line = span.map_or(line, |span| line_of(text, span.start));
        let name = if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
        let of_table = |table: &Table| {
            let line = table.span().map_or(line, |span| line_of(text, span.start));
            section(text, &name, line, table)
        };
        let value = match item {
            Item::None => continue,
            Item::Value(value) => of_value(text, &name, line, value),
            Item::Table(table) => Value::Section(of_table(table)),
            Item::ArrayOfTables(tables) => Value::Sections(tables.iter().map(of_table).collect()),
        };
        options.push(Entry { key: key.to_owned(), line, value });
    }
    Section { name: name.to_owned(), line, options }
}

fn of_value(text: &str, name: &str, line: usize, value: &Toml) -> Value {
    match value {
        Toml::String(value) => Value::Text(value.value().clone()),
        Toml::Integer(value) => Value::Integer(*value.value()),
        Toml::Float(value) => Value::Float(*value.value()),
        Toml::Boolean(value) => Value::Boolean(*value.value()),
        Toml::Datetime(value) => Value::Text(value.value().to_string()),
        Toml::InlineTable(table) => Value::Section(section(text, name, line, table)),
        Toml::Array(values) => {
            let items = values.iter().map(|value| of_value(text, name, line, value));
            let items: Vec<Value> = items.collect();
            let sections = items.iter().map(|item| match item {
                Value::Section(section) => Some(section.clone()),
                _ => None,
            });
            match sections.collect::<Option<Vec<Section>>>() {
                Some(sections) if !sections.is_empty() => Value::Sections(sections),
                _ => Value::List(items),
            }
        }
    }
}

/// Telegraf puts variables in before it reads TOML: one outside of quotes gets them here.
fn quote_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The quotes that are open.
    let mut open: Option<&str> = None;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let mut taken = first.len_utf8();
        if let Some(quotes) = open {
            if first == '\\' && quotes.starts_with('"') {
                taken += rest[1..].chars().next().map_or(0, char::len_utf8);
            } else if rest.starts_with(quotes) {
                taken = quotes.len();
                open = None;
            }
        } else if let Some(quotes) =
            ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quotes| rest.starts_with(quotes))
        {
            taken = quotes.len();
            open = Some(quotes);
        } else if first == '#' {
            taken = rest.find('\n').unwrap_or(rest.len());
        } else if first == '$' {
            let braced = rest.starts_with("${").then(|| rest.find('}')).flatten();
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            taken = match braced {
                Some(end) => end + 1,
                None => 1 + rest.bytes().skip(1).take_while(is_name).count(),
            };
            out.push_str(&format!("'{}'", &rest[..taken]));
            rest = &rest[taken..];
            continue;
        }
        out.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: options know their lines, also in tables of tables, and what is not taken is
    /// reported.
    #[test]
    fn options_have_lines_and_are_taken_once() {
        let text = "# a\n[agent]\n  interval = ${I}\n  flush = \"$F # no\" # ${C}\n\n\
                    [[inputs.tail]]\n  files = [\"a\"]\n  [inputs.tail.tags]\n    x = '1'\n\
                    [[inputs.tail]]\n  alias = 'b'\n  n = 5\n";
        let mut report = Report::default();
        let mut root = read(text).unwrap();
        let mut agent = root.section("agent", &mut report).unwrap();
        assert_eq!(agent.text("interval", &mut report), Some((3, "${I}".to_owned())));
        assert_eq!(agent.text("flush", &mut report), Some((4, "$F # no".to_owned())));
        let tails = root.section("inputs", &mut report).unwrap().plugins(&mut report);
        let lines: Vec<_> = tails.iter().map(|(key, it)| (key.as_str(), it.line)).collect();
        assert_eq!(lines, [("tail", 6), ("tail", 10)]);
        let mut tails = tails.into_iter().map(|(_, section)| section);
        let mut first = tails.next().unwrap();
        let tags = first.pairs("tags", &mut report);
        assert_eq!(tags, [(9, "x".to_owned(), "1".to_owned())]);
        let mut second = tails.next().unwrap();
        assert_eq!(second.boolean("n", &mut report), None);
        first.finish(&mut report);
        second.finish(&mut report);
        let left: Vec<usize> = report.left().iter().map(|(line, _)| *line).collect();
        assert_eq!(left, [7, 12]);
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line() {
        let error = read("[agent]\n\ninterval = = 1\n").unwrap_err();
        assert!(error.starts_with("line 3: "), "{error}");
    }
}
