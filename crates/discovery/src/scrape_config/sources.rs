//! The options of sources: `static_configs` and `*_sd_configs`.

use std::time::Duration;

use sluice_config::Fields;
use sluice_net::client::Origin;
pub use sluice_net::dns::RecordKind as DnsRecord;
use sluice_tail::Glob;

use super::duration;
use super::kubernetes::KubernetesSd;
use crate::group::Group;
use crate::http_config::{Credentials, HttpConfig};
use crate::labels::{Labels, Text};

/// Where targets come from.
#[derive(Clone, Debug)]
pub enum SourceConfig {
    Static(Vec<Group>),
    File(FileSd),
    Http(Box<HttpSd>),
    Dns(DnsSd),
    Kubernetes(Box<KubernetesSd>),
}

/// Files with groups, in JSON or YAML.
#[derive(Clone, Debug)]
pub struct FileSd {
    pub files: Vec<Glob>,
    pub refresh_interval: Duration,
}

/// A URL that answers with groups.
#[derive(Clone, Debug)]
pub struct HttpSd {
    pub url: String,
    pub http: HttpConfig,
    pub refresh_interval: Duration,
}

/// Names that are looked up.
#[derive(Clone, Debug)]
pub struct DnsSd {
    pub names: Vec<Text>,
    pub record: DnsRecord,
    /// Of the targets; a record of the type SRV has its own.
    pub port: u16,
    pub refresh_interval: Duration,
}

/// Kinds of service discovery that Prometheus has and this build does not.
const OTHERS: [&str; 32] = [
    "aws",
    "azure",
    "consul",
    "digitalocean",
    "docker",
    "dockerswarm",
    "ec2",
    "ecs",
    "elasticache",
    "eureka",
    "gce",
    "hetzner",
    "ionos",
    "kuma",
    "lightsail",
    "linode",
    "marathon",
    "msk",
    "nerve",
    "nomad",
    "oci",
    "openstack",
    "outscale",
    "ovhcloud",
    "puppetdb",
    "rds",
    "scaleway",
    "serverset",
    "stackit",
    "triton",
    "uyuni",
    "vultr",
];

/// Reads all sources of a job. `is_plain`: no rule changes the targets' addresses.
pub(super) fn read(fields: &mut Fields<'_>, is_plain: bool) -> Vec<SourceConfig> {
    let mut sources = Vec::new();
    let doc = "Targets, and labels that they share.";
    let groups = fields.sections("static_configs", doc, |fields| read_static(fields, is_plain));
    if !groups.is_empty() {
        let numbered = groups.into_iter().enumerate();
        let keyed = numbered.map(|(at, group)| Group { key: at.to_string().into(), ..group });
        sources.push(SourceConfig::Static(keyed.collect()));
    }
    let doc = "Files with groups of targets. They are read again when they change.";
    let files = fields.sections("file_sd_configs", doc, read_file);
    sources.extend(files.into_iter().map(SourceConfig::File));
    let doc = "URLs that answer with groups of targets.";
    let urls = fields.sections("http_sd_configs", doc, read_http);
    sources.extend(urls.into_iter().map(|http| SourceConfig::Http(Box::new(http))));
    let doc = "Names whose records are targets.";
    let names = fields.sections("dns_sd_configs", doc, read_dns);
    sources.extend(names.into_iter().map(SourceConfig::Dns));
    let doc = "Objects of Kubernetes that become targets. They are watched.";
    let objects = fields.sections("kubernetes_sd_configs", doc, KubernetesSd::read);
    let objects = objects.into_iter().flatten();
    sources.extend(objects.map(|config| SourceConfig::Kubernetes(Box::new(config))));
    for kind in OTHERS {
        let instead = "this kind of service discovery; use `http_sd_configs` or `file_sd_configs`";
        fields.not_yet(&format!("{kind}_sd_configs"), instead);
    }
    sources
}

