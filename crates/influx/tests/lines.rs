//! Lines, faults, and bodies of senders that mean no good.

mod support;

use sluice_influx::{Builder, Limits, Line, Precision, Reader, Settings, Verdict};
use support::{Owned, build, read, read_pieces};

/// Guarantee: a line at fault is worded as InfluxDB 1.x words it, and costs no other line.
#[test]
fn faults_are_worded_as_in_influxdb() {
    for (line, reason) in [
        ("cpu", "missing fields"),
        ("cpu,host=a", "missing fields"),
        (",host=a value=1", "missing measurement"),
        ("cpu, value=1", "missing tag key"),
        ("cpu,=a value=1", "missing tag key"),
        ("cpu,host value=1", "missing tag value"),
        ("cpu,host=,a=b value=1", "missing tag value"),
        ("cpu,host= value=1", "missing tag value"),
        ("cpu,host=a=b value=1", "invalid tag format"),
        ("cpu,host=a,host=b value=1", "duplicate tags"),
        ("cpu,b=1,a=1,b=2 value=1", "duplicate tags"),
        ("cpu ", "invalid field format"),
        ("cpu value", "invalid field format"),
        ("cpu value=1,", "invalid field format"),
        ("cpu a=1,b", "invalid field format"),
        ("cpu a=\"b\"c", "invalid field format"),
        ("cpu =1", "missing field key"),
        ("cpu a=1,=2", "missing field key"),
        ("cpu a=", "missing field value"),
        ("cpu a=,b=1", "missing field value"),
        ("cpu a= b=1", "missing field value"),
        ("cpu a=1x", "invalid number"),
        ("cpu a=NaN", "invalid number"),
        ("cpu a=yes", "invalid boolean"),
        ("cpu a=1e999", "invalid float"),
        ("cpu a=1 now", "bad timestamp"),
        ("cpu a=1 1.5", "bad timestamp"),
        ("cpu a=1 -", "bad timestamp"),
        ("cpu a=1 1 2", "point is invalid"),
        (
            "cpu a=1 9223372036854775807",
            "time outside range -9223372036854775806 - 9223372036854775806",
        ),
        ("cpu a=1i,b=\"x\\\"", "unbalanced quotes"),
    ] {
        let body = format!("before v=1\n{line}\nafter v=1\n");
        let (points, faults) = read(body.as_bytes());
        let is_open = reason == "unbalanced quotes";
        // The text behind an open quote belongs to it.
        let excerpt = if is_open { format!("{line}\nafter v=1") } else { line.to_owned() };
        assert_eq!(faults.count, 1, "{line}");
        assert_eq!(faults.to_string(), format!("unable to parse '{excerpt}': {reason}"));
        assert_eq!(faults.first[0].line, 2);
        assert_eq!(points.len(), if is_open { 1 } else { 2 }, "{line}");
    }
}

#[test]
fn lines_of_all_forms_are_read() {
    let body = "# a comment\n\n  \t\r\n\
                \x20cpu,host=a,dc=b u=1,i=-2i,n=3u,t=T,s=\"a \\\"b\\\"\nc\"  5  \r\n\
                m\\ 1,k\\,1=v\\=1 f\\ 1=1.5\n\"q\",\"a\"=\"b\" \"=f\nlast v=1";
    let (points, faults) = read(body.as_bytes());
    assert_eq!(faults.count, 0, "{faults}");
    let names: Vec<_> = points.iter().map(|point| point.measurement.as_str()).collect();
    assert_eq!(names, ["cpu", "m 1", "\"q\"", "last"]);
    assert_eq!(points[0].fields[4].1, Owned::String("a \"b\"\nc".to_owned()));
    assert_eq!(points[0].time_ns, Some(5));
    assert_eq!(points[1].tags, [("k,1".to_owned(), "v=1".to_owned())]);
    assert_eq!(points[1].fields[0].0, "f 1");
    assert_eq!(points[2].fields, [("\"".to_owned(), Owned::Boolean(false))]);
}

#[test]
fn times_have_the_precision_of_the_request() {
    let mut times = Vec::new();
    let mut reader = Reader::new(Precision::Milliseconds, Limits::default());
    reader.read(b"m v=1 1700000000123\nm v=1\n", |line| times.push(line.time_ns()));
    reader.finish(|_| {});
    assert_eq!(times, [Some(1_700_000_000_123_000_000), None]);
}

