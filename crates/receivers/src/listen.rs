//! Addresses that receivers listen on: their options, and how they are bound.

use sluice_net::server::{Address, BindError, Listener, Protocols};
use sluice_net::tls::{ServerTls, TlsOptions, server_tls};

use crate::receiver::{BindContext, ReceiverError};

/// The listener of a receiver that has one address, and its TLS.
pub(crate) async fn bind(
    address: &Address,
    tls: Option<&TlsOptions>,
    protocols: Protocols,
    context: BindContext<'_>,
) -> Result<(Listener, Option<ServerTls>), ReceiverError> {
    let what = format!("receiver {}", context.id);
    let tls = tls.map(|tls| server_tls(&what, tls.clone(), protocols.alpn())).transpose();
    let tls = tls.map_err(|error| ReceiverError::failed(format!("tls: {error}")))?;
    let bound = Listener::bind_or_take_over(address, context.held).await;
    let listener = bound.map_err(|error| ReceiverError {
        waits_for_held: matches!(error, BindError::Held { .. }),
        ..ReceiverError::failed(error)
    })?;
    Ok((listener, tls))
}
