//! Figures as people read them.

use sluice_otlp::civil_time;

use super::record::{Kpis, SubjectRecord, Turn};

/// Median and range of the turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// `None` without values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        // The value in the middle, or the mean of the two.
        let median = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        Some(Spread { median, min, max })
    }
}

/// Stands for an unknown value.
pub const DASH: &str = "–";

pub const MEBIBYTE: f64 = (1 << 20) as f64;
pub(super) const KIBIBYTE: f64 = 1024.0;

pub(crate) fn megabytes(bytes: Option<f64>) -> Option<f64> {
    bytes.map(|bytes| bytes / MEBIBYTE)
}

pub(crate) fn whole(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

impl SubjectRecord {
    /// The spread of a figure over all turns that know it.
    pub fn spread(&self, kpi: impl Fn(&Kpis) -> Option<f64>) -> Option<Spread> {
        Spread::of(
            self.turns.iter().filter_map(|turn| kpi(&turn.kpis)).filter(|value| value.is_finite()),
        )
    }

    /// The sum over all turns; `None` if one turn does not know its part.
    pub fn total(&self, kpi: impl Fn(&Kpis) -> Option<u64>) -> Option<u64> {
        if self.turns.is_empty() {
            return None;
        }
        self.turns.iter().map(|turn| kpi(&turn.kpis)).sum()
    }

    /// Ratio of this subject's figure to the other's, turn by turn: both ran within minutes.
    pub fn ratio(&self, to: &SubjectRecord, kpi: impl Fn(&Kpis) -> Option<f64>) -> Option<Spread> {
        let partner = |own: &Turn| to.turns.iter().find(|other| other.number == own.number);
        let pairs = self.turns.iter().filter_map(|own| Some((own, partner(own)?)));
        let ratios = pairs.filter_map(|(own, other)| Some(kpi(&own.kpis)? / kpi(&other.kpis)?));
        Spread::of(ratios.filter(|ratio| ratio.is_finite()))
    }
}

/// The median, with the range if its ends differ at this number of decimals.
pub(crate) fn spread(spread: Option<Spread>, decimals: usize) -> String {
    let Some(spread) = spread else { return DASH.to_owned() };
    let text = |value: f64| format!("{value:.decimals$}");
    let (min, max) = (text(spread.min), text(spread.max));
    if min == max {
        text(spread.median)
    } else {
        format!("{} ({min}–{max})", text(spread.median))
    }
}

pub(crate) fn count(value: Option<u64>) -> String {
    value.map_or_else(|| DASH.to_owned(), |value| value.to_string())
}

/// The value with this many decimals, or a dash.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| DASH.to_owned(), |value| format!("{value:.decimals$}"))
}

/// `2026-01-31 12:00 UTC`.
pub(super) fn utc(unix_ms: u64) -> String {
    let time = civil_time((unix_ms / 1000).cast_signed()).replace('T', " ");
    format!("{} UTC", &time[.."2026-01-31 12:00".len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(lost: &[Option<u64>], rates: &[Option<f64>]) -> SubjectRecord {
        let kpis = lost.iter().zip(rates).map(|(&lost, &received_per_s)| Kpis {
            lost,
            received_per_s,
            ..Kpis::default()
        });
        let turns = kpis
            .enumerate()
            .map(|(index, kpis)| Turn { number: index + 1, kpis, ..Turn::default() })
            .collect();
        SubjectRecord { name: "x".to_owned(), turns, ..SubjectRecord::default() }
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown_and_a_median_is_of_what_is_known() {
        let subject = subject(&[Some(0), Some(5), None], &[Some(10.0), None, Some(30.0)]);
        assert_eq!(subject.total(|kpis| kpis.lost), None);
        assert_eq!(spread(subject.spread(|kpis| kpis.received_per_s), 0), "20 (10–30)");
        assert_eq!(
            SubjectRecord::default().total(|kpis| kpis.lost),
            None,
            "nothing ran: nothing is known"
        );
    }

    #[test]
    fn ratios_are_of_turns_that_ran_side_by_side() {
        let own = subject(&[None; 3], &[Some(10.0), Some(40.0), None]);
        let other = subject(&[None; 3], &[Some(5.0), Some(10.0), Some(1.0)]);
        assert_eq!(spread(own.ratio(&other, |kpis| kpis.received_per_s), 1), "3.0 (2.0–4.0)");
        let mut failed_once = other.clone();
        failed_once.turns.remove(0);
        assert_eq!(
            spread(own.ratio(&failed_once, |kpis| kpis.received_per_s), 1),
            "4.0",
            "the second with the second"
        );
        let zero = subject(&[None], &[Some(0.0)]);
        assert_eq!(spread(own.ratio(&zero, |kpis| kpis.received_per_s), 1), DASH);
    }

    #[test]
    fn times_are_told_in_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_772_323_199_999), "2026-02-28 23:59 UTC");
        assert_eq!(utc(1_772_323_200_000), "2026-03-01 00:00 UTC");
    }
}
