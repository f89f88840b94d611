//! The account of one delivery.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_flow::Counts;

use super::{Fed, Sources};
use crate::delivery::{Account, Counted, Delivery, DeliveryId};

/// Points of a delivery, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Waited when it began.
    pub found: u64,
    pub received: u64,
    /// Taken out by processors that aggregate, and what they gave out for it.
    pub aggregated_in: u64,
    pub aggregated_out: u64,
    /// Of those taken out, points of which nothing was made yet.
    pub open: u64,
    /// Sent again, since all of their frame was.
    pub again: u64,
    pub written: u64,
    /// Cannot be written in the backend's form.
    pub left_out: u64,
    /// Refused by the backend in requests that it took.
    pub refused_in_part: u64,
    pub dead: u64,
    pub dropped: u64,
    pub returned: u64,
    pub lost: u64,
    /// By the log.
    pub waiting: u64,
}

/// The part of a figure in the balance: points that came, or of which it is known where they are.
/// Those `AMONG` another figure have none.
const CAME: i64 = 1;
const GONE: i64 = -1;
const AMONG: i64 = 0;

impl Totals {
    /// All figures by name: what came, what was taken out, what became of the rest.
    pub(super) fn figures(&self) -> [(&'static str, i64, u64); 14] {
        [
            ("found", CAME, self.found),
            ("received", CAME, self.received),
            ("aggregated_in", GONE, self.aggregated_in),
            ("aggregated_out", CAME, self.aggregated_out),
            ("open", AMONG, self.open),
            ("again", CAME, self.again),
            ("written", GONE, self.written),
            ("left_out", GONE, self.left_out),
            ("refused_in_part", GONE, self.refused_in_part),
            ("dead", GONE, self.dead),
            ("dropped", GONE, self.dropped),
            ("returned", GONE, self.returned),
            ("lost", GONE, self.lost),
            ("waiting", GONE, self.waiting),
        ]
    }

    /// Points that came and of which nothing is known; negative if more is known than came.
    fn missing(&self) -> i64 {
        let parts = self.figures().map(|(_, part, points)| part * points.cast_signed());
        parts.iter().sum()
    }
}

/// Points of one measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// [`sluice_flow::OTHERS`] for all that have no row.
    pub measurement: String,
    pub received: u64,
    pub aggregated_in: u64,
    pub aggregated_out: u64,
    pub open: u64,
    pub written: u64,
    pub left_out: u64,
    pub dead: u64,
    /// The same of frames that were found.
    pub found_written: u64,
    pub found_left_out: u64,
    pub found_dead: u64,
}

impl Row {
    /// Points that came since the delivery began, and of which nothing else is known.
    pub(crate) fn waiting(&self) -> i64 {
        let came = self.received + self.aggregated_out;
        let gone = self.aggregated_in + self.written + self.left_out + self.dead;
        came.cast_signed() - gone.cast_signed()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    pub id: DeliveryId,
    pub totals: Totals,
    /// None if the exporter does not count by name.
    pub rows: Option<Vec<Row>>,
    /// Points that were found and have not been resolved, if that is known.
    pub found_left: Option<u64>,
    /// Points that came and of which nothing is known; or why that cannot be said.
    pub missing: Result<i64, String>,
}

impl Sheet {
    pub(super) fn read(fed: &Fed) -> Sheet {
        let delivery = &*fed.delivery;
        let account = &*delivery.account;
        let sources = fed.sources();
        let known = sources.as_ref().ok();
        let mut columns = Columns::of_sources(known);
        let mut totals = of_delivery(delivery);
        if fed.has_names {
            columns.read(account);
            let names = columns.totals();
            // Of the items that were refused in part, the exporter has counted those left out.
            totals.left_out = names.left_out;
            totals.refused_in_part = totals.refused_in_part.saturating_sub(names.left_out);
            totals.written = names.written.saturating_sub(totals.refused_in_part);
            totals.dead = names.dead;
        }
        let of_sources = columns.totals();
        (totals.received, totals.open) = (of_sources.received, of_sources.open);
        (totals.aggregated_in, totals.aggregated_out) =
            (of_sources.aggregated_in, of_sources.aggregated_out);
        let missing = match sources {
            Err(reason) => Err(reason),
            Ok(_) if account.is_fed_anew() => {
                Err("a reload has changed what feeds it: known after a restart".to_owned())
            }
            Ok(_) => Ok(totals.missing()),
        };
        let rows = fed.has_names.then(|| columns.rows());
        let found_left = rows.as_ref().map(|rows| {
            let gone = rows.iter().map(|it| it.found_written + it.found_left_out + it.found_dead);
            account.found_items.saturating_sub(gone.sum())
        });
        Sheet { id: delivery.id.clone(), totals, rows, found_left, missing }
    }

