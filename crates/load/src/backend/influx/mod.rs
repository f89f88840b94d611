//! A sink that stands in for InfluxDB 1.x where there is none: it answers `/write`, `/ping` and the
//! statements that a load test has, and keeps the points of counters alone, for their sums. As in
//! InfluxDB, a point replaces one of the same series and time. `line.rs` reads lines.

mod line;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::header::CONTENT_ENCODING;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use line::Point;

/// `max-body-size` of InfluxDB, of the body as it is sent.
const BODY_LIMIT_BYTES: usize = 25_000_000;
/// The most that such a body may inflate to.
const INFLATED_LIMIT_BYTES: u64 = 1 << 30;

/// Fields that are added up: as k6 writes counters, and as Telegraf's `basicstats` does.
const FIELDS: [&str; 2] = ["value", "value_sum"];

/// Points of one measurement by series and time, for each of [`FIELDS`].
type Points = [HashMap<u64, f64>; FIELDS.len()];

/// Listens on a free port of loopback until it is dropped.
#[derive(Debug)]
pub struct Influx {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _listening: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    points: Mutex<HashMap<String, Points>>,
    hasher: RandomState,
}

impl Influx {
    /// Keeps the points of these measurements, 16 bytes and more each.
    pub async fn start(counted: &[&str]) -> io::Result<Influx> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let addr = listener.local_addr()?;
        let points = counted.iter().map(|name| ((*name).to_owned(), Points::default())).collect();
        let shared = Arc::new(Shared { points: Mutex::new(points), hasher: RandomState::new() });
        let listening = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Ok(Influx { addr, shared, _listening: AbortOnDropHandle::new(listening) })
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The sum of a measurement's points; `None`: it has none, or is not counted.
    pub fn sum(&self, measurement: &str) -> Option<f64> {
        self.shared.sums(measurement)?.into_iter().flatten().reduce(|sum, more| sum + more)
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    // Connections end with it.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((stream, _)) = listener.accept() => {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    // How a connection ends is the client's affair.
    let _ = auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, content: Option<&Value>) -> Answer {
    let body = content.map_or_else(Bytes::new, |content| content.to_string().into());
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = status;
    answer
}

fn refused(status: StatusCode, reason: &str) -> Answer {
    answer(status, Some(&json!({ "error": reason })))
}

impl Shared {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        match (&head.method, head.uri.path()) {
            (_, "/ping") => answer(StatusCode::NO_CONTENT, None),
            (_, "/query") => self.query(head.uri.query().unwrap_or_default()),
            (&Method::POST, "/write") => {
                let Ok(body) = Limited::new(body, BODY_LIMIT_BYTES).collect().await else {
                    return refused(StatusCode::PAYLOAD_TOO_LARGE, "Request Entity Too Large");
                };
                let is_gzip = head.headers.get(CONTENT_ENCODING).is_some_and(|it| it == "gzip");
                match self.write(&body.to_bytes(), is_gzip) {
                    Ok(()) => answer(StatusCode::NO_CONTENT, None),
                    Err(reason) => refused(StatusCode::BAD_REQUEST, &reason),
                }
            }
            _ => refused(StatusCode::NOT_FOUND, "not found"),
        }
    }

