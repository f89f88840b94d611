use super::*;

fn shell(script: &str) -> SubjectSpec {
    SubjectSpec {
        name: "shell".to_owned(),
        binary: "/bin/sh".into(),
        args: vec!["-c".to_owned(), script.to_owned()],
        ..SubjectSpec::default()
    }
}

fn is_alive(pid: u32) -> bool {
    usage_of_process(pid).is_some_and(|usage| usage.rss_bytes > 0)
}

#[tokio::test]
async fn dropping_a_subject_ends_what_it_started_and_removes_its_folder() {
    let subject = Subject::start(shell("sleep 600 & echo $!; wait")).await.unwrap();
    let folder = subject.folder().to_owned();
    let grandchild: u32 = loop {
        if let Ok(pid) = subject.output_tail().trim().parse() {
            break pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(is_alive(subject.pid()) && is_alive(grandchild) && folder.exists());
    let pid = subject.pid();
    drop(subject);
    let began = Instant::now();
    while is_alive(pid) || is_alive(grandchild) {
        assert!(began.elapsed() < Duration::from_secs(10), "still alive");
    }
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_subject_that_ends_at_once_says_why() {
    let mut spec = shell("echo no such option >&2; exit 3");
    spec.ready = Some(free_addr().unwrap().into());
    let error = Subject::start(spec).await.unwrap_err().to_string();
    assert!(error.contains("no such option") && error.contains('3'), "{error}");
}

#[tokio::test]
async fn a_port_that_becomes_free_is_waited_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ready = Ready::from(listener.local_addr().unwrap());
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(listener);
    });
    assert_eq!(ready.taken_addr().await, None);
}

#[tokio::test]
async fn a_taken_port_and_a_missing_binary_are_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut spec = shell("sleep 600");
    spec.ready = Some(listener.local_addr().unwrap().into());
    let error = Subject::start(spec).await.unwrap_err().to_string();
    assert!(error.starts_with("shell: something else listens on 127.0.0.1:"), "{error}");
    let missing = SubjectSpec { binary: "/nonexistent/otelcol".into(), ..shell("") };
    let error = Subject::start(missing).await.unwrap_err().to_string();
    assert!(error.contains("/nonexistent/otelcol"), "{error}");
}

#[tokio::test]
async fn a_pinned_subject_runs_where_it_was_put() {
    let mut spec = shell("grep Cpus_allowed_list /proc/self/status; cat {config}; sleep 600");
    (spec.cpus, spec.config) = (vec![0], "in {dir}".to_owned());
    let subject = Subject::start(spec).await.unwrap();
    let expected = format!("Cpus_allowed_list:\t0\nin {}", subject.folder().display());
    let began = Instant::now();
    while subject.output_tail() != expected {
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", subject.output_tail());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_quota_holds_or_there_is_a_warning() {
    let mut spec = shell("while :; do :; done");
    spec.limits = Limits { cpu_cores: Some(0.2), memory_bytes: Some(64 << 20) };
    let subject = Subject::start(spec).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let cpu = subject.usage().unwrap().cpu;
    assert!(!subject.warnings.is_empty() || cpu < Duration::from_millis(900), "{cpu:?}");
}

/// Some engines bind their port, then find a fault in their configuration.
#[tokio::test]
async fn one_that_listens_and_ends_a_moment_later_was_never_ready() {
    let mut spec = shell("echo ready; echo fault; exit 4");
    spec.ready = Some(Ready::Output("ready".to_owned()));
    let error = Subject::start(spec).await.unwrap_err();
    assert!(
        matches!(error, SubjectError::Ended { .. }) && error.to_string().contains("fault"),
        "{error}"
    );
}

/// The first child of a subject is in its group as well. Where groups cannot be made there is a
/// warning.
#[tokio::test]
async fn a_child_that_is_started_at_once_cannot_leave_the_limits() {
    let mut spec = shell("cat /proc/self/cgroup; echo done; sleep 600");
    spec.limits = Limits { cpu_cores: Some(0.5), memory_bytes: Some(64 << 20) };
    spec.ready = Some(Ready::Output("done".to_owned()));
    let subject = Subject::start(spec).await.unwrap();
    let output = subject.output();
    let name = format!("sluice-load-test-{}-", std::process::id());
    assert!(
        !subject.warnings.is_empty()
            || output.matches(&name).count() >= subject.supervised.lock().group.folders.len(),
        "{output}"
    );
}

/// The kernel does this to a pod. Where the limit cannot be set there is a warning.
#[tokio::test]
async fn one_that_takes_too_much_memory_is_killed_counted_and_started_again() {
    let mut spec = shell("exec tail /dev/zero");
    spec.limits = Limits { cpu_cores: None, memory_bytes: Some(32 << 20) };
    spec.restart_delay = Some(Duration::from_millis(50));
    let subject = Subject::start(spec).await.unwrap();
    if !subject.warnings.is_empty() {
        eprintln!("passed over: {:?}", subject.warnings);
        return;
    }
    let began = Instant::now();
    while subject.lives().restarts < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", subject.lives());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(subject.oom_kills().unwrap() >= 2, "{:?}", subject.oom_kills());
    let last = subject.lives().last_end.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&last), Some(9));
    let usage = subject.usage().unwrap();
    assert!(usage.peak_rss_bytes <= 40 << 20, "{usage:?}");
}
