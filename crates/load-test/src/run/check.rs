//! What can be known to fail before anything starts.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;

use super::definition::Setting;
use super::machine::Cores;
use super::plan::Plan;
use crate::report::Target;

/// An error that names the first thing that cannot be.
pub(super) fn check(plan: &Plan, cores: &Cores) -> anyhow::Result<()> {
    if let Some(cpus) = plan.cpus.filter(|cpus| *cpus > cores.of_subject() as f64) {
        bail!(
            "--cpus {cpus}: the subject has {} core(s) of this machine, the bench takes the \
             others: give no more than that, or run on a machine with more cores",
            cores.of_subject()
        );
    }
    plan.check_source()?;
    let setting = any_setting(plan, cores)?;
    for definition in &plan.subjects {
        definition.spec(plan.target, &setting, plan.limits(), &cores.subject)?;
        definition.metrics(plan.target, &setting)?;
    }
    Ok(())
}

/// As of a turn, with addresses that mean nothing: every variable has a value that will have one.
fn any_setting(plan: &Plan, cores: &Cores) -> io::Result<Setting> {
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    // Its port is looked for in what the subject is given.
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::MAX));
    let mut setting = plan.setting(cores, listen, addr, vec![addr; plan.pipelines()])?;
    if plan.target == Target::MetricAgent {
        setting.scrape_targets = vec![addr];
        setting.scrape_interval = Some(Duration::from_secs(1));
    }
    setting.log_root = plan.target.tails_files().then(PathBuf::new);
    Ok(setting)
}
