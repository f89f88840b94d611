//! Extensions that change no telemetry and have nothing to show here. They are accepted, because
//! the Collector's files name them, with a warning that says so.

use sluice_config::{ComponentKind, Kind};

use crate::extension::Extension;

pub(crate) const PPROF: ComponentKind<Extension> =
    ComponentKind::new(Kind::new("pprof", "Accepted without effect, with a warning."), |fields| {
        fields.whole_has_no_effect(
            "it shows the inside of Go programs, and nothing listens at its address; `perf` shows \
             where Sluice spends its time",
        );
        Extension::default()
    });

pub(crate) const ZPAGES: ComponentKind<Extension> =
    ComponentKind::new(Kind::new("zpages", "Accepted without effect, with a warning."), |fields| {
        fields.whole_has_no_effect(
            "nothing listens at its address; see `/metrics`, `/log` and `/dead-letters` on the \
             metrics address",
        );
        Extension::default()
    });

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use crate::EXTENSIONS;

    /// Scenario: the Collector's examples of both. Guarantee: one warning each, and no error.
    #[test]
    fn they_start_with_a_warning() {
        for (kind, text) in [
            ("pprof", ""),
            ("pprof", "{endpoint: '127.0.0.1:1777', block_profile_fraction: 3}"),
            ("zpages", "{endpoint: 'localhost:55679', expvar: {enabled: true}}"),
        ] {
            let (extension, diagnostics) =
                read_text("extensions.x", text, |fields| EXTENSIONS.read(kind, fields));
            assert!(extension.is_some() && !diagnostics.has_errors(), "{kind}: {text}");
            assert_eq!(diagnostics.warnings().count(), 1, "{kind}: {text}");
        }
    }
}
