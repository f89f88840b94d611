//! The detector `eks`: a node of Amazon EKS, from variables, the API server and EC2's metadata.

use serde_json::Value as Json;
use sluice_config::Fields;
use sluice_flow::BoxFuture;
use sluice_kubernetes::{Access, Client, segment};

use super::super::detector::{Builder, Detected, Detector, Enabled, Failure};
use super::super::surroundings::{Surroundings, text_in};
use super::ec2::IDENTITY;
use super::imds::Imds;
use super::k8s_api::{object, told};

const ATTRIBUTES: [(&str, bool); 10] = [
    ("cloud.account.id", false),
    ("cloud.availability_zone", false),
    ("cloud.platform", true),
    ("cloud.provider", true),
    ("cloud.region", false),
    ("host.id", false),
    ("host.image.id", false),
    ("host.name", false),
    ("host.type", false),
    ("k8s.cluster.name", false),
];
/// Those that more than the variables of a pod is asked for.
const OF_THE_NODE: [&str; 7] = [
    "cloud.account.id",
    "cloud.availability_zone",
    "cloud.region",
    "host.id",
    "host.image.id",
    "host.name",
    "host.type",
];

#[derive(Debug)]
pub(super) struct Eks {
    enabled: Enabled,
    node_variable: String,
    access: Access,
}

impl Eks {
    pub(super) fn read(fields: &mut Fields<'_>) -> Eks {
        let enabled = Enabled::read(fields, &ATTRIBUTES);
        if enabled.has("k8s.cluster.name") {
            let hint = "set it with the processor `resource`";
            let message = "has `k8s.cluster.name`, which needs EC2's API `DescribeInstances`: it \
                           is not in this build of Sluice";
            fields.error_at_with_hint("resource_attributes", message, hint);
        }
        let doc = "Environment variable with the name of the node, for nodes whose pods cannot \
                   reach EC2's metadata.";
        let node_variable = fields.string("node_from_env_var", "", doc);
        Eks { enabled, node_variable, access: Access::ServiceAccount }
    }

    async fn find(&self, around: &Surroundings) -> Detected {
        let client = Client::new(self.access.clone());
        if !is_eks(around, &client).await.map_err(Failure::Missing)? {
            return Err(Failure::Missing("the cluster is none of EKS".to_owned()));
        }
        let mut found = self.enabled.resource();
        found.text("cloud.provider", "aws");
        found.text("cloud.platform", "aws_eks");
        if !self.enabled.has_any(&OF_THE_NODE) {
            return found.done();
        }
        let reached = match Imds::open(around).await {
            Ok(imds) => imds.metadata("instance-id").await.map(|_| imds),
            Err(reason) => Err(reason),
        };
        match reached {
            Ok(imds) => of_instance(&imds, &mut found).await,
            Err(reason) => self.of_node(around, &client, reason, &mut found).await,
        }
        found.done()
    }

    /// Adds what the node's object says of its instance. `why`: the reason for which EC2's metadata
    /// is not asked.
    async fn of_node(
        &self,
        around: &Surroundings,
        client: &Client,
        why: String,
        found: &mut Builder<'_>,
    ) {
        let Some(node) = around.given(&self.node_variable) else {
            return found.lacks(format!("{why}; `node_from_env_var` names no node"));
        };
        let path = format!("/api/v1/nodes/{}", segment(&node));
        let provider_id = match object(around, client, &path).await {
            Ok(node) => text_in(&node, &["spec", "providerID"]).unwrap_or_default().to_owned(),
            Err(failure) => {
                return found.lacks(told(&failure, &format!("the node {node}"), "nodes"));
            }
        };
        let Some((region, zone, instance)) = instance_of(&provider_id) else {
            return found.lacks(format!("the node has the provider's ID {provider_id:?}"));
        };
        found.text("cloud.region", region);
        found.text("cloud.availability_zone", zone);
        found.text("host.id", instance);
        found.lacks(format!("{why}; the node's object has only its zone and instance"));
    }
}

async fn of_instance(imds: &Imds<'_>, found: &mut Builder<'_>) {
    match imds.identity().await {
        Ok(identity) => {
            for (name, key) in IDENTITY {
                found.text(name, text_in(&identity, &[key]).unwrap_or_default());
            }
        }
        Err(reason) => return found.lacks(reason),
    }
    found.try_text("host.name", imds.metadata("hostname").await);
}

/// Of `aws:///us-west-2a/i-049ca2df511bec762`: the region, the zone and the instance.
fn instance_of(provider_id: &str) -> Option<(&str, &str, &str)> {
    let parts: Vec<&str> = provider_id.split('/').collect();
    let (zone, instance) = match parts[..] {
        ["aws:", _, _, zone, instance, ..] if !instance.is_empty() => (zone, instance),
        _ => return None,
    };
    // A zone is its region with a letter.
    let (end, _) = zone.char_indices().last()?;
    Some((&zone[..end], zone, instance))
}

/// By the tokens of a pod, else by the issuer of the API server's own, else by its version.
async fn is_eks(around: &Surroundings, client: &Client) -> Result<bool, String> {
    if around.given("KUBERNETES_SERVICE_HOST").is_none() {
        return Ok(false);
    }
    let has = |name: &str, part: &str| around.variable(name).is_some_and(|it| it.contains(part));
    if has("AWS_WEB_IDENTITY_TOKEN_FILE", "eks.amazonaws.com")
        || has("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "eks-pod-identity")
    {
        return Ok(true);
    }
    let says = |object: &Json, key: &str, part: &str| {
        text_in(object, &[key]).is_some_and(|text| text.contains(part))
    };
    if let Ok(issuer) = object(around, client, "/.well-known/openid-configuration").await
        && says(&issuer, "issuer", "oidc.eks.")
    {
        return Ok(true);
    }
    let version = object(around, client, "/version").await;
    let version = version.map_err(|failure| told(&failure, "its version", "/version"))?;
    Ok(says(&version, "gitVersion", "-eks-"))
}

impl Detector for Eks {
    fn detect<'a>(&'a self, around: &'a Surroundings) -> BoxFuture<'a, Detected> {
        Box::pin(self.find(around))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_providers_id_has_the_zone_and_the_instance() {
        let found = instance_of("aws:///us-west-2a/i-049");
        assert_eq!(found, Some(("us-west-2", "us-west-2a", "i-049")));
        for id in ["", "aws:///us-west-2a/", "aws:////i-049", "gce://project/zone/vm", "aws://s/s"]
        {
            assert_eq!(instance_of(id), None, "{id}");
        }
    }
}
