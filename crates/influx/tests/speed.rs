//! The cost of a sample in and out, in CPU time. Ignored: it measures.

use std::fmt::Write as _;

use sluice_influx::{Builder, Limits, Precision, Reader, Settings, write};

/// The samples of one request of k6, in its order.
const REQUEST: [&str; 9] = [
    "http_reqs",
    "http_req_duration",
    "http_req_blocked",
    "http_req_connecting",
    "http_req_tls_handshaking",
    "http_req_sending",
    "http_req_waiting",
    "http_req_receiving",
    "http_req_failed",
];

const REQUESTS: usize = 5000;
const ROUNDS: usize = 40;
const PIECE_BYTES: usize = 16 << 10;

/// The body that k6 writes in a second, by its defaults.
fn k6() -> String {
    let mut body = String::new();
    for request in 0..REQUESTS {
        for (place, name) in REQUEST.iter().enumerate() {
            let value = (request * 7919 % 100_000) as f64 / 1000.0 + place as f64;
            writeln!(
                body,
                "{name},expected_response=true,method=GET,name=http://shop/item/{},proto=HTTP/1.1,\
                 scenario=default,status=200,tls_version=tls1.3 url=\"http://shop/item/{}\",\
                 value={value} 17000000000{request:08}",
                request % 50,
                request % 50,
            )
            .expect("a string takes it");
        }
    }
    body
}

/// Lines as Telegraf writes them: many fields, tags that change with each line.
fn telegraf() -> String {
    let mut body = String::new();
    for line in 0..REQUESTS {
        write!(body, "cpu,cpu=cpu{},host=node-{} ", line % 64, line / 64)
            .expect("a string takes it");
        for (place, field) in REQUEST.iter().enumerate() {
            let separator = if place == 0 { "" } else { "," };
            write!(body, "{separator}{field}={}.25", line * place % 100)
                .expect("a string takes it");
        }
        body.push_str(" 1700000000000000000\n");
    }
    body
}

/// Nanoseconds of CPU time of this thread.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Millions of samples a second of CPU time.
fn measure(mut work: impl FnMut()) -> f64 {
    work();
    let started = cpu_ns();
    (0..ROUNDS).for_each(|_| work());
    (ROUNDS * REQUESTS * REQUEST.len()) as f64 * 1e3 / (cpu_ns() - started) as f64
}

#[test]
#[ignore = "measures"]
fn the_samples_a_second_of_one_core() {
    for (name, body) in [("k6", k6()), ("Telegraf", telegraf())] {
        let read = |each: &mut dyn FnMut(&sluice_influx::Line<'_>)| {
            let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
            for piece in body.as_bytes().chunks(PIECE_BYTES) {
                reader.read(piece, &mut *each);
            }
            assert_eq!(reader.finish(each).count, 0);
        };
        let parsed = measure(|| {
            let mut lines = 0;
            read(&mut |_| lines += 1);
            assert!(lines >= REQUESTS);
        });
        let mut request = Vec::new();
        let built = measure(|| {
            let mut builder = Builder::new(&Settings::default());
            read(&mut |line| builder.add(line, 0));
            assert_eq!(builder.points() as usize, REQUESTS * REQUEST.len());
            request = builder.take(&[]);
        });
        let mut out = Vec::new();
        let written = measure(|| {
            out.clear();
            write(&request, 1 << 30, &mut out).expect("is written");
        });
        let samples = REQUESTS * REQUEST.len();
        println!(
            "{name}: M/s: {parsed:.2} read, {built:.2} read and built, {written:.2} written; \
             bytes a sample: {} in, {} as OTLP, {} out",
            body.len() / samples,
            request.len() / samples,
            out.len() / samples,
        );
    }
}
