//! Messages of both RFCs over real sockets, and of `logger` of util-linux.

#[path = "../../../load-test/tests/support/component.rs"]
mod component;

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry_proto::tonic::logs::v1::LogRecord;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{sleep, timeout};

use super::read;
use crate::netlog::testing::{Engine, attribute, body, config, metric, start};

const RFC5424: &str = "<86>1 2015-08-05T21:58:59.693Z 192.168.2.132 SecureAuth0 23108 ID52020 \
                       [SecureAuth@27389 UserID=\"Tester2\"] Found the user";

fn tcp(more: &str) -> String {
    format!("{{{more}, tcp: {{listen_address: '127.0.0.1:0'}}}}")
}

fn udp(more: &str) -> String {
    format!("{{{more}, udp: {{listen_address: '127.0.0.1:0'}}}}")
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connects")
}

fn check(record: &LogRecord, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        assert_eq!(attribute(record, key), *value, "{key}: {record:?}");
    }
}

fn check_rfc5424(record: &LogRecord) {
    check(
        record,
        &[
            ("appname", "SecureAuth0"),
            ("facility", "10"),
            ("facility_text", "authpriv"),
            ("hostname", "192.168.2.132"),
            ("message", "Found the user"),
            ("msg_id", "ID52020"),
            ("priority", "86"),
            ("proc_id", "23108"),
            ("version", "1"),
        ],
    );
    assert!(attribute(record, "structured_data").contains("Tester2"));
    assert_eq!(record.time_unix_nano, 1_438_811_939_693_000_000);
    assert_eq!((record.severity_number, &*record.severity_text), (9, "info"));
}

#[tokio::test]
async fn both_rfcs_are_parsed_over_tcp_and_udp() {
    let engine = Arc::new(Engine::default());
    let (_tcp, to) = start(&engine, read, &tcp("protocol: rfc5424")).await;
    connect(to).await.write_all(format!("{RFC5424}\n").as_bytes()).await.expect("is sent");
    engine.wait_for(1).await;
    let (_udp, to) = start(&engine, read, &udp("protocol: rfc5424")).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("is bound");
    socket.send_to(format!("{RFC5424}\n\0").as_bytes(), to).await.expect("is sent");
    engine.wait_for(2).await;
    for record in engine.records() {
        check_rfc5424(&record);
        assert_eq!(body(&record), RFC5424);
    }
    let engine = Arc::new(Engine::default());
    let old = "<34>Jan  2 15:04:05 1.2.3.4 apache_server[7]: test message";
    let options = "protocol: rfc3164, location: America/Detroit, attributes: {foo: bar}";
    let (_tcp, to) = start(&engine, read, &tcp(options)).await;
    connect(to).await.write_all(old.as_bytes()).await.expect("is sent");
    engine.wait_for(1).await;
    let (_udp, to) = start(&engine, read, &udp(options)).await;
    socket.send_to(old.as_bytes(), to).await.expect("is sent");
    engine.wait_for(2).await;
    for record in engine.records() {
        let expected = [
            ("appname", "apache_server"),
            ("proc_id", "7"),
            ("hostname", "1.2.3.4"),
            ("facility_text", "auth"),
            ("foo", "bar"),
            ("message", "test message"),
        ];
        check(&record, &expected);
        assert_eq!(record.time_unix_nano % 86_400_000_000_000, (20 * 3600 + 245) * 1_000_000_000);
        assert_eq!((record.severity_number, &*record.severity_text), (18, "crit"));
    }
}

/// Guarantee: messages with their lengths before them are told apart wherever packets are cut.
#[tokio::test]
async fn octet_counts_are_read_across_packets() {
    let engine = Arc::new(Engine::default());
    let options = "protocol: rfc5424, enable_octet_counting: true";
    let (_running, address) = start(&engine, read, &tcp(options)).await;
    let message = format!("{RFC5424}\nof two lines ");
    let framed = format!("{} {message}", message.len());
    let bytes = framed.repeat(3);
    let mut stream = connect(address).await;
    stream.set_nodelay(true).expect("is set");
    for cut in [1, 2, 3, 4, 200, framed.len() - 1, framed.len() + 1] {
        stream.write_all(&bytes.as_bytes()[..cut]).await.expect("is sent");
        sleep(Duration::from_millis(120)).await;
        stream.write_all(&bytes.as_bytes()[cut..]).await.expect("is sent");
    }
    engine.wait_for(21).await;
    for record in engine.records() {
        assert_eq!(attribute(&record, "message"), "Found the user\nof two lines ");
        assert_eq!(body(&record), framed);
    }
}

