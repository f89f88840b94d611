//! The reference of all options, as Markdown, from the code that reads them.

use std::fmt::Write as _;

use sluice_config::{Catalog, Class, Document, Effect, Fields, Kind, OptionDoc};
use sluice_receivers::RECEIVERS;

use crate::catalog::Components;
use crate::extensions;
use crate::metrics::{self, log};

const HEAD: &str = "\
# Configuration

Sluice reads the OpenTelemetry Collector's YAML. This page lists every option of every component, generated from the code that
reads them (`sluice docs`); [migrating from the Collector](migrating-from-the-collector.md) says what maps to what.

Values may hold `${VAR}`, `${env:VAR}`, `${env:VAR:-default}` and `${file:PATH}`; `$$` is a dollar sign. Several files are merged in
their order. Durations are written as in Go (`300ms`, `1h30m`), sizes with a unit (`4MiB`).
";

const METRICS_HEAD: &str = "
## Metrics of the log

Beside the Collector's metrics, `/metrics` has these on what is held. `/log` on the same address says it in words: what waits for whom, which
deliveries the configuration does not have, and what was dropped when.

| Metric | Kind | Labels | |
|---|---|---|---|
";

/// The text of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Process, pipelines and buffer\n\n");
    table(&mut text, &Document::describe());
    metrics(&mut text);
    for class in Class::ALL {
        let _ = write!(text, "\n## {}\n", class.key());
        for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none()) {
            component(&mut text, class, kind);
        }
    }
    text
}

fn metrics(text: &mut String) {
    text.push_str(METRICS_HEAD);
    for metric in log::OF_LOGS {
        let (unit, kind) = (metric.unit, if metric.is_counter { "counter" } else { "gauge" });
        let separator = if unit.is_empty() { "" } else { "_" };
        let _ = writeln!(text, "| `{}{separator}{unit}` | {kind} | signal | {} |", metric.name, metric.help);
    }
    for (name, labels, help) in log::OF_LOGS_BESIDE {
        let _ = writeln!(text, "| `{name}` | gauge | {labels} | {help} |");
    }
    for (name, kind, labels, help) in metrics::OF_DELIVERIES {
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
}

fn component(text: &mut String, class: Class, kind: &Kind) {
    let _ = write!(text, "\n### `{}`\n\n{}", kind.name, kind.summary.trim_end_matches('.'));
    text.push_str(".\n");
    if !kind.aliases.is_empty() {
        let aliases: Vec<String> = kind.aliases.iter().map(|alias| format!("`{alias}`")).collect();
        let _ = writeln!(text, "Also called {}.", aliases.join(", "));
    }
    text.push('\n');
    let options = Fields::describe(|fields| read(class, kind.name, fields));
    if options.is_empty() {
        text.push_str("No options.\n");
    } else {
        table(text, &options);
    }
}

fn read(class: Class, kind: &str, fields: &mut Fields<'_>) {
    match class {
        Class::Receiver => drop(RECEIVERS.read(kind, fields)),
        Class::Processor => drop(sluice_processors::read(kind, fields)),
        Class::Exporter => drop(sluice_exporters::read(kind, fields)),
        Class::Extension => drop(extensions::read(kind, fields)),
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
    use super::*;

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
