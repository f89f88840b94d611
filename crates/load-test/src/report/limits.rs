//! The result of a search for the highest rate, as a table.

use super::format::{DASH, number};
use super::record::{FoundLimit, RunRecord, SubjectRecord};
use super::table::Table;
use super::tables::{group_title, subject_label};

const NOTE: &str = "A rate is held if nothing is lost or refused, all requests are sent in time, \
                    and no backlog grows. It fails if it is not held in two tries. The limit lies \
                    between the highest rate that was held in all its tries and the lowest that \
                    failed.";

/// A subject's search in a run.
type Searched<'a> = (&'a RunRecord, &'a SubjectRecord, &'a FoundLimit);
type Column = (&'static str, fn(&Searched<'_>) -> String);

const COLUMNS: [Column; 9] = [
    ("Version/Test", |(record, ..)| record.scenario.name.clone()),
    ("Scenario", |(record, ..)| group_title(record).to_owned()),
    ("Subject", |(_, subject, _)| subject_label(subject)),
    ("Held items/sec", |(.., limit)| number(limit.rate_per_s, 0)),
    ("Tries that held", |(.., limit)| format!("{} of {}", limit.held, limit.tries_at_rate)),
    ("The limit lies", |(.., limit)| between(limit)),
    ("To the first", |(record, subject, _)| {
        let first = record.subjects.first().and_then(rate);
        number(first.zip(rate(subject)).map(|(first, own)| own / first), 2)
    }),
    ("Tries", |(.., limit)| limit.tries.len().to_string()),
    ("Why not more", |(.., limit)| why_not_more(limit)),
];

/// `None`: no record is of a search.
pub(super) fn limits(records: &[&RunRecord]) -> Option<Table> {
    let rows = records.iter().flat_map(|&record| {
        record.subjects.iter().filter_map(move |one| Some((record, one, one.limit.as_ref()?)))
    });
    Table::of("Limits", &COLUMNS, rows).with_note(NOTE).unless_empty()
}

fn rate(subject: &SubjectRecord) -> Option<f64> {
    subject.limit.as_ref()?.rate_per_s
}

fn between(limit: &FoundLimit) -> String {
    match (limit.held_always_per_s, limit.failed_per_s) {
        _ if limit.bench_was_limit => limit.rate_per_s.map_or_else(
            || DASH.to_owned(),
            |rate| format!("at {rate:.0} or above: the bench was the limit"),
        ),
        (Some(held), Some(failed)) => format!("between {held:.0} and {failed:.0}"),
        (Some(held), None) => format!("at {held:.0} or above"),
        (None, Some(failed)) => format!("below {failed:.0}"),
        (None, None) => DASH.to_owned(),
    }
}

/// Why the lowest failed rate was not held, and why the search ended early, if it did.
fn why_not_more(limit: &FoundLimit) -> String {
    let has_failed = |rate_per_s| Some(rate_per_s) == limit.failed_per_s;
    let failing = limit.tries.iter().rfind(|tried| !tried.held && has_failed(tried.rate_per_s));
    let reason = failing.and_then(|tried| tried.reason.clone());
    let early = limit.ended_early.as_ref().map(|why| format!("the search ended early: {why}"));
    let told: Vec<String> = [reason, early].into_iter().flatten().collect();
    if told.is_empty() { DASH.to_owned() } else { told.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::super::record::LimitTry;
    use super::super::{fixtures, to_csv, to_html, to_markdown};
    use super::*;

    fn found() -> FoundLimit {
        let tried = |rate_per_s, reason: Option<&str>| LimitTry {
            rate_per_s,
            held: reason.is_none(),
            reason: reason.map(str::to_owned),
            bench_was_busy: false,
        };
        FoundLimit {
            rate_per_s: Some(10_000.0),
            held: 3,
            tries_at_rate: 4,
            try_s: 10.0,
            held_always_per_s: Some(9_600.0),
            failed_per_s: Some(10_400.0),
            tries: vec![
                tried(9_600.0, None),
                tried(10_400.0, Some("512 items lost")),
                tried(10_400.0, Some("3.1 % of the requests sent late or never")),
                tried(10_000.0, None),
            ],
            ..FoundLimit::default()
        }
    }

    fn row(limit: FoundLimit) -> Vec<String> {
        let mut record = fixtures::multi();
        record.subjects[1].limit = Some(limit);
        limits(&[&record]).unwrap().rows.remove(0)
    }

    #[test]
    fn the_interval_and_its_confidence_are_told() {
        let row = row(found());
        assert_eq!(&row[2..6], ["otelcol 0.160.0", "10000", "3 of 4", "between 9600 and 10400"]);
        assert_eq!(
            &row[6..],
            [DASH, "4", "3.1 % of the requests sent late or never"],
            "the first has none to compare with"
        );
    }

    #[test]
    fn what_the_search_could_not_tell_is_told_too() {
        let at_bench = row(FoundLimit { bench_was_limit: true, ..found() });
        assert_eq!(at_bench[5], "at 10000 or above: the bench was the limit");
        let nothing_failed = row(FoundLimit {
            failed_per_s: None,
            ended_early: Some("interrupted".to_owned()),
            ..found()
        });
        assert_eq!(nothing_failed[5], "at 9600 or above");
        assert_eq!(nothing_failed[8], "the search ended early: interrupted");
        let nothing_held = row(FoundLimit { rate_per_s: None, held_always_per_s: None, ..found() });
        assert_eq!((nothing_held[3].as_str(), nothing_held[5].as_str()), (DASH, "below 10400"));
    }

    #[test]
    fn every_report_has_it_and_subjects_are_compared() {
        let mut record = fixtures::multi();
        assert!(limits(&[&record]).is_none());
        record.subjects[0].limit = Some(FoundLimit { rate_per_s: Some(40_000.0), ..found() });
        record.subjects[1].limit = Some(found());
        let records = [record];
        let markdown = to_markdown(&records);
        assert!(
            markdown.contains("### Limits") && markdown.contains("between 9600 and 10400"),
            "{markdown}"
        );
        assert!(to_html(&records).contains("<h3>Limits</h3>"));
        let csv = to_csv(&records);
        assert!(csv.lines().nth(1).unwrap().ends_with(",40000,9600,10400"), "{csv}");
        assert_eq!(limits(&[&records[0]]).unwrap().rows[1][6], "0.25");
    }
}