fn read_static(fields: &mut Fields<'_>, is_plain: bool) -> Group {
    let targets = fields.texts("targets", "Addresses: `host:port`.");
    if !fields.is_present("targets") && !fields.is_present("labels") {
        fields.warn("is empty: it has no targets");
    }
    if let Some(url) = targets.iter().find(|target| is_plain && target.contains('/')) {
        let message = format!("has `{url}`, which is not `host:port`");
        let hint = "set `scheme` and `metrics_path` for the rest of the URL";
        fields.error_at_with_hint("targets", &message, hint);
    }
    let labels = fields.text_map("labels", "Labels of all targets of the group.");
    if labels.iter().any(|(name, _)| name.is_empty()) {
        fields.error_at("labels", "has an empty name");
    }
    let labels: Labels = labels.into_iter().collect();
    Group::new(Text::default(), targets.into_iter().map(Text::from), labels)
}

fn read_interval(fields: &mut Fields<'_>, default_s: u64) -> Duration {
    let default = Duration::from_secs(default_s);
    let doc = "Time from one look to the next.";
    duration(fields, "refresh_interval", Some(default), doc).unwrap_or(default)
}

fn read_file(fields: &mut Fields<'_>) -> FileSd {
    let doc = "Paths that end with `.json`, `.yml` or `.yaml`; the last part may have one `*`.";
    let paths = fields.texts("files", doc);
    if paths.is_empty() {
        fields.error_missing("files");
    }
    let mut files = Vec::new();
    for path in paths {
        match pattern(&path) {
            Ok(glob) => files.push(glob),
            Err(reason) => fields.error_at("files", &format!("has `{path}`, which {reason}")),
        }
    }
    FileSd { files, refresh_interval: read_interval(fields, 300) }
}

/// A pattern of file names, as Prometheus restricts them.
fn pattern(path: &str) -> Result<Glob, String> {
    let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
    if !["json", "yml", "yaml", "JSON", "YML", "YAML"].contains(&ending) {
        return Err("does not end with `.json`, `.yml` or `.yaml`".to_owned());
    }
    glob(path)
}

/// A pattern whose last part only may have a `*`.
pub(super) fn glob(path: &str) -> Result<Glob, String> {
    if path.split_once('*').is_some_and(|(_, after)| after.contains('/')) {
        return Err("has a `*` before the last part".to_owned());
    }
    Glob::new(path)
}

fn read_http(fields: &mut Fields<'_>) -> HttpSd {
    let url = fields.required_string("url", "URL that is asked for groups.");
    if !url.is_empty()
        && let Err(reason) = Origin::of(&url)
    {
        fields.error_at("url", &format!("cannot be used: {reason}"));
    }
    let http = HttpConfig::read(fields);
    refuse_oauth2(&http, fields);
    HttpSd { url, http, refresh_interval: read_interval(fields, 60) }
}

pub(super) fn refuse_oauth2(http: &HttpConfig, fields: &mut Fields<'_>) {
    if matches!(http.credentials, Some(Credentials::OAuth2(_))) {
        let message = "is not in this build of Sluice for service discovery";
        fields.error_at_with_hint("oauth2", message, "use `basic_auth` or `authorization`");
    }
}

fn read_dns(fields: &mut Fields<'_>) -> DnsSd {
    let names = fields.texts("names", "Names to look up.");
    if names.is_empty() || names.iter().any(String::is_empty) {
        fields.error_missing("names");
    }
    let records = [
        ("SRV", DnsRecord::Srv),
        ("A", DnsRecord::A),
        ("AAAA", DnsRecord::Aaaa),
        ("MX", DnsRecord::Mx),
        ("NS", DnsRecord::Ns),
    ];
    let record = fields.choice("type", DnsRecord::Srv, &records, "Type of the records.");
    let doc = "Port of the targets; records of the type SRV have their own.";
    let port = fields.integer("port", 0, 0..=u16::MAX, doc);
    if port == 0 && record != DnsRecord::Srv {
        fields.error_missing("port");
    }
    let names = names.into_iter().map(Text::from).collect();
    DnsSd { names, record, port, refresh_interval: read_interval(fields, 30) }
}
