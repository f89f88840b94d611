//! Options that protect must not become empty by a `${…}`: a variable that is not set would turn
//! the protection off. Empty as it stands in the file is a choice.

use super::Fields;
use crate::diagnostics::Diagnostic;

/// Ends of the full names of options that protect, or that name what protects.
const PROTECTING: [&str; 19] = [
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
];

impl Fields<'_> {
    /// The references that made the option empty, if it is one that protects.
    pub(super) fn emptied_by(&self, key: &str) -> Option<&str> {
        let emptied_by = self.find(key)?.value.emptied_by.as_deref()?;
        let path = self.path_of(key);
        let is_named = |end: &&&str| {
            path.strip_suffix(**end).is_some_and(|head| head.is_empty() || head.ends_with('.'))
        };
        PROTECTING.iter().find(is_named).map(|_| emptied_by)
    }

    pub(super) fn refuse_emptied(&mut self, key: &str) {
        let Some(references) = self.emptied_by(key).map(str::to_owned) else { return };
        let path = self.path_of(key);
        let message = format!("`{path}` protects, and {references} leaves it empty");
        let hint = format!("set {references}, or leave `{key}` out if no protection is meant");
        let span = self.find(key).map(|entry| entry.value.span);
        self.push(Diagnostic::error(span, message).with_hint(hint));
    }
}

#[cfg(test)]
mod tests {
    use crate::diagnostics::Diagnostics;
    use crate::expand::tests::Fake;
    use crate::fields::Fields;
    use crate::load::read_tree;

    fn findings(file: &str) -> Vec<String> {
        let environment = Fake::default().variable("SPACE", " ").variable("NULL", "null");
        let environment = environment.variable("LIST", "[]").variable("EMPTY", "");
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
                "c.yaml:1: `{path}` protects, and {references} leaves it empty (set {references}, \
                 or leave `{key}` out if no protection is meant)"
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
            "additional_auth: ${env:NOT}",
        ] {
            assert_eq!(findings(file), Vec::<String>::new(), "{file}");
        }
    }
}
