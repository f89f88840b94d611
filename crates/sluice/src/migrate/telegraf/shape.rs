//! The names that Telegraf gives k6's samples, as its parser's options say: which tags are kept,
//! under which names, and how the value's field is called.

use super::source::Section;
use super::values::{self, Globs, Place};
use crate::migrate::report::Report;

/// Columns of k6's `--out csv`. The first three are the metric, the time and the value.
const COLUMNS: [&str; 19] = [
    "metric_name",
    "timestamp",
    "metric_value",
    "check",
    "error",
    "error_code",
    "expected_response",
    "group",
    "method",
    "name",
    "proto",
    "scenario",
    "service",
    "status",
    "subproto",
    "tls_version",
    "url",
    "extra_tags",
    "metadata",
];

/// A tag of k6 and its name in Telegraf.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Named {
    pub ours: String,
    pub theirs: String,
    /// Of a field: `string`, `int`, `float` or `bool`.
    pub kind: &'static str,
}

impl Named {
    fn text(ours: &str, theirs: &str) -> Named {
        Named { ours: ours.to_owned(), theirs: theirs.to_owned(), kind: "string" }
    }

    pub(super) fn is_number(&self) -> bool {
        ["int", "float"].contains(&self.kind)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shape {
    /// The field of a sample's value.
    pub field: String,
    /// The one measurement of all samples. None: each has the name of its metric.
    pub measurement: Option<String>,
    pub tags: Vec<Named>,
    /// Tags of k6 that are fields.
    pub fields: Vec<Named>,
    pub time_format: Option<&'static str>,
    /// Tags that are the same for all samples.
    pub constants: Vec<(String, String)>,
}

/// `data_format = "json"`. None if the options do not fit k6's file.
pub(super) fn json(section: &mut Section, report: &mut Report) -> Option<Shape> {
    let query = section.text("json_query", report);
    let prefix = match query.as_ref().map(|(_, query)| query.as_str()) {
        None => "data_",
        Some("data") => "",
        Some(_) => return None,
    };
    let name = section.text("json_name_key", report).map(|(_, name)| name);
    let (time_line, time) = section.text("json_time_key", report).unzip();
    let tag_prefix = format!("{prefix}tags_");
    let keys = section.texts("tag_keys", report).unwrap_or_default();
    let strings = section.texts("json_string_fields", report).unwrap_or_default();
    let named = keys.1.iter().chain(&strings.1).any(|key| key.starts_with(&tag_prefix));
    let time_key = format!("{prefix}time");
    if name.as_deref() != Some("metric") && !named && time.as_ref() != Some(&time_key) {
        return None;
    }
    if time.is_none() {
        let text = "without `json_time_key` a sample had the time at which it was read; here it \
                    has its own";
        report.note(section.line, &section.name.clone(), text);
    } else if time.as_ref() != Some(&time_key) {
        let place = section.place("json_time_key");
        let text = format!("the time of k6's samples is in `{time_key}`, which is read");
        report.left_out(time_line.unwrap_or(section.line), &place, text);
    }
    let mut shape = Shape { field: format!("{prefix}value"), ..Shape::default() };
    if prefix.is_empty() || name.as_deref() != Some("metric") {
        shape.measurement = Some("tail".to_owned());
    }
    let place = section.place("tag_keys");
    for key in &keys.1 {
        match key.strip_prefix(&tag_prefix) {
            _ if is_pattern(key) => pattern_of_tags(keys.0, &place, key, report),
            Some(tag) => shape.tags.push(Named::text(tag, key)),
            None if key == "metric" => metric_as_tag(keys.0, &place, report),
            None if key == "type" => shape.constants.push(("type".into(), "Point".into())),
            None => {
                let text = format!("`{key}` is no tag of k6's samples");
                report.left_out(keys.0, &place, text);
            }
        }
    }
    let place = section.place("json_string_fields");
    for key in strings.1.iter().filter(|key| **key != time_key && !keys.1.contains(key)) {
        match key.strip_prefix(&tag_prefix) {
            _ if is_pattern(key) => pattern_of_tags(strings.0, &place, key, report),
            Some(tag) => shape.fields.push(Named::text(tag, key)),
            None => {
                let text = format!("`{key}` is no tag of k6's samples");
                report.left_out(strings.0, &place, text);
            }
        }
    }
    section.ignore(&["json_time_format", "json_timezone", "json_strict"]);
    Some(shape)
}

fn is_pattern(key: &str) -> bool {
    !Globs(vec![key.to_owned()]).are_names()
}

fn pattern_of_tags(line: usize, place: &str, key: &str, report: &mut Report) {
    let text =
        format!("`{key}` names tags that are known only when they come: list them one by one");
    report.left_out(line, place, text);
}

/// The kind of a field whose type is declared, `default` if the receiver has no such type.
fn kind(
    declared: &str,
    default: &'static str,
    place: &Place<'_>,
    report: &mut Report,
) -> &'static str {
    match declared {
        "string" => "string",
        "int" => "int",
        "float" => "float",
        "bool" => "bool",
        "uint" => {
            let text = "an unsigned integer is an integer, as Telegraf writes it unless \
                        `influx_uint_support` is set";
            report.note(place.line, place.name, text);
            "int"
        }
        other => {
            let text =
                format!("`{other}` is no type of the receiver's fields, this is `{default}`");
            report.left_out(place.line, place.name, text);
            default
        }
    }
}

/// The receiver has one type of samples' values.
fn value_is_float(declared: &str, place: &Place<'_>, report: &mut Report) {
    if declared != "float" {
        let text = format!("the value of each sample is a `float` here, not `{declared}`");
        report.left_out(place.line, place.name, text);
    }
}

fn metric_as_tag(line: usize, place: &str, report: &mut Report) {
    let text = "the metric's name is no tag here: each metric is a measurement of its own, as in \
                k6's own output for InfluxDB. Group by measurement in queries";
    report.left_out(line, place, text);
}

/// `data_format = "json_v2"`.
pub(super) fn json_v2(section: &mut Section, report: &mut Report) -> Option<Shape> {
    let mut shape: Option<Shape> = None;
    for mut part in section.sections("json_v2", report) {
        let name = part.text("measurement_name", report).map(|(_, name)| name);
        let name_path = part.text("measurement_name_path", report).map(|(_, path)| path);
        let time = part.text("timestamp_path", report).map(|(_, path)| path);
        let mut own = Shape { measurement: name, ..Shape::default() };
        match name_path.as_deref() {
            Some("metric") => own.measurement = None,
            _ if own.measurement.is_none() => own.measurement = Some("tail".to_owned()),
            _ => {}
        }
        if time.as_deref() != Some("data.time") {
            let text = "a sample has the time of `data.time`, whatever `timestamp_path` says";
            report.note(part.line, &part.name.clone(), text);
        }
        for mut field in part.sections("field", report) {
            let path = field.text("path", report).map(|(_, path)| path).unwrap_or_default();
            let rename = field.text("rename", report).map(|(_, name)| name);
            let (line, declared) =
                field.text("type", report).unwrap_or((field.line, String::new()));
            let type_place = field.place("type");
            let type_place = Place { line, name: &type_place };
            field.ignore(&["optional"]);
            let last = path.rsplit('.').next().unwrap_or_default().to_owned();
            let name = rename.unwrap_or(last);
            match path.strip_prefix("data.tags.") {
                _ if path == "data.value" => {
                    own.field = name;
                    if !declared.is_empty() {
                        value_is_float(&declared, &type_place, report);
                    }
                }
                Some(tag) if declared.is_empty() => own.fields.push(Named::text(tag, &name)),
                Some(tag) => {
                    let kind = kind(&declared, "string", &type_place, report);
                    own.fields.push(Named { kind, ..Named::text(tag, &name) });
                }
                None => {
                    let text = format!("`{path}` is neither the value nor a tag of k6's samples");
                    report.left_out(field.line, &field.name, text);
                }
            }
            field.finish(report);
        }
        for mut tag in part.sections("tag", report) {
            let path = tag.text("path", report).map(|(_, path)| path).unwrap_or_default();
            let rename = tag.text("rename", report).map(|(_, name)| name);
            tag.ignore(&["optional"]);
            match path.strip_prefix("data.tags.") {
                Some(ours) => own.tags.push(Named::text(ours, &rename.unwrap_or(ours.to_owned()))),
                None if path == "metric" => metric_as_tag(tag.line, &tag.name, report),
                None => {
                    let text = format!("`{path}` is no tag of k6's samples");
                    report.left_out(tag.line, &tag.name, text);
                }
            }
            tag.finish(report);
        }
        let text = "list the paths as `tag` and `field`: which names an object has is known only \
                    when it comes";
        part.refuse(&[("object", text)], report);
        part.ignore(&["timestamp_format", "timestamp_timezone"]);
        if own.field.is_empty() || shape.is_some() {
            return None;
        }
        part.finish(report);
        shape = Some(own);
    }
    shape
}

/// `data_format = "csv"`.
pub(super) fn csv(section: &mut Section, report: &mut Report) -> Option<Shape> {
    let names = section.texts("csv_column_names", report).map(|(_, names)| names);
    let measurement = section.text("csv_measurement_column", report).map(|(_, name)| name);
    let time = section.text("csv_timestamp_column", report);
    let format = section.text("csv_timestamp_format", report);
    let (tags_line, tags) = section.texts("csv_tag_columns", report).unwrap_or_default();
    let delimiter = section.text("csv_delimiter", report).map(|(_, it)| it);
    let names = names.filter(|names| !names.is_empty());
    let own = |at: usize| names.as_ref().and_then(|names| names.get(at)).map(String::as_str);
    let name_of = |at: usize| own(at).unwrap_or(COLUMNS[at]);
    let is_k6 = measurement.as_deref() == Some(name_of(0))
        || time.as_ref().is_some_and(|(_, time)| time == name_of(1)) && names.is_none()
        || names.iter().flatten().any(|name| name == COLUMNS[2]);
    if !is_k6 || delimiter.is_some_and(|it| it != ",") {
        return None;
    }
    let mut shape = Shape { field: name_of(2).to_owned(), ..Shape::default() };
    if measurement.as_deref() != Some(name_of(0)) {
        shape.measurement = Some("tail".to_owned());
    }
    shape.time_format = format.and_then(|(line, format)| {
        let found = time_format(&format);
        if found.is_none() {
            let text = format!("`{format}` is read by `time_format: auto`, which knows k6's");
            report.note(line, &section.place("csv_timestamp_format"), text);
        }
        found
    });
    let columns = names.as_ref().map_or(COLUMNS.len(), Vec::len).min(COLUMNS.len());
    let (types_line, types) = section.texts("csv_column_types", report).unwrap_or_default();
    let types_place = section.place("csv_column_types");
    let types_place = Place { line: types_line, name: &types_place };
    if let Some(declared) = types.get(2) {
        value_is_float(declared, &types_place, report);
    }
    let place = section.place("csv_tag_columns");
    for (at, ours) in COLUMNS.iter().copied().enumerate().take(columns).skip(3) {
        let theirs = name_of(at);
        let is_tag = tags.iter().any(|tag| tag == theirs);
        match ours {
            "extra_tags" if is_tag => {
                let text = "`extra_tags` is no tag as a whole: its tags are tags of their own. \
                            Name those that you need in `tags` of the receiver";
                report.left_out(tags_line, &place, text);
            }
            "extra_tags" | "metadata" => {}
            ours if is_tag => shape.tags.push(Named::text(ours, theirs)),
            ours => {
                let default = match ours {
                    "status" | "error_code" => "int",
                    "expected_response" => "bool",
                    _ => "string",
                };
                let kind = match types.get(at) {
                    Some(declared) => kind(declared, default, &types_place, report),
                    None => default,
                };
                shape.fields.push(Named { kind, ..Named::text(ours, theirs) });
            }
        }
    }
    for tag in &tags {
        if tag == name_of(0) {
            metric_as_tag(tags_line, &place, report);
        } else if !(3..columns).any(|at| name_of(at) == tag) {
            let text = format!("`{tag}` is no column of tags in k6's file");
            report.left_out(tags_line, &place, text);
        }
    }
    section.ignore(&[
        "csv_header_row_count",
        "csv_skip_rows",
        "csv_trim_space",
        "csv_timezone",
        "csv_skip_errors",
        "csv_tag_overwrite",
        "csv_reset_mode",
        "csv_comment",
    ]);
    Some(shape)
}

/// As `time_format` of the receiver has it.
fn time_format(theirs: &str) -> Option<&'static str> {
    match theirs {
        "unix" => Some("unix"),
        "unix_ms" => Some("unix_milli"),
        "unix_us" => Some("unix_micro"),
        "unix_ns" => Some("unix_nano"),
        layout if layout.starts_with("2006-01-02T15:04:05") => Some("rfc3339_nano"),
        _ => None,
    }
}

