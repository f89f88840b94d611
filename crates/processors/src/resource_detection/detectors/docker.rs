//! The detector `docker`: the host of Docker's daemon, and the container that Sluice is in.

use serde_json::Value as Json;
use sluice_config::Fields;
use sluice_flow::BoxFuture;

use super::super::detector::{Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};

const ATTRIBUTES: [(&str, bool); 4] = [
    ("container.image.name", false),
    ("container.name", false),
    ("host.name", true),
    ("os.type", true),
];
const SOCKET: &str = "unix:///var/run/docker.sock";

#[derive(Debug)]
pub(super) struct Docker(Enabled);

impl Docker {
    pub(super) fn read(fields: &mut Fields<'_>) -> Docker {
        Docker(Enabled::read(fields, &ATTRIBUTES))
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let mut found = self.0.resource();
        if self.0.has_any(&["host.name", "os.type"]) {
            let info = ask(around, "/info").await?;
            let text = |key| text_in(&info, &[key]).unwrap_or_default();
            found.text("os.type", os_type(text("OSType")));
            found.text("host.name", text("Name"));
        }
        if self.0.has_any(&["container.name", "container.image.name"]) {
            let id = around.host_name().await.map_err(Failure::Missing)?;
            if !id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
                return Err(Failure::Missing(format!("{id:?} is no name of a container")));
            }
            let container = ask(around, &format!("/containers/{id}/json")).await?;
            let text = |key| text_in(&container, &[key]).unwrap_or_default();
            found.text("container.name", text("Name"));
            found.text("container.image.name", text("Image"));
        }
        found.done()
    }
}

/// As the conventions have it, of the name that Go has for a system.
fn os_type(go: &str) -> &str {
    match go {
        "dragonfly" => "dragonflybsd",
        "zos" => "z_os",
        other => other,
    }
}

/// The daemon is where `DOCKER_HOST` says, as for Docker's own client.
async fn ask(around: &Surroundings, path: &str) -> Result<Json, Failure> {
    let host = around.given("DOCKER_HOST").unwrap_or_else(|| SOCKET.to_owned());
    let answer = match host.split_once("://") {
        Some(("unix", socket)) => around.json_at(&around.path(socket), path).await,
        Some(("tcp" | "http", _)) if around.given("DOCKER_TLS_VERIFY").is_some() => {
            let reason = "DOCKER_TLS_VERIFY is set, and TLS is not in this build for detectors";
            return Err(Failure::Final(reason.to_owned()));
        }
        Some(("tcp" | "http", server)) => {
            let server = server.trim_end_matches('/');
            around.json(&format!("http://{server}{path}"), &[]).await
        }
        _ => {
            let reason = "DOCKER_HOST is none of `unix://<socket>` and `tcp://<host>:<port>`";
            return Err(Failure::Final(reason.to_owned()));
        }
    };
    answer.map_err(Failure::Missing)
}

impl Detector for Docker {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}