/// Scenario: bodies that try to make the reader hold or do much. Guarantee: what it holds is
/// bounded, each is one fault, and the line behind is taken.
#[test]
fn hostile_lines_are_faults_of_their_own() {
    let good = b"\nm v=1\n";
    let endless = vec![b'x'; 3 << 20];
    let quoted = [&b"m v=\""[..], &endless, b"\""].concat();
    let commented = [&b"#"[..], &endless].concat();
    let tags: Vec<u8> = (0..1_000_000).flat_map(|tag| format!(",t{tag}=1").into_bytes()).collect();
    let fields: Vec<u8> = (0..200_000).flat_map(|_| b"a=1,".to_vec()).collect();
    for (name, body) in [
        ("endless", endless.clone()),
        ("quoted", quoted),
        ("comment", commented),
        ("tags", [&b"m"[..], &tags, b" v=1"].concat()),
        ("tags within a megabyte", [&b"m"[..], &tags[..900_000], b" v=1"].concat()),
        ("fields", [&b"m "[..], &fields, b"a=1"].concat()),
        ("not text", b"m,a=\xff v=1".to_vec()),
        ("not text in a string", b"m v=\"\xc3\"".to_vec()),
        ("not text in a name", b"\xc3 v=1".to_vec()),
        ("backslashes", vec![b'\\'; 1000]),
        ("a backslash at the end", b"m,a=b\\".to_vec()),
        ("NUL", b"a\0b".to_vec()),
    ] {
        let body = [&body[..], good].concat();
        for piece_bytes in [1000, 64 << 10, body.len()] {
            let pieces: Vec<&[u8]> = body.chunks(piece_bytes).collect();
            let (points, faults) = read_pieces(&pieces, Limits::default());
            assert_eq!(faults.count, 1, "{name} {piece_bytes}");
            assert_eq!((points.len(), faults.first[0].line), (1, 1), "{name} {piece_bytes}");
            assert!(faults.to_string().len() < 4096, "{name}");
        }
    }
}

/// Guarantee: what a builder remembers does not grow with the bodies that it has seen.
#[test]
fn a_builder_forgets() {
    let mut builder = Builder::new(&Settings::default());
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    let mut most = 0;
    for round in 0..50 {
        let lines: String = (0..2000).map(|line| format!("m{round}_{line} f{line}=1i\n")).collect();
        reader.read(lines.as_bytes(), |line| builder.add(line, 0));
        most = most.max(builder.held_bytes());
        let request = builder.take(&[]);
        assert_eq!(sluice_otlp::scan(sluice_otlp::Signal::Metrics, &request), Ok(2000));
    }
    assert!(most < 4 << 20, "{most}");
}

/// Scenario: lines are taken only when they are shown for the third time, or refused. Guarantee:
/// nothing is lost or taken twice wherever a body is cut, and a refusal is a fault of its line.
#[test]
fn a_line_that_is_not_taken_is_shown_again() {
    let body = "a v=1\nb s=\"x\ny\",v=2\r\nbad\n\nc v=3\nno v=1\nd v=4";
    for piece_bytes in 1..body.len() {
        let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
        let (mut names, mut shown) = (Vec::new(), 0);
        let mut offer = |line: &Line<'_>| {
            shown += 1;
            if shown % 3 != 0 {
                return Verdict::Later;
            }
            if line.measurement() == "no" {
                return Verdict::Refused("no room");
            }
            names.push(line.measurement().into_owned());
            Verdict::Taken
        };
        for mut piece in body.as_bytes().chunks(piece_bytes) {
            while let Some(done) = reader.read_until(piece, &mut offer) {
                piece = &piece[done..];
            }
        }
        while !reader.finish_until(&mut offer) {}
        assert_eq!(names, ["a", "b", "c", "d"], "{piece_bytes}");
        let faults = reader.faults();
        let places: Vec<_> = faults.first.iter().map(|it| (it.line, &*it.reason)).collect();
        assert_eq!(places, [(3, "missing fields"), (6, "no room")], "{piece_bytes}");
    }
}

