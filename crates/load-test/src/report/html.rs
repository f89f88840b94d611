//! The report as one page that needs nothing but itself: tables as text, plots drawn by the page's
//! own script. Its content security policy forbids every request.

use std::fmt::Write;

use serde_json::{Value, json};

use super::format::utc;
use super::record::{RunRecord, SubjectRecord, Target};
use super::table::Table;
use super::tables::{self, subject_label};
use super::words;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// All runs together: the tables of each target, then each run's plots.
pub fn to_html(records: &[RunRecord]) -> String {
    let (mut body, mut plots) = (String::new(), Vec::new());
    let targets = tables::by_target(records);
    for (number, (target, runs)) in targets.iter().enumerate() {
        body += &format!("<h2 id=\"target-{number}\">{}</h2>\n", target.title());
        for table in tables::tables(*target, runs) {
            write_table(&mut body, &table);
        }
        for run in runs.iter().filter(|run| run.is_of_a_run()) {
            write_run(&mut body, &mut plots, run);
        }
    }
    // `<` in a string could end the element.
    let data = Value::Array(plots).to_string().replace('<', "\\u003c");
    let parts = [
        ("STYLE", STYLE),
        ("SCRIPT", SCRIPT),
        ("LEAD", &escape(&lead(records))),
        ("CONTENTS", &contents(&targets)),
        ("DATA", &data),
        ("BODY", &body),
    ];
    // Only the page's own text has marks: what has been put in is passed by.
    let mut pieces = PAGE.split("@@");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    while let (Some(mark), Some(text)) = (pieces.next(), pieces.next()) {
        page += parts.iter().find(|(name, _)| *name == mark).map_or("", |(_, part)| part);
        page += text;
    }
    page
}

/// Where the page has several targets, links to them.
fn contents(targets: &[(Target, Vec<&RunRecord>)]) -> String {
    if targets.len() < 2 {
        return String::new();
    }
    let links = targets.iter().enumerate().map(|(number, (target, _))| {
        format!("<a href=\"#target-{number}\">{}</a>", target.title())
    });
    format!("<nav aria-label=\"Targets\">{}</nav>\n", links.collect::<String>())
}

fn lead(records: &[RunRecord]) -> String {
    let started = records.iter().filter(|record| record.is_of_a_run());
    let started: Vec<u64> = started.map(|record| record.started_unix_ms).collect();
    let runs = if started.len() == 1 { "1 run" } else { &format!("{} runs", started.len()) };
    match (started.iter().min(), started.iter().max()) {
        (Some(first), Some(last)) if first != last => {
            format!("{runs}, {} to {}", utc(*first), utc(*last))
        }
        (Some(first), _) => format!("{runs}, {}", utc(*first)),
        _ => runs.to_owned(),
    }
}

fn write_table(body: &mut String, table: &Table) {
    let title = escape(&table.title);
    let _ = writeln!(
        body,
        "<h3>{title}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{title}\">\n<table>\n<thead>"
    );
    // The columns that begin a group.
    let (mut begins, mut heads, mut column) = (Vec::new(), String::new(), 1);
    for (group, width) in &table.groups {
        begins.push(column);
        column += width;
        heads += &format!("<th scope=\"colgroup\" colspan=\"{width}\">{group}</th>");
    }
    if !heads.is_empty() {
        *body += &format!("<tr><th></th>{heads}</tr>\n");
    }
    let classes: Vec<&str> =
        (0..table.columns.len()).map(|column| class_of(table, column)).collect();
    let class = |column: usize, more: &str| {
        let first = if begins.contains(&column) { "first" } else { "" };
        let names = [first, classes[column], more];
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        if names.is_empty() { String::new() } else { format!(" class=\"{}\"", names.join(" ")) }
    };
    *body += "<tr>";
    for (column, name) in table.columns.iter().enumerate() {
        *body += &format!("<th scope=\"col\"{}>{}</th>", class(column, ""), escape(name));
    }
    *body += "</tr>\n</thead>\n<tbody>\n";
    for row in &table.rows {
        *body += &format!("<tr><th scope=\"row\">{}</th>", escape(&row[0]));
        for (column, cell) in row.iter().enumerate().skip(1) {
            let bad = if is_loss(&table.columns[column], cell) { "bad" } else { "" };
            *body += &format!("<td{}>{}</td>", class(column, bad), escape(cell));
        }
        *body += "</tr>\n";
    }
    *body += "</tbody>\n</table>\n</div>\n";
    for note in &table.notes {
        *body += &format!("<p class=\"note\">{}</p>\n", escape(note));
    }
}

/// The class of a column: figures have none, names and sentences are text.
fn class_of(table: &Table, column: usize) -> &'static str {
    let cells = || table.rows.iter().map(|row| row[column].as_str());
    let is_name = |cell: &str| cell.chars().next().is_some_and(char::is_alphabetic);
    match (cells().any(is_name), cells().any(|cell| cell.chars().count() > 40)) {
        (true, true) => "text long",
        (true, false) => "text",
        (false, _) => "",
    }
}

