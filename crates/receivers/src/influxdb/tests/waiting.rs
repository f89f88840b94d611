//! Overload and refusals of the engine.

use super::*;

const MIB: usize = 1 << 20;

fn lines(number: usize) -> Vec<u8> {
    (0..number).flat_map(|line| format!("m,t=x v={line} {line}\n").into_bytes()).collect()
}

/// Scenario: the engine is overloaded when a write comes, and for some time. Guarantee: the sender
/// waits and is not refused; what waits holds little; then all is taken.
#[tokio::test]
async fn an_answer_waits_while_the_engine_is_overloaded() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    engine.is_overloaded.store(true, Ordering::SeqCst);
    let body = lines(30_000);
    let mut writing = Box::pin(send(&*receiver, "POST /write?db=a", &body));
    let early = tokio::time::timeout(Duration::from_millis(700), writing.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!((engine.points(), engine.receiving.held.load(Ordering::SeqCst)), (0, 0));
    assert!(engine.waiting.held.load(Ordering::SeqCst) <= 512 << 10);
    engine.is_overloaded.store(false, Ordering::SeqCst);
    let answer = writing.as_mut().await;
    drop(writing);
    assert_eq!((parts(&answer), engine.points()), ((204, ""), 30_000));
    assert!(metric(&*receiver, &["sluice_influxdb_waits"]) >= 1.0);
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: the engine refuses a request of a body for the moment, and has nothing of it.
/// Guarantee: it is submitted again, once.
#[tokio::test]
async fn a_request_that_is_refused_for_the_moment_is_submitted_again() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let delay = Duration::from_millis(10);
    let refusal = Refusal::Retry { delay, reason: "a reload".to_owned() };
    engine.refusals.lock().extend([refusal.clone(), refusal]);
    let answer = send(&*receiver, "POST /write?db=a", &lines(30_000)).await;
    assert_eq!((parts(&answer), engine.points()), ((204, ""), 30_000));
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: one of several requests of a body is refused for good, or never fits. Guarantee: the
/// others are taken, and the answer names the lines that were not, and the number of their points.
#[tokio::test]
async fn a_request_that_is_refused_for_good_costs_no_others() {
    let reason = || "no such tenant".to_owned();
    for (refusal, label, expected) in [
        (Refusal::Rejected { reason: reason() }, "\"rejected\"", 400),
        (Refusal::TooLarge { reason: reason() }, "\"never_fits\"", 413),
    ] {
        let engine = Engine::new(64 * MIB);
        let receiver = start(&engine, "").await;
        engine.refusals.lock().push(refusal);
        let answer = send(&*receiver, "POST /write?db=a", &lines(30_000)).await;
        let dropped = 30_000 - engine.points();
        assert!(dropped > 0 && engine.points() > 0);
        let (status, body) = parts(&answer);
        let text = format!("partial write: no such tenant: lines 1 to {dropped} dropped={dropped}");
        assert_eq!(status, expected);
        assert!(body.contains(&text), "{body}");
        assert_eq!(metric(&*receiver, &["refused_requests", label]), 1.0);
        let refused = metric(&*receiver, &["otelcol_receiver_refused_metric_points"]);
        assert_eq!(refused, dropped as f64);
    }
}

/// Scenario: the process ends while a write waits; a frame's fate is unknown. Guarantee: the sender
/// is told to come back.
#[tokio::test]
async fn senders_come_back_after_an_end() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    engine.refusals.lock().push(Refusal::unconfirmed("the disk is in trouble"));
    let answer = send(&*receiver, "POST /write?db=a", b"m v=1\n").await;
    assert_eq!(parts(&answer).0, 503, "{answer}");
    assert!(answer.contains("retry-after: ") && answer.contains("in trouble"), "{answer}");
    engine.is_overloaded.store(true, Ordering::SeqCst);
    let body = b"m v=1\n";
    let end = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        engine.closed.cancel();
    };
    let (answer, ()) = tokio::join!(send(&*receiver, "POST /api/v2/write?bucket=a", body), end);
    assert_eq!(parts(&answer).0, 503, "{answer}");
    assert!(answer.contains("retry-after: ") && answer.contains("unavailable"), "{answer}");
    assert_eq!(engine.points(), 0);
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: a body comes slowly while others wait for memory. Guarantee: what came of it is
/// submitted, so that it holds no memory for receiving, and it is not refused.
#[tokio::test]
async fn a_slow_body_gives_its_memory_back() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let mut stream = connect(&*receiver).await;
    let head = "POST /write?db=a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-length: 12\r\n\r\nm v=1\nm";
    stream.write_all(head.as_bytes()).await.expect("writes");
    until(|| engine.receiving.held.load(Ordering::SeqCst) > 0).await;
    assert_eq!(engine.points(), 0);
    engine.receiving.is_asked_back.store(true, Ordering::SeqCst);
    until(|| engine.points() == 1).await;
    until(|| engine.receiving.held.load(Ordering::SeqCst) == 0).await;
    stream.write_all(b" v=2\n").await.expect("writes");
    let answer = read(stream).await;
    assert_eq!((parts(&answer), engine.points()), ((204, ""), 2));
}

