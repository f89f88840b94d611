//! `sluice-bench`: the cost of an item in Sluice, in nginx relaying the same bytes and in the
//! Collector doing the same work; and delivery, latency and memory when something is wrong.

mod disk;
mod figures;
mod options;
mod rows;
mod scenario;
mod scenarios;
mod sink;
mod stage;
mod table;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use sluice_otlp::Signal;

use options::Options;
use rows::ROWS;
use scenario::Scenario;
use scenarios::{ONLY_BY_NAME, SCENARIOS};

/// Ids and titles of the rows, then of the scenarios.
fn listed() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = ROWS.iter().map(|&(id, title, ..)| (id, title));
    rows.chain(SCENARIOS.iter().map(|scenario| (scenario.id, scenario.title)))
}

fn check_names(options: &Options) -> Result<()> {
    for id in &options.row {
        let is_known = listed().any(|(known, _)| known == id);
        ensure!(is_known, "no row `{id}`: --list names them");
    }
    for name in &options.case {
        let is_known = SCENARIOS.iter().any(|scenario| scenario.cases.contains(&name.as_str()));
        ensure!(is_known, "no scenario has a case `{name}`");
    }
    Ok(())
}

fn is_wanted(scenario: &Scenario, options: &Options) -> bool {
    let has_traces = options.signal.is_empty() || options.signal.contains(&Signal::Traces);
    let is_named = options.row.iter().any(|id| id == scenario.id);
    // However short their windows, all of them take too long for a first impression.
    let is_usual = options.row.is_empty() && !options.quick && !ONLY_BY_NAME.contains(&scenario.id);
    has_traces && (is_named || is_usual)
}

fn main() -> Result<()> {
    let mut options = Options::parse();
    if options.list {
        listed().for_each(|(id, title)| println!("{id:20} {title}"));
        return Ok(());
    }
    check_names(&options)?;
    (options.turns, options.seconds) =
        if options.quick { (1, 2) } else { (options.turns.max(1), options.seconds) };
    options.contestants = options.find_contestants()?;
    options.pin()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            done = run(&options) => done,
            // Dropping the run ends its subjects and removes their folders.
            _ = tokio::signal::ctrl_c() => bail!("interrupted"),
        }
    })
}

/// The rows of the table, then the scenarios.
async fn run(options: &Options) -> Result<()> {
    let results = table::measure_rows(options).await;
    let mut sections = Vec::new();
    for scenario in SCENARIOS.into_iter().filter(|scenario| is_wanted(scenario, options)) {
        sections.push(scenario.run(options).await);
    }
    if !results.is_empty() {
        let in_table = options.contestants.iter().filter(|one| !one.is_vmagent());
        let names: Vec<&str> = in_table.map(|one| one.name).collect();
        println!("{}", table::to_markdown(&results, &names));
    }
    if let Some(ratio) = table::further_pipeline(&results) {
        println!("\nEach further pipeline costs {ratio:.2} × nginx.");
    }
    sections.iter().for_each(|section| println!("\n{}", section.markdown));
    if options.quick && options.row.is_empty() {
        println!(
            "\nWithout the scenarios: name them with --row (see --list), or leave --quick out."
        );
    }
    if let Some(path) = &options.json {
        let json = serde_json::to_string_pretty(&table::to_json(&results, &sections))?;
        std::fs::write(path, json).with_context(|| path.display().to_string())?;
    }
    Ok(())
}
