//! `filter` drops records.

use sluice_config::Fields;

use crate::expression::Expression;
use crate::operator::{Refused, Stage};
use crate::read;
use crate::record::Record;

#[derive(Clone)]
struct Filter {
    expression: Expression,
    /// Of a thousand records that match, as the Collector counts.
    dropped_permille: u16,
    random: Random,
}

/// Numbers below a thousand.
type Random = fn() -> u16;

pub(super) fn read(fields: &mut Fields<'_>) -> Option<Box<dyn Stage>> {
    let doc = "Records for which it holds are dropped. `on_error` decides what happens to a \
               record for which it cannot be evaluated.";
    let expression = read::required_condition(fields, "expr", doc);
    let doc = "The share of these records that is dropped, chosen at random.";
    let ratio = fields.optional_float("drop_ratio", 1.0, 0.0..=1.0, doc).unwrap_or(1.0);
    let random: Random = || fastrand::u16(0..1000);
    let dropped_permille = (ratio * 1000.0) as u16;
    Some(Box::new(Filter { expression: expression?, dropped_permille, random }))
}

impl Stage for Filter {
    fn take(&mut self, record: Record, out: &mut Vec<(usize, Record)>) -> Result<(), Refused> {
        match self.expression.holds(&record) {
            Ok(true) if (self.random)() < self.dropped_permille => {}
            Ok(_) => out.push((0, record)),
            Err(reason) => return Err(Box::new((record, reason))),
        }
        Ok(())
    }
}
