//! The forward protocol of Fluentd and Fluent Bit: MessagePack, messages, and the handshake.

use sluice_config::Secret;
use sluice_net::forward::handshake::{Client, Server, SharedSecret, User};
use sluice_net::forward::message::{
    EventReader, Events, Message, read_ack, write_ack, write_packed,
};
use sluice_net::forward::msgpack::{Item, Reader, Scanner, Write as _};

/// The end of a value is found whatever pieces it arrives in, and its items end there too.
pub fn check_msgpack(data: &[u8]) {
    let whole = Scanner::default().scan(data);
    let mut pieces = Scanner::default();
    let mut found = Ok(None);
    for end in 0..=data.len() {
        let before = pieces.least_bytes();
        found = pieces.scan(&data[..end]);
        assert!(pieces.least_bytes() >= before, "it needs no less than it was known to");
        if found != Ok(None) {
            break;
        }
    }
    assert_eq!(found, whole);
    let mut reader = Reader::new(data);
    let (mut left, mut values) = (1_u64, 0);
    while left > 0 {
        let Ok(item) = reader.item() else { break };
        (left, values) = (left - 1, values + 1);
        left = left.saturating_add(match item {
            Item::Array(parts) => parts as u64,
            Item::Map(pairs) => 2 * pairs as u64,
            _ => 0,
        });
    }
    match whole {
        Ok(Some(length)) => {
            assert_eq!((left, reader.position()), (0, length));
            assert_eq!(Reader::new(data).size(), Ok((length, values)));
        }
        _ => assert!(left > 0 && Reader::new(data).skip().is_err()),
    }
}

/// A message that is read reads the same when it is written, and so does its acknowledgement.
/// The key lets in, and nothing else.
pub fn check_forward(data: &[u8]) {
    check_handshake(data);
    if let Ok(chunk) = read_ack(data) {
        check_ack(chunk);
    }
    let Ok(Some(message)) = Message::read(data) else { return };
    let mut events = Vec::new();
    let Some(count) = read_events(message.events, &mut events) else { return };
    if let Some(chunk) = message.chunk {
        check_ack(chunk);
    }
    let Ok(tag) = std::str::from_utf8(message.tag) else { return };
    let chunk = match message.chunk.map(std::str::from_utf8) {
        None => None,
        Some(Ok(chunk)) => Some(chunk),
        Some(Err(_)) => return,
    };
    let mut written = Vec::new();
    write_packed(&mut written, tag, &events, count, chunk, false);
    let again = Message::read(&written).expect("it is a message").expect("it has events");
    assert_eq!((again.tag, again.chunk, again.compressed), (message.tag, message.chunk, None));
    let mut same = Vec::new();
    assert_eq!(read_events(again.events, &mut same), Some(count));
    assert!(same == events);
}

/// Writes events anew, each with its time as it was understood. Returns their number. `None`: not
/// all of them are events.
fn read_events(events: Events<'_>, out: &mut Vec<u8>) -> Option<usize> {
    let mut reader = EventReader::new(events).ok()?;
    let mut count = 0;
    while let Some(head) = reader.next_head().ok()? {
        if let Some(mut metadata) = head.metadata {
            metadata.skip().expect("it was skipped before");
        }
        let record = reader.reader.skip().ok()?;
        out.write_array(2);
        // Of these whole seconds the same is read.
        out.write_int(head.time_ns / 1_000_000_000);
        out.extend_from_slice(record);
        count += 1;
    }
    Some(count)
}

fn check_ack(chunk: &[u8]) {
    let mut ack = Vec::new();
    write_ack(&mut ack, chunk);
    assert_eq!(read_ack(&ack).expect("it is one"), chunk);
}

fn check_handshake(data: &[u8]) {
    let key = Secret::new("the key of both sides");
    let secret = SharedSecret { key, hostname: "server".to_owned() };
    let users = [User { name: "user".to_owned(), password: Secret::new("password") }];
    for users in [&users[..], &[]] {
        let server = Server::new(&secret, users).expect("random bytes");
        if let Ok((_, refused)) = server.answer(data) {
            assert!(refused.is_some(), "no input knows the key and the nonce");
        }
    }
    let server = Server::new(&secret, &[]).expect("random bytes");
    let own = SharedSecret { hostname: "client".to_owned(), ..secret.clone() };
    let _ = Client::greet(&own, None, data, [7; 16]);
    let greeted = Client::greet(&own, None, &server.hello(), [7; 16]);
    let (client, _) = greeted.expect("it is a HELO");
    if let Ok(verdict) = client.verdict(data) {
        assert!(verdict.is_err(), "no input knows the key and the salt");
    }
}
