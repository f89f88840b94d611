//! Log lines that come over a socket: what `tcplog`, `udplog` and `syslog` have in common.
//!
//! A message goes through these steps:
//!
//! 1. it is read, with memory for it (`tcp`: a connection; `udp`: datagrams);
//! 2. it is cut off (`cutter`), and becomes a record, which goes through the operators (`records`);
//! 3. the records that came together are submitted as one request, and the next ones are read when
//!    deliveries want more (`intake`).
//!
//! None of the protocols has an answer: what has been read is lost only if the process is killed,
//! or if it ends while the engine takes nothing. Then it is counted, before the last metrics.

mod attributes;
mod config;
mod counters;
mod cutter;
mod decoding;
mod intake;
mod kernel;
mod records;
pub(crate) mod refused;
mod tcp;
#[cfg(test)]
pub(crate) mod testing;
mod udp;

use std::hash::RandomState;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use sluice_flow::BoxFuture;
use sluice_net::server::{
    Address, Listener, Listening, Protocols, ServerResources, Serving, serve_streams,
};
use sluice_net::tls::{ServerTls, TlsOptions};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::attributes::Names;
pub(crate) use self::config::{Common, Framing, NetlogConfig, Source, TcpConfig, UdpConfig};
pub(crate) use self::counters::{Counters, metrics};
use self::intake::Intake;
use self::records::Records;
use crate::listen::{Running, bind};
use crate::receiver::{
    BindContext, BoundReceiver, ReceiverConfig, ReceiverContext, ReceiverError, StartedReceiver,
};

/// Records that operators hold are let go at most this late.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// At the end, what has come may take this long to be accepted, unless the engine is closed before.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

impl NetlogConfig {
    fn address(&self) -> &Address {
        match &self.source {
            Source::Tcp(tcp) => &tcp.address,
            Source::Udp(udp) => &udp.address,
        }
    }

    fn tls(&self) -> Option<&TlsOptions> {
        if let Source::Tcp(tcp) = &self.source { tcp.tls.as_ref() } else { None }
    }

    fn protocol(&self) -> &'static str {
        if let Source::Tcp(_) = self.source { "tcp" } else { "udp" }
    }
}

impl ReceiverConfig for NetlogConfig {
    fn listening(&self) -> Vec<Listening<'_>> {
        let limit_bytes = match &self.source {
            Source::Tcp(tcp) => tcp.limit_bytes(),
            Source::Udp(udp) => udp.splitter.max_bytes,
        };
        vec![Listening {
            protocol: self.protocol(),
            path: self.path,
            address: self.address(),
            tls: self.tls(),
            authenticator: None,
            request_limit: ("max_log_size", limit_bytes),
        }]
    }

    /// Senders get no answers.
    fn has_senders(&self) -> bool {
        false
    }

    fn fetches(&self) -> bool {
        false
    }

    fn bind<'a>(
        &'a self,
        context: BindContext<'a>,
    ) -> BoxFuture<'a, Result<Box<dyn BoundReceiver>, ReceiverError>> {
        Box::pin(async move {
            let (listener, tls) =
                bind(self.address(), self.tls(), Protocols::Other, context).await?;
            let (receiver, config) = (context.id.into(), self.clone());
            Ok(Box::new(Bound { receiver, listener, tls, config }) as Box<dyn BoundReceiver>)
        })
    }
}

struct Bound {
    /// The receiver's id.
    receiver: Arc<str>,
    listener: Listener,
    tls: Option<ServerTls>,
    config: NetlogConfig,
}

