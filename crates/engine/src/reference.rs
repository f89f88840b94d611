//! The reference of all options, as Markdown, from the code that reads them.

use std::fmt::Write as _;

use sluice_config::{Catalog, Class, Document, Effect, Fields, Kind, OptionDoc};
use sluice_receivers::RECEIVERS;
use sluice_telemetry::table::TableDoc;

use crate::catalog::Components;
use crate::metrics;

const HEAD: &str = "\
# Configuration

Sluice reads the OpenTelemetry Collector's YAML. This page lists every option of every component,
generated from the code that reads them (`sluice docs`).
[Migrating from the Collector](migrating-from-the-collector.md) says what maps to what;
[metrics](metrics.md) lists what the process says of itself.

Values may hold `${VAR}`, `${env:VAR}`, `${env:VAR:-default}` and `${file:PATH}`; `$$` is a dollar
sign. Several files are merged in their order. Durations are written as in Go (`300ms`, `1h30m`),
sizes with a unit (`4MiB`).
";

const METRICS_HEAD: &str = "\
# Metrics

All metrics that `/metrics` on the metrics address (`localhost:8888` by default) exposes, generated
from the tables from which the program writes them (`sluice docs metrics`). Those that begin with
`otelcol_` are the Collector's, those with `sluice_` are Sluice's own. Names of counters end in
`_total` unless `without_type_suffix` is set; names of the Collector lack their unit where
`without_units` is. The attributes of `service.telemetry.resource` are labels of every metric.

`/log` on the same address says in words what the logs hold: what waits for which delivery, which
deliveries the configuration does not have, and what was dropped when. `/dead-letters` has the
newest dead letters with their reasons.
";

/// The text of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Process, pipelines and buffer\n\n");
    table(&mut text, &Document::describe());
    for class in Class::ALL {
        let _ = write!(text, "\n## {}\n", class.key());
        for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none()) {
            component(&mut text, class, kind);
        }
    }
    text
}

/// The text of `docs/metrics.md`.
pub fn metrics_markdown() -> String {
    let mut text = METRICS_HEAD.to_owned();
    for TableDoc { title, metrics } in metric_tables() {
        let _ = write!(text, "\n## {title}\n\n| Metric | Kind | Unit | Labels | |\n|---|---|---|---|---|\n");
        for metric in metrics {
            let names: Vec<String> = metric.names.iter().map(|name| format!("`{name}`")).collect();
            let condition = metric.condition.map(|condition| format!(" Only while {condition}.")).unwrap_or_default();
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {}{condition} |",
                names.join(", "),
                metric.kind.as_str(),
                metric.unit,
                metric.labels.join(", "),
                cell(metric.meaning)
            );
        }
    }
    text
}

/// All metrics that there can be, as the engine and the components declare them.
pub fn metric_tables() -> Vec<TableDoc> {
    metrics::tables()
}

fn component(text: &mut String, class: Class, kind: &Kind) {
    let _ = write!(text, "\n### `{}`\n\n{}", kind.name, kind.summary.trim_end_matches('.'));
    text.push_str(".\n");
    if !kind.aliases.is_empty() {
        let aliases: Vec<String> = kind.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let _ = writeln!(text, "Also called {}.", aliases.join(", "));
    }
    text.push('\n');
    let options = options(class, kind);
    if options.is_empty() {
        text.push_str("No options.\n");
    } else {
        table(text, &options);
    }
}

fn options(class: Class, kind: &Kind) -> Vec<OptionDoc> {
    Fields::describe(|fields| read(class, kind.name, fields))
}

fn read(class: Class, kind: &str, fields: &mut Fields<'_>) {
    match class {
        Class::Receiver => drop(RECEIVERS.read(kind, fields)),
        Class::Processor => drop(sluice_processors::PROCESSORS.read(kind, fields)),
        Class::Exporter => drop(sluice_exporters::EXPORTERS.read(kind, fields)),
        Class::Extension => drop(sluice_extensions::EXTENSIONS.read(kind, fields)),
        Class::Connector => {}
    }
}

fn table(text: &mut String, options: &[OptionDoc]) {
    text.push_str("| Option | Value | Default | |\n|---|---|---|---|\n");
    for option in options {
        let meaning = match &option.effect {
            Effect::Used => option.doc.clone(),
            Effect::NoEffect(why) => format!("*No effect:* {why}."),
            Effect::NotYet(what) => format!("*Not in this build:* {what}."),
            Effect::RenamedTo(name) => format!("Old name of `{name}`."),
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} |",
            option.path,
            cell(&option.kind),
            cell(&option.default),
            cell(&meaning)
        );
    }
}

/// Bars would end the cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Scenario: an option or a metric is added, renamed or removed in the code. Guarantee: docs/
    /// says so, or this test fails.
    #[test]
    fn the_committed_references_are_the_generated_ones() {
        let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for (name, wanted) in [("metrics.md", metrics_markdown()), ("configuration.md", markdown())] {
            let path = docs.join(name);
            if std::env::var_os("UPDATE_READMES").is_some() {
                std::fs::write(&path, &wanted).expect("writes");
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text == wanted, "docs/{name} is out of date: run this test with UPDATE_READMES=1");
        }
    }

    const BEGIN: &str = "<!-- options: written by the tests, run them with UPDATE_READMES=1 -->\n";
    const END: &str = "<!-- end of options -->\n";

    /// Scenario: an option is added, renamed or removed in the code. Guarantee: the component's
    /// README says so, or this test fails.
    #[test]
    fn readmes_list_every_option() {
        for class in [Class::Exporter, Class::Extension] {
            for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none()) {
                let options = options(class, kind);
                if options.is_empty() {
                    continue;
                }
                let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
                let path = crates.join(class.key()).join("src").join(kind.name).join("README.md");
                let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let (head, rest) = text.split_once(BEGIN).expect("the options' beginning");
                let (_, tail) = rest.split_once(END).expect("the options' end");
                let mut wanted = format!("{head}{BEGIN}");
                table(&mut wanted, &options);
                wanted.push_str(&format!("{END}{tail}"));
                if std::env::var_os("UPDATE_READMES").is_some() {
                    std::fs::write(&path, &wanted).expect("writes");
                }
                let text = std::fs::read_to_string(&path).expect("a README");
                assert!(text == wanted, "{} is out of date: run this test with UPDATE_READMES=1", path.display());
            }
        }
    }

    #[test]
    fn every_component_of_the_build_is_in_the_reference() {
        let text = markdown();
        for class in Class::ALL {
            for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none()) {
                assert!(text.contains(&format!("### `{}`", kind.name)), "{}", kind.name);
            }
        }
        assert!(text.contains("`protocols.grpc.endpoint`"));
    }
}
