//! The report as Markdown, in the layout of the Kyma load test's tables.

use std::fmt::Write;

use super::record::RunRecord;
use super::table::{Table, escape};
use super::tables;
use super::words;

/// All runs together: a heading for each target, a row for each version.
pub fn to_markdown(records: &[RunRecord]) -> String {
    text_of(records, Table::to_string)
}

/// The same for a terminal of this many columns, on which wide tables are turned.
pub fn to_text(records: &[RunRecord], width: usize) -> String {
    text_of(records, |table| table.within(width))
}

fn text_of(records: &[RunRecord], table_of: impl Fn(&Table) -> String) -> String {
    let mut text = String::new();
    for (target, runs) in tables::by_target(records) {
        let _ = writeln!(text, "## {}\n", target.title());
        for table in tables::tables(target, &runs) {
            let _ = write!(text, "### {}\n\n{}\n", table.title, table_of(&table));
        }
        for run in runs.into_iter().filter(|run| run.is_of_a_run()) {
            let (name, group) = (escape(&run.scenario.name), tables::group_title(run));
            let _ = writeln!(text, "### {name}: {group}\n");
            for (_, line) in words::about(run) {
                let _ = writeln!(text, "- {}", escape(&line));
            }
            text.push('\n');
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{self, golden};
    use super::super::record::SubjectRecord;
    use super::*;

    #[test]
    fn one_run_is_told_in_full() {
        golden("single.md", &to_markdown(&[fixtures::single()]));
    }

    #[test]
    fn several_versions_and_subjects_share_tables() {
        golden("merged.md", &to_markdown(&fixtures::merged()));
    }

    #[test]
    fn every_row_has_as_many_cells_as_the_head_and_no_run_is_left_out() {
        let records = fixtures::merged();
        let text = to_markdown(&records);
        let mut width = None;
        for line in text.lines() {
            let bars = line.replace("\\|", "").matches('|').count();
            width = if bars == 0 { None } else { Some(width.unwrap_or(bars)) };
            assert!(width.is_none_or(|width| width == bars), "{line}");
        }
        let measured = |subject: &&SubjectRecord| subject.measured_elsewhere.is_none();
        let runs: usize =
            records.iter().map(|record| record.subjects.iter().filter(measured).count()).sum();
        // Each target's second table has a line for each subject of a run, and head and rule.
        let told = text.split("### Integrity, latency and cost").skip(1).map(|rest| {
            rest.trim_start().lines().take_while(|line| line.starts_with('|')).count() - 2
        });
        assert_eq!(told.sum::<usize>(), runs, "{text}");
    }

    #[test]
    fn a_name_cannot_break_the_table() {
        let mut record = fixtures::single();
        record.scenario.name = "a|b\n<script>".to_owned();
        let text = to_markdown(&[record]);
        assert!(text.contains("a\\|b &lt;script>") && !text.contains("<script"), "{text}");
    }

    #[test]
    fn nothing_ran_is_no_panic() {
        assert_eq!(to_markdown(&[]), "\n");
    }
}
