//! The documents and examples of the repository agree with the program.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("sluice runs")
}

/// Guarantee: every example is valid, and `plan` prints its plan.
#[test]
fn every_example_is_valid_and_can_be_planned() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root().join("examples")).expect("examples/") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let file = path.to_str().expect("a readable name");
        for command in ["validate", "plan"] {
            let output = sluice(&[command, file]);
            assert!(
                output.status.success(),
                "{command} {file}:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        seen += 1;
    }
    assert!(seen >= 5, "{seen} examples");
}

/// Guarantee: the lists and completions that the help text promises exist.
#[test]
fn components_and_completions_are_printed() {
    let components = String::from_utf8(sluice(&["components"]).stdout).expect("text");
    for name in [
        "otlp",
        "otlphttp",
        "debug",
        "file",
        "nop",
        "resource",
        "attributes",
        "batch",
        "memory_limiter",
        "forward",
    ] {
        assert!(components.contains(&format!("  {name}")), "{name} in\n{components}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = sluice(&["completions", shell]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
    let version = String::from_utf8(sluice(&["--version"]).stdout).expect("text");
    assert_eq!(version.trim(), format!("sluice {}", env!("CARGO_PKG_VERSION")));
}

/// The examples with their ports freed and their certificates at hand.
fn startable(text: &str) -> String {
    let mut text = text.to_owned();
    for port in [":4317", ":4318", ":8888", ":13133"] {
        // Only addresses to listen on: those of backends have five digits.
        text = text.replace(&format!("}}{port}\n"), "}:0\n");
    }
    text.replace("port: 8888\n", "port: 0\n")
}

/// A certificate authority and two certificates, under the names that examples/tls.yaml uses.
fn write_certificates(directory: &Path) {
    let names = vec!["localhost".to_owned()];
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = authority.self_signed(&authority_key).expect("a certificate");
    for name in ["clients-ca.crt", "backend-ca.crt"] {
        std::fs::write(directory.join(name), certificate.pem()).expect("a file");
    }
    let issuer = rcgen::Issuer::new(authority, authority_key);
    for name in ["server", "client"] {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(names.clone()).expect("parameters");
        let signed = parameters.signed_by(&key, &issuer).expect("a certificate");
        std::fs::write(directory.join(format!("{name}.crt")), signed.pem()).expect("a file");
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).expect("a file");
    }
}

/// Guarantee: every example starts, says where it receives or has its metrics, and ends in order.
#[test]
fn every_example_starts_and_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    write_certificates(directory.path());
    for entry in std::fs::read_dir(root().join("examples")).expect("examples/") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("an example");
        let copy = directory.path().join(path.file_name().expect("a name"));
        std::fs::write(&copy, startable(&text)).expect("a copy");
        let metrics = ["--config", "yaml:service::telemetry::metrics::address: 127.0.0.1:0"];
        let has_readers = text.contains("readers:\n");
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(["run", "--drain-timeout", "0"])
            .arg(&copy)
            .args(if has_readers { &[][..] } else { &metrics })
            .env("TLS_DIRECTORY", directory.path())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("sluice starts");
        let mut lines =
            BufReader::new(child.stderr.take().expect("its log")).lines().map_while(Result::ok);
        let mut before = Vec::new();
        // An agent that fetches listens nowhere but for its metrics.
        let said = if text.contains("protocols:") { "receiving" } else { "metrics at" };
        let has_started = lines
            .by_ref()
            .inspect(|line| before.push(line.clone()))
            .any(|line| line.contains(said));
        assert!(has_started, "{} did not start:\n{}", path.display(), before.join("\n"));
        let terminated =
            Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
        assert!(terminated.success());
        lines.for_each(drop);
        assert!(child.wait().expect("it ends").success(), "{}", path.display());
    }
}

/// Files and folders below `folder`, relative to the root, without build output and git's own.
fn paths_below(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if matches!(name, "target" | ".git") {
            continue;
        }
        if path.is_dir() {
            paths_below(&path, paths);
        }
        paths.push(path.strip_prefix(root()).expect("a path below the root").to_owned());
    }
}

/// The map leaves out the path parts that all crates share: `engine/delivery/task.rs` is
/// `crates/engine/src/delivery/task.rs`.
fn as_on_the_map(path: &Path) -> PathBuf {
    path.iter().filter(|part| *part != "crates" && *part != "src").collect()
}

/// Guarantee: each file and folder that ARCHITECTURE.md names exists.
#[test]
fn the_map_shows_what_is_there() {
    let mut paths = Vec::new();
    paths_below(&root(), &mut paths);
    let on_the_map: Vec<_> = paths.iter().map(|path| as_on_the_map(path)).collect();
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let named: Vec<_> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| {
            !code.contains(char::is_whitespace) && (code.ends_with('/') || code.ends_with(".rs"))
        })
        .collect();
    assert!(named.len() > 15, "{named:?}");
    let missing: Vec<_> = named
        .into_iter()
        .filter(|name| {
            !on_the_map.iter().any(|path| path.ends_with(as_on_the_map(Path::new(name))))
        })
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:?}");
}

/// Guarantee: a reader meets each decision where the behaviour is: a document or a source file
/// beside the list of decisions names its file.
#[test]
fn every_decision_is_named_where_it_applies() {
    let mut paths = Vec::new();
    paths_below(&root(), &mut paths);
    let folder = Path::new("docs/decisions");
    let (decisions, others): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| path.starts_with(folder) && path != folder);
    let is_text = |path: &&PathBuf| path.extension().is_some_and(|it| it == "md" || it == "rs");
    let texts: Vec<_> = others
        .iter()
        .filter(is_text)
        .map(|path| std::fs::read_to_string(root().join(path)).expect("a readable file"))
        .collect();
    let names = decisions.iter().filter_map(|path| path.file_name()?.to_str());
    let names: Vec<_> = names.filter(|name| name.starts_with(|it: char| it.is_numeric())).collect();
    assert!(names.len() > 20, "{names:?}");
    let unnamed = |name: &&&str| !texts.iter().any(|text| text.contains(**name));
    let unnamed: Vec<_> = names.iter().filter(unnamed).collect();
    assert!(unnamed.is_empty(), "no other file names {unnamed:?}");
}

/// Guarantee: no link from one document to another leads nowhere.
#[test]
fn every_link_between_documents_leads_somewhere() {
    let mut paths = Vec::new();
    paths_below(&root(), &mut paths);
    let (mut links, mut broken) = (0, Vec::new());
    for path in
        paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "md"))
    {
        let text = std::fs::read_to_string(root().join(path)).expect("a readable document");
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            links += 1;
            let folder = root().join(path.parent().expect("a file is in a folder"));
            if !folder.join(file).exists() {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(links > 10, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}
