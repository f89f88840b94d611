//! The detectors, one file each, and which there are.
//!
//! `imds` is the service of metadata that the AWS detectors ask.

mod aks;
mod azure;
mod digitalocean;
mod docker;
mod dynatrace;
mod ec2;
mod ecs;
mod eks;
mod elastic_beanstalk;
mod env;
mod gcp;
mod heroku;
mod imds;
mod k8s_api;
mod kubeadm;
mod lambda;
mod oraclecloud;
mod system;

use sluice_config::Fields;

pub(super) use env::VARIABLES;

use super::detector::Detector;

/// A detector of this build.
pub(super) struct Kind {
    pub(super) name: &'static str,
    make: Make,
}

enum Make {
    /// It has no options.
    Plain(fn() -> Box<dyn Detector>),
    /// The key of its section, and what the section is for.
    WithSection(&'static str, &'static str, fn(&mut Fields<'_>) -> Box<dyn Detector>),
}

pub(super) static KINDS: [Kind; 18] = [
    Kind { name: "env", make: Make::Plain(|| Box::new(env::Env)) },
    section("system", "system", "The host that Sluice runs on.", |fields| {
        Box::new(system::System::read(fields))
    }),
    section("docker", "docker", "Docker's daemon.", |fields| {
        Box::new(docker::Docker::read(fields))
    }),
    section("k8s_api", "k8s_api", "A node, at Kubernetes' API server.", |fields| {
        Box::new(k8s_api::K8sApi::read(fields))
    }),
    section("k8snode", "k8snode", "The former name of `k8s_api`.", |fields| {
        Box::new(k8s_api::K8sApi::read(fields))
    }),
    section("kubeadm", "kubeadm", "A cluster that kubeadm made.", |fields| {
        Box::new(kubeadm::Kubeadm::read(fields))
    }),
    section("ec2", "ec2", "An instance of Amazon EC2.", |fields| Box::new(ec2::Ec2::read(fields))),
    section("ecs", "ecs", "A task of Amazon ECS.", |fields| Box::new(ecs::Ecs::read(fields))),
    section("eks", "eks", "A node of Amazon EKS.", |fields| Box::new(eks::Eks::read(fields))),
    section("lambda", "lambda", "A function of AWS Lambda.", |fields| {
        Box::new(lambda::Lambda::read(fields))
    }),
    section(
        "elastic_beanstalk",
        "elasticbeanstalk",
        "An environment of AWS Elastic Beanstalk.",
        |fields| Box::new(elastic_beanstalk::ElasticBeanstalk::read(fields)),
    ),
    section("gcp", "gcp", "Google Cloud.", |fields| Box::new(gcp::Gcp::read(fields))),
    section("azure", "azure", "A virtual machine of Azure.", |fields| {
        Box::new(azure::Azure::read(fields))
    }),
    section("aks", "aks", "A node of Azure's AKS.", |fields| Box::new(aks::Aks::read(fields))),
    section("oraclecloud", "oraclecloud", "An instance of Oracle Cloud.", |fields| {
        Box::new(oraclecloud::OracleCloud::read(fields))
    }),
    section("digitalocean", "digitalocean", "A droplet of DigitalOcean.", |fields| {
        Box::new(digitalocean::DigitalOcean::read(fields))
    }),
    Kind { name: "dynatrace", make: Make::Plain(|| Box::new(dynatrace::Dynatrace)) },
    section("heroku", "heroku", "A dyno of Heroku.", |fields| {
        Box::new(heroku::Heroku::read(fields))
    }),
];

/// Detectors that only the Collector has. Their sections have the same names.
pub(super) const ABSENT: [&str; 14] = [
    "akamai",
    "alibaba_ecs",
    "azureappservice",
    "azurecontainerapps",
    "consul",
    "hetzner",
    "ibmcloud_classic",
    "ibmcloud_vpc",
    "nova",
    "openshift",
    "scaleway",
    "tencent_cvm",
    "upcloud",
    "vultr",
];

const fn section(
    name: &'static str,
    key: &'static str,
    doc: &'static str,
    read: fn(&mut Fields<'_>) -> Box<dyn Detector>,
) -> Kind {
    Kind { name, make: Make::WithSection(key, doc, read) }
}

impl Kind {
    /// Reads its options. `names`: the detectors that the configuration wants.
    pub(super) fn read(&self, fields: &mut Fields<'_>, names: &[&str]) -> Box<dyn Detector> {
        match self.make {
            Make::Plain(make) => make(),
            Make::WithSection(key, doc, read) => {
                if fields.is_given(key) && !names.contains(&self.name) {
                    let message =
                        format!("has no effect: `detectors` does not name `{}`", self.name);
                    fields.warn_at(key, &message);
                }
                fields.section_or_default(key, doc, read)
            }
        }
    }
}
