//! Extensions: services that several components share. Most authenticate senders, or our requests.
//!
//! One folder an extension, with both sides together: `mod.rs` says what it does, `client.rs` and
//! `server.rs` have its sides, `README.md` every option. [`EXTENSIONS`] lists them; there is no
//! registration elsewhere. Extensions see `extension.rs`, never this list. Receivers and exporters
//! do not import this crate: the extensions implement the traits of `sluice_net::auth`.

mod basicauth;
pub mod bearertokenauth;
mod digest;
mod extension;
mod file_storage;
mod headers_setter;
mod health_check;
mod inert;
pub mod oauth2client;
mod secret;

use sluice_config::{ComponentKind, ComponentKinds};

pub use extension::{
    BuildClient, BuildError, BuildServer, ClientExtension, CredentialsFile, Extension, FileStorage,
    HealthCheck,
};

/// The kinds of extensions in this build.
pub static EXTENSIONS: ComponentKinds<Extension> = ComponentKinds::new(&[
    health_check::KIND,
    basicauth::KIND,
    bearertokenauth::KIND,
    oauth2client::KIND,
    headers_setter::KIND,
    file_storage::KIND,
    ComponentKind::missing(
        "memory_ballast",
        "`memory_ballast` is gone from the Collector and means nothing here: remove it",
    ),
    inert::PPROF,
    inert::ZPAGES,
]);

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::EXTENSIONS;

    /// Scenario: mistakes in every extension. Guarantee: each is an error.
    #[test]
    fn mistakes_are_errors() {
        for (kind, text) in [
            ("headers_setter", "{}"),
            ("headers_setter", "headers: []"),
            ("headers_setter", "headers: [{action: upsert, key: a}]"),
            ("headers_setter", "headers: [{key: a, value: x, from_context: y}]"),
            ("headers_setter", "headers: [{key: 'a b', value: x}]"),
            ("bearertokenauth", "{}"),
            ("bearertokenauth", "tokens: []"),
            ("bearertokenauth", "tokens: {a: b}"),
            ("bearertokenauth", "{token: x, header: 'a b'}"),
            ("basicauth", "client_auth: {password: x}"),
            ("basicauth", "{}"),
            ("basicauth", "{client_auth: {username: x}, htpasswd: {inline: 'a:b'}}"),
            ("oauth2client", "{token_url: 'ftp://x', client_id: a, client_secret: b}"),
            ("oauth2client", "{token_url: 'https://x/token', client_secret: b}"),
            ("oauth2client", "{token_url: 'https://x/token', client_id: a}"),
            ("oauth2client", "{client_id: a, client_secret: b}"),
            (
                "oauth2client",
                "{token_url: 'https://x', client_id: a, client_secret: b, grant_type: password}",
            ),
            ("health_check", "path: health"),
            ("file_storage", "directory: ''"),
            ("file_storage", "max_size: -1"),
        ] {
            let (extension, diagnostics) =
                read_text("extensions.x", text, |fields| EXTENSIONS.read(kind, fields));
            assert!(extension.is_some() && diagnostics.errors().next().is_some(), "{kind}: {text}");
        }
    }
}
