//! Requests of OTLP as remote write, decoded as a peer decodes them.

mod build;
mod exposed;
mod inwards;
mod messages;
mod outwards;
mod random;
