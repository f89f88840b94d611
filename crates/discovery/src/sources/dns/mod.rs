//! `dns_sd_configs`: the records of names are targets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use sluice_net::dns::{Record, Resolver};
use tokio::time::MissedTickBehavior;

use super::outlet::Outlet;
use crate::group::{ADDRESS, Group};
use crate::labels::{Labels, Text};
use crate::scrape_config::DnsSd;

/// Names that are looked up at a time.
const CONCURRENCY: usize = 8;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const NAME: &str = "__meta_dns_name";
const SRV_TARGET: &str = "__meta_dns_srv_record_target";
const SRV_PORT: &str = "__meta_dns_srv_record_port";
const MX_TARGET: &str = "__meta_dns_mx_record_target";
const NS_TARGET: &str = "__meta_dns_ns_record_target";

pub(super) async fn run(config: DnsSd, mut outlet: Outlet) {
    let mut known = BTreeMap::new();
    let mut ticks = tokio::time::interval(config.refresh_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Read each time: networks change.
        let read = || Resolver::read(Path::new(RESOLV_CONF));
        let resolver = tokio::task::spawn_blocking(read).await;
        match resolver.map_err(|error| error.to_string()).flatten() {
            Ok(resolver) => look(&config, &resolver, &mut known, &mut outlet).await,
            Err(reason) => outlet.failed(RESOLV_CONF, reason),
        }
    }
}

/// Looks all names up. Those without an answer keep their groups.
async fn look(
    config: &DnsSd,
    resolver: &Resolver,
    known: &mut BTreeMap<Text, Arc<Group>>,
    outlet: &mut Outlet,
) {
    let names = stream::iter(config.names.clone());
    let look_up = |name: Text| async move {
        let answer = resolver.look_up(&name, config.record).await;
        (name, answer)
    };
    let mut answers = names.map(look_up).buffer_unordered(CONCURRENCY);
    while let Some((name, answer)) = answers.next().await {
        match answer {
            Ok(records) => {
                known.insert(name.clone(), Arc::new(group(&name, &records, config.port)));
                outlet.works(&name);
            }
            Err(reason) => outlet.failed(&name, reason),
        }
    }
    drop(answers);
    let groups = config.names.iter().filter_map(|name| known.get(name).cloned());
    outlet.found(RESOLV_CONF, groups.collect());
}

fn group(name: &Text, records: &[Record], port: u16) -> Group {
    let target = |record: &Record| {
        let rooted = |host: &str| format!("{host}.");
        let mut labels = vec![(NAME, name.to_string())];
        let address = match record {
            Record::Address(ip) if ip.is_ipv6() => format!("[{ip}]:{port}"),
            Record::Address(ip) => format!("{ip}:{port}"),
            Record::Service { host, port } => {
                labels.extend([(SRV_TARGET, rooted(host)), (SRV_PORT, port.to_string())]);
                format!("{host}:{port}")
            }
            Record::Exchange(host) => {
                labels.push((MX_TARGET, rooted(host)));
                format!("{host}:{port}")
            }
            Record::NameServer(host) => {
                labels.push((NS_TARGET, rooted(host)));
                format!("{host}:{port}")
            }
            // Not asked for.
            Record::Pointer(host) => format!("{host}:{port}"),
        };
        labels.push((ADDRESS, address));
        labels.into_iter().collect::<Labels>()
    };
    let targets = records.iter().map(target).collect();
    Group { key: name.clone(), labels: Labels::default(), targets }
}

#[cfg(test)]
mod tests;
