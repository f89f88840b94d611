//! A real VictoriaMetrics. It ends when dropped.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use sluice_load_test::subject::free_addr;
use tempfile::TempDir;

use crate::component::component;

pub(crate) struct VictoriaMetrics {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: TempDir,
}

impl VictoriaMetrics {
    /// `None`, and said so: there is no binary.
    pub(crate) fn start() -> Option<VictoriaMetrics> {
        let binary = component("SLUICE_TEST_VICTORIA_METRICS")?;
        let (folder, address) = (TempDir::new().expect("a folder"), free_addr().expect("a port"));
        let child = Command::new(binary)
            .arg(format!("-storageDataPath={}", folder.path().display()))
            .arg(format!("-httpListenAddr={address}"))
            .arg("-search.latencyOffset=0s")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("VictoriaMetrics runs");
        Some(VictoriaMetrics { child, address, _folder: folder })
    }
}

impl Drop for VictoriaMetrics {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
