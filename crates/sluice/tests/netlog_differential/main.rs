//! Logs over the network against the real Collector: the same bytes, through the receivers
//! `syslog`, `tcp_log` and `udp_log` with the same options, become the same log records.
//!
//! Each case is a receiver of its own. One Collector and one Sluice run all of them, and each sends
//! to a backend of its own. `differing.rs` has what differs on purpose.

mod cases;
mod differing;
#[path = "../gateway/mod.rs"]
mod gateway;
mod messages;
#[path = "../peers/mod.rs"]
mod peers;
#[path = "../filelog_differential/records.rs"]
mod records;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use cases::{Case, Transport};
use differing::EXCEPTIONS;
use gateway::Gateway;
use peers::{component, start_collector};
use records::{Logs, difference};
use sluice_load_test::subject::{Subject, free_addr};
use sluice_load_test::{Backend, BackendOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Without a new record for so long, all that was sent has come.
const QUIET: Duration = Duration::from_millis(1500);
/// Time for both of them, also on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(60);
/// A receiver that leaves a connection open is not waited for longer.
const CLOSED_WITHIN: Duration = Duration::from_millis(500);

/// An address for each case. A UDP port is free until it is given away.
fn addresses(cases: &[Case]) -> Vec<SocketAddr> {
    let mut held = Vec::new();
    let address = |case: &Case| match case.transport {
        Transport::Tcp => free_addr().expect("a port"),
        Transport::Udp => {
            held.push(UdpSocket::bind("127.0.0.1:0").expect("a port"));
            held.last().and_then(|it| it.local_addr().ok()).expect("an address")
        }
    };
    cases.iter().map(address).collect()
}

/// One pipeline of all receivers to the backend. Requests arrive in their order.
fn config(cases: &[Case], at: &[SocketAddr], backend: &Backend, exporter: &str) -> String {
    let sections: String = cases.iter().zip(at).map(|(case, at)| case.section(*at)).collect();
    let ids: Vec<String> = cases.iter().map(Case::id).collect();
    format!(
        "receivers:\n{sections}exporters:\n  otlp_grpc:\n    endpoint: {}\n    tls:\n      \
         insecure: true\n    sending_queue:\n      {exporter}\nservice:\n  pipelines:\n    \
         logs:\n      receivers: [{}]\n      exporters: [otlp_grpc]\n",
        backend.addr(),
        ids.join(", "),
    )
}

async fn collector(config: &str, binary: &Path) -> Subject {
    let health = free_addr().expect("a port");
    let more = format!(
        "  extensions: [health_check]\n  telemetry:\n    metrics:\n      level: none\n    \
         logs:\n      level: error\nextensions:\n  health_check:\n    endpoint: {health}\n"
    );
    start_collector(binary, &format!("{config}{more}"), health).await
}

async fn backend() -> Backend {
    let options = BackendOptions { keep_requests: usize::MAX, ..BackendOptions::default() };
    Backend::start(options).await.expect("a backend")
}

/// Sends what a case says. A receiver may end a connection before all of it was taken.
async fn send(case: &Case, at: SocketAddr) {
    if case.transport == Transport::Udp {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("is bound");
        for datagram in &case.sent {
            socket.send_to(datagram, at).expect("is sent");
        }
        return;
    }
    for bytes in &case.sent {
        let mut stream = TcpStream::connect(at).await.expect("connects");
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
        let _ = timeout(CLOSED_WITHIN, stream.read_to_end(&mut Vec::new())).await;
    }
}

/// Names of the cases that differ other than `EXCEPTIONS` says, each with the first difference.
fn surprises(cases: &[Case], expected: &Logs, actual: &Logs) -> Vec<String> {
    let excepted: BTreeSet<&str> = EXCEPTIONS.iter().map(|(name, _)| *name).collect();
    let mut surprises = Vec::new();
    for Case { name, sent, .. } in cases {
        // Connections have no order.
        let found = difference(expected.of(name), actual.of(name), sent.len() == 1);
        match (found, excepted.contains(name.as_str())) {
            (Some(found), false) => surprises.push(format!("{name}: {found}")),
            (None, true) => surprises.push(format!("{name}: is an exception, and does not differ")),
            _ => {}
        }
        if expected.of(name).is_empty() && !excepted.contains(name.as_str()) {
            surprises.push(format!("{name}: nothing comes from the Collector"));
        }
    }
    surprises
}

/// Scenario: messages of all kinds, in all frames, with all options of the three receivers.
/// Guarantee: the records that arrive are those of the Collector, each connection's in order; times
/// of observation do not count.
#[tokio::test]
async fn what_comes_over_the_network_is_what_the_collector_makes_of_it() {
    let Some(binary) = component("SLUICE_TEST_OTELCOL") else { return };
    let cases = cases::all();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), cases.len(), "each case has a name of its own");
    for (name, _) in EXCEPTIONS {
        assert!(names.contains(name), "the exception {name} is for no case");
    }
    let backends = [backend().await, backend().await];
    let at = addresses(&cases);
    let theirs = config(&cases, &at, &backends[0], "enabled: false");
    let collector = collector(&theirs, &binary).await;
    for (case, at) in cases.iter().zip(at) {
        send(case, at).await;
    }
    let at = addresses(&cases);
    let ours = config(&cases, &at, &backends[1], "num_consumers: 1");
    let sluice = Gateway::start(&ours).await;
    for (case, at) in cases.iter().zip(at) {
        send(case, at).await;
    }
    let (began, mut changed, mut counts) = (Instant::now(), Instant::now(), [0, 0]);
    let surprises = loop {
        sleep(Duration::from_millis(250)).await;
        let now = [backends[0].items(), backends[1].items()];
        if now != counts {
            (changed, counts) = (Instant::now(), now);
        }
        if changed.elapsed() < QUIET {
            assert!(began.elapsed() < WITHIN, "no end of records: {counts:?}");
            continue;
        }
        let [expected, actual] = [0, 1].map(|index: usize| Logs::of_all(&backends[index].kept()));
        let surprises = surprises(&cases, &expected, &actual);
        // More may come, if the machine is slow.
        if surprises.is_empty() || changed.elapsed() > 6 * QUIET {
            break surprises;
        }
    };
    let said = sluice.output();
    let said: Vec<&str> = said.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(
        surprises.is_empty(),
        "{} of {} cases differ:\n{}\n\nthe Collector says:\n{}\nSluice's errors:\n{}",
        surprises.len(),
        cases.len(),
        surprises.join("\n"),
        collector.output_tail(),
        said.join("\n"),
    );
}
