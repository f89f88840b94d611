//! Google's service of metadata, and the platforms that it and variables tell apart.

use super::super::super::detector::{Builder, Failure};
use super::super::super::surroundings::Surroundings;

/// The service of metadata.
pub(super) struct Service<'a> {
    around: &'a Surroundings,
    base: String,
}

impl Service<'_> {
    pub(super) async fn open(around: &Surroundings) -> Result<Service<'_>, Failure> {
        if let Some(host) = around.given("GCE_METADATA_HOST") {
            return Ok(Service { around, base: format!("http://{host}") });
        }
        let base = around.metadata().to_owned();
        // Other clouds have another service at this address.
        let answer = around.get(&format!("{base}/"), &[("metadata-flavor", "Google")]).await;
        let answer = answer.map_err(Failure::Missing)?;
        match answer.headers.get("metadata-flavor").map(http::HeaderValue::as_bytes) {
            Some(b"Google") => Ok(Service { around, base }),
            _ => Err(Failure::Missing(format!("{base} is no service of Google"))),
        }
    }

    pub(super) async fn get(&self, path: &str) -> Result<String, String> {
        let url = format!("{}/computeMetadata/v1/{path}", self.base);
        let text = self.around.text(&url, &[("metadata-flavor", "Google")]).await?;
        Ok(text.trim().to_owned())
    }

    /// Of `projects/1/zones/us-central1-b`, the last part.
    async fn last(&self, path: &str) -> Result<String, String> {
        let text = self.get(path).await?;
        Ok(text.rsplit('/').next().unwrap_or_default().to_owned())
    }

    fn variable(&self, names: &[&str]) -> Result<String, String> {
        let value = names.iter().find_map(|name| self.around.variable(name));
        value.ok_or_else(|| format!("{} is not set", names.join(" or ")))
    }

    fn has(&self, name: &str) -> bool {
        self.around.variable(name).is_some()
    }

    pub(super) async fn add_platform(&self, found: &mut Builder<'_>) {
        let location = match self.has("KUBERNETES_SERVICE_HOST") {
            true => self.get("instance/attributes/cluster-location").await.ok(),
            false => None,
        };
        if let Some(location) = location {
            found.text("cloud.platform", "gcp_kubernetes_engine");
            add_location(&location, found);
            let name = self.get("instance/attributes/cluster-name").await;
            found.try_text("k8s.cluster.name", name);
            found.try_text("host.id", self.get("instance/id").await);
            // Workload identity hides it.
            found.found("host.name", self.get("instance/name").await.ok());
        } else if self.has("FUNCTION_TARGET") {
            found.text("cloud.platform", "gcp_cloud_functions");
            self.add_revision(found).await;
        } else if self.has("K_CONFIGURATION") {
            found.text("cloud.platform", "gcp_cloud_run");
            self.add_revision(found).await;
        } else if self.has("CLOUD_RUN_JOB") {
            found.text("cloud.platform", "gcp_cloud_run");
            self.add_service(found).await;
            for (name, variable) in [
                ("gcp.cloud_run.job.execution", "CLOUD_RUN_EXECUTION"),
                ("gcp.cloud_run.job.task_index", "CLOUD_RUN_TASK_INDEX"),
            ] {
                found.try_text(name, self.variable(&[variable]));
            }
        } else if self.has("CLOUD_RUN_WORKER_POOL") {
            found.text("cloud.platform", "gcp_cloud_run");
            self.add_revision(found).await;
        } else if self.around.variable("GAE_ENV").as_deref() == Some("standard") {
            self.add_app(found);
            found.try_text("cloud.availability_zone", self.last("instance/zone").await);
            found.try_text("cloud.region", self.last("instance/region").await);
        } else if self.has("GAE_SERVICE") {
            self.add_app(found);
            self.add_zone(found).await;
        } else if let Ok(host_type) = self.get("instance/machine-type").await {
            found.text("cloud.platform", "gcp_compute_engine");
            found.text("host.type", host_type);
            self.add_instance(found).await;
        }
    }

    /// Of Cloud Run and Cloud Functions.
    async fn add_service(&self, found: &mut Builder<'_>) {
        let names = ["K_SERVICE", "CLOUD_RUN_JOB", "CLOUD_RUN_WORKER_POOL"];
        found.try_text("faas.name", self.variable(&names));
        found.try_text("faas.instance", self.get("instance/id").await);
        found.try_text("cloud.region", self.last("instance/region").await);
    }

    async fn add_revision(&self, found: &mut Builder<'_>) {
        self.add_service(found).await;
        found.try_text("faas.version", self.variable(&["CLOUD_RUN_REVISION", "K_REVISION"]));
    }

    /// Of App Engine.
    fn add_app(&self, found: &mut Builder<'_>) {
        found.text("cloud.platform", "gcp_app_engine");
        for (name, variable) in [
            ("faas.name", "GAE_SERVICE"),
            ("faas.version", "GAE_VERSION"),
            ("faas.instance", "GAE_INSTANCE"),
        ] {
            found.try_text(name, self.variable(&[variable]));
        }
    }

    async fn add_zone(&self, found: &mut Builder<'_>) {
        match self.last("instance/zone").await {
            Ok(zone) => match zone.splitn(3, '-').collect::<Vec<_>>()[..] {
                [country, region, _] => {
                    found.text("cloud.region", format!("{country}-{region}"));
                    found.text("cloud.availability_zone", zone.as_str());
                }
                _ => found.lacks(format!("{zone:?} is no zone")),
            },
            Err(reason) => found.lacks(reason),
        }
    }

    /// Of Compute Engine.
    async fn add_instance(&self, found: &mut Builder<'_>) {
        self.add_zone(found).await;
        found.try_text("host.id", self.get("instance/id").await);
        let name = self.get("instance/name").await;
        found.try_text("host.name", name.clone());
        found.found("gcp.gce.instance.name", name.ok());
        found.try_text("gcp.gce.instance.hostname", self.get("instance/hostname").await);
        // The instance may have no such attribute, or another service has created it.
        let by = self.get("instance/attributes/created-by").await.unwrap_or_default();
        let (location, of) = match by.split('/').collect::<Vec<_>>()[..] {
            ["projects", _, "zones", zone, "instanceGroupManagers", of] => (("zone", zone), of),
            ["projects", _, "regions", region, "instanceGroupManagers", of] => {
                (("region", region), of)
            }
            _ => return,
        };
        found.text("gcp.gce.instance_group_manager.name", of);
        found.text(&format!("gcp.gce.instance_group_manager.{}", location.0), location.1);
    }
}

/// A cluster of GKE is in a zone (`us-central1-b`) or in a region.
fn add_location(location: &str, found: &mut Builder<'_>) {
    match location.split('-').collect::<Vec<_>>()[..] {
        [_, _] => found.text("cloud.region", location),
        [country, region, _] => {
            found.text("cloud.availability_zone", location);
            found.text("cloud.region", format!("{country}-{region}"));
        }
        _ => found.lacks(format!("{location:?} is neither a zone nor a region")),
    }
}
