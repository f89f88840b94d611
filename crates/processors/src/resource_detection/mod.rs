//! `resource_detection`: attributes of the process's surroundings, on every resource.
//!
//! What is detected becomes actions of the processor `resource`, and costs as much as they do.

mod env;

use bytes::Bytes;
use sluice_config::{ComponentKind, Fields, Kind};
use sluice_flow::{BoxFuture, Metadata};
use sluice_otlp::{AnyValue, Signal, edit_resources_within};

use crate::actions::{Actions, Put};
use crate::fingerprint::Fingerprint;
use crate::processor::{Built, Edited, Processor, ProcessorConfig};

/// Detectors that only the Collector has.
const ABSENT: [&str; 31] = [
    "akamai",
    "aks",
    "alibaba_ecs",
    "azure",
    "azureappservice",
    "azurecontainerapps",
    "consul",
    "digitalocean",
    "docker",
    "dynatrace",
    "ec2",
    "ecs",
    "eks",
    "elastic_beanstalk",
    "gcp",
    "heroku",
    "hetzner",
    "ibmcloud_classic",
    "ibmcloud_vpc",
    "k8s_api",
    "k8snode",
    "kubeadm",
    "lambda",
    "nova",
    "openshift",
    "oraclecloud",
    "scaleway",
    "system",
    "tencent_cvm",
    "upcloud",
    "vultr",
];

const ABSENT_DETECTOR: &str = "this detector is not in this build of Sluice";

pub(crate) const KIND: ComponentKind<ProcessorConfig> = ComponentKind::new(
    Kind::new("resource_detection", "Adds attributes of the environment that Sluice runs in")
        .aliases(&["resourcedetection"]),
    |fields| {
        let on = read(fields);
        let detected = ResourceDetection::new(on, env::detect());
        ProcessorConfig::Edits(Box::new(move |_| {
            Ok(Built { processor: Box::new(detected.clone()), warnings: Vec::new() })
        }))
    },
);

fn read(fields: &mut Fields<'_>) -> Put {
    let doc = "The detectors. This build has one: `env`, the environment variable \
               `OTEL_RESOURCE_ATTRIBUTES`.";
    let names = fields.string_list("detectors", &["env"], doc);
    if names.is_empty() {
        fields.error_at("detectors", "is empty: leave it out, or write `[env]`");
    }
    for name in names {
        if name != "env" {
            let known = ABSENT.contains(&name.as_str());
            let message = match known {
                true => format!("has `{name}`, which is not in this build of Sluice"),
                false => format!("has `{name}`, which is no detector"),
            };
            let hint = "the detector in this build is `env`; `resource` sets fixed attributes";
            fields.error_at_with_hint("detectors", &message, hint);
        }
    }
    let doc = "Detected attributes replace those of the same key that a resource has already.";
    let overrides = fields.boolean("override", true, doc);
    let why = "`env` asks no service, and the environment of a process stays as it is";
    for key in ["timeout", "retry", "refresh_interval", "fail_on_missing_metadata"] {
        fields.no_effect(key, why);
    }
    for detector in ABSENT {
        let key = match detector {
            "dynatrace" => continue, // It has no options.
            "elastic_beanstalk" => "elasticbeanstalk",
            key => key,
        };
        fields.no_effect(key, ABSENT_DETECTOR);
    }
    if overrides { Put::Upsert } else { Put::Insert }
}

#[derive(Clone)]
struct ResourceDetection {
    actions: Actions,
    /// The reason for which nothing could be detected.
    failure: Option<String>,
}

impl ResourceDetection {
    fn new(on: Put, detected: Result<Vec<(String, String)>, String>) -> ResourceDetection {
        let (attributes, failure) = match detected {
            Ok(attributes) => (attributes, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let values = attributes.into_iter().map(|(key, text)| (key, AnyValue::String(text)));
        ResourceDetection { actions: Actions::of_values(on, values), failure }
    }
}

impl Processor for ResourceDetection {
    fn process(
        &self,
        _: Signal,
        request: &Bytes,
        metadata: &Metadata,
        limit_bytes: usize,
    ) -> Edited {
        edit_resources_within(request, limit_bytes, self.actions.prepare(metadata))
    }

    /// With the attributes, which another environment may change.
    fn fingerprint(&self) -> u64 {
        let mut fingerprint = Fingerprint::new("resource_detection");
        self.actions.fingerprint(&mut fingerprint);
        fingerprint.finish()
    }

    /// Only here, since a configuration may be validated in another environment.
    fn start(&self) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(std::future::ready(self.failure.clone().map_or(Ok(()), Err)))
    }
}

#[cfg(test)]
mod tests;
