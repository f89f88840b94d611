//! Programs that a kubeconfig names for credentials.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

/// A client whose credentials are from a program with this text.
fn client(folder: &Path, program: &str) -> Client {
    let path = folder.join("program");
    // Written elsewhere: a file that is still open for writing cannot be run.
    std::fs::write(folder.join("text"), format!("#!/bin/sh\n{program}\n")).expect("writes");
    std::fs::copy(folder.join("text"), &path).expect("copies");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("may be run");
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: a,
           clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:9'}}}}],
           contexts: [{{name: a, context: {{cluster: a, user: a}}}}],
           users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1,
             interactiveMode: Never, command: '{}'}}}}}}]}}",
        path.display()
    );
    let file = folder.join("kubeconfig");
    std::fs::write(&file, kubeconfig).expect("writes");
    Client::new(Access::Kubeconfig { file: Some(file), context: None })
}

async fn reason(client: &Client) -> String {
    match client.page("/api/v1/pods", "application/json").await {
        Err(Failure::Other(reason) | Failure::Unavailable(reason)) => reason,
        other => panic!("it has no credentials: {other:?}"),
    }
}

const CREDENTIAL: &str = r#"echo '{"status": {"token": "program-secret-1"}}'"#;

/// Scenario: a program prints its credential and fails, or prints something else. Guarantee: what
/// it complains about is shown, and nothing that it prints.
#[tokio::test]
async fn credentials_that_programs_print_are_not_shown() {
    let folder = tempfile::tempdir().expect("a directory");
    let text = format!("{CREDENTIAL}\necho 'no login for Bearer program-secret-1' >&2\nexit 3");
    let said = reason(&client(folder.path(), &text)).await;
    assert!(said.contains("fails with exit status: 3 (no login for Bearer [redacted])"), "{said}");
    assert!(!said.contains("secret"), "{said}");
    let said = reason(&client(folder.path(), "echo '[program-secret-1: x'")).await;
    assert!(said.contains("does not print credentials"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

/// Scenario: a program hangs, then ends. Guarantee: requests fail with a reason within their time,
/// it is not run again, and its credentials are used when they come.
#[tokio::test]
async fn a_program_that_hangs_is_not_run_again() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name);
    let (runs, go) = (path("runs"), path("go"));
    let text = format!(
        "echo run >> '{}'\nwhile [ ! -e '{}' ]; do sleep 0.02; done\n{CREDENTIAL}",
        runs.display(),
        go.display()
    );
    let mut client = client(folder.path(), &text);
    client.connect_timeout = Duration::from_millis(20);
    while !runs.exists() {
        let said = reason(&client).await;
        assert!(said.contains("within 20ms: a program that the kubeconfig names"), "{said}");
    }
    let (one, other) = tokio::join!(reason(&client), reason(&client));
    assert!(one.contains("may hang") && other.contains("may hang"), "{one} {other}");
    assert_eq!(std::fs::read_to_string(&runs).expect("is there"), "run\n");
    std::fs::write(&go, "").expect("writes");
    client.connect_timeout = CONNECT_TIMEOUT;
    let said = reason(&client).await;
    assert!(said.contains("no connection"), "{said}");
}
