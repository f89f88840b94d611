//! `batch`: how large and how old a batch may become. The engine batches, behind its log, where nothing can be lost.

mod config;

pub use config::{Config, read};
