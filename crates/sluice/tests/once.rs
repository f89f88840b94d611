//! An agent and a gateway, both of which are killed at random: what the agent has acknowledged is
//! in the gateway's log, once.

mod gateway;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use gateway::{Gateway, Options, SOON, alone, delaying, eventually, exporter};
use sluice_flow::hop::{HEADER, Ranges};
use sluice_load_test::identity::Identity;
use sluice_load_test::subject::free_addr;
use sluice_load_test::{Backend, BackendOptions, Faults, LoadReport, RunningLoad};
use sluice_otlp::Signal;
use tempfile::TempDir;

const ITEMS_PER_S: f64 = 2_000.0;
const ARRIVES_WITHIN: Duration = Duration::from_secs(60);
/// Requests that the backend keeps: more than come.
const KEPT: usize = 1 << 20;
/// A gateway records what it has delivered after this time at most; the rest is for delays of a
/// busy machine.
const RECORDED_AFTER: Duration = Duration::from_secs(3);
const LOOKED_EVERY: Duration = Duration::from_millis(50);

/// The agent and the gateway, with their directories.
struct Hop {
    folder: TempDir,
    addr: SocketAddr,
    backend: Backend,
    gateway: Option<Gateway>,
    agent: Option<Gateway>,
    load: Option<RunningLoad>,
    reports: Vec<LoadReport>,
    /// Numbers of the requests that the backend had, at the kills of the gateway and some time
    /// before.
    unrecorded: Vec<std::ops::Range<usize>>,
    /// The number of requests at the backend, at the times at which it was looked at.
    looks: Vec<(Instant, usize)>,
}

fn directory(path: &Path, ack: &str, exporter: &str, name: &str) -> String {
    format!(
        "exporters:\n{exporter}buffer:\n  directory: {}\n  ack: {ack}\nservice:\n  pipelines:\n    \
         traces:\n      receivers: [otlp]\n      exporters: [otlp/{name}]\n",
        path.display()
    )
}

impl Hop {
    async fn new(faults: Faults) -> Hop {
        let options = BackendOptions { faults, keep_requests: KEPT, ..BackendOptions::default() };
        let mut hop = Hop {
            folder: TempDir::with_prefix("sluice-once-").expect("a folder"),
            addr: free_addr().expect("a free port"),
            backend: Backend::start(options).await.expect("a backend"),
            gateway: None,
            agent: None,
            load: None,
            reports: Vec::new(),
            unrecorded: Vec::new(),
            looks: Vec::new(),
        };
        hop.start_gateway().await;
        hop.start_agent().await;
        hop
    }

    async fn start_gateway(&mut self) {
        let to = exporter("backend", &self.backend) + "    idempotent: true\n";
        let path = self.folder.path().join("gateway");
        let config = directory(&path, "delivered_or_durable", &to, "backend");
        let options = Options { grpc: Some(self.addr), ..Options::default() };
        self.gateway = Some(Gateway::start_with(&config, options).await);
    }

    /// Everything that it acknowledges is on disk.
    async fn start_agent(&mut self) {
        let to = format!(
            "  otlp/gateway:\n    endpoint: {}\n    tls:\n      insecure: true\n    timeout: 2s\n    \
             idempotent: true\n",
            self.addr
        );
        let path = self.folder.path().join("agent");
        let config = directory(&path, "durable", &to, "gateway");
        let agent = Gateway::start(&config).await;
        let load = agent.load(Signal::Traces).rate(ITEMS_PER_S).concurrency(2, 16);
        let mut load = load.duration(Duration::from_secs(3600));
        load.grace = Duration::ZERO;
        self.load = Some(load.start().expect("a load"));
        self.agent = Some(agent);
    }

    async fn kill_gateway(&mut self) {
        let before = self.looks.iter().rev().find(|(at, _)| at.elapsed() > RECORDED_AFTER);
        let before = before.map_or(0, |(_, requests)| *requests);
        if let Some(gateway) = self.gateway.take() {
            gateway.kill().await;
        }
        self.unrecorded.push(before..self.backend.counts().taken_requests as usize);
        self.start_gateway().await;
    }

