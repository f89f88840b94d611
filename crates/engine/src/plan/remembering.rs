//! Processors that remember, as `cumulative_to_delta`: they have to run before the log, where each
//! request passes once. Behind it, a frame passes again for each delivery and after each restart.

use std::collections::{BTreeMap, BTreeSet};

use sluice_config::document::{Acknowledge, Document};
use sluice_config::{Diagnostic, Diagnostics};

use super::read::{Read, component};
use super::routes::{Path, by_receiver};
use crate::delivery::DeliveryId;
use crate::steps;

/// Refuses such a processor where the pipelines of a receiver part before it.
pub(super) fn check(
    document: &Document,
    read: &Read,
    paths: &[Path],
    diagnostics: &mut Diagnostics,
) {
    let mut said = BTreeSet::new();
    for ((receiver, signal), paths) in by_receiver(paths) {
        let ids = |path: &Path| {
            let has_step = |id: &&String| read.steps.contains_key(&((*id).clone(), signal));
            path.processors.iter().filter(has_step).cloned().collect::<Vec<_>>()
        };
        let chains: Vec<Vec<String>> = paths.iter().map(|path| ids(path)).collect();
        let step = |id: &String| read.steps[&(id.clone(), signal)].clone();
        let steps: Vec<Vec<_>> =
            chains.iter().map(|chain| chain.iter().map(step).collect()).collect();
        let shared = steps::common_prefix(&steps).len();
        for id in chains.iter().flat_map(|chain| &chain[shared..]) {
            let Some(component) = component(&document.processors, id) else { continue };
            if step(id).processor.series().is_none() || !said.insert((receiver, id.clone())) {
                continue;
            }
            let message = format!(
                "{} compares each point with the one before it, so it must see each request once: \
                 that is only so before the pipelines of the receiver `{receiver}` part",
                component.path
            );
            let hint = "begin all pipelines of the receiver with the same processors, as far as \
                        this one, or give this pipeline a receiver of its own";
            diagnostics.push(Diagnostic::error(component.span, message).with_hint(hint));
        }
    }
}

/// Processors that keep points back, as `interval`: what they write goes to one set of deliveries.
/// A warning if senders are promised more than memory.
pub(super) fn check_emitters(
    document: &Document,
    read: &Read,
    paths: &[Path],
    ack: Acknowledge,
    diagnostics: &mut Diagnostics,
) {
    type Ways<'p> = BTreeSet<(&'p DeliveryId, &'p [String])>;
    let mut users: BTreeMap<&String, BTreeMap<&str, Ways<'_>>> = BTreeMap::new();
    for path in paths {
        for (index, id) in path.emitting(&read.steps) {
            let behind = (&path.delivery, &path.processors[index + 1..]);
            let receivers = users.entry(id).or_default();
            receivers.entry(&path.receiver).or_default().insert(behind);
        }
    }
    for (id, receivers) in users {
        let Some(component) = component(&document.processors, id) else { continue };
        let mut all = receivers.iter();
        let Some((first, ways)) = all.next() else { continue };
        if let Some((other, _)) = all.find(|(_, other)| *other != ways) {
            let message = format!(
                "{} keeps back points of the receivers `{first}` and `{other}`, whose pipelines \
                 differ: what it writes would have no one way",
                component.path
            );
            let hint = "let both receivers feed the same pipelines, or give each a processor of \
                        its own";
            diagnostics.push(Diagnostic::error(component.span, message).with_hint(hint));
        }
        if ack != Acknowledge::Memory {
            let message = format!(
                "{} keeps points in memory until their bucket is written, and their senders are \
                 answered before: a process that is killed loses open buckets, whatever \
                 `buffer.ack` says",
                component.path
            );
            let hint = "an orderly end and a reload write them; a shorter `interval` keeps less";
            diagnostics.push(Diagnostic::warning(component.span, message).with_hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::SystemEnvironment;

    /// Whether a configuration with these pipelines is refused, and why.
    fn refusal(pipelines: &str) -> Option<String> {
        let text = format!(
            "\
receivers:
  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}
  otlp/2: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}
processors:
  cumulativetodelta: {{}}
  memory_limiter: {{limit_mib: 900}}
  resource: {{attributes: [{{key: a, action: delete}}]}}
exporters: {{debug: {{}}, debug/2: {{}}}}
service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{{pipelines}}}}}
"
        );
        let (plan, diagnostics) = crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
        plan.is_none().then(|| diagnostics.render(false))
    }

    /// Scenario: two receivers share a processor that keeps points back. Guarantee: that is refused
    /// unless they feed the same deliveries; a promise that a kill would break causes a warning.
    #[test]
    fn what_is_kept_back_has_one_way() {
        let load = |pipelines: &str, ack: &str| {
            let text = format!(
                "receivers:\n  otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}\n  \
                 otlp/2: {{protocols: {{grpc: {{endpoint: '127.0.0.1:0'}}}}}}\n\
                 processors: {{interval: {{}}, batch: {{}}}}\n\
                 exporters: {{nop: {{}}, nop/2: {{}}}}\nbuffer: {{ack: {ack}}}\n\
                 service: {{telemetry: {{metrics: {{level: none}}}}, pipelines: {{{pipelines}}}}}\n"
            );
            let (plan, diagnostics) =
                crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
            (plan.is_some(), diagnostics.render(false))
        };
        let one = "metrics: {receivers: [otlp, otlp/2], processors: [interval], \
                   exporters: [nop, nop/2]}";
        let (is_accepted, said) = load(one, "memory");
        assert!(is_accepted && !said.contains("killed"), "{said}");
        let (is_accepted, said) = load(one, "delivered");
        assert!(is_accepted && said.contains("killed loses open buckets"), "{said}");
        let parts = "metrics: {receivers: [otlp], processors: [interval], exporters: [nop]}, \
                     metrics/2: {receivers: [otlp/2], processors: [interval], exporters: [nop]}";
        let (is_accepted, said) = load(parts, "memory");
        assert!(!is_accepted && said.contains("`otlp` and `otlp/2`"), "{said}");
        assert!(said.contains("a processor of its own"), "{said}");
    }

    /// Guarantee: a processor that remembers is accepted where each request passes it once, and an
    /// error names it, the receiver and the remedy where it would pass again.
    #[test]
    fn a_processor_that_remembers_runs_before_pipelines_part() {
        let one = "metrics: {receivers: [otlp], processors: [resource, cumulativetodelta], \
                   exporters: [debug, debug/2]}";
        assert_eq!(refusal(one), None);
        let begins = "metrics/2: {receivers: [otlp], \
                      processors: [resource, cumulativetodelta, memory_limiter], \
                      exporters: [debug]}";
        assert_eq!(refusal(&format!("{one}, {begins}")), None);
        let own = "metrics/2: {receivers: [otlp/2], exporters: [debug]}";
        assert_eq!(refusal(&format!("{one}, {own}")), None);
        for parts in [
            "metrics/2: {receivers: [otlp], exporters: [debug]}",
            "metrics/2: {receivers: [otlp], processors: [cumulativetodelta], exporters: [debug]}",
        ] {
            let refusal = refusal(&format!("{one}, {parts}")).expect("is refused");
            assert!(refusal.contains("cumulativetodelta compares each point"), "{refusal}");
            assert!(refusal.contains("receiver `otlp` part"), "{refusal}");
            assert!(refusal.contains("a receiver of its own"), "{refusal}");
        }
    }
}
