//! `memory_limiter`: how much memory the process may take. The engine keeps to it, for all pipelines together.

mod config;

pub use config::{Config, Limit, read};
