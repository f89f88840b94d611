//! Processors that remember, as `cumulative_to_delta`: they have to run before the log, where each
//! request passes once. Behind it, a frame passes again for each delivery and after each restart.

use std::collections::BTreeSet;

use sluice_config::document::Document;
use sluice_config::{Diagnostic, Diagnostics};

use super::read::{Read, component};
use super::routes::{Path, by_receiver};
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
