//! The step that an exporter has behind all processors. It runs over the requests of the log, so
//! that a part of one is the same however often it is sent.

use std::sync::Arc;

use bytes::Bytes;
use sluice_exporters::{ExporterConfig, LastStep};
use sluice_flow::Metadata;
use sluice_otlp::Signal;
use sluice_processors::{Edited, Processor};

use super::Step;

struct Last(Arc<dyn LastStep>);

impl Processor for Last {
    fn process(&self, signal: Signal, request: &Bytes, _: &Metadata, limit_bytes: usize) -> Edited {
        self.0.change(signal, request, limit_bytes)
    }

    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

/// The step of an exporter with this id, which is configured at `place`.
pub(crate) fn last_step(id: &str, place: &str, config: &dyn ExporterConfig) -> Option<Arc<Step>> {
    let last = config.last_step()?;
    let (fingerprint, counters) = (last.fingerprint(), Default::default());
    let (id, place, processor) = (id.to_owned(), place.to_owned(), Box::new(Last(last)));
    Some(Arc::new(Step { id, place, fingerprint, processor, counters }))
}

#[cfg(test)]
mod tests {
    use sluice_exporters::{BuildContext, BuildError};
    use sluice_flow::Exporter;
    use sluice_otlp::{Beyond, Malformed};

    use super::*;
    use crate::steps::{Chain, run};

    /// Leaves nothing of a request.
    struct Empties;

    impl LastStep for Empties {
        fn change(
            &self,
            _: Signal,
            request: &Bytes,
            limit_bytes: usize,
        ) -> Result<Result<Option<Bytes>, Beyond>, Malformed> {
            assert!(limit_bytes >= request.len());
            Ok(Ok((!request.is_empty()).then(Bytes::new)))
        }

        fn fingerprint(&self) -> u64 {
            7
        }
    }

    struct Config;

    impl ExporterConfig for Config {
        fn last_step(&self) -> Option<Arc<dyn LastStep>> {
            Some(Arc::new(Empties))
        }

        fn build(&self, _: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
            Err("not built".into())
        }
    }

    /// Guarantee: an exporter's step changes a request of the log, and is not run again over a dead
    /// letter, which was stored behind it.
    #[test]
    fn the_step_of_an_exporter_runs_once() {
        let step = last_step("sink", "gateway.yaml:3", &Config).expect("a step");
        assert_eq!((&*step.id, &*step.place, step.fingerprint), ("sink", "gateway.yaml:3", 7));
        // An empty `ResourceMetrics`.
        let request = Bytes::from_static(&[0x0a, 0x00]);
        let chain = Chain { steps: [step].into(), sharers: 1 };
        let steps = chain.remaining(&[]);
        assert!(chain.remaining(&[7]).is_empty());
        let made = run(&steps, Signal::Metrics, request, 0, &Metadata::default());
        assert!(made.expect("is made").payload.bytes.is_empty());
    }
}
