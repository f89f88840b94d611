use std::fs;

use sluice_config::read_text;

use super::*;
use crate::index::Index;
use crate::scrape_config::{ScrapeConfigs, SourceConfig};

/// A source of files in a directory, and the index that it tells.
struct Setup {
    directory: tempfile::TempDir,
    source: Source,
    index: Arc<Index>,
    now: Instant,
}

fn setup(files: &str) -> Setup {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().display();
    let text = format!(
        "scrape_configs: [{{job_name: j, file_sd_configs: [{{files: ['{path}/{files}']}}]}}]"
    );
    let (mut configs, diagnostics) = read_text("x", &text, ScrapeConfigs::read);
    assert!(!diagnostics.has_errors());
    let Some(SourceConfig::File(config)) = configs.jobs.remove(0).sources.pop() else {
        panic!("{text}")
    };
    let index = Index::new(Arc::default());
    let outlet = Outlet::new("j".into(), index.reporter());
    let source = Source { config, outlet, files: BTreeMap::new(), next_reading: None };
    Setup { directory, source, index, now: Instant::now() }
}

impl Setup {
    fn write(&self, name: &str, text: &str) {
        // As tools do that do not want half a file to be read.
        let path = self.directory.path().join(name);
        let beside = path.with_extension("new");
        fs::write(&beside, text).expect("is written");
        fs::rename(beside, path).expect("is renamed");
    }