/// Scenario: a reload ends the receiver while a write waits, for longer than other requests are
/// given to end. Guarantee: the write waits on, and is taken once the engine takes something.
#[tokio::test]
async fn a_write_that_waits_outlives_a_reload() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    engine.is_overloaded.store(true, Ordering::SeqCst);
    let stream = waiting_write(&*receiver, "m v=1\n").await;
    let ending = tokio::spawn(receiver.shutdown());
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(!ending.is_finished(), "the write was given up");
    engine.is_overloaded.store(false, Ordering::SeqCst);
    assert_eq!(parts(&read(stream).await), (204, ""));
    ending.await.expect("ends");
    assert_eq!(engine.points(), 1);
    engine.assert_is_free();
}

/// Scenario: the process ends while a write waits in a receiver that a reload has ended. Guarantee:
/// the sender is told to come back, and the receiver ends.
#[tokio::test]
async fn a_write_that_outlives_a_reload_ends_with_the_process() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    engine.is_overloaded.store(true, Ordering::SeqCst);
    let stream = waiting_write(&*receiver, "m v=1\n").await;
    let ending = tokio::spawn(receiver.shutdown());
    engine.closed.cancel();
    assert_eq!(parts(&read(stream).await).0, 503);
    ending.await.expect("ends");
    engine.assert_is_free();
}

/// Sends a write, and returns once it waits.
async fn waiting_write(receiver: &dyn StartedReceiver, body: &str) -> TcpStream {
    let mut stream = connect(receiver).await;
    let len = body.len();
    let request =
        format!("POST /write?db=a HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.expect("writes");
    until(|| metric(receiver, &["sluice_influxdb_waits"]) >= 1.0).await;
    stream
}

/// Scenario: a body trickles, and has the last memory in which another could wait. Guarantee: it
/// is refused retryably once another one comes, and that one is taken.
#[tokio::test]
async fn a_body_that_trickles_keeps_no_other_out() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let mut slow = connect(&*receiver).await;
    let head = "POST /write?db=a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-length: 12\r\n\r\nm v=1\nm";
    slow.write_all(head.as_bytes()).await.expect("writes");
    until(|| engine.receiving.held.load(Ordering::SeqCst) > 0).await;
    let rest = 64 * MIB - engine.waiting.held.load(Ordering::SeqCst);
    let spent = Permit::take(engine.waiting.clone(), rest).expect("there is memory");
    let answer = send(&*receiver, "POST /write?db=a", b"m v=3\n").await;
    assert_eq!(parts(&answer), (204, ""));
    let refused = read(slow).await;
    assert!(refused.contains(" 503 ") && refused.contains("comes slowly"), "{refused}");
    drop(spent);
    assert_eq!(engine.points(), 1);
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: the engine refuses a request for the moment when no memory for waiting is left.
/// Guarantee: the sender waits until there is some, and is not refused.
#[tokio::test]
async fn a_refused_request_waits_for_memory_to_wait() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let mut stream = connect(&*receiver).await;
    let head = "POST /write?db=a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
                content-length: 6\r\n\r\nm v";
    stream.write_all(head.as_bytes()).await.expect("writes");
    until(|| engine.receiving.held.load(Ordering::SeqCst) > 0).await;
    let delay = Duration::from_millis(10);
    engine.refusals.lock().push(Refusal::Retry { delay, reason: "a reload".to_owned() });
    let rest = 64 * MIB - engine.waiting.held.load(Ordering::SeqCst);
    let spent = Permit::take(engine.waiting.clone(), rest).expect("there is memory");
    stream.write_all(b"=1\n").await.expect("writes");
    until(|| engine.refusals.lock().is_empty()).await;
    let answered = tokio::time::timeout(Duration::from_millis(500), stream.readable()).await;
    assert!(answered.is_err(), "the write was answered");
    drop(spent);
    assert_eq!((parts(&read(stream).await), engine.points()), ((204, ""), 1));
    receiver.shutdown().await;
    engine.assert_is_free();
}

/// Scenario: no memory is left for the form of a query. Guarantee: the sender is told to come back.
#[tokio::test]
async fn a_form_without_memory_is_refused_for_the_moment() {
    let engine = Engine::new(64 * MIB);
    let receiver = start(&engine, "").await;
    let spent = Permit::take(engine.waiting.clone(), 64 * MIB).expect("there is memory");
    let head = "POST /query\ncontent-type: application/x-www-form-urlencoded";
    let answer = send(&*receiver, head, b"q=SHOW+DATABASES").await;
    assert_eq!(parts(&answer).0, 503, "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
    drop(spent);
    assert_eq!(parts(&send(&*receiver, head, b"q=SHOW+DATABASES").await).0, 200);
    receiver.shutdown().await;
    engine.assert_is_free();
}
