//! The metrics that k6 has built in.

/// Each of its samples is an increment.
const COUNTER: bool = true;
const OTHER: bool = false;

/// In the order of their names.
const BUILT_IN: [(&str, bool); 38] = [
    ("browser_data_received", COUNTER),
    ("browser_data_sent", COUNTER),
    ("browser_http_req_duration", OTHER),
    ("browser_http_req_failed", OTHER),
    ("browser_web_vital_cls", OTHER),
    ("browser_web_vital_fcp", OTHER),
    ("browser_web_vital_fid", OTHER),
    ("browser_web_vital_inp", OTHER),
    ("browser_web_vital_lcp", OTHER),
    ("browser_web_vital_ttfb", OTHER),
    ("checks", OTHER),
    ("data_received", COUNTER),
    ("data_sent", COUNTER),
    ("dropped_iterations", COUNTER),
    ("group_duration", OTHER),
    ("grpc_req_duration", OTHER),
    ("grpc_streams", COUNTER),
    ("grpc_streams_msgs_received", COUNTER),
    ("grpc_streams_msgs_sent", COUNTER),
    ("http_req_blocked", OTHER),
    ("http_req_connecting", OTHER),
    ("http_req_duration", OTHER),
    ("http_req_failed", OTHER),
    ("http_req_receiving", OTHER),
    ("http_req_sending", OTHER),
    ("http_req_tls_handshaking", OTHER),
    ("http_req_waiting", OTHER),
    ("http_reqs", COUNTER),
    ("iteration_duration", OTHER),
    ("iterations", COUNTER),
    ("vus", OTHER),
    ("vus_max", OTHER),
    ("ws_connecting", OTHER),
    ("ws_msgs_received", COUNTER),
    ("ws_msgs_sent", COUNTER),
    ("ws_ping", OTHER),
    ("ws_session_duration", OTHER),
    ("ws_sessions", COUNTER),
];

/// All of them, in order.
pub const K6_METRICS: [&str; BUILT_IN.len()] = names(false);

/// The counters among them.
pub const K6_COUNTERS: [&str; 13] = names(true);

/// As many names as there have to be: else it does not compile.
const fn names<const N: usize>(only_counters: bool) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut at, mut found) = (0, 0);
    while at < BUILT_IN.len() {
        let (name, is_counter) = BUILT_IN[at];
        if is_counter || !only_counters {
            names[found] = name;
            found += 1;
        }
        at += 1;
    }
    assert!(found == N, "no name is left");
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(K6_METRICS.is_sorted());
        assert_eq!((K6_COUNTERS[0], K6_COUNTERS[12]), ("browser_data_received", "ws_sessions"));
    }
}
