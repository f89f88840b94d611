//! Options of addresses that receivers listen on.

use std::net::IpAddr;

use sluice_config::Fields;

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

/// `max_connections` of a port.
pub(crate) fn max_connections(fields: &mut Fields<'_>) -> usize {
    let doc = "Maximum number of connections. One more replaces the connection that has been idle \
               longest; if none is idle, the new one is closed. 0 or unset: as many as memory \
               allows. An eighth of the memory limit, at most 256 MiB, is reserved for the \
               connections of all receivers; `sluice plan` shows it. (Sluice's own option.)";
    let limit = fields.optional_integer("max_connections", 0..=1_000_000, doc);
    limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX)
}
