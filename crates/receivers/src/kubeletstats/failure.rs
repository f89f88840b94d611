//! The reasons for which a scrape yields nothing.

use crate::scraping::{Refused, Unread};

/// Why the kubelet gives no metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Connection,
    Timeout,
    Unauthorized,
    Forbidden,
    Status,
    Credentials,
    BodySize,
    Page,
}

impl Reason {
    /// Each as a metric's label, and the remedy.
    pub(super) const ALL: [(Reason, &'static str, &'static str); 8] = {
        use Reason::*;
        [
            (
                Connection,
                "connection",
                "let the kubelet be reached: look at `endpoint`, the kubeconfig, `ca_file` or \
                 `insecure_skip_verify`, and at network policies",
            ),
            (Timeout, "timeout", "look at the node, which is slow, or raise `timeout`"),
            (
                Unauthorized,
                "unauthorized",
                "the kubelet does not know us: look at `auth_type`, and at `authentication` of the \
                 kubelet",
            ),
            (Forbidden, "forbidden", "grant the permission that is named, by a ClusterRole"),
            (Status, "status", "let `endpoint` be that of a kubelet"),
            (Credentials, "credentials", "mend the file that is named"),
            (BodySize, "body_size", "the kubelet says more than any node has"),
            (Page, "page", "let `endpoint` be that of a kubelet: its answer is none of a kubelet"),
        ]
    };

    pub(super) const fn as_str(self) -> &'static str {
        Reason::ALL[self as usize].1
    }

    pub(super) const fn remedy(self) -> &'static str {
        Reason::ALL[self as usize].2
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    /// Without secrets.
    pub(super) message: String,
}

impl Failure {
    pub(super) fn new(reason: Reason, message: impl Into<String>) -> Failure {
        Failure { reason, message: message.into() }
    }
}

/// Why a scrape yields nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    Failed(Failure),
    /// The engine does not take it: the kubelet may be well.
    Refused(Refused),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

impl From<Refused> for Trouble {
    fn from(refused: Refused) -> Trouble {
        Trouble::Refused(refused)
    }
}

impl From<Unread> for Trouble {
    fn from(unread: Unread) -> Trouble {
        match unread {
            Unread::TooLong { limit_bytes } => {
                let message = format!("the answer is longer than {limit_bytes} bytes");
                Failure::new(Reason::BodySize, message).into()
            }
            Unread::Refused(refused) => Trouble::Refused(refused),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for (index, (reason, ..)) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }
}
