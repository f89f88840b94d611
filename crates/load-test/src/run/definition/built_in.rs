//! The subjects of the repository's folder `subjects`, which are part of this program.

use std::path::Path;

/// In the order of their listing.
pub const BUILT_IN_NAMES: &[&str] = &[
    "sluice",
    "otelcol",
    "rotel",
    "fluent-bit",
    "vector",
    "telegraf",
    "df_engine",
    "direct",
    "sluice-interval",
    "sluice-json",
    "sluice-csv",
    "telegraf-json",
    "telegraf-csv",
];

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_str!(concat!("../../../../../subjects/", $path)))),*]
    };
}

const FILES: &[(&str, &str)] = &files![
    "sluice/subject.json",
    "sluice/k6.yaml",
    "sluice-interval/subject.json",
    "sluice-interval/k6.yaml",
    "sluice-json/subject.json",
    "sluice-json/k6.yaml",
    "sluice-csv/subject.json",
    "sluice-csv/k6.yaml",
    "direct/subject.json",
    "otelcol/subject.json",
    "otelcol/gateway.yaml",
    "otelcol/logagent.yaml",
    "otelcol/metricagent.yaml",
    "rotel/subject.json",
    "fluent-bit/subject.json",
    "fluent-bit/gateway.yaml",
    "fluent-bit/logagent.yaml",
    "fluent-bit/logs-fluentbit.yaml",
    "vector/subject.json",
    "vector/gateway.yaml",
    "telegraf/subject.json",
    "telegraf/gateway.toml",
    "telegraf/metricagent.toml",
    "telegraf/k6.toml",
    "telegraf-json/subject.json",
    "telegraf-json/k6.toml",
    "telegraf-csv/subject.json",
    "telegraf-csv/k6.toml",
    "df_engine/subject.json",
    "df_engine/gateway.yaml",
];

/// The text of a file below `subjects/`. The path may lead through another subject's folder.
pub(super) fn file(path: &Path) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| path.ends_with(known)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is added to the folder must be added here: otherwise `--subject` would not have
    /// it.
    #[test]
    fn every_file_of_the_repositorys_folder_is_part_of_the_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../subjects");
        let mut found = Vec::new();
        for folder in std::fs::read_dir(&root)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir())
        {
            for file in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                found.push(file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned());
            }
        }
        let mut known: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    /// Guarantee: k6's samples of one time are told apart by the exporter's default, as
    /// docs/load-test.md says.
    #[test]
    fn subjects_have_the_default_rule_for_samples_of_one_time() {
        let is_ours = |path: &str| path.starts_with("sluice") && path.ends_with("/k6.yaml");
        let ours: Vec<_> = FILES.iter().filter(|(path, _)| is_ours(path)).collect();
        assert_eq!(ours.len(), 4);
        for (path, text) in ours {
            assert!(!text.contains("collisions:"), "{path}");
        }
    }
}
