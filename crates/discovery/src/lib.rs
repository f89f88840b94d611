//! Discovery yields targets: the endpoints of Prometheus' jobs that are to be scraped, as they are
//! known now.
//!
//! Knows nothing of metrics or of receivers. The rooms, from the bottom upwards:
//!
//! 1. `labels`: a small set of labels, whose texts are shared. `units`: Prometheus' durations and
//!    sizes. `group`: targets with common labels, as sources find them.
//! 2. `relabel`: rules that change labels. Pure.
//! 3. `http_config`, `scrape_config`: the options, with Prometheus' names and meanings. `requests`:
//!    connections and headers as they say.
//! 4. `targets`: from groups through rules to targets. Pure.
//! 5. `index`: the groups of a job as its sources know them. `sources`: a task for each, which
//!    tells the index its groups; one that fails leaves what was known.
//! 6. `allocator`: jobs that a target allocator gives.
//! 7. `discovery`: all of it together. [`Discovery::next`] waits for other targets.
//!
//! Bounds: the bytes of answers and files, the items in them, the labels of all targets of a job.

mod allocator;
mod discovery;
mod group;
mod http_config;
mod index;
mod labels;
mod requests;
mod scrape_config;
mod sources;
mod targets;
#[cfg(test)]
mod test_server;

pub mod relabel;
pub mod units;

pub use allocator::AllocatorConfig;
pub use discovery::{Discovery, Job};
pub use group::Group;
pub use http_config::{Credentials, HttpConfig, OAuth2, ProxyConfig, SecretSource};
pub use labels::{Label, Labels, NameScheme, Text};
pub use scrape_config::{
    DnsRecord, DnsSd, Escaping, FileSd, Global, Histograms, HttpSd, KubernetesSd, Limits,
    NativeBuckets, Role, ScrapeConfig, ScrapeConfigs, ScrapeProtocol, Selector, SourceConfig,
};
pub use targets::{Target, Targets, targets};
