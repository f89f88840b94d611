//! The answer to an accepted export request: the same message for all signals.

/// `Export…ServiceResponse`.
#[derive(prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) partial_success: Option<PartialSuccess>,
}

/// Items that were rejected for good, and why.
#[derive(prost::Message)]
pub(crate) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(crate) rejected_items: i64,
    #[prost(string, tag = "2")]
    pub(crate) error_message: String,
}
