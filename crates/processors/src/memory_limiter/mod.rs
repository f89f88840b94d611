//! `memory_limiter`: how much memory the process may take, for all pipelines together.

use sluice_config::{ComponentKind, Fields, Kind};

use crate::processor::{MemoryLimit, ProcessorConfig};

const MIB: u64 = 1024 * 1024;

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new("memory_limiter", "Sets the memory limit of the process"),
    |fields| ProcessorConfig::Memory(read(fields)),
);

fn read(fields: &mut Fields<'_>) -> MemoryLimit {
    fields.no_effect(
        "check_interval",
        "memory is reserved and counted for each request, not checked at intervals",
    );
    let doc = "Memory limit of the process, in MiB. Takes precedence over `limit_percentage`; one \
               of the two is required.";
    let limit_mib = fields.integer("limit_mib", 0, 0..=u32::MAX, doc);
    let doc = "Part of the limit, in MiB, for requests that are being received. 0: a fifth of the \
               limit. The value is kept between an eighth and a third of the memory that the \
               process and its connections leave for telemetry.";
    let spike_mib = fields.integer("spike_limit_mib", 0, 0..=u32::MAX, doc);
    let doc = "Memory limit of the process, in percent of the memory available to it (its cgroup's \
               limit, or the machine's).";
    let limit = fields.integer("limit_percentage", 0, 0..=100, doc);
    let doc = "As `spike_limit_mib`, in percent of the memory available to the process.";
    let spike = fields.integer("spike_limit_percentage", 0, 0..=100, doc);
    let why = "memory is freed as soon as it is unused, there is no garbage collection";
    for option in ["min_gc_interval", "max_gc_interval"] {
        fields.no_effect(&format!("{option}_when_soft_limited"), why);
        fields.no_effect(&format!("{option}_when_hard_limited"), why);
    }
    if limit_mib == 0 && limit == 0 {
        fields.error("needs a `limit_mib` or a `limit_percentage` greater than 0");
    } else if limit_mib == 0 && spike >= limit {
        fields.error_at("spike_limit_percentage", "must be less than `limit_percentage`");
    } else if limit_mib > 0 && spike_mib >= limit_mib {
        fields.error_at("spike_limit_mib", "must be less than `limit_mib`");
    }
    match limit_mib {
        0 => MemoryLimit::Percent { limit, spike },
        mib => {
            MemoryLimit::Bytes { limit: u64::from(mib) * MIB, spike: u64::from(spike_mib) * MIB }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    /// Absolute limits go before percentages; the spike is a fifth if it is not set.
    #[test]
    fn limits_are_resolved() {
        let (limit, diagnostics) = read_text("m", "limit_mib: 500\nlimit_percentage: 80", read);
        assert!(!diagnostics.has_errors(), "{}", diagnostics.render(false));
        assert_eq!(limit.resolve(1), (500 * MIB, 500 * MIB - 500 * MIB / 100 * 20));
        let (limit, _) = read_text("m", "limit_percentage: 75\nspike_limit_percentage: 15", read);
        assert_eq!(limit.resolve(1000), (750, 600));
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