/// Items that did not arrive, or more than once.
fn is_loss(column: &str, cell: &str) -> bool {
    matches!(column, "Lost" | "Doubled") && cell.parse().is_ok_and(|items: u64| items > 0)
}

/// What a Prometheus was asked, and what it said: the first turn's.
fn write_queries(body: &mut String, run: &RunRecord) {
    for subject in &run.subjects {
        let reading = subject.turns.iter().find_map(|turn| turn.prometheus.as_ref());
        let Some(reading) = reading else { continue };
        let (label, url) = (escape(&subject_label(subject)), escape(&reading.url));
        *body += &format!("<details><summary>{label}: what {url} was asked</summary>");
        *body += "<ul class=\"about\">\n";
        for query in &reading.queries {
            let value = query.value.map_or("no series".to_owned(), |value| value.to_string());
            let (figure, promql) = (escape(&query.figure), escape(&query.promql));
            *body += &format!("<li>{figure}: <code>{promql}</code> = {value}</li>\n");
        }
        *body += "</ul></details>\n";
    }
}

fn write_run(body: &mut String, plots: &mut Vec<Value>, run: &RunRecord) {
    let (name, group) = (escape(&run.scenario.name), tables::group_title(run));
    *body += &format!("<section>\n<h3>{name}: {group}</h3>\n<ul class=\"about\">\n");
    for (class, line) in words::about(run) {
        let class = class.map_or(String::new(), |class| format!(" class=\"{class}\""));
        *body += &format!("<li{class}>{}</li>\n", escape(&line));
    }
    *body += "</ul>\n";
    write_queries(body, run);
    let mut turns = run.subjects.iter().flat_map(|subject| &subject.turns);
    if turns.any(|turn| !turn.samples.is_empty()) {
        let id = plots.len();
        plots.push(plot_data(id, run));
        let _ = writeln!(
            body,
            "<div id=\"run-{id}\"><noscript><p class=\"note\">The plots are drawn by this page's \
             script.</p></noscript></div>"
        );
    }
    *body += "</section>\n";
}

/// Subjects whose curves there are, the fault windows, and where the time axis ends.
fn plot_data(id: usize, run: &RunRecord) -> Value {
    let is_drawn =
        |subject: &&SubjectRecord| subject.turns.iter().any(|turn| !turn.samples.is_empty());
    let curves = |subject: &SubjectRecord| {
        let turns: Vec<_> = subject.turns.iter().map(|turn| &turn.samples).collect();
        json!({ "name": subject_label(subject), "turns": turns })
    };
    let subjects: Vec<Value> = run.subjects.iter().filter(is_drawn).map(curves).collect();
    // All turns have the same faults, as far as they got.
    let turns = run.subjects.iter().flat_map(|subject| &subject.turns);
    let ends = turns.filter_map(|turn| Some((turn.samples.last()?.t_s, &turn.fault_windows)));
    let (end_s, windows) = ends.max_by(|(one, _), (other, _)| one.total_cmp(other)).unzip();
    json!({ "id": id, "end_s": end_s, "subjects": subjects, "windows": windows })
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    /// The data that the page's script reads.
    fn data(page: &str) -> Value {
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
    }

    #[test]
    fn the_page_has_every_sample_and_fault_window_once() {
        let records = fixtures::merged();
        let runs = data(&to_html(&records));
        // Published figures, what did not run and bytes alone have no curves but the last, whose
        // samples are there.
        assert_eq!(runs.as_array().unwrap().len(), 4);
        let multi =
            runs.as_array().unwrap().iter().find(|run| run["subjects"][1] != Value::Null).unwrap();
        assert_eq!(multi["subjects"][0]["name"], "sluice 0.1.0");
        assert_eq!(multi["subjects"][1]["turns"][1].as_array().unwrap().len(), 61);
        assert_eq!(
            multi["windows"],
            json!([{ "from_s": 20.0, "to_s": 35.0, "label": "70 % 503" }])
        );
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let mut record = fixtures::single();
        let name = "</script><img src=x onerror=alert(1)>\"";
        record.scenario.name = name.to_owned();
        record.subjects[0].name = name.to_owned();
        let page = to_html(&[record]);
        assert!(!page.contains("<img") && page.matches("</script>").count() == 2, "{page}");
        assert_eq!(data(&page)[0]["subjects"][0]["name"], format!("{name} 0.1.0"));
    }

    #[test]
    fn the_page_names_no_address() {
        let page = to_html(&fixtures::merged());
        let without_namespace = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!without_namespace.contains("http://") && !without_namespace.contains("https://"));
        assert!(page.contains("default-src 'none'"));
    }
}
