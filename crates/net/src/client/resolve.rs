//! From a name to addresses, behind a small trait so that tests can move a name.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::lookup_host;

use super::error::TransportError;

/// More addresses than this behind one name are not used.
pub(crate) const ADDRESSES_LIMIT: usize = 64;

/// How long the system's resolver may take.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

pub type ResolveFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<SocketAddr>, TransportError>> + Send + 'a>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a>;
}

/// The system's resolver (`getaddrinfo`), which honours /etc/hosts, search domains and `ndots` as
/// every other program does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> ResolveFuture<'a> {
        Box::pin(async move {
            let failed = |reason: String| TransportError::Resolve { host: host.to_owned(), reason };
            // getaddrinfo cannot be cancelled: past the timeout its thread goes on alone until the
            // system's own limit.
            match tokio::time::timeout(RESOLVE_TIMEOUT, lookup_host((host, port))).await {
                Err(_) => Err(failed(format!("no answer within {RESOLVE_TIMEOUT:?}"))),
                Ok(Err(error)) => Err(failed(error.to_string())),
                Ok(Ok(addresses)) => non_empty(addresses.take(ADDRESSES_LIMIT).collect())
                    .ok_or_else(|| failed("no addresses".to_owned())),
            }
        })
    }
}

fn non_empty(mut addresses: Vec<SocketAddr>) -> Option<Vec<SocketAddr>> {
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    (!addresses.is_empty()).then_some(addresses)
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
