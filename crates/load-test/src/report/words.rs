//! The sentences of a report that stand beside its tables.

use super::format::{MEBIBYTE, number, utc};
use super::record::{
    BenchCost, PipelineKpis, RunRecord, Scenario, SubjectRecord, Target, Verdict, Warning,
};
use super::tables::subject_label;

/// Circumstances, verdicts and warnings, a line each. Verdicts and warnings have a kind.
pub fn about(record: &RunRecord) -> Vec<(Option<&'static str>, String)> {
    let mut lines = vec![when(record), load(&record.scenario)];
    if let Some(faults) = &record.scenario.faults {
        lines.push(format!("Faults: {faults}"));
        lines.extend(record.subjects.iter().filter_map(faults_had));
    }
    lines.extend(through_prometheus(record));
    lines.extend(record.scenario.command.as_ref().map(|command| format!("Command: {command}")));
    let own = record.subjects.iter().filter(|subject| subject.measured_elsewhere.is_none());
    lines.extend(own.map(subject));
    let mut lines: Vec<_> = lines.into_iter().map(|line| (None, line)).collect();
    lines.extend(record.verdicts.iter().map(verdict));
    lines.extend(record.warnings.iter().map(|warning| (Some("warning"), in_words(warning))));
    lines
}

fn when(record: &RunRecord) -> String {
    let machine = &record.machine;
    // Markdown would need an escape for the underscore of `x86_64`.
    let architecture = machine.architecture.as_ref().map(|name| name.replace('_', "-") + " ");
    let architecture = architecture.unwrap_or_default();
    let memory =
        machine.memory_bytes.map(|bytes| format!(", {:.0} MB memory", bytes as f64 / MEBIBYTE));
    let interrupted = if record.interrupted { ", interrupted" } else { "" };
    format!(
        "{}, {:.0} s{interrupted}, sluice load-test {}, {} {architecture}cores{}",
        utc(record.started_unix_ms),
        record.duration_s,
        record.tool_version,
        machine.cores,
        memory.unwrap_or_default()
    )
}

/// The load in words: rate, duration, sizes and protocol.
pub fn load(scenario: &Scenario) -> String {
    let items = if scenario.target == Target::K6 { "requests" } else { "items" };
    let rate = match scenario.rate_per_s {
        Some(rate) => format!("{rate:.0} {items}/s for"),
        None if scenario.find_limit => "rates searched in tries of".to_owned(),
        None => "as fast as it is answered for".to_owned(),
    };
    let Scenario { load_s, pipelines, .. } = scenario;
    let parts = [
        Some(format!("Load: {rate} {load_s:.0} s, {pipelines} pipeline(s)")),
        scenario.items_per_request.map(|items| format!("{items} items a request")),
        scenario.body_bytes.map(|bytes| format!("bodies of {bytes} bytes")),
        scenario.carried.clone(),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Requests to the backends that the faults refused or reset, all turns together.
fn faults_had(subject: &SubjectRecord) -> Option<String> {
    let pipelines = || subject.turns.iter().flat_map(|turn| &turn.kpis.pipelines);
    let sum = |count: fn(&PipelineKpis) -> Option<u64>| pipelines().filter_map(count).sum::<u64>();
    let requests = sum(|pipeline| pipeline.backend_requests);
    let percent = |count: u64| format!("{count} ({:.1} %)", 100.0 * count as f64 / requests as f64);
    let refused = percent(sum(|pipeline| pipeline.backend_refused));
    let resets = percent(sum(|pipeline| pipeline.backend_resets));
    let label = subject_label(subject);
    (requests > 0).then(|| {
        format!(
            "{label}: of {requests} requests to its backends {refused} were refused and {resets} \
             reset"
        )
    })
}

/// The Prometheus that figures came from, if any did.
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

/// The subject's limits, and the CPU that the bench itself used.
fn subject(subject: &SubjectRecord) -> String {
    let (label, limits) = (subject_label(subject), &subject.limits);
    if let Some(reason) = &subject.cannot {
        return format!("{label}: not tested: {reason}");
    }
    let cpu = limits.cpu_cores.map_or("no CPU limit".to_owned(), |cores| format!("{cores} CPU"));
    let memory = limits
        .memory_bytes
        .map_or("no memory limit".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / MEBIBYTE));
    let cores: Vec<String> = limits.pinned_cores.iter().map(u32::to_string).collect();
    let pinned = match cores.is_empty() {
        true => String::new(),
        false => format!(", pinned to core {}", cores.join(", ")),
    };
    let most = |cost: fn(&BenchCost) -> Option<f64>| {
        number(subject.turns.iter().filter_map(|turn| cost(&turn.bench)).reduce(f64::max), 2)
    };
    let generator = most(|cost| cost.generator_cpu_cores);
    let backend = most(|cost| cost.backend_cpu_cores);
    let late = subject.turns.iter().filter_map(|turn| turn.bench.late_requests).max();
    let late = late.map_or(String::new(), |late| format!(", {late} requests sent late"));
    let absent = if subject.turns.is_empty() { "; it did not run" } else { "" };
    format!(
        "{label}: {cpu}, {memory}{pinned}; the bench itself: generator {generator} CPU, backends \
         {backend} CPU{late}{absent}"
    )
}

fn verdict(verdict: &Verdict) -> (Option<&'static str>, String) {
    let Verdict { subject, fail_if, value, failed } = verdict;
    let (class, outcome) = if *failed { ("failed", "FAILED") } else { ("passed", "passed") };
    let value = value.map_or("not known".to_owned(), |value| value.to_string());
    (Some(class), format!("Verdict: {subject}: fail if {fail_if}: {outcome} ({value})"))
}

fn in_words(warning: &Warning) -> String {
    let subject = warning.subject.as_ref().map_or(String::new(), |name| format!("{name}: "));
    let message = warning.message.trim_end_matches('.');
    let remedy = warning.remedy.as_ref().map_or(String::new(), |text| format!(" Remedy: {text}"));
    format!("Warning: {subject}{message}.{remedy}")
}
