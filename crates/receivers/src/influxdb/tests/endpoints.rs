//! Paths, parameters and answers.

use serde_json::{Value, json};

use super::*;

fn body_of(answer: &str) -> Value {
    serde_json::from_str(parts(answer).1).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

/// Guarantee: lines come in by each API, with the names of database and retention policy, and times
/// in the unit of the request.
#[tokio::test]
async fn each_api_writes() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "").await;
    for (path, database, policy, time) in [
        ("/write?db=a&rp=b&precision=s", "a", Some("b"), 7_000_000_000_u64),
        ("/write?db=a%20b&precision=ms", "a b", None, 7_000_000),
        ("/api/v2/write?org=o&bucket=a%2Fb&precision=us", "a", Some("b"), 7_000),
        ("/api/v2/write?bucket=a", "a", None, 7),
        ("/api/v3/write_lp?db=a&precision=nanosecond", "a", None, 7),
        ("/api/v3/write_lp?db=a", "a", None, 7_000_000_000),
    ] {
        let answer = send(&*receiver, &format!("POST {path}"), b"cpu,host=h load=1.5 7\n").await;
        assert_eq!(parts(&answer), (204, ""), "{path} {answer}");
        assert!(answer.contains("x-influxdb-version: 1.8"), "{answer}");
        let mut expected = vec![("influxdb.database".to_owned(), database.to_owned())];
        expected.extend(policy.map(|it| ("influxdb.retention_policy".to_owned(), it.to_owned())));
        assert_eq!(engine.resource(), expected, "{path}");
        let request = engine.requests().pop().expect("one came");
        let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
        assert_eq!(metric.name, "cpu_load");
        let text = format!("{metric:?}");
        assert!(text.contains(&format!("time_unix_nano: {time},")), "{path} {text}");
    }
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: lines at fault between good ones. Guarantee: the good ones are taken, and the answer
/// says in InfluxDB's words which are not.
#[tokio::test]
async fn lines_at_fault_cost_no_others() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "").await;
    let body = b"m v=1\nbad\nm v=2 x\nn v=2";
    let reason = "unable to parse 'bad': missing fields\nunable to parse 'm v=2 x': bad timestamp";
    let partial = format!("partial write: {reason} dropped=0");
    for (path, expected) in [
        ("/write?db=a", json!({ "error": partial })),
        ("/api/v2/write?bucket=a", json!({ "code": "invalid", "message": partial })),
        (
            "/api/v3/write_lp?db=a",
            json!({
                "error": "partial write of line protocol occurred",
                "data": [
                    {
                        "original_line": "bad",
                        "line_number": 2,
                        "error_message": "missing fields",
                    },
                    {
                        "original_line": "m v=2 x",
                        "line_number": 3,
                        "error_message": "bad timestamp",
                    },
                ],
            }),
        ),
    ] {
        let before = engine.points();
        let answer = send(&*receiver, &format!("POST {path}"), body).await;
        assert_eq!((parts(&answer).0, body_of(&answer)), (400, expected), "{path}");
        assert_eq!(engine.points() - before, 2, "{path}");
    }
    let answer = send(&*receiver, "POST /write?db=a", b"bad").await;
    let alone = "unable to parse 'bad': missing fields";
    assert_eq!(body_of(&answer), json!({ "error": alone }));
    assert!(answer.contains(&format!("x-influxdb-error: {alone}\r\n")), "{answer}");
    assert_eq!(metric(&*receiver, &["sluice_influxdb_line_faults"]), 7.0);
    assert_eq!(metric(&*receiver, &["sluice_influxdb_lines"]), 6.0);
    assert_eq!(metric(&*receiver, &["otelcol_receiver_accepted_metric_points"]), 6.0);
    for nothing in [&b""[..], b"\n\n", b"# comment\n"] {
        let answer = send(&*receiver, "POST /write?db=a", nothing).await;
        assert_eq!(parts(&answer), (204, ""));
    }
    assert_eq!(metric(&*receiver, &["sluice_receiver_accepted_requests"]), 7.0);
}

/// Scenario: `accept_partial=false`, with bodies that are right, have a line at fault at their end,
/// or are longer than what is judged at once, plain and packed. Guarantee: all lines are taken, in
/// one request, or none is, and the answer is InfluxDB's.
#[tokio::test]
async fn a_body_can_be_taken_as_a_whole_or_not_at_all() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "").await;
    let head = "POST /api/v3/write_lp?db=a&accept_partial=false";
    let lines: String = (0..10_000).map(|at| format!("cpu,host=h{at} load={at} {at}\n")).collect();
    let answer = send(&*receiver, head, lines.as_bytes()).await;
    assert_eq!(parts(&answer).0, 204, "{answer}");
    assert_eq!((engine.points(), engine.requests().len()), (10_000, 1));
    let wrong = format!("{lines}cpu,host=b load= 5\ncpu load=1 6\n");
    let packed = format!("{head}\ncontent-encoding: gzip");
    for (head, body) in
        [(head, wrong.clone().into_bytes()), (&packed, super::streaming::gzip(wrong.as_bytes()))]
    {
        let answer = send(&*receiver, head, &body).await;
        assert_eq!(parts(&answer).0, 400, "{answer}");
        let body = body_of(&answer);
        assert_eq!(body["error"], "parsing failed for write_lp endpoint");
        assert_eq!(body["data"]["line_number"], 10_001, "{body}");
    }
    let answer = send(&*receiver, head, lines.repeat(20).as_bytes()).await;
    assert_eq!(parts(&answer).0, 413, "{answer}");
    assert!(answer.contains("accept_partial=false"), "{answer}");
    assert_eq!((engine.points(), engine.requests().len()), (10_000, 1), "nothing else is taken");
    assert_eq!(metric(&*receiver, &["refused_requests", "\"invalid\""]), 2.0);
    receiver.shutdown().await;
    engine.assert_is_free();
}

