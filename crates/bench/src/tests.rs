//! The rows with a real Collector. Where it is missing the test passes over them, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "../../load-test/tests/support/component.rs"]
mod component;

use std::time::Duration;

use component::component;
use sluice_otlp::Signal;

use crate::Options;
use crate::contestant::{Contestant, Kind};
use crate::rows::{Measure, all_rows};

#[tokio::test]
async fn every_row_can_be_measured_with_the_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let contestant = Contestant { name: "otelcol", kind: Kind::Collector, binary };
    let options = Options {
        contestants: vec![contestant.clone()],
        rows: Vec::new(),
        signals: Vec::new(),
        turns: 1,
        window: Duration::from_secs(2),
        spans_per_s: 20_000.0,
        subject_cpus: Vec::new(),
        all_cpus: Vec::new(),
    };
    for row in all_rows().iter().filter(|row| row.signal == Signal::Traces) {
        let one = row.measure(&contestant, &options).await.unwrap();
        assert!(one.get("rss_bytes") > Some(0.0), "{}", row.id);
        assert!(
            row.measures == Measure::MemoryAtRest || one.get("items_per_s") > Some(0.0),
            "{}",
            row.id
        );
    }
}
