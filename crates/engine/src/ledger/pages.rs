//! The ledger as JSON, and as text for people.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sluice_flow::{Counts, OTHERS, Tally};

use super::Ledger;
use super::sheet::{Row, Sheet};

const MOVES: &str = "the figures changed while they were read: ask again";

pub(crate) fn json(ledger: &Ledger) -> String {
    let receivers = ledger.received.iter().map(|(receiver, received)| {
        json!({ "receiver": receiver, "received": by_measurement(received) })
    });
    let sheets = ledger.sheets.iter().map(|sheet| of_sheet(sheet, ledger.is_moving));
    let page = json!({
        "receivers": receivers.collect::<Vec<_>>(),
        "deliveries": sheets.collect::<Vec<_>>(),
    });
    format!("{page:#}\n")
}

fn by_measurement(counts: &Counts) -> Value {
    json!({
        "points": counts.total(),
        "measurements": counts.names,
        "other_measurements": counts.others,
    })
}

/// Whether a delivery is balanced, by how much it is not, and why that is not known.
fn verdict(sheet: &Sheet, is_moving: bool) -> (Option<bool>, Option<i64>, Option<&str>) {
    match (&sheet.missing, sheet.is_balanced()) {
        (Err(reason), _) => (None, None, Some(reason)),
        (Ok(missing), Some(false)) if is_moving => (None, Some(*missing), Some(MOVES)),
        (Ok(missing), balanced) => (balanced, Some(*missing), None),
    }
}

fn of_sheet(sheet: &Sheet, is_moving: bool) -> Value {
    let (balanced, missing, reason) = verdict(sheet, is_moving);
    let points = sheet.totals.figures().into_iter();
    let points: serde_json::Map<String, Value> =
        points.map(|(name, _, points)| (name.to_owned(), points.into())).collect();
    let rows = sheet.rows.as_ref().map(|rows| rows.iter().map(of_row).collect::<Vec<_>>());
    json!({
        "pipeline": sheet.id.pipeline,
        "exporter": sheet.id.exporter,
        "balanced": balanced,
        "missing": missing,
        "reason": reason,
        "points": points,
        "found_left": sheet.found_left,
        "measurements": rows,
    })
}

fn of_row(row: &Row) -> Value {
    json!({
        "measurement": row.measurement,
        "received": row.received,
        "aggregated_in": row.aggregated_in,
        "aggregated_out": row.aggregated_out,
        "open": row.open,
        "written": row.written,
        "left_out": row.left_out,
        "dead": row.dead,
        "waiting": row.waiting(),
        "found": {
            "written": row.found_written,
            "left_out": row.found_left_out,
            "dead": row.found_dead,
        },
    })
}

pub(crate) fn text(ledger: &Ledger) -> String {
    if ledger.sheets.is_empty() {
        return "no pipeline carries samples of k6 or InfluxDB\n".to_owned();
    }
    let mut text = String::new();
    for sheet in &ledger.sheets {
        let said = match verdict(sheet, ledger.is_moving) {
            (Some(true), ..) => "balanced".to_owned(),
            (None, _, Some(reason)) => format!("not known whether it is balanced: {reason}"),
            (_, Some(missing), _) if missing > 0 => {
                format!("not balanced: {missing} points are nowhere")
            }
            (_, missing, _) => {
                let more = missing.unwrap_or_default().unsigned_abs();
                format!("not balanced: {more} points more than came")
            }
        };
        let _ = writeln!(text, "{}: {said}", sheet.id);
        let used = sheet.totals.figures().into_iter().filter(|(.., points)| *points > 0);
        let used: Vec<_> = used.map(|(name, _, points)| format!("{name} {points}")).collect();
        let _ = writeln!(text, "  {}", if used.is_empty() { "-".into() } else { used.join(", ") });
        match &sheet.rows {
            None => text.push_str("  its exporter does not count by measurement\n"),
            Some(rows) => table(rows, &mut text),
        }
        if let Some(left @ 1..) = sheet.found_left {
            let _ = writeln!(text, "  {left} points of before the start: measurements not known");
        }
        if sheet.rows.iter().flatten().any(|row| row.measurement == OTHERS) {
            let most = Tally::MOST_NAMES;
            let _ = writeln!(text, "  {OTHERS}: measurements beyond k6's own and the first {most}");
        }
    }
    text
}