impl Shape {
    /// Applies filters of tags and fields by Telegraf's names.
    pub(super) fn filter(&mut self, section: &mut Section, report: &mut Report) {
        let mut globs = |key: &str| section.texts(key, report).map(|(_, globs)| Globs(globs));
        let (kept, dropped) = (globs("taginclude"), globs("tagexclude"));
        let stays = |it: &Named, kept: &Option<Globs>, dropped: &Option<Globs>| {
            kept.as_ref().is_none_or(|globs| globs.matches(&it.theirs))
                && !dropped.as_ref().is_some_and(|globs| globs.matches(&it.theirs))
        };
        self.tags.retain(|it| stays(it, &kept, &dropped));
        for (kept, dropped) in [("fieldinclude", "fieldexclude"), ("fieldpass", "fielddrop")] {
            let mut lines = Vec::new();
            let mut globs = |key: &str| {
                let (line, globs) = section.texts(key, report)?;
                lines.push(line);
                Some(Globs(globs))
            };
            let (kept, dropped) = (globs(kept), globs(dropped));
            self.fields.retain(|it| stays(it, &kept, &dropped));
            let value = Named::text("value", &self.field);
            if !stays(&value, &kept, &dropped) {
                let text = "leaves out the value of each sample, which is not possible";
                report.left_out(lines[0], &section.name, text);
            }
        }
    }

