//! The report as one page that needs nothing but itself: tables as text, plots drawn by the page's own script. Its
//! content security policy forbids every request.

use std::fmt::Write;

use serde_json::{Value, json};

use super::format::utc;
use super::record::{FaultWindow, RunRecord, Target};
use super::table::Table;
use super::tables::{self, subject_label};
use super::words;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// All runs together: the tables of each target, then each run's plots.
pub fn to_html(records: &[RunRecord]) -> String {
    let mut body = String::new();
    let mut plots = Vec::new();
    let targets = tables::by_target(records);
    for (number, (target, runs)) in targets.iter().enumerate() {
        let _ = writeln!(body, "<h2 id=\"target-{number}\">{}</h2>", target.title());
        for table in tables::tables(*target, runs) {
            write_table(&mut body, &table);
        }
        for run in runs.iter().filter(|run| run.is_of_a_run()) {
            write_run(&mut body, &mut plots, run);
        }
    }
    // `<` in a string could end the element.
    let data = Value::Array(plots).to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n<p class=\"lead\">{lead}</p>\n{contents}</header>\n\
         <main>\n{body}</main>\n<script type=\"application/json\" id=\"data\">{data}</script>\n<script>\n{SCRIPT}</script>\n\
         </body>\n</html>\n",
        title = "Telemetry limit test",
        lead = escape(&lead(records)),
        contents = contents(&targets),
    )
}

/// Where the page has several targets, links to them.
fn contents(targets: &[(Target, Vec<&RunRecord>)]) -> String {
    if targets.len() < 2 {
        return String::new();
    }
    let links = targets.iter().enumerate();
    let links = links.map(|(number, (target, _))| format!("<a href=\"#target-{number}\">{}</a>", target.title()));
    format!("<nav aria-label=\"Targets\">{}</nav>\n", links.collect::<String>())
}

fn lead(records: &[RunRecord]) -> String {
    let measured: Vec<&RunRecord> = records.iter().filter(|record| record.is_of_a_run()).collect();
    let runs = if measured.len() == 1 { "1 run".to_owned() } else { format!("{} runs", measured.len()) };
    let first = measured.iter().map(|record| record.started_unix_ms).min();
    let last = measured.iter().map(|record| record.started_unix_ms).max();
    match (first, last) {
        (Some(first), Some(last)) if first != last => format!("{runs}, {} to {}", utc(first), utc(last)),
        (Some(first), _) => format!("{runs}, {}", utc(first)),
        _ => runs,
    }
}

