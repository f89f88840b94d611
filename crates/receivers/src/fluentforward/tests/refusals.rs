//! Refusals: of messages, and what becomes of their senders and of those beside them.

use sluice_net::compress::compress;

use super::*;
use crate::netlog::testing::metric_of;

/// Guarantee: refused chunks are not acknowledged, the connection ends, and the sender can send
/// them again.
#[tokio::test]
async fn a_refused_chunk_is_not_acknowledged() {
    let intake = Arc::new(Intake::default());
    for refusal in [overloaded(), Refusal::Rejected { reason: "poison".to_owned() }] {
        intake.refusals.lock().push(refusal);
        let (_running, mut stream) = start(&intake, "").await;
        stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.records().len(), 0);
    }
}

/// Guarantee: messages whose sender keeps nothing are tried until they are accepted.
#[tokio::test]
async fn messages_without_a_chunk_are_kept_while_they_are_refused() {
    let intake = Arc::new(Intake::default());
    *intake.refusals.lock() = vec![overloaded(); 3];
    let (_running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..1, None)).await.expect("is sent");
    stream.write_all(&packed(1..2, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 2);
}

/// Scenario: a reload takes the pipelines away that messages without a chunk wait for, and there
/// are others. Guarantee: these take the messages.
#[tokio::test]
async fn messages_that_wait_go_to_the_pipelines_of_now() {
    let intake = Arc::new(Intake::default());
    *intake.refusals.lock() = vec![overloaded(); 5];
    let (_running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..1, None)).await.expect("is sent");
    while intake.refusals.lock().len() == 5 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    intake.reloads.store(1, Ordering::SeqCst);
    stream.write_all(&packed(1..2, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 2);
}

/// Scenario: the receiver ends while the engine takes nothing, and the engine then ends, too, or
/// the receiver's time is over. Guarantee: the messages that no sender keeps are counted as lost.
#[tokio::test]
async fn what_is_cut_off_is_counted() {
    for ends in [true, false] {
        let intake = Arc::new(Intake::default());
        intake.is_closed.store(true, Ordering::SeqCst);
        let (running, mut stream) = start(&intake, "").await;
        stream.write_all(&packed(0..3, None)).await.expect("is sent");
        let counters = running.counters();
        while metric_of(&*counters, "sluice_receiver_refused_requests", &["overloaded"]) == 0.0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let ending = tokio::spawn(running.shutdown());
        if ends {
            intake.has_ended.cancel();
        }
        timeout(Duration::from_secs(60), ending).await.expect("ends in time").expect("ends");
        assert_eq!(metric_of(&*counters, "otelcol_receiver_refused", &[]), 3.0, "{ends}");
        assert_eq!(
            metric_of(&*counters, "sluice_receiver_refused_requests", &["cut_off"]),
            1.0,
            "{ends}"
        );
        assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
    }
}

/// Scenario: a receipt refuses what no sender has a copy of. Guarantee: what the engine does not
/// keep is submitted again, and what it may have stored is not, so that each arrives once.
#[tokio::test]
async fn messages_without_a_chunk_are_stored_once_whatever_their_receipt_says() {
    for refusal in [overloaded(), Refusal::unconfirmed("the disk is in trouble")] {
        let intake = Arc::new(Intake::default());
        intake.answers.lock().push(refusal.clone());
        let (running, mut stream) = start(&intake, "").await;
        stream.write_all(&packed(0..3, None)).await.expect("is sent");
        let answered = async {
            while !intake.answers.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(10), answered).await.expect("it is submitted");
        stream.write_all(&packed(3..4, Some("id"))).await.expect("is sent");
        assert!(answer(&mut stream).await.is_some(), "the connection goes on");
        assert_eq!(intake.records().len(), 4, "{refusal:?}");
        running.shutdown().await;
        assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
    }
}

