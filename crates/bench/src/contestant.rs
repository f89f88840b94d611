//! The programs under test, and how each is started.

use std::path::PathBuf;

use sluice_load_test::subject::{GatewayConfig, SubjectSpec, nginx_relay};

/// What another build of Sluice is called, to which the first is compared.
pub(crate) const BASELINE: &str = "sluice (baseline)";

/// A program under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) binary: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nginx {
        keepalive: bool,
    },
    /// `batch`: with `memory_limiter` and `batch` in the speed table as well.
    Sluice {
        batch: bool,
    },
    Collector,
}

impl Contestant {
    pub(crate) fn is_sluice(&self) -> bool {
        matches!(self.kind, Kind::Sluice { .. })
    }

    pub(crate) fn is_gateway(&self) -> bool {
        !matches!(self.kind, Kind::Nginx { .. })
    }

    /// `config` is of a gateway; a relay takes of it where it listens and where it sends to.
    pub(crate) fn spec(&self, config: &GatewayConfig) -> SubjectSpec {
        let (args, yaml): (&[&str], _) = match self.kind {
            Kind::Nginx { keepalive } => (
                &["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"],
                nginx_relay(config.listen, config.backends[0], keepalive),
            ),
            Kind::Sluice { .. } => (&["run", "--config", "{config}"], config.to_yaml()),
            Kind::Collector => (&["--config", "{config}"], config.to_yaml()),
        };
        // The Collector has one core, and by itself would count the machine's.
        let is_collector = self.kind == Kind::Collector;
        let one_core = is_collector.then(|| ("GOMAXPROCS".to_owned(), "1".to_owned()));
        SubjectSpec {
            name: self.name.to_owned(),
            binary: self.binary.clone(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            config: yaml,
            config_file: "config.yaml".to_owned(),
            env: one_core.into_iter().collect(),
            ready: Some(config.listen.into()),
            ..SubjectSpec::default()
        }
    }
}
