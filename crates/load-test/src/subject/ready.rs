//! Conditions that show that a subject is up.

use std::fmt;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::scrape::{SCRAPE_WITHIN, http_get};

/// Time for a taken port to become free.
const FREE_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A subject is up when this holds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// A connection is accepted on this address.
    Connect(String),
    /// GET of this address and path is answered with 200.
    Http(String),
    /// This has been written to standard output or standard error.
    Output(String),
}

impl From<SocketAddr> for Ready {
    fn from(addr: SocketAddr) -> Self {
        Ready::Connect(addr.to_string())
    }
}

/// The condition as the end of a sentence.
impl fmt::Display for Ready {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ready::Connect(addr) => write!(formatter, "listening on {addr}"),
            Ready::Http(url) => write!(formatter, "answering http://{url} with 200"),
            Ready::Output(text) => write!(formatter, "writing `{text}`"),
        }
    }
}

impl Ready {
    pub(crate) fn addr(&self) -> Option<&str> {
        match self {
            Ready::Connect(addr) => Some(addr),
            Ready::Http(url) => url.split('/').next(),
            Ready::Output(_) => None,
        }
    }

    /// The subject's address if it is taken and does not become free. A closed listener stays open
    /// in a child process that was forked meanwhile, until that executes its program.
    pub(super) async fn taken_addr(&self) -> Option<&str> {
        let addr = self.addr()?;
        let until = Instant::now() + FREE_WITHIN;
        while TcpStream::connect(addr).await.is_ok() {
            if Instant::now() >= until {
                return Some(addr);
            }
            sleep(LOOK_EVERY).await;
        }
        None
    }

    pub(super) async fn holds(&self, output: &Path) -> bool {
        match self {
            Ready::Connect(addr) => TcpStream::connect(addr).await.is_ok(),
            Ready::Http(url) => {
                let answer = http_get(&format!("http://{url}"), SCRAPE_WITHIN).await;
                matches!(answer, Ok((StatusCode::OK, _)))
            }
            Ready::Output(text) => {
                fs::read_to_string(output).is_ok_and(|output| output.contains(text))
            }
        }
    }
}