fn write_table(body: &mut String, table: &Table) {
    let title = escape(&table.title);
    let _ = writeln!(
        body,
        "<h3>{title}</h3>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n<table>\n<thead>"
    );
    // The columns that begin a group.
    let mut begins = Vec::new();
    if !table.groups.is_empty() {
        body.push_str("<tr><th></th>");
        let mut column = 1;
        for (group, width) in &table.groups {
            begins.push(column);
            column += width;
            let _ = write!(body, "<th scope=\"colgroup\" colspan=\"{width}\">{group}</th>");
        }
        body.push_str("</tr>\n");
    }
    let looks: Vec<Look> = (0..table.columns.len()).map(|column| Look::of(table, column)).collect();
    let class = |column: usize, is_bad: bool| {
        let names = [
            (begins.contains(&column), "first"),
            (looks[column] != Look::Figures, "text"),
            (looks[column] == Look::Sentences, "long"),
            (is_bad, "bad"),
        ];
        let names: Vec<&str> = names.iter().filter(|(is_so, _)| *is_so).map(|(_, name)| *name).collect();
        if names.is_empty() { String::new() } else { format!(" class=\"{}\"", names.join(" ")) }
    };
    body.push_str("<tr>");
    for (column, name) in table.columns.iter().enumerate() {
        let _ = write!(body, "<th scope=\"col\"{}>{}</th>", class(column, false), escape(name));
    }
    body.push_str("</tr>\n</thead>\n<tbody>\n");
    for row in &table.rows {
        let _ = write!(body, "<tr><th scope=\"row\">{}</th>", escape(&row[0]));
        for (column, cell) in row.iter().enumerate().skip(1) {
            let is_bad = is_loss(&table.columns[column], cell);
            let _ = write!(body, "<td{}>{}</td>", class(column, is_bad), escape(cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody>\n</table>\n</div>\n");
    for note in &table.notes {
        let _ = writeln!(body, "<p class=\"note\">{}</p>", escape(note));
    }
}

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    Figures,
    Names,
    Sentences,
}

impl Look {
    fn of(table: &Table, column: usize) -> Look {
        let cells = || table.rows.iter().map(|row| row[column].as_str());
        let is_name = |cell: &str| cell.chars().next().is_some_and(char::is_alphabetic);
        match (cells().any(is_name), cells().any(|cell| cell.chars().count() > 40)) {
            (true, true) => Look::Sentences,
            (true, false) => Look::Names,
            (false, _) => Look::Figures,
        }
    }
}

/// Items that did not arrive, or more than once.
fn is_loss(column: &str, cell: &str) -> bool {
    matches!(column, "Lost" | "Doubled") && cell.parse().is_ok_and(|items: u64| items > 0)
}

/// What a Prometheus was asked, and what it said: the first turn's.
fn write_queries(body: &mut String, run: &RunRecord) {
    let readings = run.subjects.iter().filter_map(|subject| {
        let reading = subject.turns.iter().find_map(|turn| turn.prometheus.as_ref())?;
        Some((subject_label(subject), reading))
    });
    for (subject, reading) in readings {
        let _ = writeln!(
            body,
            "<details><summary>{}: what {} was asked</summary><ul class=\"about\">",
            escape(&subject),
            escape(&reading.url)
        );
        for query in &reading.queries {
            let value = query.value.map_or_else(|| "no series".to_owned(), |value| value.to_string());
            let _ =
                writeln!(body, "<li>{}: <code>{}</code> = {value}</li>", escape(&query.figure), escape(&query.promql));
        }
        body.push_str("</ul></details>\n");
    }
}

fn write_run(body: &mut String, plots: &mut Vec<Value>, run: &RunRecord) {
    let _ = writeln!(
        body,
        "<section>\n<h3>{}: {}</h3>\n<ul class=\"about\">",
        escape(&run.scenario.name),
        tables::group_title(run)
    );
    for line in words::circumstances(run) {
        let _ = writeln!(body, "<li>{}</li>", escape(&line));
    }
    for (failed, line) in words::verdicts(run) {
        let class = if failed { "failed" } else { "passed" };
        let _ = writeln!(body, "<li class=\"{class}\">{}</li>", escape(&line));
    }
    for line in words::warnings(run) {
        let _ = writeln!(body, "<li class=\"warning\">{}</li>", escape(&line));
    }
    body.push_str("</ul>\n");
    write_queries(body, run);
    let has_samples = run.subjects.iter().flat_map(|subject| &subject.turns).any(|turn| !turn.samples.is_empty());
    if has_samples {
        let id = plots.len();
        plots.push(plot_data(id, run));
        let _ = writeln!(
            body,
            "<div id=\"run-{id}\"><noscript><p class=\"note\">The plots are drawn by this page's script.</p></noscript></div>"
        );
    }
    body.push_str("</section>\n");
}

/// Subjects whose curves there are, the fault windows of all turns, and where the time axis ends.
fn plot_data(id: usize, run: &RunRecord) -> Value {
    let drawn = run.subjects.iter().filter(|subject| subject.turns.iter().any(|turn| !turn.samples.is_empty()));
    let subjects: Vec<Value> = drawn
        .map(|subject| {
            let turns: Vec<Value> = subject.turns.iter().map(|turn| json!(turn.samples)).collect();
            json!({ "name": subject_label(subject), "turns": turns })
        })
        .collect();
    let turns = || run.subjects.iter().flat_map(|subject| &subject.turns);
    let windows = fault_windows(turns().flat_map(|turn| &turn.fault_windows));
    let end_s = turns().flat_map(|turn| &turn.samples).map(|sample| sample.t_s).fold(0.0, f64::max);
    json!({ "id": id, "end_s": end_s, "subjects": subjects, "windows": windows })
}

/// Of all turns: the same fault is one, although loads do not end at the same millisecond.
fn fault_windows<'a>(all: impl Iterator<Item = &'a FaultWindow>) -> Vec<FaultWindow> {
    let mut windows: Vec<FaultWindow> = Vec::new();
    for window in all {
        let same = windows.iter_mut().find(|known| {
            let ends_alike = known.to_s.zip(window.to_s).is_none_or(|(one, other)| (one - other).abs() < 1.0);
            known.label == window.label && known.from_s == window.from_s && ends_alike
        });
        match same {
            Some(known) => known.to_s = known.to_s.zip(window.to_s).map(|(one, other)| one.max(other)),
            None => windows.push(window.clone()),
        }
    }
    windows
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
        // Published figures, what did not run and bytes alone have no curves but the last, whose samples are there.
        assert_eq!(runs.as_array().unwrap().len(), 4);
        let multi = runs.as_array().unwrap().iter().find(|run| run["subjects"][1] != Value::Null).unwrap();
        assert_eq!(multi["subjects"][0]["name"], "sluice 0.1.0");
        assert_eq!(multi["subjects"][1]["turns"][1].as_array().unwrap().len(), 61);
        assert_eq!(multi["windows"], json!([{ "from_s": 20.0, "to_s": 35.0, "label": "70 % 503" }]));
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