impl BoundReceiver for Bound {
    fn serve(self: Box<Self>, mut context: ReceiverContext) -> Box<dyn StartedReceiver> {
        let Bound { receiver, listener, tls, config } = *self;
        let (protocol, own) = (config.protocol(), listener.local_address());
        let datagrams_at = own.filter(|_| listener.datagrams().is_some());
        let before = context.take_counters::<Counters>();
        // The counts of another address are not those of this one.
        let before =
            before.filter(|it| (it.transport, it.datagrams_at) == (protocol, datagrams_at));
        let counters = before.unwrap_or_else(|| Arc::new(Counters::new(protocol, datagrams_at)));
        let Common { attributes, resource, labels, operators } = config.common;
        let operators = operators.labelled(labels);
        let texts = match &config.source {
            Source::Tcp(tcp) => (tcp.charset, tcp.counts_octets()),
            Source::Udp(udp) => (udp.splitter.charset, false),
        };
        let ingress = context.ingress;
        let records =
            Records::new(texts, resource, &operators, ingress.clone(), Arc::clone(&counters));
        let (counted, closed) = (Arc::clone(&counters), CancellationToken::new());
        let intake = Intake { receiver, closed, ingress, counters: counted, records };
        let (intake, names) = (Arc::new(intake), Arc::<Names>::default());
        let shutdown = CancellationToken::new();
        let serving: BoxFuture<'static, ()> = match config.source {
            Source::Tcp(tcp) => {
                let serving = serving(&tcp, tls, context.resources, &counters, &shutdown);
                let streams = AtomicU64::new(0);
                let intake = Arc::clone(&intake);
                let handler = tcp::Handler { intake, config: *tcp, attributes, names, streams };
                Box::pin(serve_streams(listener.clone(), serving, handler))
            }
            Source::Udp(udp) => {
                let intake = Arc::clone(&intake);
                let own = own.map(udp::canonical);
                let until_cut_off = cut_off(shutdown.clone(), intake.closed.clone());
                let hasher = RandomState::new();
                let datagrams =
                    udp::Datagrams { intake, config: udp, attributes, names, own, hasher };
                let receiving = Arc::new(datagrams).receive(listener.clone(), shutdown.clone());
                Box::pin(async move {
                    tokio::select! {
                        () = receiving => {}
                        () = until_cut_off => {}
                    }
                })
            }
        };
        let task = tokio::spawn(run(serving, intake));
        Box::new(Running { protocol, listener, counters, task, shutdown })
    }
}

fn serving(
    config: &TcpConfig,
    tls: Option<ServerTls>,
    resources: ServerResources,
    counters: &Counters,
    shutdown: &CancellationToken,
) -> Serving {
    Serving {
        options: config.server.clone(),
        tls,
        counters: Arc::clone(&counters.connections),
        resources,
        shutdown: shutdown.clone(),
    }
}

/// Returns when what has come should have been submitted: some time after the end, or at once when
/// the engine takes nothing more.
async fn cut_off(end: CancellationToken, closed: CancellationToken) {
    let ended = async {
        end.cancelled().await;
        sleep(DRAIN_TIMEOUT).await;
    };
    tokio::select! {
        () = ended => {}
        () = closed.cancelled() => {}
    }
}

/// Until all that has come is submitted, or cut off.
async fn run(serving: BoxFuture<'static, ()>, intake: Arc<Intake>) {
    let closing = async {
        intake.ingress.closed().await;
        intake.closed.cancel();
        std::future::pending().await
    };
    tokio::select! {
        () = run_until_cut_off(serving, &intake) => {}
        () = closing => {}
    }
}

async fn run_until_cut_off(serving: BoxFuture<'static, ()>, intake: &Intake) {
    let ended = CancellationToken::new();
    let serving = async {
        serving.await;
        ended.cancel();
    };
    let flushing = async {
        while !ended.is_cancelled() {
            intake.flush(false).await;
            tokio::select! {
                () = ended.cancelled() => {}
                () = sleep(FLUSH_INTERVAL) => {}
            }
        }
    };
    let flushing = async {
        tokio::select! {
            () = flushing => {}
            () = cut_off(ended.clone(), intake.closed.clone()) => {}
        }
    };
    tokio::join!(serving, flushing);
    tokio::select! {
        biased;
        () = intake.flush(true) => {}
        () = cut_off(ended, intake.closed.clone()) => {}
    }
}
