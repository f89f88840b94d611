//! The subjects of `sluice load-test`, from outside: real ones, ones that die or cannot be started,
//! and their remains.

#[path = "../command/mod.rs"]
mod command;
#[path = "../../../load-test/tests/support/component.rs"]
mod component;
mod lives;
mod peers;
mod refusals;
#[path = "../../../load-test/tests/support/mod.rs"]
mod relay;
mod remains;
mod support;