    /// The load on it ends with it, and the next agent gets another one.
    async fn kill_agent(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.kill().await;
        }
        self.end_load().await;
        self.start_agent().await;
    }

    async fn end_load(&mut self) {
        if let Some(mut load) = self.load.take() {
            load.stop();
            self.reports.push(load.finish().await.expect("a load"));
        }
    }

    /// Kills both this many times, in random order. Now and then one lives for long.
    async fn torture(&mut self, agents: usize, gateways: usize) {
        let mut kills = [vec![true; agents], vec![false; gateways]].concat();
        fastrand::shuffle(&mut kills);
        let all = kills.len();
        for (number, is_agent) in kills.into_iter().enumerate() {
            let is_long = fastrand::u32(..8) == 0;
            let lasts = if is_long { 2_000..3_500 } else { 30..900 };
            self.look_for(Duration::from_millis(fastrand::u64(lasts))).await;
            if is_agent {
                self.kill_agent().await
            } else {
                self.kill_gateway().await
            }
            if (number + 1).is_multiple_of(50) {
                println!("{} of {all}", number + 1);
            }
        }
    }

    async fn look_for(&mut self, time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            let requests = self.backend.counts().taken_requests as usize;
            self.looks.push((Instant::now(), requests));
            tokio::time::sleep(time.saturating_sub(began.elapsed()).min(LOOKED_EVERY)).await;
        }
    }

    /// Waits until all that the agents have acknowledged is at the backend, and nothing is left.
    async fn assert_nothing_is_lost(&mut self) -> Doubled {
        self.end_load().await;
        self.backend.faults().clear();
        let missing =
            || self.reports.iter().map(|report| report.missing_at(&self.backend)).sum::<u64>();
        // Of many lives, the backlog is large.
        let limit = ARRIVES_WITHIN * (1 + self.reports.len() as u32 / 10);
        let arrived = eventually(limit, async || missing() == 0).await;
        let acknowledged: u64 = self.reports.iter().map(|report| report.accepted).sum();
        let outputs = [&self.agent, &self.gateway].map(|it| it.as_ref().expect("it runs").output());
        assert!(arrived, "{} of {acknowledged} are missing\n{outputs:?}", missing());
        for process in [&self.agent, &self.gateway].into_iter().flatten() {
            let backlog = async || process.metric("sluice_delivery_backlog_items", &[]).await;
            assert!(eventually(SOON, async || backlog().await == 0.0).await, "all is delivered");
        }
        let doubled = self.doubled();
        println!("{acknowledged} acknowledged, 0 lost, {doubled:?}");
        assert!(acknowledged > 1000, "the test is about what is acknowledged: {acknowledged}");
        doubled
    }

    async fn of_gateway(&self, metric: &str) -> f64 {
        self.gateway.as_ref().expect("it runs").metric(metric, &[]).await
    }

    /// The gateway names its frames, too: an item in two of them is twice in its log.
    fn doubled(&self) -> Doubled {
        let (kept, mut doubled) = (self.backend.kept(), Doubled::default());
        assert!(kept.len() < KEPT && kept.len() as u64 == self.backend.counts().taken_requests);
        let mut seen = HashMap::<Identity, Vec<usize>>::new();
        for (number, request) in kept.iter().enumerate() {
            for identity in request.identities() {
                seen.entry(identity).or_default().push(number);
            }
        }
        let ranges = |number: usize| {
            let text = kept[number].headers[HEADER].to_str().expect("text");
            Ranges::parse(text).expect("ranges")
        };
        for requests in seen.values().filter(|requests| requests.len() > 1) {
            let first = ranges(requests[0]);
            match requests[1..].iter().all(|number| ranges(*number).overlaps(&first)) {
                true => doubled.by_its_exporter += 1,
                false if self.unrecorded.iter().any(|it| it.contains(&requests[0])) => {
                    doubled.before_it_was_recorded += 1;
                }
                false => doubled.in_its_log += 1,
            }
        }
        doubled
    }
}

/// Items that the backend got twice, by the reason.
#[derive(Debug, Default, PartialEq, Eq)]
struct Doubled {
    /// Twice in the gateway's log.
    in_its_log: u64,
    /// The gateway had sent it on and was killed before it was recorded: neither its frame nor its
    /// ranges were on disk.
    before_it_was_recorded: u64,
    /// The gateway's exporter has sent a frame again.
    by_its_exporter: u64,
}

/// Scenario: the backend is down while agent and gateway are killed, and comes back then.
/// Guarantee: everything acknowledged arrives, and nothing twice: each item was once in the log.
async fn both_are_killed_before_a_dead_backend(kills: usize) {
    let _alone = alone().await;
    let mut hop = Hop::new(Faults::dead()).await;
    hop.torture(kills, kills).await;
    assert_eq!(hop.assert_nothing_is_lost().await, Doubled::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_are_killed_and_the_log_has_everything_once() {
    both_are_killed_before_a_dead_backend(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long"]
async fn torture_both_are_killed_and_the_log_has_everything_once() {
    both_are_killed_before_a_dead_backend(200).await;
}

/// Scenario: the backend takes everything, some of it slowly. Guarantee: the same, but for what
/// the gateway had sent on before it was recorded, and for what its exporter repeats.
async fn both_are_killed_while_everything_is_delivered(kills: usize) {
    let _alone = alone().await;
    let mut hop = Hop::new(delaying(Duration::from_millis(60))).await;
    hop.torture(kills, kills).await;
    assert_eq!(hop.assert_nothing_is_lost().await.in_its_log, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_are_killed_while_everything_is_delivered_at_once() {
    both_are_killed_while_everything_is_delivered(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes long"]
async fn torture_both_are_killed_while_everything_is_delivered_at_once() {
    both_are_killed_while_everything_is_delivered(200).await;
}

/// Guarantee: while the gateway lives, kills of the agent double nothing at all, although the agent
/// repeats much.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_the_agent_alone_double_nothing() {
    let _alone = alone().await;
    let mut hop = Hop::new(Faults::default()).await;
    hop.torture(10, 0).await;
    assert_eq!(hop.assert_nothing_is_lost().await, Doubled::default());
    assert!(hop.of_gateway("sluice_log_repeated_requests").await > 0.0, "nothing was repeated");
    assert_eq!(hop.of_gateway("sluice_log_forgotten_ranges").await, 0.0);
}
