//! Options that protect must not become empty by a `${…}`, and neither must a section that may
//! have them: a variable that is not set would turn the protection off. Empty as it stands in the
//! file is a choice.

use super::{Effect, Fields, Mode};
use crate::diagnostics::Diagnostic;
use crate::source::Span;
use crate::yaml::Node;

/// Ends of the full names of options that protect, or that name what protects.
const PROTECTING: [&str; 27] = [
    "tls",
    "ca_file",
    "ca_pem",
    "certificate",
    "client_ca_file",
    "min_version",
    "cipher_suites",
    "curve_preferences",
    "auth",
    "additional_auth",
    "authenticator",
    "client_auth",
    "htpasswd",
    "htpasswd.file",
    "htpasswd.inline",
    "token",
    "tokens",
    "password",
    "client_secret",
    "security",
    "shared_key",
    "users",
    "tls_config",
    "basic_auth",
    "authorization",
    "credentials",
    "bearer_token",
];

impl<'a> Fields<'a> {
    /// The references that made the option empty, if it is one that protects.
    pub(super) fn emptied_by(&self, key: &str) -> Option<&'a str> {
        let emptied_by = self.find(key)?.value.emptied_by.as_ref()?;
        is_protecting(&self.path_of(key)).then_some(&*emptied_by.references)
    }

    /// Reports an option that protects and became empty, or that is missing because a section
    /// around it did.
    pub(super) fn refuse_emptied(&mut self, key: &str) {
        let path = self.path_of(key);
        if let Some(references) = self.emptied_by(key).map(str::to_owned) {
            let message = format!("`{path}` is a security option, but {references} is empty");
            let hint = format!("set {references}, or leave `{key}` out if no protection is meant");
            let span = self.find(key).map(|entry| entry.value.span);
            self.push(Diagnostic::error(span, message).with_hint(hint));
        } else if is_protecting(&path) {
            self.refuse_emptied_section(&path);
        }
    }

    /// `option`: the full name of an option that protects.
    fn refuse_emptied_section(&mut self, option: &str) {
        let Mode::Reading(reading) = &mut self.mode else { return };
        let Some(EmptiedSection { path, references, span }) = reading.emptied.clone() else {
            return;
        };
        let start = format!("{references} leaves `{path}` empty");
        if reading.diagnostics.errors().any(|error| error.message.starts_with(&start)) {
            return;
        }
        let message = format!("{start}, and with it `{option}`, which protects");
        let hint = format!("set {references}, or write the options of `{path}` in the file");
        self.push(Diagnostic::error(span, message).with_hint(hint));
    }

    /// As [`Fields::refuse_emptied`] for the options of a section that is not read, because an
    /// empty section around it lacks it.
    pub(super) fn refuse_emptied_within<T>(
        &mut self,
        key: &str,
        read: impl FnOnce(&mut Fields<'_>) -> T,
    ) {
        if !matches!(&self.mode, Mode::Reading(reading) if reading.emptied.is_some()) {
            return;
        }
        let options = Fields::describe(read).into_iter().filter(|option| {
            !matches!(option.effect, Effect::NoEffect(_)) && is_protecting(&option.path)
        });
        if let Some(option) = options.into_iter().next() {
            self.refuse_emptied_section(&format!("{}.{}", self.path_of(key), option.path));
        }
    }
}

/// A section that is empty because of references.
#[derive(Clone)]
pub(super) struct EmptiedSection {
    path: String,
    references: Box<str>,
    span: Span,
}

impl EmptiedSection {
    /// `None`: it is not empty, by choice, or protects itself, which has an error of its own.
    pub(super) fn of(path: &str, node: &Node) -> Option<EmptiedSection> {
        let by = node.emptied_by.as_ref().filter(|by| !by.is_chosen && !is_protecting(path))?;
        let (path, references, span) = (path.to_owned(), by.references.clone(), node.span);
        Some(EmptiedSection { path, references, span })
    }
}

fn is_protecting(path: &str) -> bool {
    let is_named = |end: &&str| {
        path.strip_suffix(end).is_some_and(|head| head.is_empty() || head.ends_with('.'))
    };
    PROTECTING.iter().any(is_named)
}

#[cfg(test)]
mod tests {
    use crate::diagnostics::Diagnostics;
    use crate::expand::tests::Fake;
    use crate::fields::Fields;
    use crate::load::read_tree;