/// Guarantee: a length counts the bytes that came, in whatever encoding they are.
#[tokio::test]
async fn octets_are_counted_before_they_are_decoded() {
    for encoding in ["latin-1", "utf-8"] {
        let engine = Arc::new(Engine::default());
        let yaml = format!(
            "{{protocol: rfc5424, enable_octet_counting: true, \
             tcp: {{listen_address: '127.0.0.1:0', encoding: {encoding}}}}}"
        );
        let (running, address) = start(&engine, read, &yaml).await;
        let message = [RFC5424.as_bytes(), b" \xfc\xfc"].concat();
        let framed = [format!("{} ", message.len()).as_bytes(), &message].concat();
        connect(address).await.write_all(&framed.repeat(2)).await.expect("is sent");
        engine.wait_for(2).await;
        let expected = if encoding == "utf-8" { "\u{fffd}\u{fffd}" } else { "üü" };
        for record in engine.records() {
            assert_eq!(attribute(&record, "message"), format!("Found the user {expected}"));
            let text = format!("{RFC5424} {expected}");
            assert_eq!(body(&record), format!("{} {text}", text.len()));
        }
        assert_eq!(metric(&*running, "sluice_receiver_operator_errors", &[]), 0.0);
    }
}

/// Guarantee: behind a length that is none, or too large, nothing is read; what was there is a
/// record, and the reason is counted.
#[tokio::test]
async fn a_connection_ends_with_a_wrong_octet_count() {
    for (wrong, reason) in [("no length", "invalid"), ("2000000 x", "too_large")] {
        let engine = Arc::new(Engine::default());
        let options = "protocol: rfc5424, enable_octet_counting: true";
        let (running, address) = start(&engine, read, &tcp(options)).await;
        let mut stream = connect(address).await;
        let framed = format!("{} {RFC5424}{wrong}", RFC5424.len());
        stream.write_all(framed.as_bytes()).await.expect("is sent");
        let closed = timeout(Duration::from_secs(5), stream.read(&mut [0])).await;
        assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{wrong}");
        engine.wait_for(2).await;
        check_rfc5424(&engine.records()[0]);
        assert_eq!(engine.bodies()[1], wrong);
        assert_eq!(metric(&*running, "sluice_receiver_refused_requests", &[reason]), 1.0);
        assert_eq!(metric(&*running, "sluice_receiver_operator_errors", &[]), 1.0);
    }
}

/// Guarantee: a message beyond `max_octets` fails alone, as `on_error` says.
#[tokio::test]
async fn a_message_beyond_max_octets_does_not_take_others_with_it() {
    let engine = Arc::new(Engine::default());
    let options =
        "protocol: rfc5424, enable_octet_counting: true, max_octets: 200, on_error: drop_quiet";
    let (running, address) = start(&engine, read, &tcp(options)).await;
    let framed = |text: &str| format!("{} {text}", text.len());
    let long = format!("{RFC5424}{}", "x".repeat(100));
    let all = [RFC5424, &long, RFC5424].map(framed).concat();
    connect(address).await.write_all(all.as_bytes()).await.expect("is sent");
    engine.wait_for(2).await;
    engine.records().iter().for_each(check_rfc5424);
    assert_eq!(metric(&*running, "sluice_receiver_dropped_records", &[]), 1.0);
}

#[tokio::test]
async fn messages_may_end_with_nul() {
    let engine = Arc::new(Engine::default());
    let options = "protocol: rfc5424, non_transparent_framing_trailer: NUL";
    let (_running, address) = start(&engine, read, &tcp(options)).await;
    let mut stream = connect(address).await;
    stream.write_all(format!("{RFC5424}\n\0{RFC5424}\0").as_bytes()).await.expect("is sent");
    engine.wait_for(2).await;
    engine.records().iter().for_each(check_rfc5424);
}

#[tokio::test]
async fn messages_may_lack_their_priority_or_be_any_text() {
    let engine = Arc::new(Engine::default());
    let options = "protocol: rfc3164, allow_skip_pri_header: true";
    let (_running, address) = start(&engine, read, &tcp(options)).await;
    let text = b"Jan  2 15:04:05 1.2.3.4 app: test\nnot at all\n";
    connect(address).await.write_all(text).await.expect("is sent");
    engine.wait_for(2).await;
    let records = engine.records();
    check(&records[0], &[("appname", "app"), ("priority", "None")]);
    assert_eq!(records[0].severity_number, 0);
    assert_eq!((body(&records[1]), records[1].attributes.len()), ("not at all".to_owned(), 0));
    let (_running, address) = start(&engine, read, &udp("protocol: none")).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("is bound");
    socket.send_to(b"<34>any text", address).await.expect("is sent");
    engine.wait_for(3).await;
    check(&engine.records()[2], &[("message", "<34>any text"), ("facility_text", "auth")]);
}