const TITLES: [&str; 8] =
    ["measurement", "received", "aggregated in", "out", "written", "left out", "dead", "waiting"];

fn table(rows: &[Row], text: &mut String) {
    let cells = |row: &Row| {
        // Of another program: it must not draw on a terminal.
        let name = row.measurement.replace(|letter: char| letter.is_control(), " ");
        let counts = [row.received, row.aggregated_in, row.aggregated_out];
        let fates = [
            row.written + row.found_written,
            row.left_out + row.found_left_out,
            row.dead + row.found_dead,
        ];
        let counts = counts.into_iter().chain(fates).map(|count| count.to_string());
        let cells = std::iter::once(name).chain(counts);
        cells.chain([row.waiting().to_string()]).collect::<Vec<_>>()
    };
    let titles = TITLES.map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> = std::iter::once(titles).chain(rows.iter().map(cells)).collect();
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    for line in &lines {
        let _ = write!(text, "  {:<width$}", line[0], width = widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::DeliveryId;
    use crate::ledger::sheet::Totals;

    fn sheet(missing: Result<i64, String>) -> Sheet {
        let id = DeliveryId { pipeline: "metrics".into(), exporter: "influxdb".into() };
        let row = |name: &str, received, written| Row {
            measurement: name.to_owned(),
            received,
            written,
            ..Row::default()
        };
        let totals = Totals { found: 5, received: 12, written: 9, waiting: 3, ..Totals::default() };
        let rows = Some(vec![row("http\treqs", 10, 8), row(OTHERS, 2, 1)]);
        Sheet { id, totals, rows, found_left: Some(5), missing }
    }

    fn page(missing: Result<i64, String>, is_moving: bool) -> (Value, String) {
        let received = vec![("influxdb".to_owned(), Counts::default())];
        let ledger = Ledger { received, sheets: vec![sheet(missing)], is_moving };
        (serde_json::from_str(&json(&ledger)).expect("is JSON"), text(&ledger))
    }

    #[test]
    fn a_balance_is_told_in_figures_and_in_words() {
        for (missing, is_moving, balanced, words) in [
            (Ok(0), false, json!(true), "metrics → influxdb: balanced\n"),
            (Ok(0), true, json!(true), "balanced\n"),
            (Ok(3), false, json!(false), "not balanced: 3 points are nowhere"),
            (Ok(-2), false, json!(false), "not balanced: 2 points more than came"),
            (Ok(3), true, Value::Null, MOVES),
            (Err("a filter".to_owned()), false, Value::Null, "not known whether it is balanced: a"),
        ] {
            let (page, text) = page(missing.clone(), is_moving);
            let delivery = &page["deliveries"][0];
            assert_eq!(delivery["balanced"], balanced, "{missing:?} {is_moving}");
            assert_eq!(delivery["missing"], json!(missing.ok()));
            assert_eq!(delivery["measurements"][0]["waiting"], 2);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn the_text_is_a_table_of_measurements() {
        let (_, text) = page(Ok(0), false);
        let expected = "metrics → influxdb: balanced
  found 5, received 12, written 9, waiting 3
  measurement  received  aggregated in  out  written  left out  dead  waiting
  http reqs          10              0    0        8         0     0        2
  #others             2              0    0        1         0     0        1
  5 points of before the start: measurements not known
  #others: measurements beyond k6's own and the first 256
";
        assert_eq!(text, expected);
        let nothing = super::text(&Ledger::default());
        assert!(nothing.starts_with("no pipeline"), "{nothing}");
    }
}
