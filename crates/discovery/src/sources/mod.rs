//! Sources: tasks that tell a job's index which groups there are.
//!
//! A source that cannot see its groups keeps those of before, and says once why.

mod dns;
pub(crate) mod fetch;
mod file;
mod http;
mod kubernetes;
mod outlet;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::scrape_config::SourceConfig;

pub(crate) use outlet::Outlet;

/// Starts a source. Targets that the configuration names are there at once.
pub(crate) fn start(config: SourceConfig, mut outlet: Outlet, tasks: &mut JoinSet<()>) {
    let handle = match config {
        SourceConfig::Static(groups) => {
            return outlet.found("static_configs", groups.into_iter().map(Arc::new).collect());
        }
        SourceConfig::File(config) => tasks.spawn(file::run(config, outlet)),
        SourceConfig::Http(config) => tasks.spawn(http::run(*config, outlet)),
        SourceConfig::Dns(config) => tasks.spawn(dns::run(config, outlet)),
        SourceConfig::Kubernetes(config) => tasks.spawn(kubernetes::run(*config, outlet)),
    };
    drop(handle);
}
