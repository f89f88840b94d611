//! The direction of dependencies between crates, as ARCHITECTURE.md has it.

use std::collections::BTreeSet;
use std::path::Path;

/// Each crate and the crates of ours that it may use.
const MAY_USE: [(&str, &[&str]); 12] = [
    (
        "sluice",
        &[
            "engine",
            "receivers",
            "processors",
            "exporters",
            "flow",
            "log",
            "net",
            "telemetry",
            "config",
            "otlp",
            "load-test",
        ],
    ),
    ("engine", &["receivers", "processors", "exporters", "flow", "log", "net", "telemetry", "config", "otlp"]),
    ("receivers", &["config", "net", "otlp", "flow", "telemetry"]),
    ("processors", &["config", "net", "otlp", "flow", "telemetry"]),
    ("exporters", &["config", "net", "otlp", "flow", "telemetry"]),
    ("flow", &["otlp"]),
    ("log", &[]),
    ("net", &["config", "otlp"]),
    ("telemetry", &[]),
    ("config", &[]),
    ("otlp", &[]),
    ("load-test", &["otlp", "net"]),
];

/// Names of our crates among the dependencies of a manifest, those for tests left out.
fn own_dependencies(manifest: &str) -> BTreeSet<String> {
    let before_tests = manifest.split("[dev-dependencies]").next().unwrap_or_default();
    before_tests
        .lines()
        .filter_map(|line| line.trim().strip_prefix("sluice-")?.split(['.', ' ', '=']).next())
        .map(str::to_owned)
        .collect()
}

/// Guarantee: no crate uses one that stands above it, so that what is deepest has the least to import.
#[test]
fn crates_use_only_what_stands_below_them() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in crates/");
    let mut seen = 0;
    for entry in std::fs::read_dir(crates).expect("crates/ can be listed") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let Ok(manifest) = std::fs::read_to_string(path.join("Cargo.toml")) else { continue };
        let (_, allowed) = MAY_USE
            .iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md's list"));
        for used in own_dependencies(&manifest) {
            assert!(allowed.contains(&used.as_str()), "crate {name} may not use {used}");
        }
        seen += 1;
    }
    assert_eq!(seen, MAY_USE.len());
}
