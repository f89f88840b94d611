//! `sluice load-test` from outside: its figures against subjects whose behaviour is known, and its
//! refusals.

#[path = "../command/mod.rs"]
mod command;
mod faults;
mod flags;
mod interruption;
mod kpis;
mod limit;
mod output;
mod pipelines;
#[path = "../../../load-test/tests/support/mod.rs"]
mod relay;
mod sluice;
mod support;