    fn findings(file: &str) -> Vec<String> {
        let environment = Fake::default().variable("SPACE", " ").variable("NULL", "null");
        let environment =
            environment.variable("LIST", "[]").variable("EMPTY", "").variable("NONE", "{}");
        let environment = environment.variable("CA", "ca.pem").file("c.yaml", file);
        let mut diagnostics = Diagnostics::default();
        let tree = read_tree(&["c.yaml".to_owned()], &environment, &mut diagnostics).unwrap();
        Fields::read("x", &tree, tree.span, &mut diagnostics, |fields| {
            fields.section_unless_empty("auth", "", |fields| {
                fields.required_string("authenticator", "");
            });
            fields.section_or_default("tls", "", |fields| {
                fields.non_empty_string("client_ca_file", "");
                fields.string_list("cipher_suites", &[], "");
            });
            fields.string("endpoint", "", "");
            fields.section_or_default("protocols", "", |fields| {
                fields.section("grpc", "", |fields| {
                    fields.string("endpoint", "", "");
                    fields.section_or_default("limits", "", |fields| fields.string("a", "", ""));
                    fields.section_unless_empty("tls", "", |fields| fields.string("a", "", ""));
                });
            });
            fields.section("keepalive", "", |fields| fields.string("time", "", ""));
            fields.secret("token", "");
            fields.no_effect("additional_auth", "none");
        });
        diagnostics.errors().map(|error| diagnostics.line(error)).collect()
    }

    /// Scenario: options that protect, with references to variables that are not set, empty, blank,
    /// null or an empty list. Guarantee: one error for each, with place, variable and remedy, and
    /// without a default, which may be a secret.
    #[test]
    fn what_protects_does_not_become_empty_by_a_reference() {
        for (file, path, references) in [
            ("auth: ${env:NOT}", "x.auth", "`${env:NOT}`"),
            ("auth: ${env:NULL}", "x.auth", "`${env:NULL}`"),
            ("auth: {authenticator: '${NOT}'}", "x.auth.authenticator", "`${NOT}`"),
            ("tls: ${env:NOT:-null}", "x.tls", "`${env:NOT}`"),
            ("tls: ${yaml:null}", "x.tls", "`${yaml:…}`"),
            (
                "tls: {client_ca_file: '${env:EMPTY:-hunter2}'}",
                "x.tls.client_ca_file",
                "`${env:EMPTY}`",
            ),
            ("tls: {client_ca_file: '${env:NOT:-}'}", "x.tls.client_ca_file", "`${env:NOT}`"),
            (
                "tls: {client_ca_file: '${env:NOT}${env:SPACE}'}",
                "x.tls.client_ca_file",
                "`${env:NOT}` and `${env:SPACE}`",
            ),
            ("tls: {cipher_suites: '${env:LIST}'}", "x.tls.cipher_suites", "`${env:LIST}`"),
            ("token: ${env:NOT}", "x.token", "`${env:NOT}`"),
        ] {
            let key = path.rsplit('.').next().unwrap();
            let expected = format!(
                "c.yaml:1: `{path}` is a security option, but {references} is empty \
                 (set {references}, or leave `{key}` out if no protection is meant)"
            );
            assert_eq!(findings(file), [expected], "{file}");
        }
    }

    /// Scenario: a section that may have options that protect is a reference that yields nothing.
    /// Guarantee: one error names the section, the reference and an option.
    #[test]
    fn a_section_that_may_protect_does_not_become_empty_by_a_reference() {
        for (file, section, references) in [
            ("protocols: {grpc: '${env:NOT}'}", "protocols.grpc", "`${env:NOT}`"),
            ("protocols: {grpc: '${env:NULL:-x}'}", "protocols.grpc", "`${env:NULL}`"),
            ("protocols: {grpc: '${env:NONE}'}", "protocols.grpc", "`${env:NONE}`"),
            ("protocols: ${env:NOT}", "protocols", "`${env:NOT}`"),
        ] {
            let expected = format!(
                "c.yaml:1: {references} leaves `x.{section}` empty, and with it \
                 `x.protocols.grpc.tls`, which protects (set {references}, or write the options \
                 of `x.{section}` in the file)"
            );
            assert_eq!(findings(file), [expected], "{file}");
        }
    }

    /// Guarantee: empty as the file has it is a choice, as in the Collector; so is any other option
    /// that a variable leaves empty, and one without effect.
    #[test]
    fn what_the_file_leaves_empty_stays_empty() {
        for file in [
            "auth:",
            "auth: null",
            "tls: {client_ca_file: '', cipher_suites: []}",
            "tls: {client_ca_file: '${env:CA}'}",
            "endpoint: ${env:NOT}",
            "keepalive: ${env:NOT}",
            "protocols: {grpc: }",
            "protocols: {grpc: '${env:NOT:-null}'}",
            "protocols: {grpc: {limits: '${env:NOT}', endpoint: '${env:NOT}:4317'}}",
            "additional_auth: ${env:NOT}",
        ] {
            assert_eq!(findings(file), Vec::<String>::new(), "{file}");
        }
    }
}
