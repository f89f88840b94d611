//! The speed of validating, cutting and editing requests of the usual sizes. One line a case:
//! nanoseconds an item, GB/s.
//!
//! `cargo bench -p sluice-otlp --bench wire`

use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_otlp::{
    AnyValue, Attributes, ItemEditor, NewValue, Signal, SplitLimits, View, count, edit_items,
    edit_resources, scan, split,
};

const ITEMS: u32 = 100;

fn main() {
    for (name, signal, request) in [
        ("spans, 40 attributes", Signal::Traces, Bytes::from(spans(40))),
        ("points, 10 attributes", Signal::Metrics, Bytes::from(points(10))),
        ("records, 2,000 bytes", Signal::Logs, Bytes::from(records("x".repeat(2000)))),
        ("records, 2,000 bytes, Cyrillic", Signal::Logs, Bytes::from(records("ж".repeat(1000)))),
    ] {
        assert_eq!(scan(signal, &request), Ok(ITEMS), "{name}");
        println!("{name}: {} bytes a request of {ITEMS}", request.len());
        let report = |what: &str, nanoseconds: f64| {
            let rate = request.len() as f64 / nanoseconds;
            println!(
                "  {what:<34} {:>8.1} ns an item {rate:>8.2} GB/s",
                nanoseconds / f64::from(ITEMS)
            );
        };
        report("copy", measure(|| request.to_vec()));
        report("scan", measure(|| scan(signal, black_box(&request))));
        report("count", measure(|| count(signal, black_box(&request))));
        let limits = SplitLimits { max_bytes: usize::MAX, max_items: 30 };
        report("split into parts of 30", measure(|| split(signal, black_box(&request), limits)));
        report("edit: resource attribute", measure(|| edit_resources(&request, set)));
        report(
            "edit: attribute of each item",
            measure(|| edit_items(signal, &request, &mut SetOnEach)),
        );
        report(
            "edit: nothing to change",
            measure(|| edit_items(signal, &request, &mut LookAtEach)),
        );
    }
}

/// Median time of one run in nanoseconds.
fn measure<T>(mut run: impl FnMut() -> T) -> f64 {
    let mut samples = Vec::new();
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        let start = Instant::now();
        for _ in 0..20 {
            black_box(run());
        }
        samples.push(start.elapsed().as_nanos() as f64 / 20.0);
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn set(attributes: &mut Attributes<'_>) {
    let value = AnyValue::String("production".to_owned()).encoded();
    match attributes.find(b"deployment.environment") {
        Some(index) => attributes.set(index, NewValue::Encoded(&value)),
        None => attributes.add(b"deployment.environment", NewValue::Encoded(&value)),
    }
}

struct SetOnEach;

impl ItemEditor for SetOnEach {
    fn item(&mut self, _item: View<'_>, attributes: &mut Attributes<'_>) {
        set(attributes);
    }
}

struct LookAtEach;

impl ItemEditor for LookAtEach {
    fn item(&mut self, _item: View<'_>, attributes: &mut Attributes<'_>) {
        black_box(attributes.get(b"absent"));
    }
}

fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut len = content.len();
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    out.extend_from_slice(content);
    out
}

fn attributes(number: u8, many: usize, value_len: usize) -> Vec<u8> {
    let attribute = |index: usize| {
        let value = field(1, "v".repeat(value_len).as_bytes());
        field(
            number,
            &[field(1, format!("attribute.{index}").as_bytes()), field(2, &value)].concat(),
        )
    };
    (0..many).flat_map(attribute).collect()
}

fn fixed64(number: u8) -> Vec<u8> {
    [&[number << 3 | 1][..], &1_700_000_000_123_456_789u64.to_le_bytes()].concat()
}

fn request(items: Vec<u8>) -> Vec<u8> {
    let scope = [field(1, &field(1, b"scope")), items].concat();
    field(1, &[field(1, &attributes(1, 3, 20)), field(2, &scope)].concat())
}

fn spans(many: usize) -> Vec<u8> {
    let ids = [field(1, &[0xab; 16]), field(2, &[0xcd; 8])].concat();
    let span =
        [ids, field(5, b"GET /checkout"), fixed64(7), fixed64(8), attributes(9, many, 30)].concat();
    request((0..ITEMS).flat_map(|_| field(2, &span)).collect())
}

fn points(many: usize) -> Vec<u8> {
    let point = [attributes(7, many, 30), fixed64(2), fixed64(3), fixed64(4)].concat();
    let points: Vec<u8> = (0..ITEMS).flat_map(|_| field(1, &point)).collect();
    request(field(2, &[field(1, b"http.requests"), field(5, &points)].concat()))
}

fn records(body: String) -> Vec<u8> {
    let record = [
        fixed64(1),
        field(3, b"INFO"),
        field(5, &field(1, body.as_bytes())),
        attributes(6, 10, 30),
    ]
    .concat();
    request((0..ITEMS).flat_map(|_| field(2, &record)).collect())
}
