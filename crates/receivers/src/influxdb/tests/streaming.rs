//! Bodies of any length, in little memory.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;

const MIB: usize = 1 << 20;

pub(super) fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).expect("compresses");
    encoder.finish().expect("compresses")
}

/// Lines as k6 writes them, of this length in all at least.
fn samples(len: usize) -> (Vec<u8>, u64) {
    let (mut body, mut lines) = (Vec::with_capacity(len + 512), 0);
    while body.len() < len {
        for name in ["http_reqs", "http_req_duration", "http_req_waiting"] {
            let line = format!(
                "{name},method=GET,name=http://shop/{},scenario=default,status=200 value={} {}\n",
                lines % 7,
                lines % 100,
                1_700_000_000_000_000_000_u64 + lines
            );
            body.extend_from_slice(line.as_bytes());
            lines += 1;
        }
    }
    (body, lines)
}

fn peak(pool: &Pool) -> usize {
    pool.peak.load(Ordering::SeqCst)
}

/// Scenario: a body of 64 MiB, plain and packed, where there are 2 MiB. Guarantee: all lines become
/// points, in requests of a quarter of a megabyte, and no more memory is used than one of them
/// needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_larger_than_all_memory_is_taken() {
    let (body, lines) = samples(64 * MIB);
    let packed = gzip(&body);
    for (head, body) in
        [("POST /write?db=a", &body), ("POST /write?db=a\ncontent-encoding: gzip", &packed)]
    {
        let engine = Engine::new(2 * MIB);
        let receiver = start(&engine, "").await;
        let answer = send(&*receiver, head, body).await;
        assert_eq!(parts(&answer), (204, ""), "{answer}");
        assert_eq!(engine.points(), lines);
        let sizes: Vec<_> = engine.taken.lock().iter().map(|(_, bytes)| bytes.len()).collect();
        assert!(sizes.iter().all(|size| *size < 300 << 10), "{:?}", sizes.iter().max());
        let small = sizes.iter().filter(|size| **size < 200 << 10).count();
        assert!(!sizes.is_empty() && small <= 2, "{small} of {}", sizes.len());
        let most = [&engine.receiving, &engine.waiting].map(|pool| peak(pool));
        assert!(most[0] <= 3 * MIB / 2 && most[1] <= MIB / 4, "{most:?}");
        assert_eq!(metric(&*receiver, &["sluice_influxdb_lines"]), lines as f64);
        assert_eq!(metric(&*receiver, &["sluice_influxdb_waits"]), 0.0);
        let bytes = metric(&*receiver, &["sluice_receiver_accepted_bytes"]);
        assert_eq!(bytes, body.len() as f64);
        receiver.shutdown().await;
        engine.assert_is_free();
    }
}

/// Guarantee: a small body needs little memory.
#[tokio::test]
async fn a_small_body_asks_for_little() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let (body, lines) = samples(2000);
    let answer = send(&*receiver, "POST /write?db=a", &body).await;
    assert_eq!((parts(&answer).0, engine.points()), (204, lines));
    assert!(peak(&engine.receiving) <= 70_000, "{}", peak(&engine.receiving));
}

/// Scenario: small bodies that become large: packed lines, an endless line, a line with long tags
/// and many fields. Guarantee: memory stays bounded, a line that never ends or becomes too large is
/// a fault of its own, and the others are taken. Quotes that never end hide them, and are named.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_burst_in_little_memory() {
    let alike = b"m v=1 1\n".repeat(MIB);
    let endless = [&b"m v=1\n"[..], &vec![b'x'; 64 * MIB], b"\nm v=2\n"].concat();
    let tag = "x".repeat(60_000);
    let fields: Vec<String> = (0..10_000).map(|field| format!("f{field}=1")).collect();
    let wide = format!("m v=1\nm,t={tag} {}\nm v=2\n", fields.join(","));
    let quotes = [&b"m v=1\nm s=\""[..], &b"m v=2\n".repeat(MIB)].concat();
    for (name, plain, points, fault) in [
        ("quotes", &quotes, 1, "longer than 1048576 bytes: unbalanced quotes, with 1048576 line"),
        ("alike", &alike, MIB as u64, ""),
        ("endless", &endless, 2, "a line is longer than 1048576 bytes"),
        ("wide", &wide.into_bytes(), 2, "a line becomes at most 8 MiB"),
    ] {
        let engine = Engine::new(4 * MIB);
        let receiver = start(&engine, "").await;
        let head = "POST /write?db=a\ncontent-encoding: gzip";
        let answer = send(&*receiver, head, &gzip(plain)).await;
        let (status, body) = parts(&answer);
        assert_eq!((status, engine.points()), (if fault.is_empty() { 204 } else { 400 }, points));
        assert!(body.contains(fault) && body.len() < 4096, "{name} {answer}");
        let most = [&engine.receiving, &engine.waiting].map(|pool| peak(pool));
        assert!(most[0] <= 3 * MIB && most[1] <= MIB / 4, "{name} {most:?}");
        receiver.shutdown().await;
        engine.assert_is_free();
    }
}

/// Scenario: a line that becomes larger than a request usually is. Guarantee: it is taken, with the
/// memory that it needs.
#[tokio::test]
async fn a_line_may_be_larger_than_a_request() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let tag = "x".repeat(20_000);
    let fields: Vec<String> = (0..60).map(|field| format!("f{field}=1")).collect();
    let body = format!("m v=1\nm,t={tag} {}\nm v=2\n", fields.join(","));
    let answer = send(&*receiver, "POST /write?db=a", body.as_bytes()).await;
    assert_eq!((parts(&answer), engine.points()), ((204, ""), 62));
}

