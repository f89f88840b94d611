//! The report as one page that needs nothing but itself: tables as text, plots drawn by the page's
//! own script. Its content security policy forbids every request.

use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};

use super::format::utc;
use super::record::{RunRecord, SubjectRecord};
use super::table::Table;
use super::tables::{self, subject_label};
use super::words;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// All runs together: the tables of each target, then each run's plots.
pub fn to_html(records: &[RunRecord]) -> String {
    let mut plots = Vec::new();
    let targets: Vec<Value> = tables::by_target(records)
        .into_iter()
        .map(|(target, runs)| {
            let tables: Vec<Value> = tables::tables(target, &runs).iter().map(table).collect();
            let runs = runs.into_iter().filter(|run| run.is_of_a_run());
            let runs: Vec<Value> = runs.map(|of| run(of, &mut plots)).collect();
            json!({ "title": target.title(), "tables": tables, "runs": runs })
        })
        .collect();
    let page = json!({
        "style": STYLE, "script": SCRIPT, "lead": lead(records), "targets": targets, "plots": plots
    });
    // The ending of the template's name turns on escaping.
    let page = Environment::new().render_named_str("page.html", PAGE, Serde(page));
    page.expect("the page's template fits its values")
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

/// Each cell is a pair of text and class.
fn table(table: &Table) -> Value {
    let class = |column| class_of(table, column).to_owned();
    let mut classes: Vec<String> = (0..table.columns.len()).map(class).collect();
    let mut begin = 1;
    for (_, width) in &table.groups {
        classes[begin].insert_str(0, "first ");
        begin += width;
    }
    let row = |row: &Vec<String>| {
        let columns = table.columns.iter().zip(&classes);
        let cells = row.iter().zip(columns).map(|(cell, (column, class))| {
            let bad = if is_loss(column, cell) { " bad" } else { "" };
            json!([cell, format!("{class}{bad}")])
        });
        cells.collect::<Vec<_>>()
    };
    let columns: Vec<_> = table.columns.iter().zip(&classes).collect();
    let rows: Vec<_> = table.rows.iter().map(row).collect();
    let Table { title, groups, notes, .. } = table;
    json!({ "title": title, "groups": groups, "columns": columns, "rows": rows, "notes": notes })
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

/// Whether the cell is a count of lost or doubled items above zero.
fn is_loss(column: &str, cell: &str) -> bool {
    matches!(column, "Lost" | "Doubled" | "Missing requests" | "Too many")
        && cell.parse().is_ok_and(|items: u64| items > 0)
}

/// The run's circumstances, its queries to Prometheus, and the index of its plot, if any.
fn run(run: &RunRecord, plots: &mut Vec<Value>) -> Value {
    let mut turns = run.subjects.iter().flat_map(|subject| &subject.turns);
    let plot = turns.any(|turn| !turn.samples.is_empty()).then_some(plots.len());
    plots.extend(plot.map(|id| plot_data(id, run)));
    // The queries of the first turn that has any.
    let queries = run.subjects.iter().filter_map(|subject| {
        let reading = subject.turns.iter().find_map(|turn| turn.prometheus.as_ref())?;
        Some(json!({ "of": subject_label(subject), "url": reading.url, "asked": reading.queries }))
    });
    json!({
        "name": run.scenario.name,
        "group": tables::group_title(run),
        "about": words::about(run),
        "queries": queries.collect::<Vec<_>>(),
        "plot": plot,
    })
}

/// Subjects that have curves, the fault windows, and the end of the time axis in seconds.
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
        // Published figures and a subject that did not run have no curves. The run that counts
        // bytes has samples.
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
