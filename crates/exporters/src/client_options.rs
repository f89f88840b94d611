//! Options that `otlp` and `otlphttp` have in common.

use std::time::Duration;

use http::HeaderMap;
use sluice_config::Fields;
use sluice_net::auth::client::read_authenticator;
use sluice_net::client::{ConnectOptions, Proxy, Target, read_headers};
use sluice_net::tls::ClientTlsOptions;

use crate::exporter::BuildError;
use crate::sending::Sending;

/// An address that does not answer leaves time to try another within the deadline of a request.
const CONNECT_TIMEOUT_LIMIT: Duration = Duration::from_secs(10);

const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The highest levels of the compressions that have levels.
pub(crate) const GZIP_LEVELS: Option<i32> = Some(9);
pub(crate) const ZSTD_LEVELS: Option<i32> = Some(22);

#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Deadline of one request.
    pub timeout: Duration,
    pub compression_level: Option<i32>,
    pub tls: ClientTlsOptions,
    pub headers: HeaderMap,
    pub authenticator: Option<String>,
    pub max_request_bytes: usize,
    pub sending: Sending,
    /// Requests name the ranges of the sending log that they hold.
    pub is_idempotent: bool,
}

impl ClientOptions {
    /// `timeout` and `request_limit_bytes` are defaults. `highest_level`: of the compression.
    pub(crate) fn read(
        fields: &mut Fields<'_>,
        timeout: Duration,
        highest_level: Option<i32>,
        request_limit_bytes: u64,
    ) -> ClientOptions {
        let read_tls = ClientTlsOptions::read;
        let (level, limit_bytes) = (highest_level, request_limit_bytes);
        ClientOptions::read_for(fields, true, read_tls, timeout, level, limit_bytes)
    }

    /// As [`ClientOptions::read`]. `has_headers`: the protocol has headers, and so credentials in
    /// them. `read_tls`: reads the section `tls`.
    pub(crate) fn read_for(
        fields: &mut Fields<'_>,
        has_headers: bool,
        read_tls: fn(&mut Fields<'_>) -> ClientTlsOptions,
        timeout: Duration,
        highest_level: Option<i32>,
        request_limit_bytes: u64,
    ) -> ClientOptions {
        ClientOptions {
            timeout: ClientOptions::read_timeout(fields, timeout),
            compression_level: compression_level(fields, highest_level),
            tls: read_tls(fields),
            headers: if has_headers { read_headers(fields) } else { HeaderMap::new() },
            authenticator: if has_headers { read_authenticator(fields) } else { None },
            max_request_bytes: {
                let doc = "Larger requests are split before they are sent. If the backend's own \
                           limit is lower, Sluice learns it from the refusals.";
                let range = 1024..=u64::from(u32::MAX);
                fields.size("max_request_bytes", request_limit_bytes, range, doc) as usize
            },
            sending: Sending::read(fields),
            is_idempotent: false,
        }
    }

    /// Reads the deadline of a request. `timeout` is the default.
    pub(crate) fn read_timeout(fields: &mut Fields<'_>, timeout: Duration) -> Duration {
        let doc = "Time limit for one request. 0: an hour, which is the longest.";
        let timeout = fields.duration_in("timeout", timeout, Duration::ZERO..=TIMEOUT_MAX, doc);
        if !timeout.is_zero() && timeout < Duration::from_millis(1) {
            fields.error_at("timeout", "must be 0 or at least 1ms");
        }
        if timeout.is_zero() { TIMEOUT_MAX } else { timeout }
    }

    /// Reads the option of protocols that another Sluice speaks.
    pub(crate) fn read_idempotent(&mut self, fields: &mut Fields<'_>) {
        let doc = "The backend is a Sluice, which is to store once what is sent twice: each \
                   request names its data in the header `sluice-range`.";
        self.is_idempotent = fields.boolean("idempotent", false, doc);
    }

    /// Sets the options of connections, with TLS or without.
    pub(crate) fn set_connect(
        &self,
        connect: &mut ConnectOptions,
        tls: bool,
        proxy: Result<Option<Proxy>, String>,
    ) -> Result<(), BuildError> {
        connect.connect_timeout = self.timeout.min(CONNECT_TIMEOUT_LIMIT);
        Ok(connect.secure(tls.then_some(&self.tls), proxy)?)
    }
}

/// Reports a proxy of the environment that cannot be used: no exporter could be made with it. `key`
/// is the option that names the target.
pub(crate) fn check_proxy(fields: &mut Fields<'_>, key: &str, target: &Target, tls: bool) {
    if let Err(reason) = Proxy::from_environment(target, tls) {
        fields.error_at(key, &format!("is behind a proxy that cannot be used: {reason}"));
    }
}

/// Options of the Collector that Sluice does not have.
pub(crate) fn declare_unsupported(fields: &mut Fields<'_>) {
    let buffers = "requests are not copied into a buffer before they are written";
    fields.no_effect("read_buffer_size", buffers);
    fields.no_effect("write_buffer_size", buffers);
    fields.not_yet("middlewares", "middleware extensions");
}

/// `compression_params.level`. Unset or 0: the fastest level that compresses well.
pub(crate) fn compression_level(fields: &mut Fields<'_>, highest: Option<i32>) -> Option<i32> {
    fields.section_or_default("compression_params", "Options of compression.", |fields| {
        let doc = "Level of compression: 1 to 9 for gzip, zlib and deflate, 1 to 22 for zstd. \
                   Unset, 0 or -1: the fastest level that compresses well.";
        let level = fields.optional_integer("level", -1..=22, doc).filter(|level| *level > 0);
        match (level, highest) {
            (Some(_), None) => {
                fields.warn_at("level", "has no effect: this compression has no levels");
            }
            (Some(level), Some(highest)) if level > highest => {
                fields.error_at("level", &format!("must be at most {highest} for this compression"))
            }
            _ => {}
        }
        level
    })
}
