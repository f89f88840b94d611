//! The samples of k6 in the three forms in which it writes them, byte for byte as k6 1.8.1 does:
//! bodies of its InfluxDB output, and the files of its JSON and CSV outputs.

use std::io::Write as _;

use sluice_otlp::civil_time;

const SECOND_NS: u64 = 1_000_000_000;

/// The address that the requests have; a macro, so that tags are constants.
macro_rules! url {
    () => {
        "http://shop.example/api/items"
    };
}

const LINE_OF_REQUEST: &str = concat!(
    ",expected_response=true,method=GET,name=",
    url!(),
    ",proto=HTTP/1.1,scenario=default,status=200 url=\"",
    url!(),
    "\",value="
);
const JSON_OF_REQUEST: &str = concat!(
    "\"expected_response\":\"true\",\"group\":\"\",\"method\":\"GET\",\"name\":\"",
    url!(),
    "\",\"proto\":\"HTTP/1.1\",\"scenario\":\"default\",\"status\":\"200\",\"url\":\"",
    url!(),
    "\""
);
const CSV_OF_REQUEST: &str =
    concat!(",,,,true,,GET,", url!(), ",HTTP/1.1,default,,200,,,", url!(), ",,");

/// A counter of k6 whose sum the generator knows, and its place in [`Sums`].
pub const COUNTERS: [&str; 4] = ["http_reqs", "data_sent", "data_received", "iterations"];

/// The sums of [`COUNTERS`].
pub type Sums = [u64; COUNTERS.len()];

/// Samples that one iteration with one HTTP request has.
pub const SAMPLES_PER_REQUEST: u64 = 13;

/// The output of k6 that is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `--out influxdb=URL`
    Lines,
    /// `--out json=FILE`
    Json,
    /// `--out csv=FILE`
    Csv,
}

/// The tags that samples of a metric have.
#[derive(Clone, Copy)]
enum Tags {
    Request,
    Iteration,
    None,
}

