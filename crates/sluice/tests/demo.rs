//! `sluice demo`, as a new user meets it: short, and with few spans.

use std::collections::BTreeMap;
use std::process::Command;

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

type Row = (String, BTreeMap<String, String>);

/// The table, and its rows by pipeline, each cell by its column.
fn demonstrated(arguments: &[&str]) -> (String, Vec<Row>) {
    let arguments = [&["demo", "--seconds", "3"], arguments].concat();
    let output =
        Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).output().expect("sluice runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let table = String::from_utf8(output.stdout).expect("text");
    let mut lines = table.trim().lines().map(cells);
    let head = lines.next().expect("a head");
    let rows = lines.skip(1).map(|row| {
        let named = head.iter().zip(&row).map(|(name, cell)| (name.to_string(), cell.to_string()));
        (row[0].to_owned(), named.collect())
    });
    (table.clone(), rows.collect())
}

fn number(cell: &str) -> u64 {
    cell.parse().unwrap_or_else(|_| panic!("no number: {cell}"))
}

/// Guarantee: a row for each pipeline. None has lost anything, the living backends have everything,
/// and the dead one's items wait for it.
#[test]
fn the_table_says_that_nothing_is_lost() {
    let (table, rows) = demonstrated(&["--rate", "5000"]);
    let names: Vec<&str> = rows.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["traces/healthy", "traces/refusing", "traces/dead"], "{table}");
    let cells = |row: usize| &rows[row].1;
    assert!(number(&cells(0)["Received"]) > 10_000, "of 15,000 that are offered:\n{table}");
    assert!(rows.iter().all(|(_, cells)| cells["Lost"] == "0"), "{table}");
    for (_, cells) in &rows[..2] {
        assert_eq!((&cells["Exported"], &*cells["Waiting"]), (&cells["Received"], "0"), "{table}");
    }
    let dead = cells(2);
    assert_eq!((&*dead["Exported"], &dead["Waiting"]), ("0", &dead["Received"]), "{table}");
}

/// Guarantee: all backends of an agent have everything in the end, once, also the one that was
/// away.
#[test]
fn agents_lose_and_double_nothing() {
    for (kind, rate, offered) in
        [("--log-agent", "2000", "Lines written"), ("--metric-agent", "20000", "Samples scraped")]
    {
        let (table, rows) = demonstrated(&[kind, "--rate", rate]);
        assert_eq!(rows.len(), 3, "{table}");
        for (_, cells) in &rows {
            assert!(number(&cells[offered]) > 3_000, "{table}");
            assert_eq!(cells["Exported"], cells[offered], "{table}");
            assert_eq!((&*cells["Lost"], &*cells["Doubled"]), ("0", "0"), "{table}");
        }
    }
}
