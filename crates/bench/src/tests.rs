//! The rows with a real Collector. Where it is missing the test passes over them, unless
//! SLUICE_TEST_REQUIRE_COMPONENTS=1 (see tests/components/env).

#[path = "../../load-test/tests/support/component.rs"]
mod component;

use clap::Parser as _;
use component::component;
use sluice_otlp::Signal;

use crate::options::Options;
use crate::rows::{Measure, all_rows};
use crate::scenario::Turn;
use crate::stage::{Contestant, Kind};

#[tokio::test]
async fn every_row_can_be_measured_with_the_collector() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let contestant = &Contestant { name: "otelcol", kind: Kind::Collector, binary };
    let options = &Options::parse_from(["sluice-bench", "--seconds", "2"]);
    for row in all_rows().iter().filter(|row| row.signal == Signal::Traces) {
        let turn = Turn { contestant, case: row.id, number: 1, options };
        let one = row.measure(turn).await.unwrap();
        assert!(one["rss_bytes"].as_f64() > Some(0.0), "{}", row.id);
        assert!(
            row.measures == Measure::MemoryAtRest || one["items_per_s"].as_f64() > Some(0.0),
            "{}",
            row.id
        );
    }
}
