//! Options that several exporters share, as the Collector's `configtls`, `configcompression`, `configgrpc` and `confighttp` have them.

mod headers;
mod tls;

pub(crate) use headers::{authenticator, headers};
pub use tls::TlsSection;
