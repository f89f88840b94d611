//! Files of container runtimes.

use fastrand::Rng;

use super::Case;
use crate::contents;

pub(super) const PATH: &str = "pods/shop_cart-7d9f_0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0/main/3.log";

/// The end of a time, which tells CRI-O from containerd.
const CRIO: &str = "+02:00";
pub(super) const CONTAINERD: &str = "Z";

/// Lines of both streams, of which whole ones and those in parts alternate.
pub(super) fn cri(seed: u64, zone: &str, text: impl Fn(&mut Rng, usize) -> String) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut out = String::new();
    let mut line = |stream: &str, tag: &str, text: &str, rng: &mut Rng| {
        let nanos = rng.u32(..1_000_000_000);
        out.push_str(&format!("2024-04-13T07:59:37.{nanos:09}{zone} {stream} {tag} {text}\n"));
    };
    for number in 0..50 {
        let stream = ["stdout", "stderr"][rng.usize(..2)];
        let whole = text(&mut rng, number);
        let mut rest = &whole[..];
        for _ in 0..rng.usize(..4) {
            let at = rng.usize(..=rest.len());
            if rest.is_char_boundary(at) {
                line(stream, "P", &rest[..at], &mut rng);
                rest = &rest[at..];
            }
        }
        line(stream, "F", rest, &mut rng);
    }
    out
}

fn docker(seed: u64, text: impl Fn(&mut Rng, usize) -> String) -> String {
    let mut rng = Rng::with_seed(seed);
    let mut out = String::new();
    for number in 0..50 {
        let text = serde_json::to_string(&text(&mut rng, number)).expect("a string");
        let (text, end) = (&text[..text.len() - 1], ["\\n", "\\r\\n", ""][rng.usize(..3)]);
        let (stream, nanos) = (["stdout", "stderr"][rng.usize(..2)], rng.u32(..1_000_000_000));
        out.push_str(&format!(
            "{{\"log\":{text}{end}\",\"stream\":\"{stream}\",\
             \"time\":\"2029-03-30T08:31:20.{nanos:09}Z\"}}\n"
        ));
    }
    out
}

pub(super) fn plain(rng: &mut Rng, number: usize) -> String {
    format!("{number} {}", contents::words(rng, 0..6))
}

fn object(rng: &mut Rng, number: usize) -> String {
    let level = ["info", "warn", "odd"][rng.usize(..3)];
    format!("{{\"n\":{number},\"level\":\"{level}\",\"msg\":\"text {}\"}}", rng.u8(..))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name: &str, options: &str, operators: &str, content: String| {
        let options = format!("{options}\noperators:\n{operators}");
        let files = vec![(PATH.to_owned(), content.into_bytes())];
        cases.push(Case::of_files(&format!("container-{name}"), &options, files));
    };
    let path = "include_file_path: true";
    let container = "  - {type: container}";
    for (name, zone) in [("containerd", CONTAINERD), ("crio", CRIO)] {
        case(name, path, container, cri(121, zone, plain));
        let named = format!("  - {{type: container, format: {name}}}");
        case(&format!("{name}-named"), path, &named, cri(123, zone, plain));
        let parsed = "  - type: container\n  - type: json_parser\n    parse_ints: true\n    \
                      severity: {parse_from: attributes.level}\n    on_error: send_quiet";
        case(&format!("{name}-json"), path, parsed, cri(124, zone, object));
        let small = "  - {type: container, max_log_size: 60}";
        case(&format!("{name}-small"), path, small, cri(125, zone, plain));
        let unfinished =
            format!("{}2024-04-13T07:59:38.1{zone} stdout P unfinished\n", cri(126, zone, plain));
        case(&format!("{name}-unfinished"), path, container, unfinished);
    }
    case("docker", path, container, docker(131, plain));
    case("docker-named", path, "  - {type: container, format: docker}", docker(132, plain));
    let parsed =
        "  - type: container\n  - type: json_parser\n    severity: {parse_from: attributes.level}";
    case("docker-json", path, parsed, docker(133, object));
    let without = "  - {type: container, add_metadata_from_filepath: false}";
    case("without-path", "", without, cri(134, CONTAINERD, plain));
    let moved = "  - {type: container}\n  - {type: move, from: attributes.log.iostream, to: \
    attributes.stream}\n  \
                 - {type: move, from: 'attributes[\"log.iostream\"]', to: attributes.stream, \
                 on_error: drop}";
    case("moved", path, moved, cri(135, CONTAINERD, plain));
    for on_error in ["send", "drop", "send_quiet", "drop_quiet"] {
        let broken = "2024-04-13T07:59:37.505201169Z stdout F good\nno such line\n\
                      2024-04-13T07:59:37Z stdout\n\
                      2024-04-13T07:59:37.505201169Z stdlog F other stream\n\n\
                      2024-04-13T07:59:37.505201169Z stderr F \n";
        let operators = format!("  - {{type: container, on_error: {on_error}}}");
        case(&format!("broken-{on_error}"), path, &operators, broken.to_owned());
        let broken = "{\"log\":\"good\\n\",\"stream\":\"stdout\",\
                      \"time\":\"2029-03-30T08:31:20Z\"}\n\
                      {\n\
                      {\"log\":\"more\",\"stream\":\"stderr\",\
                      \"time\":\"2029-03-30T08:31:20Z\",\"attrs\":{\"tag\":\"x\"}}\n";
        case(&format!("broken-docker-{on_error}"), path, &operators, broken.to_owned());
    }
    // Lines that cannot be parsed overtake others in the Collector.
    for case in cases.iter_mut().filter(|case| case.name.contains("broken")) {
        case.is_ordered = false;
    }
    cases
}
