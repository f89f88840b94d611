//! The cost of a line in chains of operators, straight and by way of a record. One line a case:
//! nanoseconds a line, GB/s, both as medians of turns.
//!
//! `cargo bench -p sluice-operators --bench lines`

use std::hint::black_box;
use std::time::Instant;

use sluice_config::load::read_text;
use sluice_operators::{Chain, Encoder, Origin, Record};
use sluice_otlp::AnyValue;

/// Lines of a request.
const LINES: usize = 500;
const TURNS: usize = 41;
const PATH: &str =
    "/var/log/pods/shop_checkout-7d9f_0a1b2c3d-0000-4111-8222-333344445555/main/0.log";

fn main() {
    let text = "a".repeat(472);
    let cri = format!("2024-04-13T07:59:37.505201169Z stdout F {text}");
    let json = concat!(
        r#"{"ts":"2024-04-13T07:59:37.505Z","level":"info","logger":"http.access","#,
        r#""msg":"request handled","method":"GET","path":"/api/v1/orders/12345","status":200,"#,
        r#""duration_ms":12.75,"user_agent":"Mozilla/5.0 (X11; Linux x86_64)","#,
        r#""trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}"#,
    );
    let nginx = concat!(
        r#"10.1.2.3 - alice [13/Apr/2024:07:59:37 +0000] "GET /api/v1/orders/12345 HTTP/1.1" "#,
        r#"200 5316 "https://example.com/start" "Mozilla/5.0 (X11; Linux x86_64)""#,
    );
    let docker = format!(
        "{{\"log\":{:?},\"stream\":\"stdout\",\"time\":\"2024-04-13T07:59:37.505201169Z\"}}",
        format!("{text}\n")
    );
    let container = "{type: container}";
    let access = concat!(
        r"{type: regex_parser, regex: '^(?P<host>[^ ]*) [^ ]* (?P<user>[^ ]*) \[(?P<at>[^\]]*)\] ",
        r#""(?P<method>\S+) (?P<path>[^ ]*) \S*" (?P<code>\d+) (?P<size>\d+) "(?P<from>[^"]*)" "#,
        r#""(?P<agent>[^"]*)"$'}"#,
    );
    let timed = concat!(
        "{type: json_parser, severity: {parse_from: attributes.level}, ",
        "timestamp: {parse_from: attributes.ts, layout: '%Y-%m-%dT%H:%M:%S.%LZ'}}",
    );
    let cri_json = format!("2024-04-13T07:59:37.505201169Z stdout F {json}");
    for (name, operators, line) in [
        ("container, CRI, 512 bytes", container.to_owned(), cri),
        ("container, Docker, 512 bytes", container.to_owned(), docker),
        ("container, json_parser", format!("{container}, {{type: json_parser}}"), cri_json),
        ("json_parser, 10 fields", "{type: json_parser}".to_owned(), json.to_owned()),
        ("json_parser, time, severity", timed.to_owned(), json.to_owned()),
        ("regex_parser, 9 groups", access.to_owned(), nginx.to_owned()),
    ] {
        println!("{name}: {} bytes", line.len());
        let mut runs = [Run::new(&operators, true), Run::new(&operators, false)];
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..TURNS {
            for (run, samples) in runs.iter_mut().zip(&mut samples) {
                let began = Instant::now();
                run.request(black_box(&line));
                samples.push(began.elapsed().as_nanos() as f64 / LINES as f64);
            }
        }
        for (way, samples) in ["straight", "records"].into_iter().zip(&mut samples) {
            samples.sort_by(f64::total_cmp);
            let median = samples[TURNS / 2];
            let rate = line.len() as f64 / median;
            println!("  {way:<10} {median:>8.1} ns a line {rate:>8.2} GB/s");
        }
    }
}

struct Run {
    chain: Chain,
    out: Encoder,
    attributes: Vec<(String, AnyValue)>,
    is_straight: bool,
}

impl Run {
    fn new(operators: &str, is_straight: bool) -> Run {
        let text = format!("operators: [{operators}]");
        let read = |fields: &mut sluice_config::Fields<'_>| Chain::read(fields, "operators", "");
        let (config, diagnostics) = read_text("filelog", &text, read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        let of = |(key, value): (&str, &str)| (key.to_owned(), AnyValue::String(value.to_owned()));
        let attributes = [("log.file.name", "0.log"), ("log.file.path", PATH)].map(of).to_vec();
        Run { chain: config.build(), out: Encoder::default(), attributes, is_straight }
    }

    /// Makes a request of one line, over and over.
    fn request(&mut self, line: &str) {
        let mut left = Vec::new();
        self.chain.begin(&self.attributes, &Vec::new());
        for place in 0..LINES as u64 {
            if self.is_straight {
                assert!(self.chain.write(line, 1, 7, &mut self.out), "{line}");
                continue;
            }
            let body = AnyValue::String(line.to_owned());
            let mut record = Record::new(body, 7, Origin { stream: 1, range: place..place + 1 });
            record.attributes.clone_from(&self.attributes);
            self.chain.process(record, &mut left);
            left.drain(..).for_each(|record| self.out.push(&record));
        }
        assert_eq!(self.chain.counts().errors, 0, "{line}");
        black_box(self.out.finish());
    }
}
