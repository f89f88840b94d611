//! The behaviour that the tests of Prometheus' own handler ask for, and where Sluice differs.

use sluice_otlp::wire::write_varint;

use super::*;

const SYMBOLS: [&str; 6] = ["", "__name__", "one", "two", "a", "b"];

fn number(out: &mut Vec<u8>, field: u8, value: u64) {
    out.push(field << 3);
    write_varint(out, value);
}

fn double(out: &mut Vec<u8>, field: u8, value: f64) {
    out.push(field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn sample(time_ms: u64) -> Vec<u8> {
    let mut out = Vec::new();
    double(&mut out, 1, 1.0);
    number(&mut out, 2, time_ms);
    out
}

/// Three values, one of which is in the bucket for zero.
fn histogram(schema: i32, count: u64) -> Vec<u8> {
    let mut out = Vec::new();
    number(&mut out, 1, count);
    double(&mut out, 3, 5.0);
    number(&mut out, 4, u64::from((schema << 1 ^ schema >> 31).cast_unsigned()));
    number(&mut out, 15, 1000);
    // One bucket, which has two of them.
    out.extend(message(&[(11, &[0x10, 1]), (12, &[4])]));
    out
}

fn exponential() -> Vec<u8> {
    let mut out = histogram(2, 3);
    number(&mut out, 6, 1);
    out
}

/// Custom buckets with the bound 1.
fn custom() -> Vec<u8> {
    let mut out = histogram(-53, 2);
    // The tag of `custom_values` has two bytes.
    out.extend([0x82, 1, 8]);
    out.extend(1_f64.to_le_bytes());
    out
}

fn exemplar() -> Vec<u8> {
    let mut out = message(&[(1, &[4, 5])]);
    double(&mut out, 2, 1.0);
    number(&mut out, 3, 1000);
    out
}

/// A series of 2.0 with these numbers of symbols.
fn series(labels: &[u8], fields: &[(u32, &[u8])]) -> Vec<u8> {
    let mut out = message(&[(1, labels)]);
    out.extend(message(fields));
    out
}

/// Two series with one sample, two histograms and one exemplar each.
fn good() -> [Vec<u8>; 2] {
    let (sample, first, second, exemplar) = (sample(1000), exponential(), custom(), exemplar());
    let fields: [(u32, &[u8]); 4] = [(2, &sample), (3, &first), (3, &second), (4, &exemplar)];
    [series(&[1, 2], &fields), series(&[1, 3, 4, 5], &fields)]
}

fn request_v2(all: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    for symbol in SYMBOLS {
        write_len_field(&mut out, 4, symbol.as_bytes());
    }
    for series in all {
        write_len_field(&mut out, 5, series);
    }
    out
}

fn has_written(answer: &str, numbers: [u32; 3]) -> bool {
    let mut all = ["samples", "histograms", "exemplars"].into_iter().zip(numbers);
    all.all(|(what, number)| {
        answer.contains(&format!("x-prometheus-remote-write-{what}-written: {number}\r\n"))
    })
}

const POST: &str = "POST /api/v1/write HTTP/1.1";
const VERSION: &str = "x-prometheus-remote-write-version: 2.0.0";
const OF_V1: &str = "content-type: application/x-protobuf";
const OF_V2: &str = "content-type: application/x-protobuf;proto=io.prometheus.write.v2.Request";
const SNAPPY: &str = "content-encoding: snappy";

/// Guarantee: the headers of a request are judged as Prometheus judges them. Three things differ:
/// a content type is needed, a body without a `Content-Encoding` is taken as it is, and more
/// codings than snappy are known.
#[tokio::test]
async fn headers_are_judged_as_in_prometheus() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let (one, two) = (v1(&[("__name__", "up")]), request_v2(&good()));
    let (packed_one, packed_two) = (&*snappy(&one), &*snappy(&two));
    let yolo = "content-type: yolo";
    let proto_yolo = "content-type: application/x-protobuf;proto=yolo";
    for (headers, body, status) in [
        (&[OF_V1, SNAPPY, VERSION][..], packed_one, 204),
        (&[OF_V1, SNAPPY], packed_one, 204),
        (&[], &*one, 415),
        (&[SNAPPY, VERSION], packed_one, 415),
        (&[OF_V1, VERSION], &one, 204),
        (&[OF_V1, VERSION], packed_one, 400),
        (&[yolo, SNAPPY, VERSION], packed_one, 415),
        (&[proto_yolo, SNAPPY, VERSION], packed_one, 415),
        (&[OF_V1, "content-encoding: br", VERSION], packed_one, 415),
        (&[OF_V2, SNAPPY, VERSION], packed_two, 204),
        (&[OF_V2, SNAPPY], packed_two, 204),
        (&[OF_V2, VERSION], &two, 204),
        (&[yolo, SNAPPY, VERSION], packed_two, 415),
        (&[proto_yolo, SNAPPY, VERSION], packed_two, 415),
        (&[OF_V2, "content-encoding: br", VERSION], packed_two, 415),
    ] {
        let before = intake.taken.lock().len();
        let head = [&[POST][..], headers].concat().join("\r\n");
        let answer = post(&*receiver, &head, body).await;
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{head}: {answer}");
        let is_taken = intake.taken.lock().len() > before;
        assert_eq!(is_taken, status == 204, "{head}");
    }
}

/// Guarantee: one series at fault costs no other one, and the sender is told what was written.
#[tokio::test]
async fn requests_are_taken_in_part() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let sample = &*sample(1);
    let described = |metadata: &[u8]| series(&[1, 2], &[(2, sample), (5, metadata)]);
    let labelled = |labels: &[u8]| series(labels, &[(2, sample)]);
    let all = good();
    for (at_fault, reason) in [
        (None, ""),
        (Some(labelled(&[4, 4])), "no name"),
        (Some(labelled(&[1, 0])), "no name"),
        (Some(labelled(&[1, 2, 0, 4])), "label has no name"),
        (Some(labelled(&[1, 2, 4, 5, 4, 5])), "twice"),
        (Some(labelled(&[1, 2, 3])), "without a value"),
        (Some(labelled(&[1, 99])), "no symbol"),
        (Some(described(&[0x08, 2, 0x20, 99])), "unit is no symbol"),
        (Some(described(&[0x08, 2, 0x18, 99])), "description is no symbol"),
        (Some(series(&[1, 5], &[(4, &exemplar())])), "exemplars have no sample"),
        (Some(series(&[1, 2], &[])), "no sample"),
    ] {
        let status = if at_fault.is_none() { 204 } else { 400 };
        let request = [at_fault.as_slice(), &all].concat();
        let answer = post(&*receiver, V2, &request_v2(&request)).await;
        assert!(answer.starts_with(&format!("http/1.1 {status}")), "{reason}: {answer}");
        assert!(answer.contains(reason), "{reason}: {answer}");
        assert!(has_written(&answer, [2, 4, 2]), "{reason}: {answer}");
        let (items, payload) = intake.taken.lock().pop().expect("was taken");
        assert_eq!((sluice_otlp::scan(Signal::Metrics, &payload), items), (Ok(6), 6), "{reason}");
    }
}

