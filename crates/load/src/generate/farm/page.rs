//! A target's page: written once, then its values are patched in place.

use std::io::Write as _;
use std::time::Duration;

use parking_lot::Mutex;

use super::Farm;
use super::accept::Format;
use crate::identity::{Identity, SAMPLE_DIGITS};

const CYCLE_DIGITS: usize = 6;
/// Pages of each format that are kept between scrapes; more than these are made while more scrapes
/// are under way.
const KEPT_PAGES: usize = 8;

/// One page with the places of what varies.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    format: Format,
    bytes: Vec<u8>,
    values_at: Vec<u32>,
    cycles_at: Vec<u32>,
    cycle: u64,
}

impl Page {
    fn build(farm: &Farm, format: Format) -> Page {
        let mut page = Page { format, ..Page::default() };
        let labels: String = (0..farm.labels)
            .map(|label| format!("label_key_kkkkk_{label}=\"label_val_vvvvv_{label}\","))
            .collect();
        for metric in 0..farm.metrics {
            page.push_metric(farm, metric, &labels);
        }
        if format == Format::OpenMetrics {
            page.push(format_args!("# EOF\n"));
        }
        page
    }

    /// Head and series of one metric. OpenMetrics names a counter without the suffix that its
    /// samples have.
    fn push_metric(&mut self, farm: &Farm, metric: u32, labels: &str) {
        let base = format!("avalanche_metric_mmmmm_0_{metric:04}");
        let is_counter = metric < farm.counters;
        let (name, kind) =
            if is_counter { (format!("{base}_total"), "counter") } else { (base.clone(), "gauge") };
        let head = if self.format == Format::OpenMetrics { &base } else { &name };
        self.push(format_args!("# HELP {head} A tasty metric morsel\n# TYPE {head} {kind}\n"));
        for series in 0..farm.series {
            self.push(format_args!("{name}{{cycle_id=\""));
            self.cycles_at.push(self.end());
            self.push(format_args!("{:0CYCLE_DIGITS$}\",{labels}series_id=\"{series}\"}} ", 0));
            self.values_at.push(self.end());
            self.push(format_args!("{:0SAMPLE_DIGITS$}\n", 0));
        }
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        self.bytes.write_fmt(text).expect("a vector takes everything");
    }

    fn end(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("the number of series bounds a page")
    }

    /// The series of this cycle, with identities from `first` on.
    pub(super) fn stamp(&mut self, first: Identity, cycle: u64) {
        for (index, &at) in self.values_at.iter().enumerate() {
            let identity = Identity(first.0 + index as u64);
            put_digits(&mut self.bytes[at as usize..][..SAMPLE_DIGITS], identity.to_sample());
        }
        if cycle != self.cycle {
            let mut digits = [0; CYCLE_DIGITS];
            put_digits(&mut digits, cycle);
            for &at in &self.cycles_at {
                self.bytes[at as usize..][..CYCLE_DIGITS].copy_from_slice(&digits);
            }
            self.cycle = cycle;
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }
}

/// Decimal digits with leading zeros, as many as there is room for.
fn put_digits(out: &mut [u8], mut value: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// The pages of a farm. They are alike but for what is stamped, and shared by all targets.
pub(super) struct Pages {
    farm: Farm,
    idle: [Mutex<Vec<Page>>; Format::ALL.len()],
}

impl Pages {
    pub(super) fn new(farm: &Farm) -> Pages {
        Pages { farm: farm.clone(), idle: Default::default() }
    }

    pub(super) fn take(&self, format: Format) -> Page {
        let idle = self.idle[format as usize].lock().pop();
        idle.unwrap_or_else(|| Page::build(&self.farm, format))
    }

    pub(super) fn put_back(&self, page: Page) {
        let mut idle = self.idle[page.format as usize].lock();
        if idle.len() < KEPT_PAGES {
            idle.push(page);
        }
    }

    /// Which generation of series is shown after this time.
    pub(super) fn cycle(&self, elapsed: Duration) -> u64 {
        let cycles =
            self.farm.churn_every.map_or(0.0, |every| elapsed.as_secs_f64() / every.as_secs_f64());
        cycles as u64 % 10_u64.pow(CYCLE_DIGITS as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(farm: &Farm, format: Format, first: u64, cycle: u64) -> String {
        let mut page = Page::build(farm, format);
        page.stamp(Identity::new(3, first), cycle);
        String::from_utf8(page.bytes().to_vec()).unwrap()
    }

    fn small() -> Farm {
        Farm { metrics: 2, series: 2, counters: 1, labels: 1, ..Farm::default() }
    }

    #[test]
    fn the_plain_format_names_a_counter_with_its_suffix() {
        let value = |sequence| Identity::new(3, sequence).to_sample();
        let total = "avalanche_metric_mmmmm_0_0000_total";
        let label = "label_key_kkkkk_0=\"label_val_vvvvv_0\"";
        let expected = format!(
            "# HELP avalanche_metric_mmmmm_0_0000_total A tasty metric morsel\n\
             # TYPE avalanche_metric_mmmmm_0_0000_total counter\n\
             {total}{{cycle_id=\"000007\",{label},series_id=\"0\"}} {}\n\
             {total}{{cycle_id=\"000007\",{label},series_id=\"1\"}} {}\n\
             # HELP avalanche_metric_mmmmm_0_0001 A tasty metric morsel\n\
             # TYPE avalanche_metric_mmmmm_0_0001 gauge\n\
             avalanche_metric_mmmmm_0_0001{{cycle_id=\"000007\",{label},series_id=\"0\"}} {}\n\
             avalanche_metric_mmmmm_0_0001{{cycle_id=\"000007\",{label},series_id=\"1\"}} {}\n",
            value(100),
            value(101),
            value(102),
            value(103)
        );
        assert_eq!(text(&small(), Format::Text, 100, 7), expected);
    }

    #[test]
    fn open_metrics_names_it_without_and_ends_with_eof() {
        let text = text(&small(), Format::OpenMetrics, 0, 0);
        assert!(text.contains("# TYPE avalanche_metric_mmmmm_0_0000 counter\n"), "{text}");
        assert!(
            text.contains("\navalanche_metric_mmmmm_0_0000_total{cycle_id=\"000000\","),
            "{text}"
        );
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn a_page_that_is_stamped_again_has_nothing_left_of_before() {
        let mut page = Page::build(&small(), Format::Text);
        page.stamp(Identity::new(65_000, (1 << 32) - 4), 999_999);
        page.stamp(Identity::new(3, 5), 1);
        assert_eq!(String::from_utf8(page.bytes).unwrap(), text(&small(), Format::Text, 5, 1));
    }

    #[test]
    fn the_series_are_new_after_each_cycle() {
        let pages = Pages::new(&Farm { churn_every: Some(Duration::from_millis(500)), ..small() });
        let cycles =
            [0, 499, 500, 1_700].map(|elapsed_ms| pages.cycle(Duration::from_millis(elapsed_ms)));
        assert_eq!(cycles, [0, 0, 1, 3]);
        assert_eq!(
            Pages::new(&Farm { churn_every: None, ..small() }).cycle(Duration::from_secs(3600)),
            0
        );
    }

    #[test]
    fn a_series_is_about_as_long_as_avalanches() {
        let farm = Farm { metrics: 10, ..Farm::default() };
        let bytes =
            Page::build(&farm, Format::Text).bytes.len() as f64 / farm.series_per_target() as f64;
        assert!((400.0..550.0).contains(&bytes), "{bytes}");
    }
}