    /// Takes all lines before the first that is none.
    fn write(&self, body: &[u8], is_gzip: bool) -> Result<(), String> {
        let inflated;
        let body = if is_gzip {
            let mut bytes = Vec::new();
            let mut packed = MultiGzDecoder::new(body).take(INFLATED_LIMIT_BYTES);
            packed.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
            inflated = bytes;
            &inflated[..]
        } else {
            body
        };
        let mut measurements = self.points.lock();
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let point = Point::parse(line).ok_or_else(|| {
                format!("unable to parse '{}': missing fields", String::from_utf8_lossy(line))
            })?;
            let name = str::from_utf8(point.measurement).unwrap_or_default();
            let Some(points) = measurements.get_mut(name) else { continue };
            let key = self.hasher.hash_one((point.series, point.time));
            for (field, points) in FIELDS.iter().zip(points) {
                if let Some(value) = point.number(field.as_bytes()) {
                    points.insert(key, value);
                }
            }
        }
        Ok(())
    }

    /// `None`: no such measurement.
    fn sums(&self, measurement: &str) -> Option<[Option<f64>; FIELDS.len()]> {
        let measurements = self.points.lock();
        let points = measurements.get(measurement)?;
        Some(points.each_ref().map(|points| points.values().copied().reduce(|a, b| a + b)))
    }

    /// `SELECT sum(…) FROM "measurement"` has the sums of [`FIELDS`]; to others nothing is found.
    fn query(&self, parameters: &str) -> Answer {
        let mut result = json!({ "statement_id": 0 });
        let statement = parameters.split('&').find_map(|one| one.strip_prefix("q="));
        let Some(statement) = statement.map(decoded) else {
            return refused(StatusCode::BAD_REQUEST, "missing required parameter \"q\"");
        };
        let of = statement.split(" FROM ").nth(1).map(|name| name.trim_matches('"'));
        let sums = of.and_then(|name| Some((name, self.sums(name)?)));
        if let Some((name, sums)) = sums.filter(|(_, sums)| sums.iter().any(Option::is_some)) {
            result["series"] = json!([{
                "name": name,
                "columns": ["time", "sum", "sum_1"],
                "values": [[0, sums[0], sums[1]]],
            }]);
        }
        answer(StatusCode::OK, Some(&json!({ "results": [result] })))
    }
}

/// A parameter without its percent signs and pluses.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let hex = || u8::from_str_radix(text.get(at + 1..at + 3)?, 16).ok();
        match bytes[at] {
            b'%' => match hex() {
                Some(byte) => {
                    out.push(byte);
                    at += 2;
                }
                None => out.push(b'%'),
            },
            b'+' => out.push(b' '),
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn shared() -> Shared {
        let points = [("http_reqs".to_owned(), Points::default())].into();
        Shared { points: Mutex::new(points), hasher: RandomState::new() }
    }

    /// Guarantee: a point replaces one of the same series and time alone, as in InfluxDB, and a
    /// measurement that is not counted costs nothing.
    #[test]
    fn a_point_of_the_same_series_and_time_replaces_the_other() {
        let shared = shared();
        let lines = b"http_reqs,a=1 value=1 5\nhttp_reqs,a=2 value=1 5\nhttp_reqs,a=1 value=1 6\n\
                      http_reqs,a=1 url=\"b\",value=3 5\nvus value=7 5\n";
        shared.write(lines, false).unwrap();
        assert_eq!(shared.sums("http_reqs"), Some([Some(5.0), None]));
        assert_eq!(shared.sums("vus"), None);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(b"http_reqs,a=3 value_count=2,value_sum=40 5").unwrap();
        shared.write(&packed.finish().unwrap(), true).unwrap();
        assert_eq!(shared.sums("http_reqs"), Some([Some(5.0), Some(40.0)]));
        assert!(shared.write(b"no line", false).unwrap_err().contains("unable to parse"));
        assert!(shared.write(b"no gzip", true).is_err());
    }

    /// Guarantee: a query is answered in InfluxDB's form, and a parameter is read as it was meant.
    #[test]
    fn a_query_has_the_sums() {
        let shared = shared();
        shared.write(b"http_reqs value=2 5", false).unwrap();
        let parameters = "db=k6&q=SELECT+sum%28value%29%2C%20sum(value_sum)+FROM+%22http_reqs%22";
        assert_eq!(shared.query(parameters).status(), StatusCode::OK);
        assert_eq!(decoded("a+b%20c%2"), "a b c%2");
        assert_eq!(shared.query("db=k6").status(), StatusCode::BAD_REQUEST);
    }
}
