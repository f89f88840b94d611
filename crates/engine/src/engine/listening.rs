//! Receivers, and the servers for metrics and health. A reload opens new listeners before it closes
//! old ones: if another process has a port, the reload fails and everything goes on as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use sluice_config::Class;
use sluice_receivers::{BoundReceiver, ReceiverContext, ReceiverCounters};

use super::{Engine, RunningReceiver, USER_AGENT};
use crate::admin::{AdminPlan, AdminServer};
use crate::error::{Result, StartError};
use crate::plan::{Plan, ReceiverPlan};

/// Tries to bind a port that one of our servers is about to leave, and the pause between them.
const PORT_TRIES: usize = 100;
const PORT_PAUSE: Duration = Duration::from_millis(10);
/// A reload waits this long for requests in flight at receivers that it ends. Later answers are
/// given too.
const ENDING_TIMEOUT: Duration = Duration::from_secs(10);

/// Receivers with their ports, by id. `None`: a port of the old ones has to be closed first, or the
/// old one of this name fetches and has to end.
pub(super) type BoundReceivers = BTreeMap<String, Option<Box<dyn BoundReceiver>>>;

/// Counters of receivers that end, by id.
type CountersBefore = HashMap<String, Arc<dyn ReceiverCounters>>;

impl Engine {
    /// Binds the ports of receivers that are new or changed. Nothing that runs is touched:
    /// listeners whose address stays are shared with their successors.
    pub(super) async fn bind_receivers(&self, plan: &Plan) -> Result<BoundReceivers> {
        let ending = self.receivers.iter().filter(|running| !running.is_in(plan));
        let held: Vec<_> = ending.flat_map(|running| running.handle.listeners()).collect();
        let mut bound = BoundReceivers::new();
        for planned in plan.receivers.iter().filter(|planned| !self.has_receiver(planned)) {
            let replaces = self.receivers.iter().any(|running| running.id == planned.id);
            if replaces && planned.config.fetches() {
                bound.insert(planned.id.clone(), None);
                continue;
            }
            let receiver = match planned.config.bind(planned.bind_context(&held)).await {
                Ok(receiver) => Some(receiver),
                Err(error) if error.waits_for_held => None,
                Err(error) => {
                    return Err(StartError::of(
                        Class::Receiver,
                        &planned.id,
                        &planned.place,
                        error,
                    ));
                }
            };
            bound.insert(planned.id.clone(), receiver);
        }
        Ok(bound)
    }

    /// Ends receivers that the plan no longer has or has changed, and serves those that are bound.
    pub(super) async fn apply_receivers(
        &mut self,
        plan: &Plan,
        mut bound: BoundReceivers,
    ) -> Result<()> {
        let (kept, ended): (Vec<_>, Vec<_>) = std::mem::take(&mut self.receivers)
            .into_iter()
            .partition(|running| running.is_in(plan));
        self.receivers = kept;
        let counters: CountersBefore =
            ended.iter().map(|running| (running.id.clone(), running.handle.counters())).collect();
        for planned in &plan.receivers {
            if let Some(receiver) = bound.get_mut(&planned.id).and_then(Option::take) {
                self.serve_receiver(planned, receiver, &counters);
            }
        }
        ended.into_iter().for_each(|running| {
            self.ending.spawn(running.end());
        });
        let (ending, streams) = (&mut self.ending, &mut self.streams);
        let all_ended = async {
            while let Some(ended) = ending.join_next().await {
                streams.extend(ended)
            }
        };
        let _ = tokio::time::timeout(ENDING_TIMEOUT, all_ended).await;
        for planned in plan.receivers.iter().filter(|planned| bound.contains_key(&planned.id)) {
            if !self.has_receiver(planned) {
                let replaces = counters.contains_key(&planned.id);
                let has_ended = self.streams.contains_key(&planned.id);
                if replaces && !has_ended && planned.config.fetches() {
                    tracing::warn!(
                        receiver = %planned.id, timeout = ?ENDING_TIMEOUT,
                        "the receiver as it was configured before has not ended in time: what it \
                         has read and is not delivered may be read and sent again"
                    );
                }
                let receiver = planned.config.bind(planned.bind_context(&[])).await;
                let failed =
                    |error| StartError::of(Class::Receiver, &planned.id, &planned.place, error);
                self.serve_receiver(planned, receiver.map_err(failed)?, &counters);
            }
        }
        // No receiver reads them any more: their space is to be free.
        self.streams.values_mut().for_each(|streams| streams.files.clear());
        Ok(())
    }

    fn has_receiver(&self, planned: &ReceiverPlan) -> bool {
        self.receivers.iter().any(|running| running.is(planned))
    }

