//! Configuration files: YAML, `${…}`, merging, pipelines.

use std::io;
use std::path::Path;

use sluice_config::{Catalog, Class, Environment, Kind, load};

/// Whatever the text of a configuration is, reading it ends with a document or with errors that say
/// where.
pub fn check_load(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (document, diagnostics) = load(&["config.yaml".to_owned()], &Fuzzed { text }, &Kinds);
    assert!(document.is_some() || diagnostics.has_errors(), "without a document there is a reason");
    let _ = diagnostics.render(false);
}

struct Fuzzed<'t> {
    text: &'t str,
}

impl Environment for Fuzzed<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "PORT" => Some("4317".to_owned()),
            "LIST" => Some("[a, b]".to_owned()),
            "NESTED" => Some("${env:PORT}${env:LIST}".to_owned()),
            _ => None,
        }
    }

    fn read_file(&self, path: &Path, limit_bytes: u64) -> io::Result<String> {
        let text = if path == Path::new("config.yaml") { self.text } else { "from: a file" };
        if text.len() as u64 > limit_bytes {
            Err(io::Error::other("too large"))
        } else {
            Ok(text.to_owned())
        }
    }
}

struct Kinds;

impl Catalog for Kinds {
    fn kinds(&self, class: Class) -> Vec<Kind> {
        const RECEIVERS: &[Kind] = &[Kind::new("otlp", "OTLP in")];
        const PROCESSORS: &[Kind] = &[Kind::new("batch", "batches")];
        const EXPORTERS: &[Kind] = &[Kind::new("otlp_grpc", "OTLP out").aliases(&["otlp"])];
        const CONNECTORS: &[Kind] = &[Kind::new("forward", "joins pipelines")];
        const EXTENSIONS: &[Kind] = &[Kind::new("health_check", "health")];
        let kinds = match class {
            Class::Receiver => RECEIVERS,
            Class::Processor => PROCESSORS,
            Class::Exporter => EXPORTERS,
            Class::Connector => CONNECTORS,
            Class::Extension => EXTENSIONS,
        };
        kinds.to_vec()
    }
}
