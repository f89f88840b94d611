//! The receiver `prometheus` against servers, and with an engine that refuses, waits or has no
//! memory.

mod engine;
mod hostile;
mod life;
mod pressure;
mod requests;
mod scene;
mod server;