    /// Counters of a receiver of the same name go on.
    fn serve_receiver(
        &mut self,
        planned: &ReceiverPlan,
        receiver: Box<dyn BoundReceiver>,
        before: &CountersBefore,
    ) {
        let handle = receiver.serve(ReceiverContext {
            ingress: self.intakes[&planned.id].clone(),
            authenticators: self.extensions.servers.clone(),
            client_authenticators: self.extensions.clients.clone(),
            user_agent: USER_AGENT,
            resources: self.resources.clone(),
            counters: before.get(&planned.id).cloned(),
            streams: self.streams.remove(&planned.id).unwrap_or_default(),
        });
        self.receivers.push(RunningReceiver {
            id: planned.id.clone(),
            fingerprint: planned.fingerprint,
            fetches: planned.config.fetches(),
            handle,
        });
    }

    pub(super) async fn apply_admin(&mut self, plan: &Plan) -> Result<()> {
        let planned = AdminPlan::all(plan);
        let status = self.status.clone();
        for wanted in &planned {
            if self.admin.iter().any(|(running, _)| running == wanted) {
                continue;
            }
            let mut started = wanted.serve(&status).await;
            let port = wanted.endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let ends_for_it = |(running, server): &(AdminPlan, AdminServer)| {
                !planned.contains(running) && port == Some(server.addr.port())
            };
            if started.is_err() && self.admin.iter().any(ends_for_it) {
                self.admin.retain(|(running, _)| planned.contains(running));
                let mut tries = 0..PORT_TRIES;
                while started.is_err() && tries.next().is_some() {
                    tokio::time::sleep(PORT_PAUSE).await;
                    started = wanted.serve(&status).await;
                }
            }
            self.admin.push((wanted.clone(), started?));
        }
        self.admin.retain(|(running, _)| planned.contains(running));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sluice_config::SystemEnvironment;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpSocket, TcpStream};
    use tokio::time::timeout;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(15);