/// Guarantee: the memory that a line takes is known before it is added, also for lines whose tags
/// are written for each of many fields, and a builder that forgets holds nothing.
#[test]
fn growth_is_known_before_a_line_is_added() {
    let tag = "x".repeat(5000);
    let many: Vec<String> = (0..300).map(|field| format!("f{field}={field}")).collect();
    let strings: Vec<String> = (0..300).map(|field| format!("s{field}=\"\"")).collect();
    let many_tags: Vec<String> = (0..300).map(|tag| format!("t{tag:03}=1")).collect();
    let lines = [
        "m v=1".to_owned(),
        "m,a=b v=1,w=2i,x=3u,y=t,z=\"text\" 7".to_owned(),
        "m v=18446744073709551615u".to_owned(),
        format!("m,t={tag} {}", many.join(",")),
        format!("m,{} {}", many_tags.join(","), many.join(",")),
        format!("m,a=b {}", strings.join(",")),
        format!("m,a=b {},v=1", strings.join(",")),
        format!("{tag} {tag}=1"),
        "m,a=b v=1".to_owned(),
        "m,a=b v=1".to_owned(),
    ];
    let mut builder = Builder::new(&Settings::default());
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    for line in &lines {
        let line = format!("{line}\n");
        reader.read(line.as_bytes(), |line| {
            let most = builder.held_bytes() + builder.growth_bytes(line);
            builder.add(line, 7);
            assert!(builder.held_bytes() <= most, "{} {most}", builder.held_bytes());
        });
    }
    assert_eq!(reader.faults().count, 0, "{}", reader.faults());
    builder.forget();
    assert_eq!((builder.held_bytes(), builder.points()), (0, 0));
    assert!(builder.take(&[]).is_empty());
}

/// Guarantee: what a line is said to take is at most twice what it takes, whichever of its parts is
/// long.
#[test]
fn growth_is_near_what_a_line_takes() {
    let long = "x".repeat(60_000);
    let fields: Vec<String> = (0..20).map(|field| format!("f{field}=1")).collect();
    for (name, line) in [
        ("string", format!("m s=\"{}\",v=1\n", "x".repeat(500_000))),
        ("tag of many fields", format!("m,t={long} {}\n", fields.join(","))),
        ("tag", format!("m,t={long} v=1\n")),
        ("key", format!("m {long}=1\n")),
        ("key of a string", format!("m {long}=\"\"\n")),
        ("measurement", format!("{long} v=1\n")),
    ] {
        let mut builder = Builder::new(&Settings::default());
        let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
        let mut growth = 0;
        reader.read(line.as_bytes(), |line| {
            growth = builder.growth_bytes(line);
            builder.add(line, 7);
        });
        let taken = builder.held_bytes();
        assert!(taken > 60_000, "{name}");
        assert!((taken..=2 * taken + 2048).contains(&growth), "{name} {taken} {growth}");
    }
}

/// Guarantee: the room of a long line that was cut is not kept for a short one behind it.
#[test]
fn a_short_line_does_not_take_the_room_of_a_long_one() {
    let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
    let mut each = |line: &Line<'_>| assert_eq!(line.measurement(), "m");
    reader.read(format!("m s=\"{}", "x".repeat(500_000)).as_bytes(), &mut each);
    reader.read(b"\",v=1\nm v", &mut each);
    reader.trim();
    assert!(reader.held_bytes() <= 8 << 10, "{}", reader.held_bytes());
    reader.read(b"=1\n", &mut each);
    assert_eq!(reader.finish(each).count, 0);
}

/// Guarantee: a line that is given up, before or after its end is there, is a fault of its own, and
/// no line of its text is taken for one of the body.
#[test]
fn a_line_that_is_given_up_costs_no_others() {
    let line = "b,t=u s=\"x\nno v=9\ny\",v=2\n";
    for (cut, is_whole) in (1..line.len()).flat_map(|cut| [(cut, false), (cut, true)]) {
        let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
        let mut names = Vec::new();
        let mut each = |line: &Line<'_>| names.push(line.measurement().into_owned());
        reader.read(format!("a v=1\n{}", &line[..cut]).as_bytes(), &mut each);
        let rest = format!("{}c v=3\n", &line[cut..]);
        let mut done = 0;
        if is_whole {
            let stopped = reader.read_until(rest.as_bytes(), |_| Verdict::Later);
            done = stopped.expect("it was not taken");
        }
        assert!(reader.refuse_cut("no room"));
        reader.read(&rest.as_bytes()[done..], &mut each);
        assert!(!reader.refuse_cut("no room"), "there is no such line");
        let faults = reader.finish(&mut each);
        let places: Vec<_> = faults.first.iter().map(|it| (it.line, &*it.reason)).collect();
        let reason = if is_whole { "no room" } else { "no room, with 2 line breaks in quotes" };
        assert_eq!((names, places), (vec!["a".to_owned(), "c".to_owned()], vec![(2, reason)]));
    }
}

