//! Requests of honest senders that are small on the wire and do not travel on as they came.

use std::time::Duration;

use sluice_load_test::Faults;
use sluice_net::compress;
use sluice_otlp::{Encoding, Signal};
use tokio::task::JoinSet;
use tokio::time::interval;

use crate::gateway::{Gateway, Options, alone, fan_out, faulty_backend};
use crate::peers::{log_of, post, post_head};
use crate::{LIMIT_MIB, THREADS};

const INFLATED_BYTES: usize = 2 << 20;
const SENDERS: usize = 4;
const REQUESTS_EACH: usize = 40;
const INTERVAL: Duration = Duration::from_millis(100);

/// Scenario: gzip requests that inflate to 2 MiB, for a backend that takes none compressed.
/// Guarantee: the memory of inflated data is given back once it is delivered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inflated_requests_do_not_stay() {
    let _alone = alone().await;
    let log = log_of(INFLATED_BYTES).into();
    let body = compress::compress(Encoding::Gzip, &[log], None).expect("packs");
    let head = post_head(Signal::Logs, "content-encoding: gzip\r\n", body.len());
    for threads in THREADS {
        let backend = faulty_backend(Faults { discard: true, ..Faults::default() }).await;
        let config = fan_out(Signal::Logs, LIMIT_MIB, &[("plain", &backend)]);
        let args = vec!["--threads".to_owned(), threads.to_string()];
        let gateway = Gateway::start_with(&config, Options { args, ..Options::default() }).await;
        let http = gateway.http;
        let senders = (0..SENDERS).map(|_| {
            let (head, body) = (head.clone(), body.clone());
            async move {
                let mut ticks = interval(INTERVAL);
                for _ in 0..REQUESTS_EACH {
                    ticks.tick().await;
                    assert_eq!(post(http, &head, &body).await, Some(200));
                }
            }
        });
        senders.collect::<JoinSet<()>>().join_all().await;
        gateway.assert_memory_within(LIMIT_MIB);
    }
}
