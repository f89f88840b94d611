//! Line protocol. The first two bytes of an input say where the body is cut; the rest is the body.

use sluice_influx::{
    Builder, Faults, Limits, Moved, Precision, Reader, Settings, set_apart, write,
};
use sluice_otlp::{Signal, scan};

const LIMITS: Limits = Limits { line_bytes: 1 << 12 };
const ARRIVAL_NS: i64 = 7;

/// The request that a body in pieces becomes.
fn build(pieces: &[&[u8]]) -> (Vec<u8>, u32, Faults) {
    let mut builder = Builder::new(&Settings::default());
    let mut reader = Reader::new(Precision::Nanoseconds, LIMITS);
    for piece in pieces {
        reader.read(piece, |line| {
            let most_bytes = builder.held_bytes() + builder.growth_bytes(line);
            builder.add(line, ARRIVAL_NS);
            assert!(builder.held_bytes() <= most_bytes);
        });
        assert!(reader.held_bytes() <= LIMITS.line_bytes);
    }
    let faults = reader.finish(|line| builder.add(line, ARRIVAL_NS));
    let points = builder.points();
    let held_bytes = builder.held_bytes();
    let request = builder.take(&[]);
    assert!(request.len() <= held_bytes + 64);
    (request, points, faults)
}

/// Cuts make no difference; what is taken is valid, can be written, and is then the same request.
pub fn check_line_protocol(data: &[u8]) {
    let [first, second, body @ ..] = data else { return };
    let cut = usize::from(u16::from_le_bytes([*first, *second])) % (body.len() + 1);
    let (request, points, faults) = build(&[body]);
    let (start, end) = body.split_at(cut);
    assert_eq!(build(&[start, end]), (request.clone(), points, faults));
    assert_eq!(scan(Signal::Metrics, &request), Ok(points));
    let mut lines = Vec::new();
    let written = write(&request, usize::MAX, &mut lines).expect("a valid request");
    assert_eq!((written.points, written.left_out), (u64::from(points), 0));
    // A key may be longer with more backslashes than InfluxDB allows: only the count can differ.
    let (_, again, faults) = build(&[&lines]);
    assert_eq!(u64::from(again) + faults.count, u64::from(points), "{faults}");
    check_times(request, points);
}

/// Points with times of their own are as many as before, and stay as they are.
fn check_times(request: Vec<u8>, points: u32) {
    let apart = |request: &[u8]| {
        let changed = set_apart(request, Moved::All, Precision::Nanoseconds, usize::MAX);
        changed.expect("a valid request").expect("room").unwrap_or_else(|| request.to_vec())
    };
    let changed = apart(&request);
    assert_eq!((changed.len(), scan(Signal::Metrics, &changed)), (request.len(), Ok(points)));
    assert_eq!(apart(&changed), changed);
}
