//! The reference of all options, as Markdown, from the code that reads them.

use std::fmt::{Display, Write as _};

use sluice_config::{Catalog, Class, Document, Effect, Fields, Kind, OptionDoc};
use sluice_receivers::RECEIVERS;
use sluice_telemetry::table::TableDoc;

use crate::catalog::Components;
pub use crate::dashboard::dashboard_json;
pub use crate::metrics::tables as metric_tables;

const HEAD: &str = "\
# Configuration

Sluice reads the OpenTelemetry Collector's YAML. This page lists every option of every component,
generated from the code that reads them (`sluice docs`).
[Migrating from the Collector](migrating-from-the-collector.md) says what maps to what;
[metrics](metrics.md) lists the metrics of the process.

Values may hold `${VAR}`, `${env:VAR}`, `${env:VAR:-default}` and `${file:PATH}`; `$$` is a dollar
sign. Several files are merged in their order. Durations are written as in Go (`300ms`, `1h30m`),
sizes with a unit (`4MiB`).
";

const METRICS_HEAD: &str = "\
# Metrics

All metrics that `/metrics` exposes on the metrics address (`localhost:8888` by default). This page
is generated from the tables that the program writes them from (`sluice docs metrics`). The names of
the Collector's metrics begin with `otelcol_`, those of Sluice's own with `sluice_`.

The tables show names with their units. By default names have neither `_total` nor, for `otelcol_`,
a unit: `otelcol_process_uptime_seconds` is `otelcol_process_uptime`. As in the Collector, a
`prometheus` reader with `without_type_suffix: false` or `without_units: false` has both. The
attributes of `service.telemetry.resource` are labels of every metric. A reader `periodic` sends the
metrics by OTLP, where `otelcol_` metrics have no unit in their names, counters are sums, and the
resource takes the place of these labels and of `target_info`.

`/log` on the same address describes the logs as text: the backlog of each delivery, deliveries that
the configuration no longer has, and dropped data with its time. `/dead-letters` lists the newest
dead letters with their reasons. `/ledger` says what became of the samples of k6 and InfluxDB
([k6.md](k6.md#the-ledger)).
";

pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    text.push_str("\n## Process, pipelines and buffer\n\n");
    table(&mut text, &Document::describe());
    for class in Class::ALL {
        let _ = write!(text, "\n## {}\n", class.key());
        for kind in Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none())
        {
            component(&mut text, class, kind);
        }
    }
    text
}

pub fn metrics_markdown() -> String {
    let mut text = METRICS_HEAD.to_owned();
    for TableDoc { title, labels, metrics } in metric_tables() {
        let _ = write!(
            text,
            "\n## {title}\n\n| Metric | Kind | Unit | Labels | |\n|---|---|---|---|---|\n"
        );
        for metric in metrics {
            let only = |condition| format!(" Only while {condition}.");
            let (kind, unit) = (metric.kind.as_str(), metric.unit);
            let labels = [labels, metric.labels].concat().join(", ").replace('.', "_");
            let meaning = cell(metric.meaning);
            let condition = metric.condition.map(only).unwrap_or_default();
            let names = quoted(&metric.names());
            let _ =
                writeln!(text, "| {names} | {kind} | {unit} | {labels} | {meaning}{condition} |");
        }
    }
    text
}

fn quoted(names: &[impl Display]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn component(text: &mut String, class: Class, kind: &Kind) {
    let _ = writeln!(text, "\n### `{}`\n\n{}.", kind.name, kind.summary.trim_end_matches('.'));
    if !kind.aliases.is_empty() {
        let _ = writeln!(text, "Also called {}.", quoted(kind.aliases));
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
    Fields::describe(|fields| match class {
        Class::Receiver => drop(RECEIVERS.read(kind.name, fields)),
        Class::Processor => drop(sluice_processors::PROCESSORS.read(kind.name, fields)),
        Class::Exporter => drop(sluice_exporters::EXPORTERS.read(kind.name, fields)),
        Class::Extension => drop(sluice_extensions::EXTENSIONS.read(kind.name, fields)),
        Class::Connector => {}
    })
}

fn table(text: &mut String, options: &[OptionDoc]) {
    text.push_str("| Option | Value | Default | |\n|---|---|---|---|\n");
    for option in options {
        let meaning = match &option.effect {
            Effect::Used => option.doc.clone(),
            Effect::NoEffect(why) => format!("*No effect:* {why}."),
            Effect::NotYet(what) => format!("*Not in this build:* {what}."),
        };
        let [kind, default, meaning] = [&option.kind, &option.default, &meaning].map(|it| cell(it));
        let _ = writeln!(text, "| `{}` | {kind} | {default} | {meaning} |", option.path);
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
    /// and the dashboard say so, or this test fails.
    #[test]
    fn the_committed_references_are_the_generated_ones() {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (name, wanted) in [
            ("docs/metrics.md", metrics_markdown()),
            ("docs/configuration.md", markdown()),
            ("examples/grafana/sluice.json", dashboard_json()),
        ] {
            let path = root.join(name);
            if std::env::var_os("UPDATE_READMES").is_some() {
                std::fs::write(&path, &wanted).expect("writes");
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(text == wanted, "{name} is out of date: run this test with UPDATE_READMES=1");
        }
    }

    const BEGIN: &str = "<!-- options: written by the tests, run them with UPDATE_READMES=1 -->\n";
    const END: &str = "<!-- end of options -->\n";

    /// Scenario: an option is added, renamed or removed in the code. Guarantee: the component's
    /// README says so, or this test fails.
    #[test]
    fn readmes_list_every_option() {
        for class in Class::ALL {
            for kind in
                Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none())
            {
                let options = options(class, kind);
                if options.is_empty() {
                    continue;
                }
                let crates = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
                let path = crates.join(class.key()).join("src").join(kind.name).join("README.md");
                let text = std::fs::read_to_string(&path)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                let (head, rest) = text.split_once(BEGIN).expect("the options' beginning");
                let (_, tail) = rest.split_once(END).expect("the options' end");
                let mut wanted = format!("{head}{BEGIN}");
                table(&mut wanted, &options);
                wanted.push_str(&format!("{END}{tail}"));
                if std::env::var_os("UPDATE_READMES").is_some() {
                    std::fs::write(&path, &wanted).expect("writes");
                }
                let text = std::fs::read_to_string(&path).expect("a README");
                assert!(
                    text == wanted,
                    "{} is out of date: run this test with UPDATE_READMES=1",
                    path.display()
                );
            }
        }
    }

    #[test]
    fn every_component_of_the_build_is_in_the_reference() {
        let text = markdown();
        for class in Class::ALL {
            for kind in
                Components::default().kinds(class).iter().filter(|kind| kind.missing.is_none())
            {
                assert!(text.contains(&format!("### `{}`", kind.name)), "{}", kind.name);
            }
        }
        assert!(text.contains("`protocols.grpc.endpoint`"));
    }
}
