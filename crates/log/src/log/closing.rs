//! The end of a log.
