use std::time::Duration;

use sluice_config::Fields;

/// Ceilings of a batch. Zero means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A batch with so many items goes out at once.
    pub send_batch_size: u32,
    /// A batch goes out once its oldest item has waited this long.
    pub timeout: Duration,
    /// A batch never has more items; larger requests are split.
    pub send_batch_max_size: u32,
    /// Names of request metadata, in lower case. Requests that differ in them never come into one
    /// batch.
    pub metadata_keys: Vec<String>,
    /// How many combinations of their values may be batched at a time.
    pub metadata_cardinality_limit: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            send_batch_size: 8192,
            timeout: Duration::from_millis(200),
            send_batch_max_size: 0,
            metadata_keys: Vec::new(),
            metadata_cardinality_limit: 1000,
        }
    }
}

pub fn read(fields: &mut Fields<'_>) -> Config {
    let defaults = Config::default();
    let doc = "A batch of this many spans, metric points or log records is full and goes out. 0: \
               only `timeout` counts.";
    let send_batch_size =
        fields.integer("send_batch_size", defaults.send_batch_size, 0..=u32::MAX, doc);
    let doc = "How long a batch may wait for more. If senders wait for delivery, it goes out \
               sooner, as soon as an exporter is free. 0: no waiting.";
    let timeout = fields.duration("timeout", defaults.timeout, doc);
    let doc = "The most items of a batch: larger requests are split. 0: no such limit. At least \
               `send_batch_size`.";
    let send_batch_max_size =
        fields.integer("send_batch_max_size", defaults.send_batch_max_size, 0..=u32::MAX, doc);
    let doc = "Names of request metadata; requests that differ in them are batched apart.";
    let metadata_keys = fields.string_list("metadata_keys", &[], doc);
    let doc = "How many combinations of values of `metadata_keys` are batched at a time. 0: no \
               limit but the delivery's budget and `timeout`.";
    let limit = defaults.metadata_cardinality_limit;
    let config = Config {
        send_batch_size,
        timeout,
        send_batch_max_size,
        metadata_keys: metadata_keys.into_iter().map(|key| key.to_lowercase()).collect(),
        metadata_cardinality_limit: fields.integer(
            "metadata_cardinality_limit",
            limit,
            0..=u32::MAX,
            doc,
        ),
    };
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
        assert_eq!(config, Config::default());
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
