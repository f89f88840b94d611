//! Assertions on every decoder, for any bytes. Each function takes one input and panics if the
//! assertion does not hold; the fuzz targets do nothing but call them.

pub mod answers;
pub mod config;
pub mod forward;
pub mod influx;
pub mod net;
pub mod operators;
pub mod otlp;
pub mod prometheus;
pub mod replay;
pub mod tail;
