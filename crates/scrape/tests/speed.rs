//! The cost of scrapes, in CPU time. Ignored: it measures.

mod support;

use sluice_scrape::{Format, Report, Scraper};
use std::fmt::Write as _;
use support::{START_MS, take, target};

const SERIES: usize = 10_000;
const SERIES_BYTES: usize = 490;
const SCRAPES: u32 = 20;

fn page(scrape: u32, shuffled: bool) -> String {
    let mut random = fastrand::Rng::with_seed(u64::from(scrape));
    let mut lines: Vec<usize> = (0..SERIES).collect();
    if shuffled {
        random.shuffle(&mut lines);
    }
    let mut page = String::new();
    for line in lines {
        if line % 100 == 0 && !shuffled {
            let _ =
                writeln!(page, "# HELP m_{} Help.\n# TYPE m_{} counter", line / 100, line / 100);
        }
        let start = page.len();
        let _ = write!(page, "m_{}{{series=\"{line}\"", line / 100);
        for label in 0..18 {
            let _ = write!(page, ",label_{label}=\"value_{}\"", line % 7 + label);
        }
        let rest = SERIES_BYTES - (page.len() - start) - 9;
        let _ = writeln!(page, ",fill=\"{}\"}} {}", "x".repeat(rest), random.u32(..));
    }
    page
}

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Seconds for a million points: of the first scrape, and of the others.
fn measure(shuffled: bool) -> (f64, f64) {
    let mut scraper = Scraper::new(target());
    let mut seconds = Vec::new();
    for scrape in 0..=SCRAPES {
        let page = page(scrape, shuffled);
        let started = cpu_ns();
        let outcome = take(&mut scraper, page.as_bytes(), Format::Text, START_MS);
        let request = scraper.finish(&Report { counts: outcome.counts, ..Report::default() });
        seconds.push((cpu_ns() - started) as f64 / 1e3 / SERIES as f64);
        assert_eq!(request.items as usize, SERIES + 5);
    }
    println!("memory: {} bytes a series", scraper.memory() / SERIES);
    let first = seconds.remove(0);
    seconds.sort_by(f64::total_cmp);
    (first, seconds[seconds.len() / 2])
}

/// 10,000 series of 490 bytes, by one thread.
#[test]
#[ignore = "measures"]
fn the_cost_of_a_million_points() {
    for (order, shuffled) in [("the same order", false), ("any order", true)] {
        let (first, repeated) = measure(shuffled);
        println!("{order}: first {first:.2} s, repeated {repeated:.2} s for a million points");
    }
}
