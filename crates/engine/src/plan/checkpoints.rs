//! The files of receivers' checkpoints: a folder of its own in a `file_storage`, or beside the log.

use std::path::Path;

use sluice_config::document::Document;
use sluice_config::{Diagnostic, Diagnostics};
use sluice_receivers::Checkpoints;

use super::read::{Read, extension};
use super::storage::check_exists;

/// The folder within the directory. The log has no file or folder of this name.
const FOLDER: &str = "checkpoints";

/// Gives each receiver with a checkpoint its file.
pub(super) fn place(
    document: &Document,
    read: &mut Read,
    telemetry: Option<&Path>,
    diagnostics: &mut Diagnostics,
) {
    for receiver in &mut read.receivers {
        let id = &receiver.id;
        let directory = match receiver.config.checkpoints() {
            Checkpoints::None => continue,
            Checkpoints::WithTelemetry => match telemetry {
                Some(directory) => directory,
                None => {
                    let message = format!(
                        "receivers.{id} keeps its checkpoint in memory only: after a restart it \
                         begins as `start_at` says"
                    );
                    let hint = "name a `file_storage` in its `storage`, or set `buffer.directory`";
                    let warning = Diagnostic::warning(Some(receiver.span), message);
                    diagnostics.push(warning.with_hint(hint));
                    continue;
                }
            },
            Checkpoints::In(storage) => {
                let found = read.extensions.get(storage).map(|it| it.file_storage.as_ref());
                let problem = match found {
                    Some(Some(found)) => {
                        if !found.creates_directory && telemetry != Some(found.directory.as_ref()) {
                            check_exists(&found.directory, storage, document, diagnostics);
                        }
                        receiver.checkpoint = Some(file(found.directory.as_ref(), id));
                        continue;
                    }
                    Some(None) => "is no `file_storage`",
                    None => "is not among `service.extensions`",
                };
                let message =
                    format!("`receivers.{id}.storage` names `{storage}`, which {problem}");
                let error = Diagnostic::error(Some(receiver.span), message);
                diagnostics.push(match extension(document, storage) {
                    Some(extension) => error.with_related(extension.span, "defined here"),
                    None => error,
                });
                continue;
            }
        };
        receiver.checkpoint = Some(file(directory, id));
    }
}

/// The file of a receiver's checkpoint. An id may hold characters that no file name can.
fn file(directory: &Path, id: &str) -> std::path::PathBuf {
    let mut name = String::new();
    for character in id.chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => name.push(character),
            '/' => name.push('.'),
            other => name.push_str(&format!("%{:x}", u32::from(other))),
        }
    }
    directory.join(FOLDER).join(name)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sluice_config::SystemEnvironment;

    /// Guarantee: a checkpoint is in the directory that the receiver names, else beside the log,
    /// else nowhere, which is said; a name that leads nowhere is an error.
    #[test]
    fn a_checkpoint_has_a_file_or_a_warning() {
        let folder = tempfile::tempdir().expect("a directory");
        let directory = folder.path().display().to_string();
        for (receiver, buffer, expected, said) in [
            ("", "", None, "receivers.filelog/a.b keeps its checkpoint in memory only"),
            ("", "directory: '{}/log'", Some("log/checkpoints/filelog.a%2eb"), ""),
            ("storage: file_storage", "", Some("checkpoints/filelog.a%2eb"), ""),
            ("storage: file_storage/x", "", None, "which is not among `service.extensions`"),
            ("storage: file_storage/missing", "", None, "does not exist"),
            ("storage: health_check", "", None, "which is no `file_storage`"),
        ] {
            let text = format!(
                "receivers: {{'filelog/a.b': {{include: [/tmp/x], {receiver}}}}}\n\
                 exporters: {{nop: {{}}}}\nbuffer: {{{}}}\n\
                 extensions: {{health_check: {{endpoint: 'localhost:0'}}, \
                 file_storage: {{directory: '{directory}'}}, \
                 file_storage/missing: {{directory: '{directory}/missing'}}}}\n\
                 service: {{extensions: [health_check, file_storage, file_storage/missing], \
                 pipelines: {{logs: {{receivers: ['filelog/a.b'], exporters: [nop]}}}}}}\n",
                buffer.replace("{}", &directory)
            );
            let (plan, diagnostics) =
                crate::plan::load(&[format!("yaml:{text}")], &SystemEnvironment);
            let rendered = diagnostics.render(false);
            assert!(rendered.contains(said), "{receiver} {rendered}");
            if let Some(plan) = plan {
                let expected: Option<PathBuf> = expected.map(|path| folder.path().join(path));
                assert_eq!(plan.receivers[0].checkpoint, expected, "{receiver} {rendered}");
            } else {
                assert!(expected.is_none() && !said.is_empty(), "{receiver} {rendered}");
            }
        }
    }
}
