//! The `filelog` receiver before an engine that refuses, delays and drops.

mod delivery;
mod finally_refused;
mod harness;
mod header;
mod long_outage;
mod names;
mod operators;
mod restarts;
mod rotation;