/// Name, type and unit of a metric, as the definitions of a JSON file have them.
type Metric = (&'static str, &'static str, &'static str, Tags);

const OF_REQUEST: [Metric; 9] = [
    ("http_reqs", "counter", "default", Tags::Request),
    ("http_req_duration", "trend", "time", Tags::Request),
    ("http_req_blocked", "trend", "time", Tags::Request),
    ("http_req_connecting", "trend", "time", Tags::Request),
    ("http_req_tls_handshaking", "trend", "time", Tags::Request),
    ("http_req_sending", "trend", "time", Tags::Request),
    ("http_req_waiting", "trend", "time", Tags::Request),
    ("http_req_receiving", "trend", "time", Tags::Request),
    ("http_req_failed", "rate", "default", Tags::Request),
];
const OF_ITERATION: [Metric; 4] = [
    ("data_sent", "counter", "data", Tags::Iteration),
    ("data_received", "counter", "data", Tags::Iteration),
    ("iteration_duration", "trend", "time", Tags::Iteration),
    ("iterations", "counter", "default", Tags::Iteration),
];
const OF_SECOND: [Metric; 2] =
    [("vus", "gauge", "default", Tags::None), ("vus_max", "gauge", "default", Tags::None)];

const CSV_HEAD: &str = "metric_name,timestamp,metric_value,check,error,error_code,\
                        expected_response,group,method,name,proto,scenario,service,status,\
                        subproto,tls_version,url,extra_tags,metadata\n";

impl Form {
    /// Begins a file. k6 writes a definition before a metric's first sample.
    pub(super) fn head(self, out: &mut Vec<u8>) {
        match self {
            Form::Lines => {}
            Form::Json => {
                let all = OF_REQUEST.iter().chain(&OF_ITERATION).chain(&OF_SECOND);
                for (name, kind, contains, _) in all {
                    define(out, name, kind, contains);
                }
            }
            Form::Csv => out.extend_from_slice(CSV_HEAD.as_bytes()),
        }
    }

    /// The samples of request number `number`, which ended at this time, and of its iteration.
    pub(super) fn request(self, out: &mut Vec<u8>, number: u64, unix_ns: u64, sums: &mut Sums) {
        // Durations in nanoseconds that vary as those of a server do: milliseconds in the output.
        let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
        let (sending, receiving) = (9_000 + spread % 40_000, 21_000 + spread % 60_000);
        let waiting = 350_000 + spread * 3;
        let blocked = 1_200 + spread % 7_000;
        let (sent, received) = (77, 113 + spread % 400);
        let ms = |ns: u64| ns as f64 / 1e6;
        let whole = sending + waiting + receiving;
        let values = [1.0, ms(whole), ms(blocked), 0.0, 0.0, ms(sending), ms(waiting)];
        let values = values.into_iter().chain([ms(receiving), 0.0]);
        let time = Time::of(unix_ns, self);
        for ((name, .., tags), value) in OF_REQUEST.iter().zip(values) {
            self.sample(out, name, *tags, value, &time);
        }
        // The script goes on for a moment.
        let time = Time::of(unix_ns + 80_000, self);
        let values = [sent as f64, received as f64, ms(whole + 80_000), 1.0];
        for ((name, .., tags), value) in OF_ITERATION.iter().zip(values) {
            self.sample(out, name, *tags, value, &time);
        }
        for (sum, more) in sums.iter_mut().zip([1, sent, received, 1]) {
            *sum += more;
        }
    }

    /// The samples that k6 has once a second.
    pub(super) fn second(self, out: &mut Vec<u8>, unix_ns: u64) {
        let time = Time::of(unix_ns, self);
        for (name, .., tags) in &OF_SECOND {
            self.sample(out, name, *tags, 50.0, &time);
        }
    }

    fn sample(self, out: &mut Vec<u8>, name: &str, tags: Tags, value: f64, time: &Time) {
        let tags = match (self, tags) {
            (Form::Lines, Tags::Request) => LINE_OF_REQUEST,
            (Form::Lines, Tags::Iteration) => ",scenario=default value=",
            (Form::Lines, Tags::None) => " value=",
            (Form::Json, Tags::Request) => JSON_OF_REQUEST,
            (Form::Json, Tags::Iteration) => "\"group\":\"\",\"scenario\":\"default\"",
            (Form::Json, Tags::None) => "",
            (Form::Csv, Tags::Request) => CSV_OF_REQUEST,
            (Form::Csv, Tags::Iteration) => ",,,,,,,,,default,,,,,,,",
            (Form::Csv, Tags::None) => ",,,,,,,,,,,,,,,,",
        };
        let written = match self {
            Form::Lines => writeln!(out, "{name}{tags}{value} {}", time.unix_ns),
            Form::Json => writeln!(
                out,
                "{{\"metric\":\"{name}\",\"type\":\"Point\",\"data\":{{\"time\":\"{}\",\
                 \"value\":{value},\"tags\":{{{tags}}}}}}}",
                time.text
            ),
            Form::Csv => writeln!(out, "{name},{},{value:.6}{tags}", time.unix_ns / SECOND_NS),
        };
        written.expect("memory takes all");
    }
}

fn define(out: &mut Vec<u8>, name: &str, kind: &str, contains: &str) {
    // The submetric of k6's own threshold.
    let submetrics = match name {
        "http_req_duration" => {
            "[{\"name\":\"http_req_duration{expected_response:true}\",\
             \"suffix\":\"expected_response:true\",\"tags\":{\"expected_response\":\"true\"}}]"
        }
        _ => "null",
    };
    writeln!(
        out,
        "{{\"type\":\"Metric\",\"data\":{{\"name\":\"{name}\",\"type\":\"{kind}\",\
         \"contains\":\"{contains}\",\"thresholds\":[],\"submetrics\":{submetrics}}},\
         \"metric\":\"{name}\"}}"
    )
    .expect("memory takes all");
}

/// A time, which several samples share.
struct Time {
    unix_ns: u64,
    /// As JSON has it; empty in other forms.
    text: String,
}

impl Time {
    fn of(unix_ns: u64, form: Form) -> Time {
        let text = if form == Form::Json { rfc3339_nano(unix_ns) } else { String::new() };
        Time { unix_ns, text }
    }
}

/// Without the zeros at the end of the fraction, as Go writes it.
fn rfc3339_nano(unix_ns: u64) -> String {
    let mut text = civil_time((unix_ns / SECOND_NS).cast_signed());
    let fraction = unix_ns % SECOND_NS;
    if fraction > 0 {
        text.push('.');
        text.push_str(format!("{fraction:09}").trim_end_matches('0'));
    }
    text + "Z"
}

#[cfg(test)]
#[path = "form_tests.rs"]
mod tests;