    /// Looks again, before the files are read whether or not they have changed. The addresses of
    /// all targets, each with its file's name.
    fn look(&mut self) -> String {
        self.source.look(self.now);
        let (groups, _) = self.index.groups();
        let shown = groups.iter().flat_map(|group| {
            let file = group.labels.get("__meta_filepath").rsplit('/').next().unwrap_or_default();
            let addresses = group.targets.iter().map(|target| target.get("__address__").clone());
            addresses.map(move |address| format!("{file}:{address}")).collect::<Vec<_>>()
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    /// Reasons that are told.
    fn told(&self) -> Vec<&str> {
        let mut told: Vec<&str> = self.source.outlet.told.values().map(String::as_str).collect();
        told.sort_unstable();
        told
    }
}

/// Scenario: files appear, change, and go away. Guarantee: their groups do the same.
#[test]
fn files_are_followed() {
    let mut setup = setup("*.yml");
    assert_eq!(setup.look(), "");
    setup.write("a.yml", "- targets: [a:1, a:2]\n- targets: [a:3]");
    setup.write("b.yml", "- {targets: [b:1], labels: {env: prod}}");
    setup.write("c.json", r#"[{"targets": ["c:1"]}]"#);
    assert_eq!(setup.look(), "a.yml:a:1 a.yml:a:2 a.yml:a:3 b.yml:b:1");
    let (before, version) = setup.index.groups();
    assert_eq!(setup.look(), "a.yml:a:1 a.yml:a:2 a.yml:a:3 b.yml:b:1");
    assert_eq!(setup.index.version(), version);
    setup.write("a.yml", "- targets: [a:4]");
    assert_eq!(setup.look(), "a.yml:a:4 b.yml:b:1");
    let (after, _) = setup.index.groups();
    assert!(Arc::ptr_eq(&before[2], &after[1]), "a file that stays is not another group");
    fs::remove_file(setup.directory.path().join("a.yml")).expect("is removed");
    assert_eq!(setup.look(), "b.yml:b:1");
    fs::remove_dir_all(setup.directory.path()).expect("is removed");
    assert_eq!(setup.look(), "");
}

/// Scenario: a file is broken for a while. Guarantee: its last groups stay, the reason is told once
/// and forgotten when the file is good again or gone.
#[test]
fn a_broken_file_leaves_the_last_state() {
    let mut setup = setup("*.json");
    setup.write("a.json", r#"[{"targets": ["a:1"]}]"#);
    setup.write("b.json", r#"[{"targets": ["b:1"]}]"#);
    assert_eq!(setup.look(), "a.json:a:1 b.json:b:1");
    setup.write("a.json", r#"[{"targets": ["a:2"]"#);
    assert_eq!(setup.look(), "a.json:a:1 b.json:b:1");
    assert!(setup.told().len() == 1 && setup.told()[0].contains("EOF"), "{:?}", setup.told());
    setup.write("b.json", r#"[{"targets": ["b:2"]}]"#);
    assert_eq!(setup.look(), "a.json:a:1 b.json:b:2");
    setup.write("a.json", r#"[{"targets": ["a:3"]}]"#);
    assert_eq!(setup.look(), "a.json:a:3 b.json:b:2");
    assert!(setup.told().is_empty());
    setup.write("a.json", "[null]");
    assert_eq!(setup.look(), "a.json:a:3 b.json:b:2");
    assert_eq!(setup.told(), ["group 0 is null"]);
    fs::remove_file(setup.directory.path().join("a.json")).expect("is removed");
    assert_eq!((setup.look(), setup.told().len()), ("b.json:b:2".to_owned(), 0));
}

/// Scenario: a file that changes keeps size and time. Guarantee: it is read after the interval.
#[test]
fn changes_without_a_sign_are_seen_after_the_interval() {
    let mut setup = setup("a.yml");
    let path = setup.directory.path().join("a.yml");
    let write = |text: &str| {
        fs::write(&path, text).expect("is written");
        let time = std::time::SystemTime::UNIX_EPOCH;
        fs::File::options().append(true).open(&path).and_then(|it| it.set_modified(time))
    };
    write("- targets: [a:1]").expect("a time");
    assert_eq!(setup.look(), "a.yml:a:1");
    write("- targets: [a:2]").expect("a time");
    assert_eq!(setup.look(), "a.yml:a:1");
    setup.now += Duration::from_secs(300);
    assert_eq!(setup.look(), "a.yml:a:2");
}

/// Scenario: hostile files: a pipe, one that is too large, one with a million targets, one that is
/// no text. Guarantee: nothing waits, each is refused with the reason, and the others are read.
#[test]
fn hostile_files_are_refused() {
    let mut setup = setup("*.yml");
    let at = |name: &str| setup.directory.path().join(name);
    let pipe = std::process::Command::new("mkfifo").arg(at("pipe.yml")).status();
    assert!(pipe.is_ok_and(|status| status.success()));
    fs::File::create(at("large.yml")).and_then(|it| it.set_len(17 << 20)).expect("is made");
    setup.write("many.yml", &format!("- targets: [a{}]", ",a".repeat(1_000_000)));
    fs::write(at("bytes.yml"), b"- targets: [\xff]").expect("is written");
    setup.write("good.yml", "- targets: [a:1]");
    assert_eq!(setup.look(), "good.yml:a:1");
    let told = setup.told().join("\n");
    for reason in ["larger than 16 MiB", "not UTF-8", "more than 200000 values"] {
        assert!(told.contains(reason), "{reason} is not in\n{told}");
    }
}

/// Guarantee: the task sees a change without being asked.
#[tokio::test]
async fn changes_are_seen_by_polling() {
    let Setup { directory, source, index, .. } = setup("a.yml");
    let path = directory.path().join("a.yml");
    fs::write(&path, "- targets: [a:1]").expect("is written");
    let config = FileSd { refresh_interval: Duration::from_millis(20), ..source.config };
    let task = tokio::spawn(run(config, source.outlet));
    for expected in ["a:1", "a:2"] {
        fs::write(&path, format!("- targets: ['{expected}']")).expect("is written");
        let is_there = || {
            let (groups, _) = index.groups();
            groups.first().is_some_and(|group| &**group.targets[0].get("__address__") == expected)
        };
        tokio::time::timeout(Duration::from_secs(60), async {
            while !is_there() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("is seen");
    }
    task.abort();
}
