//! The directory of telemetry: `buffer.directory`, or the one of a `file_storage`.

use std::io::ErrorKind;

use sluice_config::document::Document;
use sluice_config::{Diagnostic, Diagnostics};
use sluice_receivers::Checkpoints;

use super::ExporterPlan;
use super::ports::span_at;
use super::read::{Read, extension};

/// `buffer.directory`, or the one directory that exporters' `sending_queue.storage` leads to.
pub(super) fn directory(
    document: &Document,
    read: &Read,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let own = document.buffer.directory.as_ref();
    let mut chosen =
        own.map(|placed| (placed.value.clone(), placed.span, "buffer.directory".to_owned()));
    for (id, exporter) in &read.exporters {
        let place = format!("exporters.{id}.sending_queue.storage");
        let found = storage_directory(&place, exporter, document, read, diagnostics);
        match (found, &chosen) {
            (Some(directory), None) => chosen = Some((directory, exporter.span, place)),
            (Some(directory), Some((first, span, by))) if *first != directory => {
                let message = format!(
                    "`{place}` leads to the directory `{directory}`, `{by}` to `{first}`: \
                     one process has one directory"
                );
                let error = Diagnostic::error(exporter.span, message);
                diagnostics.push(error.with_related(*span, "the other one"));
            }
            _ => {}
        }
    }
    warn_of_unused_storage(document, read, diagnostics);
    chosen.map(|(directory, _, _)| directory)
}

/// The directory that the exporter's `sending_queue.storage`, which stands at `place`, leads to.
fn storage_directory(
    place: &str,
    exporter: &ExporterPlan,
    document: &Document,
    read: &Read,
    diagnostics: &mut Diagnostics,
) -> Option<String> {
    let storage = exporter.config.sending().queue.storage.as_ref()?;
    let problem = match read.extensions.get(storage).map(|extension| &extension.file_storage) {
        Some(Some(found)) => {
            if document.buffer.directory.is_none() && !found.creates_directory {
                check_exists(&found.directory, storage, document, diagnostics);
            }
            return Some(found.directory.clone());
        }
        Some(None) => "is no `file_storage`",
        None => "is not among `service.extensions`",
    };
    let message = format!("`{place}` names `{storage}`, which {problem}");
    let error = Diagnostic::error(exporter.span, message);
    diagnostics.push(match extension(document, storage) {
        Some(extension) => error.with_related(extension.span, "defined here"),
        None => error,
    });
    None
}

/// As in the Collector: telemetry in a directory whose volume is not mounted would not last.
pub(super) fn check_exists(
    directory: &str,
    storage: &str,
    document: &Document,
    diagnostics: &mut Diagnostics,
) {
    let problem = match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => return,
        Ok(_) => "is not a directory".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => format!("cannot be used: {error}"),
    };
    let span = extension(document, storage).map(|found| span_at(found, &["directory"]));
    let message = format!("the directory `{directory}` of `extensions.{storage}` {problem}");
    let hint = "mount or create it, correct its name, or set `create_directory: true`";
    let error = Diagnostic::error(span, message).with_hint(hint);
    // Exporters that share a storage name it more than once.
    if !diagnostics.errors().any(|it| it.message == error.message) {
        diagnostics.push(error);
    }
}

fn warn_of_unused_storage(document: &Document, read: &Read, diagnostics: &mut Diagnostics) {
    for (id, storage) in &read.extensions {
        let mut queues = read.exporters.values().map(|exporter| &exporter.config.sending().queue);
        let mut checkpoints = read.receivers.iter().map(|it| it.config.checkpoints());
        if storage.file_storage.is_some()
            && !queues.any(|it| it.storage.as_ref() == Some(id))
            && !checkpoints.any(|it| it == Checkpoints::In(id))
        {
            let span = extension(document, id).map(|extension| extension.span);
            let message = format!(
                "extensions.{id} has no effect: no exporter's `sending_queue.storage` and no \
                 receiver's `storage` names it"
            );
            let hint = "`buffer.directory` holds telemetry of all pipelines on disk";
            diagnostics.push(Diagnostic::warning(span, message).with_hint(hint));
        }
    }
}

#[cfg(test)]
mod tests {
    /// Scenario: the directory of a `file_storage` is missing, or is a file. Guarantee: as in the
    /// Collector, an error at its place with the remedy, unless it is to be created.
    #[test]
    fn a_storage_that_is_missing_is_an_error_unless_it_is_created() {
        let folder = tempfile::tempdir().expect("a directory");
        std::fs::write(folder.path().join("file"), "").expect("is written");
        for (name, more, buffer, problem) in [
            ("", "", "", None),
            ("/missing", "", "", Some("does not exist")),
            ("/missing/below", ", create_directory: false", "", Some("does not exist")),
            ("/file", "", "", Some("is not a directory")),
            ("/file/below", "", "", Some("cannot be used: ")),
            ("/missing", ", create_directory: true", "", None),
            ("/missing", "", "directory: '{}'", None),
        ] {
            let directory = format!("{}{name}", folder.path().display());
            let exporter = "{endpoint: 'localhost:1', tls: {insecure: true}, \
                            sending_queue: {storage: file_storage}}";
            let text = format!(
                "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\n\
                 exporters: {{otlp: {exporter}, otlp/2: {exporter}}}\n\
                 buffer: {{{}}}\n\
                 extensions:\n  file_storage: {{directory: '{directory}'{more}}}\n\
                 service: {{extensions: [file_storage], \
                 pipelines: {{traces: {{receivers: [otlp], exporters: [otlp, otlp/2]}}}}}}\n",
                buffer.replace("{}", &directory)
            );
            let locations = [format!("yaml:{text}")];
            let (plan, said) = crate::plan::load(&locations, &sluice_config::SystemEnvironment);
            assert_eq!(plan.is_some(), problem.is_none(), "{text}{}", said.render(false));
            let errors: Vec<_> = said.errors().collect();
            assert_eq!(errors.len(), usize::from(problem.is_some()), "{}", said.render(false));
            if let (Some(error), Some(problem)) = (errors.first(), problem) {
                let start = format!("the directory `{directory}` of `extensions.file_storage` ");
                assert!(error.message.starts_with(&(start + problem)), "{}", error.message);
                assert_eq!(error.span.map(|span| span.line), Some(5));
                assert!(said.render(false).contains("create_directory: true"));
            }
            assert!(!folder.path().join("missing").exists(), "planning creates nothing");
        }
    }
}
