//! Figures of single pipelines, where a run has three.

use serde_json::json;

use crate::support::{count, kpis, run_relay};

/// Scenario: with three pipelines the relay forwards everything to the first one's backend and
/// nothing to the others'. Guarantee: each pipeline has its own count of lost items, by identity,
/// its own throughput, and its own queue.
#[test]
fn a_pipeline_that_gets_nothing_has_lost_everything_and_the_others_nothing() {
    let (_, record) = run_relay("forwards", &["-m"]);
    let kpis = kpis(&record);
    let accepted = count(kpis, "accepted");
    let pipelines = kpis["pipelines"].as_array().unwrap();
    let of_each = |figure: &str| {
        pipelines.iter().map(|pipeline| pipeline[figure].clone()).collect::<Vec<_>>()
    };
    assert!(accepted > 0 && pipelines.len() == 3, "{kpis}");
    assert_eq!(of_each("lost"), [json!(0), json!(accepted), json!(accepted)], "{kpis}");
    assert_eq!(count(kpis, "lost"), 2 * accepted, "{kpis}");
    assert_eq!(
        of_each("queue"),
        [json!(0.0), json!(10.0), json!(20.0)],
        "as the relay's own metrics say: {kpis}"
    );
    assert_eq!(of_each("exported_per_s")[1..], [json!(0.0), json!(0.0)], "{kpis}");
    assert_eq!(kpis["pipelines"][0]["exported_per_s"], kpis["exported_per_s"], "{kpis}");
}
