//! The memory that a target takes between two scrapes, counted by the allocator: for this thread
//! alone, because other tests of this process allocate as well.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;

use sluice_scrape::{Format, Report, Scraper};
use support::{START_MS, take, target};

thread_local! {
    /// Bytes that this thread allocated less those that it freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The size of a block with its header, as glibc's allocator rounds it.
fn block_bytes(layout: Layout) -> isize {
    (layout.size().max(24) + 8).next_multiple_of(16).cast_signed()
}

// SAFETY: the system's allocator does all of it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + block_bytes(layout));
        // SAFETY: as the caller assures.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - block_bytes(layout));
        // SAFETY: as the caller assures.
        unsafe { System.dealloc(block, layout) }
    }
}

const SERIES: usize = 10_000;

/// Ten labels of each series are those of many, as on most pages, or of this one alone.
fn page(unique: bool) -> String {
    let mut page = String::new();
    for series in 0..SERIES {
        let (metric, own) = (series / 10, if unique { series } else { 0 });
        let _ = write!(page, "avalanche_metric_mmmmm_0_{metric:04}{{series_id=\"{series}\"");
        for label in 0..10 {
            let _ = write!(page, ",label_key_kkkkk_{label}=\"label_val_vvvvv_{label}_{own:05}\"");
        }
        let _ = writeln!(page, "}} {series}");
    }
    page
}

/// Bytes a series: as counted, and as the scraper says.
fn bytes_per_series(unique: bool) -> (usize, usize) {
    let page = page(unique);
    let before = LIVE.get();
    let mut scraper = Scraper::new(target());
    for _ in 0..2 {
        let outcome = take(&mut scraper, page.as_bytes(), Format::Text, START_MS);
        let request = scraper.finish(&Report { counts: outcome.counts, ..Report::default() });
        assert_eq!(request.items as usize, SERIES + 5);
    }
    let counted = (LIVE.get() - before).cast_unsigned();
    (counted / SERIES, scraper.memory() / SERIES)
}

/// Guarantee: a series takes less memory than its bytes on the page, of which it has about 500, and
/// `memory` is near the truth.
#[test]
fn a_series_takes_less_than_its_bytes_on_the_page() {
    for (unique, most) in [(false, 400), (true, 1_600)] {
        let (counted, said) = bytes_per_series(unique);
        println!("unique labels {unique}: {counted} bytes a series, said to be {said}");
        assert!((150..=most).contains(&counted), "a series takes {counted} bytes");
        let is_near = said * 2 > counted && said < counted * 2;
        assert!(is_near, "{counted} bytes, said to be {said}");
    }
}