    /// None if it is not known.
    pub(super) fn is_balanced(&self) -> Option<bool> {
        self.missing.as_ref().ok().map(|missing| *missing == 0)
    }
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Counts of the delivery and the log, whatever names items have.
fn of_delivery(delivery: &Delivery) -> Totals {
    let Delivery { stats, account, log, cursor, .. } = delivery;
    Totals {
        found: account.found_items,
        again: read(&account.again),
        written: read(&stats.sent_items),
        refused_in_part: read(&stats.partly_rejected_items),
        dead: read(&account.dead_items),
        dropped: read(&stats.dropped_items),
        returned: read(&stats.returned_items),
        lost: log.lost_total(*cursor).items,
        waiting: account.waiting(log.held(*cursor).items),
        ..Totals::default()
    }
}

/// Counts by name of all that a row has.
#[derive(Default)]
struct Columns {
    received: Counts,
    aggregated_in: Counts,
    aggregated_out: Counts,
    replaced: Counts,
    written: Counts,
    left_out: Counts,
    dead: Counts,
    found_written: Counts,
    found_left_out: Counts,
    found_dead: Counts,
    /// Names of which some items may count under [`sluice_flow::OTHERS`] somewhere.
    folded: BTreeSet<String>,
}

impl Columns {
    fn of_sources(sources: Option<&Sources<'_>>) -> Columns {
        let mut columns = Columns::default();
        let Some(sources) = sources else { return columns };
        let mut parts = Vec::new();
        for inflow in &sources.receivers {
            let received = inflow.counters.received().map(|it| it.read()).unwrap_or_default();
            columns.received.add(&received);
            parts.push(received);
        }
        for aggregated in &sources.aggregated {
            let [taken, replaced, made] =
                [&aggregated.taken, &aggregated.replaced, &aggregated.made].map(|it| it.read());
            columns.aggregated_in.add(&taken);
            columns.replaced.add(&replaced);
            columns.aggregated_out.add(&made);
            parts.extend([taken, replaced, made]);
        }
        columns.fold(&parts);
        columns
    }

    fn read(&mut self, account: &Account) {
        let Counted { written, left_out, dead } = &account.of_now;
        (self.written, self.left_out, self.dead) = (written.read(), left_out.read(), dead.read());
        let Counted { written, left_out, dead } = &account.of_found;
        (self.found_written, self.found_left_out) = (written.read(), left_out.read());
        self.found_dead = dead.read();
        let parts: Vec<Counts> = self.all().into_iter().cloned().collect();
        self.fold(&parts);
    }

    fn all(&self) -> [&Counts; 10] {
        [
            &self.received,
            &self.aggregated_in,
            &self.aggregated_out,
            &self.replaced,
            &self.written,
            &self.left_out,
            &self.dead,
            &self.found_written,
            &self.found_left_out,
            &self.found_dead,
        ]
    }

    /// A name that one part has, and that another may hide among its others, has no row.
    fn fold(&mut self, parts: &[Counts]) {
        let all = self.all();
        let names: BTreeSet<&String> = all.iter().flat_map(|it| it.names.keys()).collect();
        let hidden = names.into_iter().filter(|name| parts.iter().any(|it| it.may_hide(name)));
        let hidden: Vec<String> = hidden.cloned().collect();
        self.folded.extend(hidden);
    }

    fn row(&self, measurement: &str, of: impl Fn(&Counts) -> u64) -> Row {
        let (taken, replaced) = (of(&self.aggregated_in), of(&self.replaced));
        Row {
            measurement: measurement.to_owned(),
            received: of(&self.received),
            aggregated_in: taken,
            aggregated_out: of(&self.aggregated_out),
            open: taken.saturating_sub(replaced),
            written: of(&self.written) + of(&self.found_written),
            left_out: of(&self.left_out) + of(&self.found_left_out),
            dead: of(&self.dead) + of(&self.found_dead),
            found_written: of(&self.found_written),
            found_left_out: of(&self.found_left_out),
            found_dead: of(&self.found_dead),
        }
    }

    fn totals(&self) -> Row {
        self.row("", Counts::total)
    }

