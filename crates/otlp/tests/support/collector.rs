//! A real OpenTelemetry Collector between a sender and a listener in the test: OTLP/HTTP in,
//! OTLP/JSON out, one export for one request.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use sluice_otlp::Signal;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const EXPORT_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Collector {
    process: Child,
    address: SocketAddr,
    exported: Receiver<Vec<u8>>,
    /// For the configuration and the log.
    directory: PathBuf,
}

impl Collector {
    /// None if no Collector is installed and the environment does not require one: then the test
    /// has to say that it is skipped.
    pub fn start() -> Option<Collector> {
        Collector::start_with("{}", "[]")
    }

    /// One with these processors, as YAML, and a list of their ids.
    pub fn start_with(processors: &str, ids: &str) -> Option<Collector> {
        let binary = binary()?;
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port for the listener");
        let backend = listener.local_addr().expect("an address");
        let (sender, exported) = channel();
        thread::spawn(move || serve(&listener, &sender));

        let address = free_address();
        let name = format!("json-collector-{}-{}", std::process::id(), address.port());
        let directory = env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a directory for the configuration");
        let config = directory.join("config.yaml");
        fs::write(&config, configuration(address, backend, processors, ids))
            .expect("the configuration can be written");
        let log = fs::File::create(directory.join("log")).expect("the log can be written");
        let process = Command::new(&binary)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{} does not start: {error}", binary.display()));
        let mut collector = Collector { process, address, exported, directory };
        collector.wait_until_ready();
        Some(collector)
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(self.address).is_err() {
            let exited = self.process.try_wait().expect("the process can be asked");
            if exited.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
                panic!("the Collector is not ready ({exited:?}):\n{log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sends an OTLP/JSON body and answers the Collector's export of it, or its HTTP status if it
    /// refuses.
    pub fn pass(&self, signal: Signal, json: &[u8]) -> Result<Vec<u8>, u16> {
        let mut stream = TcpStream::connect(self.address).expect("the Collector takes connections");
        let path = signal.http_path();
        let len = json.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: collector\r\nContent-Type: application/json\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n"
        );
        stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(json))
            .expect("the Collector reads the request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the Collector answers in text");
        let status =
            answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line");
        if status != 200 {
            return Err(status);
        }
        Ok(self
            .exported
            .recv_timeout(EXPORT_TIMEOUT)
            .expect("the Collector exports what it accepted"))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn binary() -> Option<PathBuf> {
    let is_required = env::var("SLUICE_TEST_REQUIRE_COMPONENTS").is_ok_and(|value| value == "1");
    match env::var_os("SLUICE_TEST_OTELCOL").map(PathBuf::from) {
        Some(path) if path.is_file() => Some(path),
        found if is_required => {
            panic!("the Collector is required but missing (SLUICE_TEST_OTELCOL: {found:?})")
        }
        _ => None,
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address")
}

/// Without a queue the export happens before the sender is answered, so that each export belongs to
/// its request.
fn configuration(address: SocketAddr, backend: SocketAddr, processors: &str, ids: &str) -> String {
    let pipeline = "{ receivers: [otlp], exporters: [otlphttp] }";
    let metrics = format!("{{ receivers: [otlp], processors: {ids}, exporters: [otlphttp] }}");
    format!(
        "receivers: {{ otlp: {{ protocols: {{ http: {{ endpoint: '{address}' }} }} }} }}
processors: {processors}
exporters:
  otlphttp:
    endpoint: http://{backend}
    encoding: json
    compression: none
    sending_queue: {{ enabled: false }}
    retry_on_failure: {{ enabled: false }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines: {{ traces: {pipeline}, metrics: {metrics}, logs: {pipeline} }}
"
    )
}

/// Answers every request with an empty success and hands on its body.
fn serve(listener: &TcpListener, exported: &Sender<Vec<u8>>) {
    for stream in listener.incoming() {
        let stream = stream.expect("a connection");
        let exported = exported.clone();
        thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            while let Some(body) = read_request(&mut reader) {
                let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                              Content-Length: 2\r\n\r\n{}";
                if exported.send(body).is_err()
                    || reader.get_mut().write_all(answer.as_bytes()).is_err()
                {
                    return;
                }
            }
        });
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut len = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            len = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}