/// Scenario: a chunk, alone or beside a message without one, may be stored, but that is not sure.
/// Guarantee: it is not acknowledged, so that its sender sends it again; nothing else is repeated.
#[tokio::test]
async fn a_chunk_that_is_not_sure_to_be_stored_is_not_acknowledged() {
    let chunk = packed(0..1, Some("id"));
    for (sent, count) in [(chunk.clone(), 1), ([packed(1..2, None), chunk].concat(), 2)] {
        let intake = Arc::new(Intake::default());
        intake.answers.lock().push(Refusal::unconfirmed("the disk is in trouble"));
        let (_running, mut stream) = start(&intake, "").await;
        stream.write_all(&sent).await.expect("is sent");
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.records().len(), count);
    }
}

/// Scenario: a message without a chunk is refused for the moment, and no memory is left in which it
/// could wait. Guarantee: it is not kept, and the next one is taken.
#[tokio::test]
async fn messages_without_a_chunk_are_kept_only_in_memory_for_requests_that_wait() {
    let refusals = Mutex::new(vec![overloaded()]);
    let waiting = Arc::new(Waiting { limit_bytes: Some(0), ..Waiting::default() });
    let intake = Arc::new(Intake { refusals, waiting, ..Intake::default() });
    let (running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..3, None)).await.expect("is sent");
    while !intake.refusals.lock().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    stream.write_all(&packed(3..4, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 1);
    running.shutdown().await;
}

/// Guarantee: while the backend has not taken a chunk, its sender waits.
#[tokio::test]
async fn a_chunk_that_is_not_accepted_yet_is_not_acknowledged() {
    let intake = Arc::new(Intake { is_mute: true, ..Intake::default() });
    let (_running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..1, Some("id"))).await.expect("is sent");
    let mut byte = [0];
    let answered = timeout(Duration::from_millis(300), stream.read(&mut byte)).await;
    assert!(answered.is_err() && intake.records().len() == 1);
}

