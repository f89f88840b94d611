//! `telegraf.conf` to Sluice's configuration.
//!
//! `source` reads the file; `agent`, `inputs` with `tail` and `shape`, `processors`, `aggregators`
//! and `outputs` translate the plugins; `pipelines` puts the parts together. Every option is taken
//! once: those that nothing took are in the report.

mod agent;
mod aggregators;
mod connection;
mod inputs;
mod outputs;
mod parts;
mod pipelines;
mod processors;
mod shape;
mod source;
mod tail;
#[cfg(test)]
mod tests;
mod values;

use serde_json::Value;

use self::parts::{Ids, Input, InputKind};
use self::source::Section;
use super::report::Report;

/// Whether senders write lines of InfluxDB's protocol, with types of fields of their own.
fn takes_lines(inputs: &[Input]) -> bool {
    inputs.iter().any(|input| matches!(input.kind, InputKind::Lines(..)))
}

/// The configuration. An error is that of TOML, with its line.
pub(super) fn translate(text: &str, report: &mut Report) -> Result<Value, String> {
    let mut root = source::read(text)?;
    // Telegraf takes both names, and those of the second count.
    let tags = ["tags", "global_tags"].map(|name| root.section(name, report));
    let agent = agent::read(root.section("agent", report), tags, report);
    let plugins = |root: &mut Section, kind: &str, report: &mut Report| {
        root.section(kind, report).map_or_else(Vec::new, |section| section.plugins(report))
    };
    let (mut receivers, mut exporters) = (Ids::default(), Ids::default());
    let inputs = plugins(&mut root, "inputs", report);
    let inputs = inputs::read(inputs, &agent, &mut receivers, report);
    let steps = processors::read(plugins(&mut root, "processors", report), report);
    let aggregation = aggregators::read(plugins(&mut root, "aggregators", report), report);
    let outputs = plugins(&mut root, "outputs", report);
    let outputs = outputs::read(outputs, &agent, takes_lines(&inputs), &mut exporters, report);
    for (kind, section) in plugins(&mut root, "secretstores", report) {
        let text = format!("Sluice reads no `{kind}`: secrets are environment variables");
        report.left_out(section.line, &section.name, text);
    }
    root.finish(report);
    let parts = pipelines::Parts { agent, inputs, steps, aggregation, outputs, receivers };
    Ok(pipelines::document(parts, report))
}
