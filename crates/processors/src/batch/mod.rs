//! `batch`: how large and how old a batch may become. The engine batches, behind its log.

use sluice_config::{ComponentKind, Fields, Kind};

use crate::processor::{BatchLimits, ProcessorConfig};

pub(crate) const KIND: ComponentKind<ProcessorConfig> =
    ComponentKind::new(Kind::new("batch", "Limits the size and the age of batches"), |fields| {
        ProcessorConfig::Batch(read(fields))
    });

fn read(fields: &mut Fields<'_>) -> BatchLimits {
    let any = 0..=u32::MAX;
    let mut config = BatchLimits::default();
    let doc = "A batch is sent as soon as it has this many spans, metric points or log records. 0: \
               no batch waits for more.";
    config.send_batch_size =
        fields.integer("send_batch_size", config.send_batch_size, any.clone(), doc);
    let doc = "Longest time that a batch waits for more data. If senders wait for delivery, it is \
               sent sooner: as soon as an exporter is free. 0: no waiting.";
    config.timeout = fields.duration("timeout", config.timeout, doc);
    let doc = "Maximum number of items in a batch; larger requests are split. 0: no such limit. \
               Otherwise at least `send_batch_size`.";
    config.send_batch_max_size =
        fields.integer("send_batch_max_size", config.send_batch_max_size, any.clone(), doc);
    let doc = "Names of request metadata (headers), in upper or lower case. Requests that differ \
               in them never share a batch.";
    let keys = fields.string_list("metadata_keys", &[], doc);
    config.metadata_keys = keys.into_iter().map(|key| key.to_lowercase()).collect();
    let doc = "Maximum number of combinations of `metadata_keys` values with an open batch. For \
               one more, the oldest batch is sent at once. 0: no such limit.";
    let limit = config.metadata_cardinality_limit;
    config.metadata_cardinality_limit =
        fields.integer("metadata_cardinality_limit", limit, any, doc);
    if config.send_batch_max_size > 0 && config.send_batch_max_size < config.send_batch_size {
        fields.error_at("send_batch_max_size", "must be 0 or at least `send_batch_size`");
    }
    for (index, key) in config.metadata_keys.iter().enumerate() {
        if config.metadata_keys[..index].contains(key) {
            fields.error_at("metadata_keys", &format!("has `{key}` twice"));
        }
    }
    config
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    /// An empty section means the Collector's defaults.
    #[test]
    fn defaults_are_the_collectors() {
        let (config, diagnostics) = read_text("processors.batch", "", read);
        assert_eq!(config, BatchLimits::default());
        assert!(!diagnostics.has_errors());
    }

    /// A maximum below the size, and keys that differ in case only, are errors.
    #[test]
    fn contradictions_are_refused() {
        let text =
            "send_batch_size: 100\nsend_batch_max_size: 50\nmetadata_keys: [X-Tenant, x-tenant]";
        let (_, diagnostics) = read_text("processors.batch", text, read);
        assert_eq!(diagnostics.errors().count(), 2, "{}", diagnostics.render(false));
    }
}
