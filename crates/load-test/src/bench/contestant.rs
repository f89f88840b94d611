//! The programs under test, and how each is started.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::subject::{GatewayConfig, SubjectSpec, nginx_relay};

/// A program under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    Nginx {
        binary: PathBuf,
        keepalive: bool,
    },
    /// `batch`: with `memory_limiter` and `batch` in the speed table as well.
    Sluice {
        binary: PathBuf,
        batch: bool,
    },
    Collector {
        binary: PathBuf,
    },
}

impl Contestant {
    pub fn name(&self) -> &'static str {
        match self {
            Contestant::Nginx { .. } => "nginx",
            Contestant::Sluice { .. } => "sluice",
            Contestant::Collector { .. } => "otelcol",
        }
    }

    /// `config` is of a gateway; a relay takes of it where it listens and where it sends to.
    pub(super) fn spec(&self, config: &GatewayConfig) -> SubjectSpec {
        let listen: SocketAddr = config.listen;
        let (binary, args, config): (_, &[&str], _) = match self {
            Contestant::Nginx { binary, keepalive } => (
                binary,
                &["-e", "{dir}/error.log", "-p", "{dir}", "-c", "{config}"],
                nginx_relay(listen, config.backends[0], *keepalive),
            ),
            Contestant::Sluice { binary, .. } => (binary, &["run", "--config", "{config}"], config.to_yaml()),
            Contestant::Collector { binary } => (binary, &["--config", "{config}"], config.to_yaml()),
        };
        // The Collector has one core, and by itself would count the machine's.
        let is_collector = matches!(self, Contestant::Collector { .. });
        SubjectSpec {
            name: self.name().to_owned(),
            binary: binary.clone(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            config,
            config_file: "config.yaml".to_owned(),
            env: is_collector.then(|| ("GOMAXPROCS".to_owned(), "1".to_owned())).into_iter().collect(),
            ready: Some(listen.into()),
            ..SubjectSpec::default()
        }
    }
}
