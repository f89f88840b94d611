//! The direction of dependencies between crates, as ARCHITECTURE.md has it, and between the folders
//! of each crate.

mod file_imports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use file_imports::Modules;

use serde_json::Value;

/// Each crate and the crates of ours that it uses. A new one has to stand below it.
const USES: [(&str, &[&str]); 23] = [
    ("sluice", &["engine", "flow", "log", "net", "telemetry", "config", "otlp", "load-test"]),
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
    (
        "receivers",
        &[
            "config",
            "net",
            "otlp",
            "flow",
            "telemetry",
            "tail",
            "operators",
            "discovery",
            "kubernetes",
            "scrape",
            "prometheus",
            "influx",
        ],
    ),
    ("processors", &["config", "net", "otlp", "flow", "kubernetes", "influx"]),
    ("exporters", &["config", "net", "otlp", "flow", "telemetry", "prometheus", "influx"]),
    ("extensions", &["config", "net"]),
    ("flow", &["log", "otlp"]),
    ("log", &[]),
    ("operators", &["config", "otlp"]),
    ("discovery", &["config", "net", "tail", "kubernetes"]),
    ("kubernetes", &["config", "net"]),
    ("tail", &[]),
    ("scrape", &["otlp", "prometheus"]),
    ("prometheus", &["otlp"]),
    ("influx", &["otlp"]),
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

/// Guarantee: each crate uses those that the list has for it and no other, so that the lowest
/// crates import the least, and a new dependency is a decision.
#[test]
fn crates_use_what_the_list_says() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let listed = USES.iter().map(|(name, used)| {
        (name.to_string(), used.iter().map(|used| used.to_string()).collect::<BTreeSet<_>>())
    });
    assert_eq!(own_dependencies(&workspace), listed.collect::<BTreeMap<_, _>>());
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

/// The circles of a crate's files across folders, with the imports of which they consist.
fn circles(root: &Path) -> String {
    let source = root.parent().expect("a directory");
    let mut text = String::new();
    for circle in Modules::of_crate(root).circles_across_folders() {
        let _ = writeln!(text, "{}:", root.display());
        for ((from, to), path) in circle {
            let [from, to] = [&from, &to].map(|file| file.strip_prefix(source).expect("below it"));
            let _ = writeln!(text, "  {} -> {}: {path}", from.display(), to.display());
        }
    }
    text
}

/// Guarantee: imports between the folders of a crate have a direction, so that each folder can be
/// read, or moved, without those that use it.
#[test]
fn no_circle_of_files_spans_folders() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = std::fs::read_dir(&crates).expect("is a folder");
    let sources = folders.map(|entry| entry.expect("is read").path().join("src"));
    let roots: Vec<PathBuf> = sources
        .flat_map(|source| ["lib.rs", "main.rs"].map(|root| source.join(root)))
        .filter(|root| root.exists())
        .collect();
    assert_eq!(roots.len(), USES.len());
    let circles: String = roots.iter().map(|root| circles(root)).collect();
    assert!(circles.is_empty(), "files of several folders import each other:\n{circles}");
}

/// The circles of a crate of these files, which are paths and texts.
fn circles_of(files: &[(&str, &str)]) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    for (file, text) in files {
        let file = directory.path().join(file);
        std::fs::create_dir_all(file.parent().expect("a directory")).expect("a directory");
        std::fs::write(&file, text).expect("a file");
    }
    let text = circles(&directory.path().join("lib.rs"));
    text.lines().filter(|line| line.starts_with(' ')).map(|line| format!("{line}\n")).collect()
}

/// Guarantee: a circle is found, however its imports are written, and with it who imports whom.
#[test]
fn circles_across_folders_are_found() {
    // Through a re-export, an alias, a glob, and a path without `use`.
    let circle = circles_of(&[
        ("lib.rs", "mod a; mod b; mod c; mod d;"),
        ("a/mod.rs", "mod deep; pub(crate) use deep::{A, Other};"),
        ("a/deep.rs", "use crate::{b::{self as other}, d::D}; pub struct A(other::B);"),
        ("b.rs", "use super::c::*; pub struct B(C);"),
        ("c.rs", "pub struct C; fn f() -> u8 { vec![crate::a::A::new()].len() as u8 }"),
        ("d.rs", "pub struct D;"),
    ]);
    let expected = "  a/deep.rs -> b.rs: crate::b\n  b.rs -> c.rs: super::c\n  \
                    c.rs -> a/deep.rs: crate::a::A::new\n";
    assert_eq!(circle, expected);
    // A file is the head of the folder beside it, and the root of a crate of the one it stands in.
    let with_head = [("lib.rs", "mod a;"), ("a.rs", "mod b; use b::B; pub struct A;")];
    let child = ("a/b.rs", "use super::A; pub struct B;");
    assert_eq!(circles_of(&[with_head[0], with_head[1], child]), "");
    let root = [("lib.rs", "mod a; struct Top(a::A);"), ("a/mod.rs", "pub struct A(crate::Top);")];
    assert_eq!(circles_of(&root), "  a/mod.rs -> lib.rs: crate::Top\n  lib.rs -> a/mod.rs: a::A\n");
}

/// Guarantee: tests may import what they test, and a folder may re-export what its files define.
#[test]
fn tests_and_reexports_make_no_circle() {
    let files = [
        ("lib.rs", "mod a; mod b; pub use a::A; mod c { pub struct C; }"),
        ("a/mod.rs", "#[cfg(test)] mod tests; pub mod x; pub use x::X; pub struct A(crate::c::C);"),
        ("a/x.rs", "use crate::b::B; pub struct X; #[cfg(test)] fn f<T, U>() { crate::A }"),
        ("a/tests.rs", "use crate::b;"),
        ("b.rs", "pub struct B; #[cfg(test)] use crate::a::{A, X}; // crate::a::X"),
    ];
    assert_eq!(circles_of(&files), "");
}
