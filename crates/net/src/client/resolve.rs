//! From a name to addresses, behind a small trait so that tests can move a name.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::net::lookup_host;

use super::error::{Result, TransportError};

/// More addresses than this behind one name are not used.
pub(crate) const ADDRESSES_LIMIT: usize = 64;

/// The system's resolver may take this long.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

pub type ResolveFuture<'a> = BoxFuture<'a, Result<Vec<SocketAddr>>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// The system's resolver (`getaddrinfo`), which honours /etc/hosts, search domains and `ndots`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move {
            let failed = |reason: String| TransportError::Resolve { host: host.to_owned(), reason };
            // getaddrinfo cannot be cancelled: its thread goes on alone to the system's limit.
            match tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host((host, port))).await {
                Err(_) => Err(failed(format!("no answer within {RESOLVE_TIMEOUT:?}"))),
                Ok(Err(error)) => Err(failed(error.to_string())),
                Ok(Ok(addresses)) => {
                    let mut seen = HashSet::new();
                    let addresses = addresses.filter(|address| seen.insert(*address));
                    let addresses: Vec<_> = addresses.take(ADDRESSES_LIMIT).collect();
                    let failure = || failed("no addresses".to_owned());
                    (!addresses.is_empty()).then_some(addresses).ok_or_else(failure)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a name from /etc/hosts and one that cannot exist. Guarantee: addresses, and a
    /// typed error that names the host.
    #[tokio::test]
    async fn the_system_is_asked() {
        let addresses =
            SystemResolver.resolve("localhost", 4317).await.expect("localhost resolves");
        assert!(
            addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 4317)
        );
        let missing = SystemResolver.resolve("no-such-host.invalid", 1).await;
        let Err(TransportError::Resolve { host, .. }) = missing else { panic!("{missing:?}") };
        assert_eq!(host, "no-such-host.invalid");
    }
}