#[tokio::test]
async fn clients_find_what_they_ask_for_before_they_write() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "").await;
    let created = json!({ "results": [{ "statement_id": 0 }] });
    let form = "POST /query\ncontent-type: application/x-www-form-urlencoded; charset=utf-8";
    for (head, body) in [
        ("POST /query?q=CREATE+DATABASE+k6", &b""[..]),
        ("POST /query?q=CREATE%20DATABASE%20%22k6%22&db=", b""),
        ("GET /query?q=CREATE+DATABASE+k6", b""),
        (form, b"q=CREATE+DATABASE+%22telegraf%22"),
    ] {
        let answer = send(&*receiver, head, body).await;
        assert_eq!((parts(&answer).0, body_of(&answer)), (200, created.clone()), "{head}");
    }
    let answer = send(&*receiver, "GET /query?q=SHOW+DATABASES", b"").await;
    let series = &body_of(&answer)["results"][0]["series"][0];
    assert_eq!(series["values"], json!([["k6"], ["telegraf"]]), "{answer}");
    for (head, body, word) in [
        ("GET /query", &b""[..], "missing required parameter \"q\""),
        ("POST /query?q=SELECT+1", b"", "error parsing query: `SELECT 1`"),
        ("POST /query", b"q=SHOW+DATABASES", "missing required parameter"),
        (form, &[b'x'; 20_000], "larger than the limit"),
    ] {
        let answer = send(&*receiver, head, body).await;
        let error = body_of(&answer)["error"].as_str().expect("has one").to_owned();
        assert!(error.contains(word), "{head} {answer}");
    }
    for head in ["GET /ping", "HEAD /ping", "GET /ping?verbose=false", "GET /status"] {
        let answer = send(&*receiver, head, b"").await;
        assert_eq!(parts(&answer), (204, ""), "{head}");
        assert!(
            answer.contains("x-influxdb-version: ") && answer.contains("x-influxdb-build: OSS")
        );
    }
    let answer = send(&*receiver, "GET /ping?verbose=true", b"").await;
    assert_eq!((parts(&answer).0, body_of(&answer)["version"].is_string()), (200, true));
    for (path, allowed) in [
        ("/write", "POST, OPTIONS"),
        ("/api/v2/write", "POST, OPTIONS"),
        ("/query", "GET, POST, OPTIONS"),
        ("/ping", "GET, HEAD, OPTIONS"),
    ] {
        let answer = send(&*receiver, &format!("OPTIONS {path}"), b"").await;
        assert_eq!(parts(&answer), (200, ""), "{path} {answer}");
        assert!(answer.contains(&format!("allow: {allowed}\r\n")), "{path} {answer}");
    }
    assert_eq!(metric(&*receiver, &["sluice_receiver_unknown_requests"]), 0.0);
    for path in ["/health", "/api/v2/health"] {
        let answer = send(&*receiver, &format!("GET {path}"), b"").await;
        let body = body_of(&answer);
        assert_eq!((&body["status"], &body["name"]), (&json!("pass"), &json!("influxdb")));
        let answer = send(&*receiver, &format!("HEAD {path}"), b"").await;
        assert_eq!(parts(&answer), (200, ""), "{path}");
    }
    receiver.shutdown().await;
    engine.assert_is_free();
}

#[tokio::test]
async fn what_is_no_write_is_refused() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "max_request_body_size: 1000").await;
    let line = b"m v=1\n";
    let long = [b"#".repeat(2000), line.to_vec()].concat();
    let chunked = "POST /write?db=a\ncontent-encoding: gzip";
    for (head, body, status, word) in [
        ("POST /write", &line[..], 400, "database is required"),
        ("POST /write?db=a&precision=d", line, 400, "invalid precision"),
        ("POST /api/v2/write?bucket=a&precision=m", line, 400, "\"code\":\"invalid\""),
        ("POST /api/v3/write_lp?db=a&accept_partial=no", line, 400, "accept_partial"),
        ("POST /write?db=a\ncontent-encoding: br", line, 415, "`br` is not supported"),
        (chunked, line, 400, "gzip"),
        (chunked, b"", 400, "it is empty"),
        ("POST /write?db=a", &long, 413, "larger than the limit of 1000"),
        ("GET /write?db=a", b"", 405, "Method Not Allowed"),
        ("POST /ping", b"", 405, "Method Not Allowed"),
        ("POST /api/v2/query", b"", 404, "404 page not found"),
    ] {
        let answer = send(&*receiver, head, body).await;
        assert_eq!(parts(&answer).0, status, "{head} {answer}");
        assert!(parts(&answer).1.contains(word), "{head} {answer}");
    }
    assert_eq!(engine.points(), 0);
    assert_eq!(metric(&*receiver, &["refused_requests", "\"too_large\""]), 1.0);
    assert_eq!(metric(&*receiver, &["refused_requests", "\"unsupported_encoding\""]), 1.0);
    assert_eq!(metric(&*receiver, &["sluice_receiver_unknown_requests"]), 3.0);
    receiver.shutdown().await;
    engine.assert_is_free();
}

#[tokio::test]
async fn measurements_can_be_sums() {
    let engine = Engine::new(64 << 20);
    let receiver = start(&engine, "sum_measurements: [hits]").await;
    let answer = send(&*receiver, "POST /write?db=a", b"hits value=1\nhttp_reqs value=1\n").await;
    assert_eq!(parts(&answer).0, 204);
    let text = format!("{:?}", engine.requests());
    let (sums, gauges) = (text.matches("Some(Sum").count(), text.matches("Some(Gauge").count());
    assert_eq!((sums, gauges), (1, 1), "{text}");
}