    /// A regular expression of what stands behind a measurement in the name of a metric: a field
    /// that is a number and not the value.
    pub(super) fn behind_measurement(&self) -> String {
        let numbers = self.fields.iter().filter(|field| field.is_number());
        let names: Vec<&str> = numbers.map(|field| field.ours.as_str()).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!("(_({}))?", names.join("|")),
        }
    }

    /// Whether a pattern of measurements means this metric: nothing is said of names that are not
    /// known.
    pub(super) fn is_named(&self, globs: &values::Globs) -> Option<bool> {
        self.measurement.as_ref().map(|name| globs.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn section(text: &str) -> Section {
        let mut report = Report::default();
        let mut root = source::read(&format!("[[inputs.tail]]\n{text}")).unwrap();
        let inputs = root.section("inputs", &mut report).unwrap().plugins(&mut report);
        inputs.into_iter().next().unwrap().1
    }

    fn named(list: &[Named]) -> Vec<(&str, &str, &str)> {
        list.iter().map(|it| (it.ours.as_str(), it.theirs.as_str(), it.kind)).collect()
    }

    /// Guarantee: names are those that Telegraf's parser makes of k6's JSON.
    #[test]
    fn json_names_are_paths() {
        let mut report = Report::default();
        let text = "json_name_key = 'metric'\njson_time_key = 'data_time'\njson_time_format = 'x'\n\
                    tag_keys = ['data_tags_method', 'type', 'data_tags_status']\n\
                    json_string_fields = ['data_tags_url', 'data_time', 'data_tags_method']\n";
        let shape = json(&mut section(text), &mut report).unwrap();
        assert!(report.is_whole());
        assert_eq!((shape.field.as_str(), &shape.measurement), ("data_value", &None));
        let tags =
            [("method", "data_tags_method", "string"), ("status", "data_tags_status", "string")];
        assert_eq!(named(&shape.tags), tags);
        assert_eq!(named(&shape.fields), [("url", "data_tags_url", "string")]);
        let text = "json_query = 'data'\njson_time_key = 'time'\ntag_keys = ['tags_method']";
        let shape = json(&mut section(text), &mut report).unwrap();
        assert_eq!(shape.field, "value");
        assert_eq!(shape.measurement.as_deref(), Some("tail"));
        assert!(json(&mut section("tag_keys = ['host']"), &mut report).is_none(), "is not k6's");
        assert!(report.is_whole());
        let text = "json_name_key = 'metric'\ntag_keys = ['metric', 'data_tags_*', 'x']";
        json(&mut section(text), &mut report).unwrap();
        assert_eq!(report.left().len(), 3, "{:?}", report.left());
    }

    /// Guarantee: columns are known by their names, or by their places where the file renames them.
    #[test]
    fn csv_columns_are_tags_and_fields() {
        let mut report = Report::default();
        let text = "csv_header_row_count = 1\ncsv_measurement_column = 'metric_name'\n\
                    csv_timestamp_column = 'timestamp'\ncsv_timestamp_format = 'unix'\n\
                    csv_tag_columns = ['method', 'status', 'error_code']\n";
        let shape = csv(&mut section(text), &mut report).unwrap();
        assert_eq!((shape.field.as_str(), shape.time_format), ("metric_value", Some("unix")));
        let tags: Vec<&str> = shape.tags.iter().map(|it| it.ours.as_str()).collect();
        assert_eq!(tags, ["error_code", "method", "status"]);
        let expected = shape.fields.iter().find(|it| it.ours == "expected_response").unwrap();
        assert_eq!(expected.kind, "bool");
        let text = "csv_column_names = ['m', 't', 'value', 'check', 'error', 'code']\n\
                    csv_measurement_column = 'm'\ncsv_tag_columns = ['code']\n";
        let shape = csv(&mut section(text), &mut report).unwrap();
        assert_eq!(shape.field, "value");
        assert_eq!(named(&shape.tags), [("error_code", "code", "string")]);
        assert_eq!(shape.fields.len(), 2);
        assert!(report.is_whole(), "{:?}", report.left());
        assert!(csv(&mut section("csv_measurement_column = 'x'"), &mut report).is_none());
    }

    #[test]
    fn json_v2_names_are_those_of_paths_or_new_ones() {
        let mut report = Report::default();
        let text = "[[inputs.tail.json_v2]]\nmeasurement_name_path = 'metric'\n\
                    timestamp_path = 'data.time'\n[[inputs.tail.json_v2.field]]\n\
                    path = 'data.value'\ntype = 'float'\n[[inputs.tail.json_v2.tag]]\n\
                    path = 'data.tags.method'\n[[inputs.tail.json_v2.tag]]\n\
                    path = 'data.tags.status'\nrename = 'code'\n";
        let shape = json_v2(&mut section(text), &mut report).unwrap();
        assert!(report.is_whole(), "{:?}", report.left());
        assert_eq!((shape.field.as_str(), &shape.measurement), ("value", &None));
        let tags = [("method", "method", "string"), ("status", "code", "string")];
        assert_eq!(named(&shape.tags), tags);
    }

    /// Guarantee: filters work by the names that Telegraf has.
    #[test]
    fn filters_take_tags_and_fields_away() {
        let mut report = Report::default();
        let text = "json_name_key = 'metric'\ntag_keys = ['data_tags_method', 'data_tags_name']\n\
                    json_string_fields = ['data_tags_url']\ntagexclude = ['*_name']\n\
                    fieldpass = ['data_value']\n";
        let mut section = section(text);
        let mut shape = json(&mut section, &mut report).unwrap();
        shape.filter(&mut section, &mut report);
        assert_eq!(named(&shape.tags), [("method", "data_tags_method", "string")]);
        assert!(shape.fields.is_empty() && report.is_whole());
    }
}
