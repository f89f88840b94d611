use sluice_config::Fields;
use sluice_net::server::Address;

use crate::otlp::HttpConfig;
use crate::otlp::config::http::read_plain;

pub(super) struct RemoteWriteConfig {
    pub http: HttpConfig,
}

impl RemoteWriteConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> RemoteWriteConfig {
        RemoteWriteConfig { http: read_plain(fields, "localhost:9090") }
    }

    pub(super) fn address(&self) -> &Address {
        &self.http.shared.address
    }
}
