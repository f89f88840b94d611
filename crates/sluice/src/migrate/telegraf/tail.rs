//! `inputs.tail` of a file that k6 writes: the receiver `k6`.

use serde_json::json;

use super::parts::{Input, InputKind};
use super::shape;
use super::source::Section;
use super::values::{self, Place};
use crate::migrate::report::Report;

const NOT_K6: &str = "the parser's options do not fit a file that k6 writes, and Sluice parses no \
                      metrics from other files: the receiver `filelog` reads them as logs, or keep \
                      Telegraf for it and let its `outputs.influxdb` write to Sluice's receiver \
                      `influxdb`";

const REFUSED: [(&str, &str); 8] = [
    ("multiline", "a sample of k6 is a line"),
    ("filters", "k6 writes no colours into its file"),
    ("name_prefix", NAMES),
    ("name_suffix", NAMES),
    ("namepass", METRICS),
    ("namedrop", METRICS),
    ("tagpass", METRICS),
    ("tagdrop", METRICS),
];
const NAMES: &str =
    "each measurement has the name of its metric, as in k6's own output for InfluxDB";
const METRICS: &str = "samples cannot be left out by their names or tags: all of them are sent";

pub(super) fn read(mut section: Section, report: &mut Report) -> Option<Input> {
    let line = section.line;
    let name = section.name.clone();
    let (files_line, files) = section.texts("files", report).unwrap_or((line, Vec::new()));
    let (format_line, format) =
        section.text("data_format", report).unwrap_or((line, "influx".to_owned()));
    let shape = match format.as_str() {
        "json" => shape::json(&mut section, report),
        "json_v2" => shape::json_v2(&mut section, report),
        "csv" => shape::csv(&mut section, report),
        _ => None,
    };
    let Some(mut shape) = shape else {
        report.left_out(format_line, &section.place("data_format"), NOT_K6);
        return None;
    };
    shape.filter(&mut section, report);
    if section.boolean("pipe", report) == Some(true) {
        let text = "k6 has to write to a file, not to a named pipe: with `delete_after_read` the \
                    file does not grow without end";
        report.left_out(line, &section.place("pipe"), text);
    }
    let mut measurement_line = line;
    if let Some((line, text)) = section.text("name_override", report) {
        measurement_line = line;
        shape.measurement = Some(text);
    }
    if let Some(measurement) = &shape.measurement {
        let text = format!(
            "Telegraf writes all samples to the measurement `{measurement}`; here {NAMES}. Queries \
             have to name the metric as their measurement"
        );
        report.left_out(measurement_line, &name, text);
    }
    let include: Vec<String> = {
        let place = section.place("files");
        let place = Place { line: files_line, name: &place };
        files.iter().map(|file| values::text(file, &place, report)).collect()
    };
    let starts_at_end = starts_at_end(&mut section, report);
    if let Some((line, text)) = section.text("character_encoding", report)
        && text != "utf-8"
    {
        report.left_out(line, &section.place("character_encoding"), "k6 writes UTF-8");
    }
    let mut tags = own_tags(&mut section, report);
    tags.append(&mut shape.constants);
    path_tag(&mut section, &include, &mut tags, report);
    section.refuse(&REFUSED, report);
    section.ignore(&["watch_method", "max_undelivered_lines", "interval", "precision"]);
    section.ignore(&["path_tag"]);
    section.finish(report);
    let mut config = json!({"include": include});
    if starts_at_end {
        config["start_at"] = json!("end");
    }
    if let Some(format) = shape.time_format {
        config["time_format"] = json!(format);
    }
    let kind = InputKind::K6 { config, shape };
    Some(Input { line, name, kind, tags, extensions: Vec::new() })
}

/// The plugin's own tags.
pub(super) fn own_tags(section: &mut Section, report: &mut Report) -> Vec<(String, String)> {
    let mut tags = Vec::new();
    for (line, key, text) in section.pairs("tags", report) {
        let place = section.place(&format!("tags.{key}"));
        let value = values::text(&text, &Place { line, name: &place }, report);
        tags.push((key, value));
    }
    tags
}

fn starts_at_end(section: &mut Section, report: &mut Report) -> bool {
    let from_beginning = section.boolean("from_beginning", report);
    match section.text("initial_read_offset", report) {
        None => from_beginning != Some(true),
        Some((line, text)) => {
            if text.starts_with("saved") {
                let text = "with `buffer.directory` or `storage` the place in a file is kept over \
                            a restart";
                report.note(line, &section.place("initial_read_offset"), text);
            }
            !text.ends_with("beginning")
        }
    }
}

/// Telegraf says in a tag which file a metric came from.
fn path_tag(
    section: &mut Section,
    files: &[String],
    tags: &mut Vec<(String, String)>,
    report: &mut Report,
) {
    let (line, tag) = match section.take("path_tag") {
        Some((_, super::source::Value::Text(tag))) if tag.is_empty() => return,
        Some((line, super::source::Value::Text(tag))) => (line, tag),
        _ => (section.line, "path".to_owned()),
    };
    match files {
        [file] if !file.replace("${", "").contains(['*', '?', '[', '{']) => {
            tags.push((tag, file.clone()));
        }
        _ => {
            let text = format!("the tag `{tag}`, which names the file, is left out");
            report.left_out(line, &section.place("path_tag"), text);
        }
    }
}
