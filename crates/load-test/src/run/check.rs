//! What can be known to fail before anything starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::definition::Setting;
use super::machine::Cores;
use super::plan::{Addresses, Plan};
use crate::report::Target;

/// An error that names the first thing that cannot be.
pub(super) fn check(plan: &Plan, cores: &Cores) -> anyhow::Result<()> {
    if let Some(cpus) = plan.cpus.filter(|cpus| *cpus > cores.of_subject() as f64) {
        bail!(
            "--cpus {cpus}: the subject has {} core(s) of this machine, the bench takes the others: give no more than \
             that, \
             or run on a machine with more cores",
            cores.of_subject()
        );
    }
    plan.check_source()?;
    let setting = any_setting(plan, cores);
    for definition in &plan.subjects {
        definition.spec(plan.target, &setting, plan.limits(), &cores.subject)?;
        definition.selectors(plan.target, &setting)?;
    }
    Ok(())
}

/// As of a turn, with addresses that mean nothing: every variable has a value that will have one.
fn any_setting(plan: &Plan, cores: &Cores) -> Setting {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    // Its port is looked for in what the subject is given.
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::MAX));
    let addresses = Addresses { listen, other: addr, metrics: addr, spare: addr };
    let is_metric_agent = plan.target == Target::MetricAgent;
    Setting {
        scrape_targets: if is_metric_agent { vec![addr] } else { Vec::new() },
        scrape_interval: is_metric_agent.then_some(Duration::from_secs(1)),
        log_root: matches!(plan.target, Target::LogAgent | Target::LogsFluentBit).then(PathBuf::new),
        ..plan.setting(cores, addresses, vec![addr; plan.pipelines()])
    }
}