    /// By name; last, if there is something of it, that of all that have no row.
    fn rows(&self) -> Vec<Row> {
        let all = self.all();
        let names: BTreeSet<&String> = all.iter().flat_map(|it| it.names.keys()).collect();
        let own = names.into_iter().filter(|name| !self.folded.contains(*name));
        let with_found = |row: Row| Row {
            written: row.written - row.found_written,
            left_out: row.left_out - row.found_left_out,
            dead: row.dead - row.found_dead,
            ..row
        };
        let mut rows: Vec<Row> =
            own.map(|name| with_found(self.row(name, |counts| counts.of(name)))).collect();
        let others = |counts: &Counts| {
            counts.others + self.folded.iter().map(|name| counts.of(name)).sum::<u64>()
        };
        let others = with_found(self.row(sluice_flow::OTHERS, others));
        if others != (Row { measurement: others.measurement.clone(), ..Row::default() }) {
            rows.push(others);
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use sluice_flow::{OTHERS, Tally};

    use super::*;

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        let tally = Tally::default();
        pairs.iter().for_each(|(name, items)| tally.add(name.as_bytes(), *items));
        tally.read()
    }

    /// Guarantee: what is written, refused, dropped, and so on is no difference; a point that is
    /// nowhere is one, and so is a point that is there twice.
    #[test]
    fn each_fate_is_accounted_for() {
        let totals = Totals {
            found: 100,
            received: 1_000,
            aggregated_in: 600,
            aggregated_out: 60,
            open: 50,
            again: 5,
            written: 400,
            left_out: 1,
            refused_in_part: 2,
            dead: 30,
            dropped: 4,
            returned: 8,
            lost: 10,
            waiting: 110,
        };
        assert_eq!(totals.missing(), 0);
        assert_eq!(Totals { waiting: 109, ..totals }.missing(), 1);
        assert_eq!(Totals { written: 401, ..totals }.missing(), -1);
        assert_eq!(Totals { open: 0, ..totals }.missing(), 0, "are among those taken out");
    }

    /// Scenario: frames were found, points were aggregated. Guarantee: a row tells what is left of
    /// what came since the start; the rest of what was found is not mixed into it.
    #[test]
    fn what_was_found_is_told_apart() {
        let columns = Columns {
            received: counts(&[("a", 100), ("b", 10)]),
            aggregated_in: counts(&[("a", 90)]),
            replaced: counts(&[("a", 60)]),
            aggregated_out: counts(&[("a_count", 6)]),
            written: counts(&[("a", 4), ("b", 9), ("a_count", 6)]),
            dead: counts(&[("a", 1)]),
            found_written: counts(&[("a", 1_000), ("c", 7)]),
            ..Columns::default()
        };
        let rows = columns.rows();
        let row = |name: &str| rows.iter().find(|row| row.measurement == name).expect("a row");
        assert_eq!((row("a").waiting(), row("a").open, row("a").found_written), (5, 30, 1_000));
        assert_eq!((row("b").waiting(), row("a_count").waiting()), (1, 0));
        assert_eq!((row("c").waiting(), row("c").written, row("c").found_written), (0, 0, 7));
        assert_eq!(columns.totals().written, 4 + 9 + 6 + 1_007);
        assert!(rows.iter().all(|row| row.measurement != OTHERS));
    }

    /// Scenario: the receiver has counted 300 measurements, the exporter only some, in another
    /// order. Guarantee: those that one of them has no name for are one row, and it balances.
    #[test]
    fn a_measurement_that_is_hidden_somewhere_has_no_row() {
        let (received, written) = (Tally::default(), Tally::default());
        for index in 0..300 {
            received.add(format!("m{index}").as_bytes(), 2);
            written.add(format!("m{}", 299 - index).as_bytes(), 2);
        }
        let mut columns = Columns { received: received.read(), ..Columns::default() };
        columns.written = written.read();
        let parts = [columns.received.clone(), columns.written.clone()];
        columns.fold(&parts);
        let rows = columns.rows();
        assert_eq!(rows.len(), 256 - 44 + 1);
        assert!(rows.iter().all(|row| row.waiting() == 0), "{rows:?}");
        let others = rows.last().expect("a row");
        assert_eq!((others.measurement.as_str(), others.received), (OTHERS, 2 * 88));
    }

    /// Scenario: 10,000 junk measurements come before reserved ones, and are written in another
    /// order; one of the reserved waits. Guarantee: each of these has a row, and the sums of all
    /// rows are right.
    #[test]
    fn reserved_measurements_have_rows_behind_junk() {
        const RESERVED: [&str; 3] = ["checks", "http_reqs", "vus"];
        let (received, written) = (Tally::new(&RESERVED), Tally::new(&RESERVED));
        for index in 0..10_000 {
            received.add(format!("junk{index}").as_bytes(), 2);
            written.add(format!("junk{}", 9_999 - index).as_bytes(), 2);
        }
        RESERVED.iter().for_each(|name| received.add(name.as_bytes(), 5));
        let others = RESERVED.iter().filter(|name| **name != "vus");
        others.for_each(|name| written.add(name.as_bytes(), 5));
        let mut columns = Columns { received: received.read(), ..Columns::default() };
        columns.written = written.read();
        let parts = [columns.received.clone(), columns.written.clone()];
        columns.fold(&parts);
        let rows = columns.rows();
        for name in RESERVED {
            let row = rows.iter().find(|row| row.measurement == name).expect("a row");
            assert_eq!((row.received, row.waiting()), (5, if name == "vus" { 5 } else { 0 }));
        }
        let received: u64 = rows.iter().map(|row| row.received).sum();
        assert_eq!(received, 20_000 + 5 * RESERVED.len() as u64);
        assert_eq!(rows.iter().map(Row::waiting).sum::<i64>(), 5);
    }
}
