//! What the repository says of the program is what the program does.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace").to_owned()
}

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).current_dir(root()).output().expect("sluice runs")
}

/// Guarantee: docs/configuration.md is the reference that this build prints.
#[test]
fn the_committed_reference_is_the_generated_one() {
    let printed = sluice(&["docs"]);
    assert!(printed.status.success());
    let committed = std::fs::read_to_string(root().join("docs/configuration.md")).expect("docs/configuration.md");
    assert!(
        committed.as_bytes() == printed.stdout,
        "docs/configuration.md is out of date: run `cargo run -p sluice -- docs > docs/configuration.md`"
    );
}

/// Guarantee: every example is valid, and `plan` can say what it comes to.
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
            assert!(output.status.success(), "{command} {file}:\n{}", String::from_utf8_lossy(&output.stderr));
        }
        seen += 1;
    }
    assert!(seen >= 5, "{seen} examples");
}

/// Guarantee: the lists and completions that the help text promises exist.
#[test]
fn components_and_completions_are_printed() {
    let components = String::from_utf8(sluice(&["components"]).stdout).expect("text");
    for name in ["otlp", "otlphttp", "debug", "file", "nop", "resource", "attributes", "batch", "memory_limiter", "forward"] {
        assert!(components.contains(&format!("  {name}")), "{name} in\n{components}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let output = sluice(&["completions", shell]);
        assert!(output.status.success() && output.stdout.len() > 1000, "{shell}");
    }
    let version = String::from_utf8(sluice(&["--version"]).stdout).expect("text");
    assert_eq!(version.trim(), format!("sluice {}", env!("CARGO_PKG_VERSION")));
}
