//! `sluice demo`, as a new user meets it: short, and with few spans.

use std::process::Command;

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// Guarantee: a row for each pipeline. None has lost anything, the living backends have everything,
/// and the dead one's items wait for it.
#[test]
fn the_table_says_that_nothing_is_lost() {
    let arguments = ["demo", "--seconds", "3", "--rate", "5000"];
    let output =
        Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).output().expect("sluice runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let table = String::from_utf8(output.stdout).expect("text");
    let mut lines = table.trim().lines();
    let head = cells(lines.next().expect("a head"));
    let column = |name| {
        head.iter().position(|cell| *cell == name).unwrap_or_else(|| panic!("{name}:\n{table}"))
    };
    let [received, exported, lost, waiting] =
        ["Received", "Exported", "Lost", "Waiting"].map(column);
    let rows: Vec<_> = lines.skip(1).map(cells).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["traces/healthy", "traces/refusing", "traces/dead"], "{table}");
    assert!(
        rows[0][received].parse::<u64>().expect("a number") > 10_000,
        "of 15,000 that are offered:\n{table}"
    );
    assert!(rows.iter().all(|row| row[lost] == "0"), "{table}");
    for row in &rows[..2] {
        assert_eq!((row[exported], row[waiting]), (row[received], "0"), "{table}");
    }
    assert_eq!((rows[2][exported], rows[2][waiting]), ("0", rows[2][received]), "{table}");
}
