use sluice_config::Fields;

const MIB: u64 = 1024 * 1024;
/// The part of the limit that is kept free for spikes where nothing is said.
const DEFAULT_SPIKE_PERCENT: u64 = 20;
const WHY_NO_COLLECTION: &str =
    "memory is given back as soon as it is free, there is no garbage collection";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub limit: Limit,
}

/// Hard limit, and how far below it refusing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Bytes {
        limit_bytes: u64,
        spike_bytes: u64,
    },
    /// Of the memory that the process may have (the cgroup's limit, or the machine's).
    Percent {
        limit_percent: u32,
        spike_percent: u32,
    },
}

impl Limit {
    /// The hard and the soft limit in bytes. Refusing begins at the soft one.
    pub fn resolve(self, available_bytes: u64) -> (u64, u64) {
        let (limit, spike) = match self {
            Limit::Bytes { limit_bytes, spike_bytes } => (limit_bytes, spike_bytes),
            Limit::Percent { limit_percent, spike_percent } => {
                let part =
                    |percent: u32| (u128::from(available_bytes) * u128::from(percent) / 100) as u64;
                (part(limit_percent), part(spike_percent))
            }
        };
        let spike = if spike == 0 { limit / 100 * DEFAULT_SPIKE_PERCENT } else { spike };
        (limit, limit.saturating_sub(spike))
    }
}

pub fn read(fields: &mut Fields<'_>) -> Config {
    fields.no_effect(
        "check_interval",
        "what telemetry takes is accounted for with every request, not looked at now and then",
    );
    let doc = "Memory that the process may take, in MiB. Takes precedence over `limit_percentage`.";
    let limit_mib = fields.integer("limit_mib", 0, 0..=u32::MAX, doc);
    let doc = "How many MiB below the limit refusing begins. 0: a fifth of the limit.";
    let spike_limit_mib = fields.integer("spike_limit_mib", 0, 0..=u32::MAX, doc);
    let doc = "Memory that the process may take, in percent of the memory available to it (its \
               cgroup's limit, or the machine's).";
    let limit_percentage = fields.integer("limit_percentage", 0, 0..=100, doc);
    let doc = "How much below the limit refusing begins, in percent of the memory available. 0: a \
               fifth of the limit.";
    let spike_limit_percentage = fields.integer("spike_limit_percentage", 0, 0..=100, doc);
    fields.no_effect("min_gc_interval_when_soft_limited", WHY_NO_COLLECTION);
    fields.no_effect("min_gc_interval_when_hard_limited", WHY_NO_COLLECTION);
    let limit = if limit_mib > 0 || limit_percentage == 0 {
        if limit_mib == 0 {
            fields.error("needs a `limit_mib` or a `limit_percentage` greater than 0");
        } else if spike_limit_mib >= limit_mib {
            fields.error_at("spike_limit_mib", "must be less than `limit_mib`");
        }
        Limit::Bytes {
            limit_bytes: u64::from(limit_mib) * MIB,
            spike_bytes: u64::from(spike_limit_mib) * MIB,
        }
    } else {
        if spike_limit_percentage >= limit_percentage {
            fields.error_at("spike_limit_percentage", "must be less than `limit_percentage`");
        }
        Limit::Percent { limit_percent: limit_percentage, spike_percent: spike_limit_percentage }
    };
    Config { limit }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    /// Absolute limits go before percentages; the spike is a fifth where nothing is said.
    #[test]
    fn limits_are_resolved() {
        let (config, diagnostics) = read_text("m", "limit_mib: 500\nlimit_percentage: 80", read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        assert_eq!(config.limit.resolve(1), (500 * MIB, 500 * MIB - 500 * MIB / 100 * 20));
        let (config, _) = read_text("m", "limit_percentage: 75\nspike_limit_percentage: 15", read);
        assert_eq!(config.limit.resolve(1000), (750, 600));
    }

    /// Options that the Collector refuses are refused; options without effect here are named.
    #[test]
    fn wrong_limits_are_refused() {
        for text in [
            "{}",
            "limit_mib: 100\nspike_limit_mib: 100",
            "limit_percentage: 101",
            "limit_percentage: 10\nspike_limit_percentage: 10",
        ] {
            assert!(read_text("m", text, read).1.has_errors(), "{text}");
        }
        let text = "check_interval: 1s\nlimit_mib: 9\nmin_gc_interval_when_soft_limited: 5s";
        let (_, diagnostics) = read_text("m", text, read);
        assert_eq!((diagnostics.errors().count(), diagnostics.warnings().count()), (0, 2));
    }
}