/// Scenario: a text is a tenth of all memory. Guarantee: its line is taken.
#[tokio::test]
async fn a_text_takes_little_more_than_its_length() {
    let engine = Engine::new(MIB / 2);
    let receiver = start(&engine, "").await;
    let body = format!("m v=1\nm s=\"{}\",v=2\nm v=3\n", "x".repeat(50_000));
    let answer = send(&*receiver, "POST /write?db=a", body.as_bytes()).await;
    assert_eq!((parts(&answer), engine.points()), ((204, ""), 3));
}

/// Scenario: a line between good ones takes more memory than there ever is, where it becomes OTLP
/// or already while it comes. Guarantee: it is a fault of its own, which the answer names, and the
/// others are taken. Where all lines or none are taken, none is.
#[tokio::test]
async fn a_line_without_room_costs_no_others() {
    let packed = "\ncontent-encoding: gzip";
    for (memory, text, headers) in [
        (128 << 10, 20_000, ""),
        (MIB / 2, 100_000, ""),
        (MIB / 2, 100_000, packed),
        (MIB / 2, 400_000, packed),
    ] {
        let long = format!("long s=\"{}\",v=2", "x".repeat(text));
        let engine = Engine::new(memory);
        let receiver = start(&engine, "").await;
        let reason = "it takes more memory than there is for a request";
        let write = async |path: &str, body: String| {
            let body = body.into_bytes();
            let body = if headers.is_empty() { body } else { gzip(&body) };
            send(&*receiver, &format!("POST {path}{headers}"), &body).await
        };
        let body = format!("m v=1\n{long}\nm v=3\n");
        let answer = write("/write?db=a", body.clone()).await;
        let (status, said) = parts(&answer);
        assert_eq!((status, engine.points()), (400, 2), "{text} {answer}");
        assert!(said.contains("partial write: unable to parse 'long s="), "{said}");
        assert!(said.contains(&format!("x': {reason} dropped=0")), "{said}");
        let answer = write("/api/v3/write_lp?db=a", body).await;
        assert_eq!((parts(&answer).0, engine.points()), (400, 4), "{text} {answer}");
        assert!(answer.contains("\"line_number\":2") && answer.contains(reason), "{answer}");
        // The last line, whose end is that of the body.
        let answer = write("/write?db=a", format!("m v=1\n{long}")).await;
        assert_eq!((parts(&answer).0, engine.points()), (400, 5), "{text} {answer}");
        let answer = write("/api/v3/write_lp?db=a&accept_partial=false", long).await;
        assert_eq!((parts(&answer).0, engine.points()), (400, 5), "{text} {answer}");
        assert_eq!(metric(&*receiver, &["sluice_influxdb_line_faults"]), 4.0);
        receiver.shutdown().await;
        engine.assert_is_free();
    }
}

/// Scenario: a line with a long text stands alone, or behind others of which something is
/// remembered. Guarantee: it is taken behind them where it is taken alone.
#[tokio::test]
async fn a_line_is_judged_by_itself() {
    let others: String = (0..20).map(|other| format!("m{other} v=1\n")).collect();
    let (mut taken, mut refused) = (0, 0);
    for text in (9_000..20_000).step_by(1_500) {
        let line = format!("long s=\"{}\",v=2\n", "x".repeat(text));
        let mut answers = Vec::new();
        for (body, points) in [(line.clone(), 1), (format!("{others}{line}"), 21)] {
            let engine = Engine::new(128 << 10);
            let receiver = start(&engine, "").await;
            let answer = send(&*receiver, "POST /write?db=a", body.as_bytes()).await;
            let is_taken = engine.points() == points;
            assert_eq!(parts(&answer).0, if is_taken { 204 } else { 400 }, "{text} {answer}");
            answers.push(is_taken);
        }
        assert_eq!(answers[0], answers[1], "{text}");
        *(if answers[0] { &mut taken } else { &mut refused }) += 1;
    }
    assert!(taken > 0 && refused > 0, "{taken} {refused}");
}

/// Scenario: a body comes in chunks of a few bytes. A string in it has a line break, and its last
/// line has none. Guarantee: it is taken as if it came at once.
#[tokio::test]
async fn cuts_make_no_difference() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let body = "m,a=b v=1,s=\"x\ny\" 7\nbad\n\nm v=2i\r\nlast v=3";
    for size in [1, 2, 7, 100] {
        let mut stream = connect(&*receiver).await;
        let head = "POST /write?db=a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                    transfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.expect("writes");
        for piece in body.as_bytes().chunks(size) {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
            stream.write_all(&chunk).await.expect("writes");
        }
        stream.write_all(b"0\r\n\r\n").await.expect("writes");
        let answer = read(stream).await;
        assert_eq!(parts(&answer).0, 400, "{answer}");
        assert!(parts(&answer).1.contains("partial write: unable to parse 'bad'"), "{answer}");
    }
    assert_eq!(engine.points(), 12);
    let requests = engine.requests();
    assert!(requests.iter().all(|request| format!("{request:?}").contains("x\\ny")));
}

/// Scenario: a client goes away in the middle of a body. Guarantee: what was accepted stays, and
/// nothing is held any more.
#[tokio::test]
async fn a_body_that_breaks_off_leaves_what_was_accepted() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let (body, lines) = samples(4 * MIB);
    let mut stream = connect(&*receiver).await;
    let head =
        format!("POST /write?db=a HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", 8 * MIB);
    stream.write_all(&[head.as_bytes(), &body].concat()).await.expect("writes");
    until(|| engine.points() > lines / 2).await;
    drop(stream);
    until(|| metric(&*receiver, &["refused_requests", "\"broken_off\""]) == 1.0).await;
    assert!(engine.points() <= lines);
    until(|| engine.receiving.held.load(Ordering::SeqCst) == 0).await;
    receiver.shutdown().await;
    engine.assert_is_free();
}