/// The measurements that are taken of a body in pieces of this length, and its faults.
fn taken(body: &str, piece_bytes: usize, limits: Limits) -> (Vec<String>, Vec<(u64, String)>) {
    let mut reader = Reader::new(Precision::Nanoseconds, limits);
    let mut names = Vec::new();
    let mut each = |line: &Line<'_>| names.push(line.measurement().into_owned());
    body.as_bytes().chunks(piece_bytes).for_each(|piece| reader.read(piece, &mut each));
    let faults = reader.finish(&mut each);
    (names, faults.first.into_iter().map(|it| (it.line, it.reason.into_owned())).collect())
}

/// Scenario: a line that is too long has a text of lines that look like those of the body, or a
/// quote in a tag. Guarantee: it ends where it would end if it were taken.
#[test]
fn a_line_that_is_too_long_ends_with_its_text() {
    let body = "a v=1\nb s=\"text of\nno v=9\n\\\"no v=8\n\",t=\"\n\",v=2\nc v=3\n\
                d,t=\"tag_that_is_long v=1\ne v=5\n";
    let reason = "a line is longer than 14 bytes";
    let expected =
        vec![(2, format!("{reason}, with 4 line breaks in quotes")), (4, reason.to_owned())];
    for piece_bytes in 1..=body.len() {
        let found = taken(body, piece_bytes, Limits { line_bytes: 14 });
        assert_eq!(found, (["a", "c", "e"].map(str::to_owned).to_vec(), expected.clone()));
    }
}

/// Scenario: quotes of a line that is too long do not end. Guarantee: as in InfluxDB they hide what
/// follows, which the fault says; but not more than 24 lengths of a line.
#[test]
fn unbalanced_quotes_hide_no_more_than_a_bound() {
    let limits = Limits { line_bytes: 100 };
    let all = |reason: &str| vec![(1, format!("a line is longer than 100 bytes{reason}"))];
    for (lines, left, breaks) in [(50, 0, 51), (300, 0, 301), (1_000, 584, 416)] {
        let body = format!("b s=\"\n{}", "m v=1\n".repeat(lines));
        for piece_bytes in [1, 7, 1_000, body.len()] {
            let (names, faults) = taken(&body, piece_bytes, limits);
            let reason = format!(": unbalanced quotes, with {breaks} line breaks behind them");
            assert_eq!((names.len(), faults), (left, all(&reason)), "{lines} {piece_bytes}");
        }
    }
}

/// Guarantee: the metrics of k6 are useful to any backend.
#[test]
fn samples_of_k6_are_gauges_and_sums() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::{metric::Data, number_data_point::Value};
    use prost::Message;

    let body = "http_reqs,status=200 url=\"http://a/\",value=1 7\n\
                http_req_duration,status=200 url=\"http://a/\",value=12.5 7\n\
                http_reqs,status=200 url=\"http://b/\",value=1 8\n\
                vus value=3,max=5i\n\
                events title=\"start\"\n";
    let (request, points) = build(body.as_bytes(), 9);
    assert_eq!(points, 6);
    let request = ExportMetricsServiceRequest::decode(&*request).expect("is valid");
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let names: Vec<_> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["http_reqs", "http_req_duration", "vus", "vus_max", "events"]);
    let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{:?}", metrics[0]) };
    assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (1, true));
    assert_eq!(sum.data_points.len(), 2);
    let keys: Vec<_> = sum.data_points[1].attributes.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(keys, ["url", "status"]);
    assert_eq!(sum.data_points[1].time_unix_nano, 8);
    let Some(Data::Gauge(gauge)) = &metrics[1].data else { panic!("{:?}", metrics[1]) };
    assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(12.5)));
    let metadata: Vec<_> = metrics[3].metadata.iter().map(|it| it.key.as_str()).collect();
    assert_eq!(metadata, ["influxdb.field"]);
}
