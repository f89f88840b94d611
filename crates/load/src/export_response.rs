//! The answer to an accepted export request: the same message for all signals.

/// `Export…ServiceResponse`.
#[derive(prost::Message)]
pub(crate) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(prost::Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_items: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

impl ExportResponse {
    /// With the number of rejected items and the reason, where some were rejected.
    pub(crate) fn of(rejected: Option<(u64, String)>) -> ExportResponse {
        let partial_success = rejected.map(|(items, error_message)| PartialSuccess {
            rejected_items: items.cast_signed(),
            error_message,
        });
        ExportResponse { partial_success }
    }

    pub(crate) fn rejected_items(&self) -> u64 {
        self.partial_success
            .as_ref()
            .map_or(0, |partial| partial.rejected_items.max(0).cast_unsigned())
    }
}
