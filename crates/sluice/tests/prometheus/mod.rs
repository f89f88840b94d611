//! A real Prometheus that scrapes gateways. It ends when dropped.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use sluice_load_test::subject::free_addr;
use tempfile::TempDir;

use crate::component::component;

pub(crate) struct Prometheus {
    child: Child,
    pub(crate) addr: SocketAddr,
    folder: TempDir,
}

impl Prometheus {
    /// With these rules, and with targets that [`Prometheus::scrape`] names. `None`: there is no
    /// Prometheus.
    pub(crate) fn start(rules: &str) -> Option<Prometheus> {
        Prometheus::start_with(rules, "", &[])
    }

    /// With more of its configuration, and more arguments.
    pub(crate) fn start_with(rules: &str, more: &str, arguments: &[&str]) -> Option<Prometheus> {
        let binary = component("SLUICE_TEST_PROMETHEUS")?;
        let (folder, addr) = (TempDir::new().expect("a folder"), free_addr().expect("a port"));
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).expect("a file");
            path
        };
        file("rules.yaml", rules);
        file("targets.yaml", "[]\n");
        let config = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n\
                      rule_files: [rules.yaml]\n\
                      scrape_configs:\n  - job_name: sluice\n    \
                      file_sd_configs: [{files: [targets.yaml], refresh_interval: 1s}]\n";
        let config = file("prometheus.yml", &format!("{config}{more}"));
        let child = Command::new(binary)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={addr}"))
            .arg("--log.level=error")
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("Prometheus runs");
        Some(Prometheus { child, addr, folder })
    }

    /// From now on it scrapes these and no others.
    pub(crate) fn scrape(&self, targets: &[SocketAddr]) {
        let targets: Vec<String> = targets.iter().map(|target| format!("'{target}'")).collect();
        let text = format!("- targets: [{}]\n", targets.join(", "));
        let (new, targets) =
            ["new.tmp", "targets.yaml"].map(|name| self.folder.path().join(name)).into();
        fs::write(&new, text).and_then(|()| fs::rename(&new, targets)).expect("targets");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