/// Runs `logger`, if the machine has it. Returns whether it has.
async fn logger(address: SocketAddr, words: &[&str]) -> bool {
    let mut command = Command::new("logger");
    command.args(["--server", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--tag", "tests", "--priority", "user.warning"]).args(words);
    let ran = tokio::task::spawn_blocking(move || command.status());
    match ran.await.expect("is run") {
        Ok(status) => {
            assert!(status.success(), "{status}");
            true
        }
        Err(error) => {
            println!("no logger of util-linux: {error}");
            false
        }
    }
}

/// Guarantee: what a real client sends is parsed, in each of its forms.
#[tokio::test]
async fn messages_of_logger_arrive() {
    let cases: [(&str, &str, &[&str]); 6] = [
        ("tcp", "protocol: rfc5424", &["--tcp", "--rfc5424"]),
        (
            "tcp",
            "protocol: rfc5424, enable_octet_counting: true",
            &["--tcp", "--octet-count", "--rfc5424"],
        ),
        ("tcp", "protocol: rfc3164", &["--tcp", "--rfc3164"]),
        (
            "tcp",
            "protocol: rfc3164, enable_octet_counting: true",
            &["--tcp", "--octet-count", "--rfc3164"],
        ),
        ("udp", "protocol: rfc5424", &["--udp", "--rfc5424"]),
        ("udp", "protocol: rfc3164", &["--udp", "--rfc3164"]),
    ];
    for (transport, options, words) in cases {
        let engine = Arc::new(Engine::default());
        let yaml = if transport == "tcp" { tcp(options) } else { udp(options) };
        let (running, address) = start(&engine, read, &yaml).await;
        for text in ["first message", "second one"] {
            if !logger(address, &[words, &["--", text]].concat()).await {
                return;
            }
        }
        engine.wait_for(2).await;
        let mut messages = Vec::new();
        for record in engine.records() {
            check(&record, &[("appname", "tests"), ("priority", "12"), ("facility_text", "user")]);
            assert_eq!(&*record.severity_text, "warning");
            assert!(record.time_unix_nano > 0);
            messages.push(attribute(&record, "message"));
        }
        // Two connections have no order.
        messages.sort();
        assert_eq!(messages, ["first message", "second one"], "{options}");
        assert_eq!(metric(&*running, "sluice_receiver_operator_errors", &[]), 0.0);
    }
}

/// Guarantee: each message of a real rsyslog arrives once and in order, in each of its frames.
#[tokio::test]
async fn messages_of_rsyslog_arrive() {
    const LINES: usize = 2000;
    let Some(program) = component::component("SLUICE_TEST_RSYSLOG") else { return };
    for (framing, options) in [
        ("traditional", "protocol: rfc5424"),
        ("octet-counted", "protocol: rfc5424, enable_octet_counting: true"),
    ] {
        let engine = Arc::new(Engine::default());
        let (running, address) = start(&engine, read, &tcp(options)).await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let lines: String = (0..LINES).map(|number| format!("line {number}\n")).collect();
        std::fs::write(folder.path().join("lines"), lines).expect("is written");
        let config = format!(
            "global(workDirectory=\"{path}\")\nmodule(load=\"imfile\")\n\
             input(type=\"imfile\" file=\"{path}/lines\" tag=\"tests\" severity=\"info\")\n\
             *.* action(type=\"omfwd\" target=\"127.0.0.1\" port=\"{}\" protocol=\"tcp\" \
             TCP_Framing=\"{framing}\" template=\"RSYSLOG_SyslogProtocol23Format\")\n",
            address.port()
        );
        let file = folder.path().join("rsyslog.conf");
        std::fs::write(&file, config).expect("is written");
        let mut command = Command::new(&program);
        command.arg("-n").arg("-f").arg(&file).arg("-i").arg(folder.path().join("pid"));
        let mut process = command.spawn().expect("starts");
        let of_tests = || {
            let records = engine.records().into_iter();
            let records = records.filter(|record| attribute(record, "appname") == "tests");
            records.map(|record| attribute(&record, "message")).collect::<Vec<_>>()
        };
        for _ in 0..3000 {
            if of_tests().len() >= LINES {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        process.kill().expect("is ended");
        process.wait().expect("has ended");
        let expected: Vec<_> = (0..LINES).map(|number| format!("line {number}")).collect();
        assert!(of_tests() == expected, "{framing}: {:?}", of_tests().first());
        assert_eq!(metric(&*running, "sluice_receiver_operator_errors", &[]), 0.0);
    }
}

#[test]
fn wrong_options_are_errors() {
    let at = "{listen_address: ':514'}";
    for (yaml, why) in [
        ("{}".to_owned(), "protocol"),
        ("{protocol: rfc5424}".to_owned(), "needs `tcp` or `udp`"),
        (format!("{{tcp: {at}}}"), "protocol"),
        (format!("{{protocol: fake, tcp: {at}}}"), "rfc3164"),
        (format!("{{protocol: rfc3164, location: nowhere, tcp: {at}}}"), "location"),
        (format!("{{protocol: rfc5424, enable_octet_counting: true, udp: {at}}}"), "a datagram"),
        (
            format!("{{protocol: rfc3164, non_transparent_framing_trailer: LF, tcp: {at}}}"),
            "only for `protocol: rfc5424`",
        ),
        ("{protocol: rfc5424, tcp: {}}".to_owned(), "listen_address"),
    ] {
        let said = config(read, &yaml).map(|_| ()).expect_err(&yaml);
        assert!(said.contains(why), "{yaml}: {said}");
    }
}
