//! What a report says of a run beside its tables.

use super::format::{MEBIBYTE, number, utc};
use super::record::{PipelineKpis, RunRecord, Scenario, SubjectRecord};
use super::tables::subject_label;

/// The circumstances, then verdicts, then warnings: one sentence a line.
pub(super) fn about(record: &RunRecord) -> Vec<String> {
    let mut lines = circumstances(record);
    lines.extend(verdicts(record).into_iter().map(|(_, text)| text));
    lines.extend(warnings(record));
    lines
}

pub(super) fn circumstances(record: &RunRecord) -> Vec<String> {
    let mut lines = vec![when(record), load(&record.scenario)];
    if let Some(faults) = &record.scenario.faults {
        lines.push(format!("Faults: {faults}"));
        lines.extend(record.subjects.iter().filter_map(faults_had));
    }
    lines.extend(through_prometheus(record));
    lines.extend(record.scenario.command.as_ref().map(|command| format!("Command: {command}")));
    lines.extend(record.subjects.iter().filter(|subject| subject.measured_elsewhere.is_none()).map(subject));
    lines
}

fn when(record: &RunRecord) -> String {
    let machine = &record.machine;
    let cpu = machine.cpu_model.as_deref().unwrap_or("a CPU of unknown model");
    let memory = machine.memory_bytes.map(|bytes| format!(", {:.0} MB memory", bytes as f64 / MEBIBYTE));
    let interrupted = if record.interrupted { ", interrupted" } else { "" };
    format!(
        "{}, {:.0} s{interrupted}, sluice load-test {}, {cpu}, {} cores{}",
        utc(record.started_unix_ms),
        record.duration_s,
        record.tool_version,
        machine.cores,
        memory.unwrap_or_default()
    )
}

/// How much, how fast, in which form.
pub fn load(scenario: &Scenario) -> String {
    let rate = match scenario.rate_per_s {
        Some(rate) => format!("{rate:.0} items/s for"),
        None if scenario.find_limit => "rates searched in tries of".to_owned(),
        None => "as fast as it is answered for".to_owned(),
    };
    let mut text = format!("Load: {rate} {:.0} s, {} pipeline(s)", scenario.load_s, scenario.pipelines);
    if let Some(items) = scenario.items_per_request {
        text.push_str(&format!(", {items} items a request"));
    }
    if let Some(bytes) = scenario.body_bytes {
        text.push_str(&format!(", bodies of {bytes} bytes"));
    }
    if let Some(carried) = &scenario.carried {
        text.push_str(&format!(", {carried}"));
    }
    text
}

/// What the backends did to their requests because of the faults, while the load lasted and all turns together.
fn faults_had(subject: &SubjectRecord) -> Option<String> {
    let pipelines = || subject.turns.iter().flat_map(|turn| &turn.kpis.pipelines);
    let sum = |count: fn(&PipelineKpis) -> Option<u64>| pipelines().filter_map(count).sum::<u64>();
    let requests = sum(|pipeline| pipeline.backend_requests);
    let percent = |count: u64| format!("{count} ({:.1} %)", 100.0 * count as f64 / requests as f64);
    let (refused, resets) = (sum(|pipeline| pipeline.backend_refused), sum(|pipeline| pipeline.backend_resets));
    (requests > 0).then(|| {
        let (refused, resets) = (percent(refused), percent(resets));
        format!(
            "{}: of {requests} requests to its backends {refused} were refused and {resets} reset",
            subject_label(subject)
        )
    })
}

/// Where figures are from, unless from the subjects themselves and the kernel.
fn through_prometheus(record: &RunRecord) -> Option<String> {
    let mut turns = record.subjects.iter().flat_map(|subject| &subject.turns);
    let reading = turns.find_map(|turn| turn.prometheus.as_ref())?;
    let figures: Vec<&str> = reading.queries.iter().map(|query| query.figure.as_str()).collect();
    Some(format!(
        "{} through PromQL at {}, rate window {} s, as long as the load",
        figures.join(", "),
        reading.url,
        reading.window_s
    ))
}

/// Its limits, and what the bench took beside it.
fn subject(subject: &SubjectRecord) -> String {
    let limits = &subject.limits;
    let cpu = limits.cpu_cores.map_or("no CPU limit".to_owned(), |cores| format!("{cores} CPU"));
    let memory =
        limits.memory_bytes.map_or("no memory limit".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / MEBIBYTE));
    if let Some(reason) = &subject.cannot {
        return format!("{}: not tested: {reason}", subject_label(subject));
    }
    let mut text = format!("{}: {cpu}, {memory}", subject_label(subject));
    if !limits.pinned_cores.is_empty() {
        let cores: Vec<String> = limits.pinned_cores.iter().map(u32::to_string).collect();
        text.push_str(&format!(", pinned to core {}", cores.join(", ")));
    }
    let most = |cost: fn(&super::record::BenchCost) -> Option<f64>| {
        subject.turns.iter().filter_map(|turn| cost(&turn.bench)).reduce(f64::max)
    };
    let generator = number(most(|cost| cost.generator_cpu_cores), 2);
    let backend = number(most(|cost| cost.backend_cpu_cores), 2);
    let late = subject.turns.iter().filter_map(|turn| turn.bench.late_requests).max();
    text.push_str(&format!("; the bench itself: generator {generator} CPU, backends {backend} CPU"));
    text.push_str(&late.map(|late| format!(", {late} requests sent late")).unwrap_or_default());
    if subject.turns.is_empty() {
        text.push_str("; it did not run");
    }
    text
}

/// Whether it failed, and the sentence.
pub(super) fn verdicts(record: &RunRecord) -> Vec<(bool, String)> {
    let told = record.verdicts.iter().map(|verdict| {
        let outcome = if verdict.failed { "FAILED" } else { "passed" };
        let value = verdict.value.map_or("not known".to_owned(), |value| value.to_string());
        (verdict.failed, format!("Verdict: {}: fail if {}: {outcome} ({value})", verdict.subject, verdict.fail_if))
    });
    told.collect()
}

pub(super) fn warnings(record: &RunRecord) -> Vec<String> {
    let told = record.warnings.iter().map(|warning| {
        let subject = warning.subject.as_ref().map(|subject| format!("{subject}: ")).unwrap_or_default();
        let message = warning.message.trim_end_matches('.');
        let remedy = warning.remedy.as_ref().map(|remedy| format!(" Remedy: {remedy}")).unwrap_or_default();
        format!("Warning: {subject}{message}.{remedy}")
    });
    told.collect()
}
