//! `scrape`: a receiver that fetches over HTTP. Polls numbered pages of lines, one log record a
//! line.
//!
//! For tests: it shows that a scraper, too, is its folder and a line in a list of kinds. It
//! connects and authenticates as exporters do, and keeps the number of its next page under its own
//! name. A page is fetched once there is memory for it, and is in the log before the next one is
//! fetched.

mod poller;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sluice_config::{Fields, Kind};
use sluice_flow::BoxFuture;
use sluice_net::auth::client::read_authenticator;
use sluice_net::client::{ConnectOptions, HttpClient, HttpOptions, Origin};
use sluice_net::tls::ClientTlsOptions;
use sluice_receivers::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverCounters, ReceiverError,
    ReceiverKind, StartedReceiver,
};
use sluice_telemetry::exposition::Exposition;
use sluice_telemetry::row;
use sluice_telemetry::table::Table;

use self::poller::{PAGE_LIMIT_BYTES, Poller};
use crate::started::Started;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) const KIND: ReceiverKind =
    ReceiverKind::new(Kind::new("scrape", "Polls pages of lines"), |fields| {
        Box::new(Config::read(fields))
    });

#[derive(Clone, Debug)]
pub(crate) struct Config {
    url: String,
    directory: PathBuf,
    tls: ClientTlsOptions,
    authenticator: Option<String>,
}

impl Config {
    fn read(fields: &mut Fields<'_>) -> Config {
        Config {
            url: fields.required_string("url", "Of the pages; their number is added."),
            directory: fields.required_string("directory", "Where the next number is kept.").into(),
            tls: ClientTlsOptions::read(fields),
            authenticator: read_authenticator(fields),
        }
    }
}

/// Pages that were fetched. Grows only.
#[derive(Debug, Default)]
struct Counters {
    pages: AtomicU64,
}

const METRICS: Table<Counters> = Table {
    title: "Receiver scrape",
    labels: &["receiver"],
    metrics: &[row!(Counter "scrape_pages",
        |it: &Counters| it.pages.load(Ordering::Relaxed) as f64, "Pages that were fetched.")],
};

impl ReceiverCounters for Counters {
    fn write(&self, receiver: &str, exposition: &mut Exposition<'_>) {
        exposition.write(&METRICS, &[receiver], self);
    }
}

impl ReceiverConfig for Config {
    fn client_authenticators(&self) -> Vec<&str> {
        self.authenticator.iter().map(String::as_str).collect()
    }

    fn has_senders(&self) -> bool {
        false
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let origin = Origin::of(&self.url).map_err(ReceiverError::failed)?;
            let connect = ConnectOptions::to(&origin, &self.tls, CONNECT_TIMEOUT);
            let connect = connect.map_err(ReceiverError::failed)?;
            let answer_limit_bytes = PAGE_LIMIT_BYTES;
            let options = HttpOptions { connect, answer_limit_bytes, ..HttpOptions::default() };
            let bound: Box<dyn BoundReceiver> = Box::new(Bound {
                config: self.clone(),
                client: HttpClient::new(origin.target, options),
                checkpoint: self.directory.join(context.id.replace('/', "_")),
            });
            Ok(bound)
        })
    }
}

struct Bound {
    config: Config,
    client: HttpClient,
    checkpoint: PathBuf,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let counters = Arc::new(Counters::default());
        let authenticator = self.config.authenticator.as_ref();
        let auth = authenticator.map(|name| context.client_authenticators[name].clone());
        let ReceiverContext { ingress, user_agent, streams, .. } = context;
        let poller = Poller::new(*self, auth, ingress, user_agent, counters.clone(), streams);
        Box::new(Started::new(counters, |stop| poller.run(stop)))
    }
}