/// Guarantee: a native histogram that contradicts itself is left out in both versions.
#[tokio::test]
async fn native_histograms_are_validated() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let mut with_zero = custom();
    number(&mut with_zero, 6, 1);
    let uneven = histogram(2, 10);
    let good_one = exponential();
    for (histogram, status) in [(&uneven, 400), (&with_zero, 400), (&good_one, 204)] {
        let name = message(&[(1, b"__name__"), (2, b"h")]);
        let of_v1 = message(&[(1, &message(&[(1, &name), (4, histogram)]))]);
        let of_v2 = request_v2(&[series(&[1, 2], &[(3, histogram)])]);
        for (head, body) in [(V1, of_v1), (V2, of_v2)] {
            let answer = post(&*receiver, head, &body).await;
            assert!(answer.starts_with(&format!("http/1.1 {status}")), "{answer}");
            assert_eq!(status == 204, !answer.contains("native") && !answer.contains("custom"));
        }
    }
}

/// Guarantee: exemplars alone do no harm to a request of 1.0.
#[tokio::test]
async fn exemplars_alone_are_no_fault_in_version_1() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let name = message(&[(1, b"__name__"), (2, b"up")]);
    let mut exemplar = message(&[(1, &message(&[(1, b"a"), (2, b"b")]))]);
    double(&mut exemplar, 2, 1.0);
    let body = message(&[(1, &message(&[(1, &name), (3, &exemplar)]))]);
    let answer = post(&*receiver, V1, &body).await;
    assert!(answer.starts_with("http/1.1 204"), "{answer}");
}

/// Guarantee: samples that are out of order, there twice, very old or far ahead are taken: there is
/// no storage here that they would not fit into, and a backend judges them.
#[tokio::test]
async fn times_of_samples_are_not_judged() {
    let intake = Intake::new(1 << 20);
    let receiver = start(&intake, "").await;
    let times = [1000, 0, 1000, i64::MAX.cast_unsigned()];
    let samples = times.map(sample);
    let fields: Vec<(u32, &[u8])> = samples.iter().map(|sample| (2, &**sample)).collect();
    let answer = post(&*receiver, V2, &request_v2(&[series(&[1, 2], &fields)])).await;
    assert!(answer.starts_with("http/1.1 204"), "{answer}");
    assert!(has_written(&answer, [4, 0, 0]), "{answer}");
}

/// Guarantee: of a request that senders are to send again, nothing was written.
#[tokio::test]
async fn nothing_is_written_of_a_request_that_may_come_back() {
    let intake = Intake::new(10);
    let receiver = start(&intake, "").await;
    let answer = post(&*receiver, V2, &request_v2(&good())).await;
    assert!(answer.starts_with("http/1.1 503") && answer.contains("retry-after"), "{answer}");
    assert!(has_written(&answer, [0; 3]), "{answer}");
    assert!(intake.taken.lock().is_empty());
}
