//! The receiver's options.

use std::time::Duration;

use sluice_config::Fields;
use sluice_discovery::{AllocatorConfig, ScrapeConfigs};

#[derive(Clone)]
pub struct PrometheusConfig {
    pub(super) configs: ScrapeConfigs,
    pub(super) allocator: Option<AllocatorConfig>,
    pub(super) trim_suffixes: bool,
    pub(super) initial_offset: Duration,
    pub(super) scrape_on_shutdown: bool,
}

impl PrometheusConfig {
    pub fn read(fields: &mut Fields<'_>) -> PrometheusConfig {
        let doc = "Prometheus' own configuration: `global` and `scrape_configs`.";
        let configs = fields.section_or_default("config", doc, ScrapeConfigs::read);
        let doc = "Jobs and targets from a target allocator of the OpenTelemetry operator.";
        let allocator = fields.section_unless_empty("target_allocator", doc, AllocatorConfig::read);
        if configs.jobs.is_empty() && allocator.is_none() && !fields.is_describing() {
            fields.error("needs `config.scrape_configs` or `target_allocator`");
        }
        let doc = "Names of metrics lose what their type and unit say: `_total`, `_seconds`.";
        let trim_suffixes = fields.boolean("trim_metric_suffixes", false, doc);
        let doc = "Time before the first scrape of a target, besides that until its point of the \
                   interval.";
        let initial_offset = fields.duration("initial_scrape_offset", Duration::ZERO, doc);
        let doc = "Scrape all targets once more at the end, whatever their interval.";
        let scrape_on_shutdown = fields.boolean("scrape_on_shutdown", false, doc);
        let at_once = "targets are scraped as soon as they are known";
        fields.no_effect("discovery_reload_on_startup", at_once);
        let doc = "Prometheus' API.";
        fields.section_unless_empty("api_server", doc, |fields| {
            fields.not_yet("enabled", "Prometheus' API; `/metrics` has the targets' state");
            fields.no_effect("max_connections", "there is no such server");
            fields.no_effect("server_config", "there is no such server");
        });
        let instead = "the Collector has dropped it, too; start times come from the target's \
                       created timestamps";
        fields.not_yet("use_start_time_metric", instead);
        fields.not_yet("start_time_metric_regex", instead);
        let instead = "the Collector has dropped it, too: use `config.global.extra_scrape_metrics`";
        fields.not_yet("report_extra_scrape_metrics", instead);
        PrometheusConfig { configs, allocator, trim_suffixes, initial_offset, scrape_on_shutdown }
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn said(text: &str) -> Vec<String> {
        let (_, diagnostics) = read_text("receivers.prometheus", text, PrometheusConfig::read);
        diagnostics.items().iter().map(|item| diagnostics.line(item)).collect()
    }

    const JOB: &str = "config: {scrape_configs: [{job_name: a}]}\n";

    #[test]
    fn a_job_or_an_allocator_is_needed() {
        let nothing = said("trim_metric_suffixes: true");
        assert!(nothing[0].contains("needs `config.scrape_configs`"), "{nothing:?}");
        assert_eq!(said(JOB), Vec::<String>::new());
        let allocator = "target_allocator: {endpoint: 'http://a', collector_id: b}";
        assert_eq!(said(allocator), Vec::<String>::new());
    }

    /// Guarantee: what is not built is an error or a warning that names it.
    #[test]
    fn options_that_are_not_built_are_named() {
        for (options, expected) in [
            ("api_server: {enabled: true}", "api_server.enabled` is not in this build"),
            ("use_start_time_metric: true", "use_start_time_metric` is not in this build"),
            ("start_time_metric_regex: x", "start_time_metric_regex` is not in this build"),
            ("report_extra_scrape_metrics: true", "use `config.global.extra_scrape_metrics`"),
            ("discovery_reload_on_startup: true", "discovery_reload_on_startup` has no effect"),
        ] {
            let found = said(&format!("{JOB}{options}"));
            assert!(found.len() == 1 && found[0].contains(expected), "{options}: {found:?}");
        }
        let server = "api_server: {enabled: false}\nuse_start_time_metric: false";
        assert_eq!(said(&format!("{JOB}{server}")), Vec::<String>::new());
        for (section, expected) in [
            ("remote_write: [{url: 'http://a'}]", "config.remote_write` is not in this build"),
            ("rule_files: [a]", "config.rule_files` is not in this build"),
        ] {
            let text = format!("config: {{scrape_configs: [{{job_name: a}}], {section}}}");
            let found = said(&text);
            assert!(found.len() == 1 && found[0].contains(expected), "{section}: {found:?}");
        }
        let consul = "consul_sd_configs: [{server: a}]";
        let found = said(&format!("config: {{scrape_configs: [{{job_name: a, {consul}}}]}}"));
        let expected = "scrape_configs[a].consul_sd_configs` is not in this build";
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}
