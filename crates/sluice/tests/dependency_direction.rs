//! The direction of dependencies between crates, as ARCHITECTURE.md has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Each crate and the crates of ours that it may use.
const MAY_USE: [(&str, &[&str]); 16] = [
    (
        "sluice",
        &[
            "engine",
            "receivers",
            "processors",
            "exporters",
            "extensions",
            "flow",
            "log",
            "net",
            "telemetry",
            "config",
            "otlp",
            "load-test",
        ],
    ),
    (
        "engine",
        &[
            "receivers",
            "processors",
            "exporters",
            "extensions",
            "flow",
            "log",
            "net",
            "telemetry",
            "config",
            "otlp",
        ],
    ),
    ("receivers", &["config", "net", "otlp", "flow", "telemetry"]),
    ("processors", &["config", "net", "otlp", "flow", "telemetry"]),
    ("exporters", &["config", "net", "otlp", "flow", "telemetry"]),
    ("extensions", &["config", "net", "otlp", "flow", "telemetry"]),
    ("flow", &["log", "otlp"]),
    ("log", &[]),
    ("net", &["config", "otlp", "inflate"]),
    ("telemetry", &["config", "otlp"]),
    ("config", &["otlp"]),
    ("otlp", &[]),
    ("inflate", &[]),
    ("load-test", &["load", "otlp", "net"]),
    ("load", &["otlp", "net"]),
    ("bench", &["otlp", "net", "load", "load-test"]),
];

/// Each crate of a workspace and the crates of ours that it uses, those for tests left out. Cargo
/// lists them, because it knows all ways to write a dependency.
fn own_dependencies(manifest: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1", "--manifest-path"])
        .arg(manifest)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let own = |package: &Value| {
        let name = package["name"].as_str().expect("a name");
        name.strip_prefix("sluice-").or((name == "sluice").then_some(name)).map(str::to_owned)
    };
    let uses = |package: &Value| {
        let dependencies = package["dependencies"].as_array().expect("a list");
        dependencies.iter().filter(|used| used["kind"] != "dev").filter_map(own).collect()
    };
    let packages = metadata["packages"].as_array().expect("a list");
    packages
        .iter()
        .map(|package| (own(package).expect("one of our crates"), uses(package)))
        .collect()
}

/// Guarantee: no crate uses one that stands above it, so that the lowest crates import the least.
#[test]
fn crates_use_only_what_stands_below_them() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let crates = own_dependencies(&workspace);
    for (name, used) in &crates {
        let (_, allowed) = MAY_USE
            .iter()
            .find(|(known, _)| known == name)
            .unwrap_or_else(|| panic!("{name} is not in ARCHITECTURE.md's list"));
        for used in used {
            assert!(allowed.contains(&used.as_str()), "crate {name} may not use {used}");
        }
    }
    assert_eq!(crates.len(), MAY_USE.len());
}

/// Guarantee: a dependency counts wherever it stands in a manifest, unless it is for tests.
#[test]
fn dependencies_are_found_in_every_section() {
    const MANIFEST: &str = r#"
        [workspace]
        [package]
        name = "sluice-flow"
        [dev-dependencies]
        sluice-engine = "1"
        [dependencies]
        sluice-otlp = "1"
        wire = { package = "sluice-net", version = "1" }
        [dependencies.sluice-log]
        version = "1"
        [target.'cfg(unix)'.dependencies]
        sluice-config = "1"
        [build-dependencies]
        sluice-telemetry = "1"
    "#;
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = directory.path().join("Cargo.toml");
    std::fs::create_dir(directory.path().join("src")).expect("a directory");
    std::fs::write(directory.path().join("src/lib.rs"), "").expect("a file");
    std::fs::write(&manifest, MANIFEST).expect("a file");
    let used = ["config", "log", "net", "otlp", "telemetry"].map(str::to_owned);
    assert_eq!(
        own_dependencies(&manifest),
        BTreeMap::from([("flow".to_owned(), BTreeSet::from(used))])
    );
}
