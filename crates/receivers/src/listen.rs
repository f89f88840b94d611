//! Addresses that receivers listen on: their options, and how they are bound.

use std::net::IpAddr;

use sluice_config::Fields;
use sluice_net::server::{Address, BindError, Listener, Protocols};
use sluice_net::tls::{ServerTls, TlsOptions, server_tls};

use crate::receiver::{BindContext, ReceiverError};

/// The address in `host:port`, if the host is one and not a name.
pub(crate) fn check_endpoint(endpoint: &str) -> Result<Option<IpAddr>, &'static str> {
    if endpoint.contains("://") {
        return Err("must be an address without a scheme");
    }
    let (host, port) = endpoint.rsplit_once(':').ok_or("must be `host:port`")?;
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.contains(':') && in_brackets.is_none() {
        return Err("must have its IPv6 address in brackets");
    }
    port.parse::<u16>().map_err(|_| "must end in a port from 0 to 65535")?;
    Ok(in_brackets.unwrap_or(host).parse().ok())
}

/// `max_connections` of a port. `is_own`: the Collector's receiver does not have it.
pub(crate) fn max_connections(fields: &mut Fields<'_>, is_own: bool) -> usize {
    let doc = "Maximum number of connections. One more replaces the connection that has been idle \
               longest; if none is idle, the new one is closed. 0 or unset: as many as memory \
               allows. An eighth of the memory limit, at most 256 MiB, is reserved for the \
               connections of all receivers; `sluice plan` shows it.";
    let doc = format!("{doc}{}", if is_own { " (Sluice's own option.)" } else { "" });
    let limit = fields.optional_integer("max_connections", 0..=1_000_000, &doc);
    limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}

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