    /// An engine with its ports of the metrics and of the health check.
    async fn start() -> (Engine, [SocketAddr; 2]) {
        let text = "receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:0'}}}}\n\
                    exporters: {nop: {}}\n\
                    extensions: {health_check: {endpoint: '127.0.0.1:0', path: /up}, \
                    health_check/below: {endpoint: '127.0.0.1:0', path: /below/}}\n\
                    service:\n  extensions: [health_check, health_check/below]\n  \
                    telemetry: {metrics: {address: '127.0.0.1:0'}}\n  \
                    pipelines: {logs: {receivers: [otlp], exporters: [nop]}}\n";
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        let plan = plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)));
        let engine = Engine::start(plan, None).await.expect("starts");
        let ports = [None, Some("/up")].map(|path| port(&engine, path));
        (engine, ports)
    }

    fn port(engine: &Engine, health_path: Option<&str>) -> SocketAddr {
        let mut admin = engine.admin.iter();
        let found = admin.find(|(plan, _)| plan.health_path.as_deref() == health_path);
        found.expect("is served").1.addr
    }

    /// The answer to a request, in small letters.
    async fn request(port: SocketAddr, line: &str) -> String {
        let mut socket = TcpStream::connect(port).await.expect("connects");
        let request = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = String::new();
        let read = timeout(PATIENCE, socket.read_to_string(&mut answer)).await;
        read.expect("in time").expect("reads");
        answer.to_lowercase()
    }

    /// Scenario: an exporter that serves, at a reload that changes it and at a second process.
    /// Guarantee: its port stays open, and an address in use is an error that names the exporter.
    #[tokio::test]
    async fn an_exporter_that_serves_keeps_its_port() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = free.local_addr().expect("an address");
        drop(free);
        let plan = |option: &str| {
            let text = format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}}}\n\
                 exporters: {{prometheus: {{endpoint: '{address}', {option}}}}}\n\
                 service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
                 pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}\n"
            );
            let (plan, diagnostics) =
                crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
            plan.unwrap_or_else(|| panic!("{}", diagnostics.render(false)))
        };
        let mut engine = Engine::start(plan(""), None).await.expect("starts");
        let first = engine.exporters["prometheus"].exporter.clone();
        let is_first =
            |engine: &Engine| Arc::ptr_eq(&engine.exporters["prometheus"].exporter, &first);
        assert!(request(address, "GET /metrics").await.starts_with("http/1.1 200 "));
        engine.reload(plan("")).await.expect("reloads");
        assert!(is_first(&engine), "unchanged, it goes on");
        engine.reload(plan("send_timestamps: true")).await.expect("reloads");
        assert!(!is_first(&engine));
        assert!(request(address, "GET /metrics").await.starts_with("http/1.1 200 "));
        let error = Engine::start(plan(""), None).await.err().expect("the address is in use");
        let error = error.to_string();
        assert!(error.contains("prometheus") && error.contains("listens there"), "{error}");
        engine.shutdown(Duration::ZERO).await;
    }

    async fn is_closed_soon(mut socket: TcpStream) -> bool {
        let mut rest = Vec::new();
        timeout(PATIENCE, socket.read_to_end(&mut rest)).await.is_ok()
    }

    fn head(bytes: usize) -> String {
        format!("GET /up HTTP/1.1\r\nhost: x\r\nx: {}", "x".repeat(bytes))
    }

    #[tokio::test]
    async fn what_the_ports_answer() {
        let (engine, [metrics, health]) = start().await;
        let below = port(&engine, Some("/below/"));
        for (port, line, status, content) in [
            (metrics, "GET /metrics", 200, "\notelcol_process_uptime"),
            (metrics, "GET /metrics?a=b", 200, "text/plain; version=0.0.4; charset=utf-8"),
            (metrics, "HEAD /metrics", 200, "content-length: "),
            (metrics, "GET /log", 200, "text/plain; charset=utf-8"),
            (metrics, "GET /dead-letters", 200, "content-length: 0"),
            (metrics, "POST /metrics", 405, "allow: get,head"),
            (metrics, "GET /", 404, ""),
            (health, "GET /up", 200, "application/json"),
            (health, "POST /up", 200, "server available"),
            (health, "GET /up/", 404, ""),
            (below, "GET /below/", 200, ""),
            (below, "GET /below/and/deeper", 200, ""),
            (below, "GET /below", 404, ""),
        ] {
            let answer = request(port, line).await;
            let begins = answer.starts_with(&format!("http/1.1 {status} "));
            assert!(begins && answer.contains(content), "{line}: {answer}");
        }
        let answer = request(metrics, "HEAD /metrics").await;
        assert!(answer.ends_with("\r\n\r\n"), "{answer}");
        engine.shutdown(Duration::ZERO).await;
    }

    /// Scenario: strangers open as many connections as they can, silent or amid a head, and come
    /// back when they are closed. Guarantee: few are open, and a probe is answered.
    #[tokio::test]
    async fn strangers_leave_room_for_probes() {
        const STRANGERS: usize = 300;
        let (engine, ports) = start().await;
        for (port, line) in ports.into_iter().zip(["GET /metrics", "GET /up"]) {
            let mut held = Vec::new();
            for index in 0..STRANGERS {
                let mut socket = TcpStream::connect(port).await.expect("connects");
                let _ = socket.write_all(head(index % 2 * 12_000).as_bytes()).await;
                held.push(socket);
                if index % 50 == 49 {
                    assert!(request(port, line).await.starts_with("http/1.1 200 "));
                }
            }
            let is_open = |it: &TcpStream| {
                let read = it.try_read(&mut [0; 100]);
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
            };
            tokio::time::sleep(Duration::from_millis(200)).await;
            for socket in &held {
                let _ = timeout(Duration::from_millis(1), socket.readable()).await;
            }
            let open = held.iter().filter(|it| is_open(it)).count();
            assert!((1..=32).contains(&open), "{open} of {STRANGERS} are open");
        }
        engine.shutdown(Duration::ZERO).await;
    }

    /// Scenario: peers that send nothing, or only a part of a head, or too long a head, or read no
    /// answers. Guarantee: each is given up within seconds.
    #[tokio::test]
    async fn slow_peers_are_given_up() {
        let (engine, ports) = start().await;
        let all = ports.map(|port| async move {
            let long = async {
                let mut socket = TcpStream::connect(port).await.expect("connects");
                let _ = socket.write_all(head(17 << 10).as_bytes()).await;
                let mut answer = [0; 12];
                let read = timeout(Duration::from_secs(2), socket.read_exact(&mut answer)).await;
                assert!(read.is_ok(), "a head that is too long is refused at once");
            };
            let silent = async {
                let socket = TcpStream::connect(port).await.expect("connects");
                assert!(is_closed_soon(socket).await, "nothing was sent");
            };
            let slow = async {
                let mut socket = TcpStream::connect(port).await.expect("connects");
                socket.write_all(head(10).as_bytes()).await.expect("writes");
                assert!(is_closed_soon(socket).await, "the head did not end");
            };
            let unread = async {
                let socket = TcpSocket::new_v4().expect("a socket");
                socket.set_recv_buffer_size(4 << 10).expect("is set");
                let mut socket = socket.connect(port).await.expect("connects");
                let requests = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n".repeat(1_000);
                let write = async { while socket.write_all(&requests).await.is_ok() {} };
                assert!(timeout(PATIENCE, write).await.is_ok(), "answers are not read");
            };
            tokio::join!(long, silent, slow, unread);
        });
        futures_util::future::join_all(all).await;
        engine.shutdown(Duration::ZERO).await;
    }
}
