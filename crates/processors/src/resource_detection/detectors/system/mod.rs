//! The detector `system`: the host and its operating system.
//!
//! `hostname`: how the host is called. `platform`: the distribution. `cpu` (`arm`: names of its
//! parts): the first processor. `network`: interfaces and their addresses.

mod arm;
mod cpu;
mod hostname;
mod network;
mod platform;

use sluice_config::Fields;
use sluice_flow::BoxFuture;
use sluice_otlp::AnyValue;

use super::super::detector::{Builder, Detected, Detector, Enabled, Failure};
use super::super::surroundings::Surroundings;
use hostname::Source;

const ATTRIBUTES: [(&str, bool); 17] = [
    ("host.arch", false),
    ("host.cpu.cache.l2.size", false),
    ("host.cpu.family", false),
    ("host.cpu.model.id", false),
    ("host.cpu.model.name", false),
    ("host.cpu.stepping", false),
    ("host.cpu.vendor.id", false),
    ("host.id", false),
    ("host.interface", false),
    ("host.ip", false),
    ("host.mac", false),
    ("host.name", true),
    ("os.build.id", false),
    ("os.description", false),
    ("os.name", false),
    ("os.type", true),
    ("os.version", false),
];
const CPU: [&str; 6] = [
    "host.cpu.cache.l2.size",
    "host.cpu.family",
    "host.cpu.model.id",
    "host.cpu.model.name",
    "host.cpu.stepping",
    "host.cpu.vendor.id",
];

#[derive(Debug)]
pub(super) struct System {
    enabled: Enabled,
    sources: Vec<Source>,
}

impl System {
    pub(super) fn read(fields: &mut Fields<'_>) -> System {
        let enabled = Enabled::read(fields, &ATTRIBUTES);
        let sources = hostname::read(fields);
        System { enabled, sources }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let name = hostname::find(&self.sources, around).await.map_err(Failure::Broken)?;
        let (enabled, around) = (self.enabled.clone(), around.clone());
        // Reads files, and asks the kernel.
        let collected = tokio::task::spawn_blocking(move || {
            let mut found = enabled.resource();
            found.text("host.name", name);
            collect(&enabled, &around, &mut found)?;
            found.done()
        });
        collected.await.map_err(|error| Failure::Broken(error.to_string()))?
    }
}

fn collect(
    enabled: &Enabled,
    around: &Surroundings,
    found: &mut Builder<'_>,
) -> Result<(), Failure> {
    found.text("os.type", std::env::consts::OS);
    found.text("host.arch", arch(std::env::consts::ARCH));
    if enabled.has("host.id") {
        found.try_text("host.id", machine_id(around));
    }
    if enabled.has_any(&["os.name", "os.version"]) {
        let (name, version) = platform::find(around);
        found.text("os.name", name);
        found.text("os.version", version);
    }
    if enabled.has("os.description") {
        let description = platform::description(around).map_err(Failure::Broken)?;
        found.text("os.description", description);
    }
    if enabled.has("os.build.id") {
        found.try_text("os.build.id", platform::build_id(around));
    }
    if enabled.has_any(&CPU) {
        let cpu = cpu::find(around).map_err(Failure::Broken)?;
        if let Some(cpu) = cpu {
            found.text("host.cpu.vendor.id", cpu.vendor);
            found.text("host.cpu.family", cpu.family);
            found.found("host.cpu.model.id", Some(cpu.model).filter(|it| !it.is_empty()));
            found.text("host.cpu.model.name", cpu.model_name);
            found.text("host.cpu.stepping", cpu.stepping.to_string());
            found.set("host.cpu.cache.l2.size", AnyValue::Int(cpu.cache_kib));
        }
    }
    if enabled.has_any(&["host.ip", "host.mac", "host.interface"]) {
        let interfaces = network::interfaces()
            .map_err(|error| Failure::Broken(format!("the interfaces of the network: {error}")))?;
        let outward = || interfaces.iter().filter(|it| it.is_up && !it.is_loopback);
        let addresses = outward().flat_map(|it| &it.addresses).filter(|ip| !ip.is_loopback());
        found.texts("host.ip", addresses.map(|ip| network::shown(*ip)));
        found.texts("host.mac", outward().map(|it| it.hardware_address.clone()));
        found.texts("host.interface", interfaces.iter().map(|it| it.name.clone()));
    }
    Ok(())
}

/// As the conventions have it.
fn arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "arm" => "arm32",
        "powerpc64" => "ppc64",
        other => other,
    }
}

/// The ID that systemd, or else D-Bus, has given to the installation.
fn machine_id(around: &Surroundings) -> Result<String, String> {
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        if let Ok(Some(text)) = around.read_now(path) {
            let id = text.trim();
            return match id.is_empty() {
                true => Err(format!("{path} is empty")),
                false => Ok(id.to_owned()),
            };
        }
    }
    Err("there is no /etc/machine-id that can be read".to_owned())
}

impl Detector for System {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