/// Scenario: messages without a chunk are refused, and then find no memory for a while. Guarantee:
/// all that time they are in memory for requests that wait, and in none once they are accepted.
#[tokio::test]
async fn messages_that_are_tried_again_have_memory_all_the_time() {
    let delay = Duration::from_millis(500);
    let first = Refusal::Retry { delay, reason: "busy".to_owned() };
    let refusals = Mutex::new(vec![first]);
    let intake = Arc::new(Intake { refusals, ..Intake::default() });
    let (running, mut stream) = start(&intake, "").await;
    stream.write_all(&packed(0..2000, None)).await.expect("is sent");
    let waiting_bytes = || intake.waiting.used_bytes.load(Ordering::SeqCst);
    let waits = async {
        while waiting_bytes() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(10), waits).await.expect("it waits in memory");
    *intake.admissions.lock() = vec![overloaded(); 20];
    while !intake.admissions.lock().is_empty() {
        assert!(waiting_bytes() > 50_000, "{}", waiting_bytes());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stream.write_all(&packed(2000..2001, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 2001);
    running.shutdown().await;
    assert_eq!(intake.waiting.used_bytes.load(Ordering::SeqCst), 0);
    assert_eq!(intake.used_bytes.load(Ordering::SeqCst), 0);
}

/// Scenario: among messages that arrive together is one that is none, has invalid records, or is
/// refused by the backend for good. Guarantee: only this one is refused; those beside it are
/// accepted and acknowledged before the connection ends.
#[tokio::test]
async fn a_bad_message_costs_only_itself() {
    let no_message = vec![0x93, 0xa1, b't', 0xc2, 0x80];
    let no_record = {
        let mut out = Vec::new();
        write_packed(&mut out, "bad.tag", &[0x92, 1, 0x90], 1, Some("bad"), false);
        out
    };
    let poison = packed(7..8, Some("poison"));
    for bad in [no_message, no_record, poison, vec![0xc1]] {
        let intake = Arc::new(Intake { poison: Some("7"), ..Intake::default() });
        let (_running, mut stream) = start(&intake, "").await;
        let ids: Vec<String> = (0..6).map(|index| format!("id-{index}")).collect();
        let good: Vec<_> = (0..6).map(|at| packed(at..at + 1, Some(&*ids[at as usize]))).collect();
        let (before, after) = good.split_at(3);
        // Where the next message begins cannot be known.
        let expected = if bad == [0xc1] { 3 } else { 6 };
        let all = [before.concat(), bad, after.concat()].concat();
        stream.write_all(&all).await.expect("is sent");
        for id in &ids[..expected] {
            let ack = answer(&mut stream).await.unwrap_or_else(|| panic!("{id} is acknowledged"));
            assert_eq!(read_ack(&ack), Ok(id.as_bytes()));
        }
        assert_eq!(answer(&mut stream).await, None);
        assert_eq!(intake.records().len(), expected);
    }
}

/// Guarantee: the connection of a sender that keeps nothing goes on without the bad message.
#[tokio::test]
async fn a_bad_message_without_a_chunk_leaves_the_connection_open() {
    let intake = Arc::new(Intake::default());
    let (_running, mut stream) = start(&intake, "").await;
    let mut bad = Vec::new();
    write_packed(&mut bad, "bad.tag", &[0x92, 1, 0x90], 1, None, false);
    let all = [packed(0..1, None), bad, packed(1..2, None)].concat();
    stream.write_all(&all).await.expect("is sent");
    stream.write_all(&packed(2..3, Some("id"))).await.expect("is sent");
    assert!(answer(&mut stream).await.is_some());
    assert_eq!(intake.records().len(), 3);
}

#[test]
fn a_refused_message_is_named_and_its_neighbours_are_not() {
    let mut bad = Vec::new();
    write_packed(&mut bad, "bad.tag", &[0x92, 1, 0x90], 1, Some("bad"), false);
    let (one, two) = (packed(0..2, Some("1")), packed(2..3, Some("2")));
    let pieces = converted(&[&one, &bad, &two], 1 << 20);
    let [first, second] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
    let refused = first.refused.as_ref().expect("is refused");
    assert!(refused.is_kept && refused.why.reason == Reason::Invalid);
    assert!(refused.why.message.contains("\"bad.tag\""), "{}", refused.why.message);
    assert_eq!((first.items, first.chunks, first.len_bytes), (2, 1, one.len()));
    assert_eq!((second.items, second.chunks, second.len_bytes), (1, 1, two.len()));
    assert!(second.refused.is_none());
}

/// Scenario: a few bytes that become many, several times at once. Guarantee: each message has the
/// limit for itself, and a request has no more than one of them beyond the size from which
/// submitting takes long.
#[tokio::test]
async fn messages_that_become_large_are_requests_of_their_own() {
    let message = |id: &str| {
        let events = Bytes::from(events(7..8).repeat(12_000));
        let packed = compress(Encoding::Gzip, &[events], None).expect("is compressed");
        let mut out = Vec::new();
        write_packed(&mut out, "t", &packed, 12_000, Some(id), true);
        out
    };
    let intake = Arc::new(Intake::default());
    let (_running, mut stream) = start(&intake, "max_message_size: 2MiB").await;
    let ids = ["1", "2", "3", "4"];
    let all = ids.map(message).concat();
    stream.write_all(&all).await.expect("is sent");
    for id in ids {
        let ack = answer(&mut stream).await.expect("is acknowledged");
        assert_eq!(read_ack(&ack), Ok(id.as_bytes()));
    }
    let taken: Vec<_> = intake.taken.lock().iter().map(|request| request.items).collect();
    assert_eq!(taken, [12_000; 4]);
}

/// Guarantee: no more large requests are submitted at a time than there are threads; small ones do
/// not wait for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 16)]
async fn large_requests_take_turns() {
    let submitting_takes = Duration::from_millis(100);
    let intake = Arc::new(Intake { submitting_takes, ..Intake::default() });
    let (running, first) = start(&intake, "").await;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let address = running.addresses()[0].1.clone();
    let mut streams = vec![first];
    while streams.len() < 2 * threads + 2 && streams.len() < 14 {
        streams.push(TcpStream::connect(&address).await.expect("connects"));
    }
    let message = packed(0..11_000, Some("id"));
    let sending = streams.iter_mut().map(async |stream| {
        stream.write_all(&message).await.expect("is sent");
        assert!(answer(stream).await.is_some());
    });
    futures_util::future::join_all(sending).await;
    let most = intake.most_submitting.load(Ordering::SeqCst);
    assert!(most <= threads, "{most} at a time");
}
