//! The options, with the Collector's names and meanings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_config::{Fields, Pattern, nearest};
use sluice_discovery::{Credentials, HttpConfig, ProxyConfig, SecretSource};
use sluice_kubernetes::Access;
use sluice_net::client::Origin;
use sluice_net::tls::{ClientTlsOptions, Pem, TlsOptions};

use super::convert::{
    ATTRIBUTES, AttributeChoice, Choice, Filter, Groups, METRICS, Settings, Strategy,
};

const INTERVAL: Duration = Duration::from_secs(10);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);
const INITIAL_DELAY: Duration = Duration::from_secs(1);
/// Files of the service account in each pod.
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const AUTHORITY_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
/// Ports of kubelets: the one that asks for credentials, and the other.
const SECURE_PORT: u16 = 10250;
const READ_ONLY_PORT: u16 = 10255;

#[derive(Clone)]
pub struct KubeletStatsConfig {
    pub(super) interval: Duration,
    pub(super) initial_delay: Duration,
    pub(super) timeout: Duration,
    pub(super) source: Source,
    /// The API server that is asked for more.
    pub(super) cluster: Option<Access>,
    /// The node, if its capacity is needed.
    pub(super) node: Option<String>,
    pub(super) settings: Arc<Settings>,
}

/// Where the kubelet is, and who we are.
#[derive(Clone)]
pub(super) enum Source {
    Direct { endpoint: Endpoint, http: Box<HttpConfig> },
    Proxied { access: Access, node: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Url(String),
    /// This host's name, and what stands around it.
    Host {
        scheme: &'static str,
        port: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthType {
    Tls,
    ServiceAccount,
    KubeConfig,
    None,
}

impl KubeletStatsConfig {
    pub fn read(fields: &mut Fields<'_>) -> KubeletStatsConfig {
        let doc = "Time from one scrape to the next.";
        let range = SHORTEST_INTERVAL..=Duration::MAX;
        let interval = fields.duration_in("collection_interval", INTERVAL, range, doc);
        let doc = "Time before the first scrape.";
        let initial_delay = fields.duration("initial_delay", INITIAL_DELAY, doc);
        let doc = "A scrape may take this long. 0: the interval.";
        let timeout = fields.duration("timeout", Duration::ZERO, doc);
        let timeout = if timeout.is_zero() { interval } else { timeout };
        let source = read_source(fields);
        let settings = read_settings(fields);
        let doc = "The API server that is asked for the volumes behind claims, for \
                   `k8s.volume.type`, and for the node's capacity. Unset: none is asked.";
        let cluster = fields.section("k8s_api_config", doc, |fields| {
            let types = [
                ("serviceAccount", AuthType::ServiceAccount),
                ("none", AuthType::None),
                ("kubeConfig", AuthType::KubeConfig),
            ];
            let doc = "Who we are for the API server: the service account of our pod, no one, or \
                       the user of the kubeconfig (`KUBECONFIG`, or `~/.kube/config`).";
            let auth_type = fields.choice("auth_type", AuthType::ServiceAccount, &types, doc);
            let context = read_api_options(fields, auth_type);
            match auth_type {
                AuthType::KubeConfig => Access::Kubeconfig { file: None, context },
                AuthType::None => Access::Anonymous,
                AuthType::Tls | AuthType::ServiceAccount => Access::ServiceAccount,
            }
        });
        let doc = "Name of the node, for metrics that are a part of its capacity.";
        let node = fields.non_empty_string("node", doc);
        if settings.needs_node() && (node.is_none() || cluster.is_none()) {
            let names = "`node` and `k8s_api_config`";
            let message =
                format!("needs {names} for metrics that are a part of the node's capacity");
            let hint = "set `node: ${env:K8S_NODE_NAME}`, a variable from `spec.nodeName`";
            fields.error_with_hint(&message, hint);
        }
        let node = node.filter(|_| settings.needs_node());
        let settings = Arc::new(settings);
        KubeletStatsConfig { interval, initial_delay, timeout, source, cluster, node, settings }
    }
}

/// Reads the options of API servers beside `auth_type`; answers the context of the kubeconfig.
fn read_api_options(fields: &mut Fields<'_>, auth_type: AuthType) -> Option<String> {
    let doc = "Context of the kubeconfig. Unset: its current one.";
    let context = fields.non_empty_string("context", doc);
    if context.is_some() && auth_type != AuthType::KubeConfig {
        fields.warn_at("context", "has no effect: it is for `auth_type: kubeConfig`");
    }
    let why = "there are few requests to the API server";
    fields.no_effect("kube_api_qps", why);
    fields.no_effect("kube_api_burst", why);
    context
}

fn read_source(fields: &mut Fields<'_>) -> Source {
    let types = [
        ("tls", AuthType::Tls),
        ("serviceAccount", AuthType::ServiceAccount),
        ("kubeConfig", AuthType::KubeConfig),
        ("none", AuthType::None),
    ];
    let doc = "Who we are for the kubelet: the owner of a certificate, the service account of our \
               pod, the user of the kubeconfig, by whose API server the kubelet is asked, or no \
               one.";
    let auth_type = fields.choice("auth_type", AuthType::Tls, &types, doc);
    let doc = "The kubelet: `host:port` or a URL; with `kubeConfig` the name of its node. Unset: \
               this host, with the port 10250, or 10255 for `auth_type: none`.";
    let endpoint = fields.non_empty_string("endpoint", doc);
    let tls = read_tls(fields, auth_type);
    let context = read_api_options(fields, auth_type);
    fields.no_effect("dialer", "`timeout` bounds the whole scrape");
    if auth_type == AuthType::KubeConfig {
        let access = Access::Kubeconfig { file: None, context };
        if endpoint.is_none() {
            fields.error_at("endpoint", "must be the node's name with `auth_type: kubeConfig`");
        }
        return Source::Proxied { access, node: endpoint.unwrap_or_default() };
    }
    let is_open = auth_type == AuthType::None;
    let (scheme, port) = if is_open { ("http", READ_ONLY_PORT) } else { ("https", SECURE_PORT) };
    let endpoint = match endpoint {
        None => Endpoint::Host { scheme, port },
        Some(text) => {
            let has_scheme = text.starts_with("http://") || text.starts_with("https://");
            let url = if has_scheme { text } else { format!("{scheme}://{text}") };
            if let Err(error) = Origin::of(&url) {
                fields.error_at("endpoint", &format!("cannot be used: {error}"));
            }
            Endpoint::Url(url)
        }
    };
    let token = SecretSource::File(PathBuf::from(TOKEN_FILE));
    let token = Credentials::Header { scheme: "Bearer".to_owned(), credentials: token };
    let http = HttpConfig {
        credentials: (auth_type == AuthType::ServiceAccount).then_some(token),
        tls,
        follow_redirects: false,
        proxy: ProxyConfig::Environment,
        ..HttpConfig::default()
    };
    Source::Direct { endpoint, http: Box::new(http) }
}

/// The options of TLS stand among the others.
fn read_tls(fields: &mut Fields<'_>, auth_type: AuthType) -> ClientTlsOptions {
    let doc = "Authorities that may sign the kubelet's certificate beside the system's, by default \
               with `serviceAccount` the cluster's";
    let authorities = Pem::read(fields, "ca_file", "ca_pem", doc);
    let doc = "Our certificate for `auth_type: tls`, followed by its chain";
    let certificate = Pem::read(fields, "cert_file", "cert_pem", doc);
    let key = Pem::read(fields, "key_file", "key_pem", "The private key of our certificate");
    let doc = "Accept any certificate of the kubelet: it may be an impostor.";
    let insecure_skip_verify = fields.boolean("insecure_skip_verify", false, doc);
    let why = "the system's authorities are always accepted";
    fields.no_effect("include_system_ca_certs_pool", why);
    let protocol = TlsOptions::read_protocol(fields);
    match (auth_type, &certificate, &key) {
        (AuthType::Tls, Some(_), Some(_)) => {}
        (AuthType::Tls, ..) => {
            let hint = "set both, or another `auth_type`";
            fields.error_with_hint("needs `cert_file` and `key_file` for `auth_type: tls`", hint);
        }
        (AuthType::KubeConfig, ..) if insecure_skip_verify => {
            let hint = "set `insecure-skip-tls-verify` in the kubeconfig";
            fields.error_at_with_hint("insecure_skip_verify", "is not for `kubeConfig`", hint);
        }
        (AuthType::KubeConfig, ..) if authorities.is_some() => {
            fields.warn_at("ca_file", "has no effect: the kubeconfig has the authorities");
        }
        (_, Some(_), _) => {
            fields.warn_at("cert_file", "has no effect: it is for `auth_type: tls`");
        }
        _ => {}
    }
    let is_of_pod = auth_type == AuthType::ServiceAccount;
    let of_pod = is_of_pod.then(|| Pem::File(PathBuf::from(AUTHORITY_FILE)));
    let common = TlsOptions {
        authorities: authorities.or(of_pod),
        certificate: certificate.filter(|_| auth_type == AuthType::Tls),
        key: key.filter(|_| auth_type == AuthType::Tls),
        include_system_authorities: true,
        ..protocol
    };
    ClientTlsOptions { common, insecure_skip_verify, ..ClientTlsOptions::default() }
}

fn read_settings(fields: &mut Fields<'_>) -> Settings {
    let doc = "Metadata that `/pods` is asked for: `container.id`, `k8s.volume.type`. Containers \
               and volumes that it does not have are left out.";
    let known = ["container.id", "k8s.volume.type"];
    let labels = fields.name_list("extra_metadata_labels", &known, &[], doc);
    if labels.len() > 1 && labels[1..].contains(&labels[0]) {
        fields.error_at("extra_metadata_labels", "has a name twice");
    }
    let doc = "Objects whose metrics are sent. Unset: `container`, `pod` and `node`.";
    let known = ["container", "pod", "node", "volume"];
    let names = fields.name_list("metric_groups", &known, &[], doc);
    let names: Vec<&str> = match fields.is_given("metric_groups") {
        true => names.iter().map(String::as_str).collect(),
        false => vec!["container", "pod", "node"],
    };
    if fields.is_empty_list("metric_groups") {
        fields.warn_at("metric_groups", "is empty: no metrics are sent");
    }
    let has = |name: &str| names.contains(&name);
    let (container, pod, node, volume) = (has("container"), has("pod"), has("node"), has("volume"));
    let doc = "Send the network metrics of all interfaces, not only of the default one.";
    let (of_pods, of_nodes) =
        fields.section_or_default("collect_all_network_interfaces", doc, |fields| {
            let pods = fields.boolean("pod", false, "Those of pods.");
            (pods, fields.boolean("node", false, "Those of the node."))
        });
    Settings {
        metrics: read_metrics(fields),
        attributes: read_attributes(fields),
        groups: Groups { container, pod, node, volume },
        container_ids: labels.iter().any(|label| label == "container.id"),
        volume_types: labels.iter().any(|label| label == "k8s.volume.type"),
        all_interfaces_of_nodes: of_nodes,
        all_interfaces_of_pods: of_pods,
    }
}

fn read_metrics(fields: &mut Fields<'_>) -> Vec<Choice> {
    let mut choices = Choice::defaults();
    let doc = "Metrics by their names, each with what differs from its defaults.";
    let read = fields.named_sections("metrics", doc, |name, fields| {
        let place = METRICS.iter().position(|it| it.name == name);
        let metric = place.map(|place| &METRICS[place]);
        let doc = "Send it. The table above has what is sent by default.";
        let is_on = fields.boolean("enabled", metric.is_none_or(|it| it.is_on), doc);
        let all = &["interface", "direction", "fs.type"][..];
        let known = metric.map_or(all, |it| it.attributes());
        let mut choice = Choice { is_on, keeps: [true; 2], strategy: Strategy::Sum };
        if !known.is_empty() {
            let doc = "Attributes of its points; those without a difference become one. Unset: \
                       all.";
            let kept = fields.name_list("attributes", known, &[], doc);
            if fields.is_given("attributes") {
                let keeps =
                    |at: usize| known.get(at).is_some_and(|it| kept.iter().any(|k| k == it));
                choice.keeps = [keeps(0), keeps(1)];
            }
            let strategies = [
                ("sum", Strategy::Sum),
                ("avg", Strategy::Avg),
                ("min", Strategy::Min),
                ("max", Strategy::Max),
            ];
            let doc = "The way in which points without a difference become one.";
            choice.strategy =
                fields.choice("aggregation_strategy", Strategy::Sum, &strategies, doc);
        }
        if place.is_none() {
            unknown(fields, name, "metric", METRICS.iter().map(|it| it.name));
        }
        place.map(|place| (place, choice))
    });
    for (place, choice) in read.into_iter().flatten() {
        choices[place] = choice;
    }
    choices
}

fn read_attributes(fields: &mut Fields<'_>) -> Vec<AttributeChoice> {
    let default =
        |(_, is_on): &(&str, bool)| AttributeChoice { is_on: *is_on, ..AttributeChoice::default() };
    let mut choices: Vec<AttributeChoice> = ATTRIBUTES.iter().map(default).collect();
    let doc = "Attributes of resources by their names, each with what differs from its defaults.";
    let read = fields.named_sections("resource_attributes", doc, |name, fields| {
        let place = ATTRIBUTES.iter().position(|(known, _)| *known == name);
        let doc = "Send it. The table above has what is sent by default.";
        let is_on = place.is_none_or(|place| ATTRIBUTES[place].1);
        let is_on = fields.boolean("enabled", is_on, doc);
        let doc = "Send only resources for whose value one of these filters matches.";
        let include = fields.sections("metrics_include", doc, read_filter);
        let doc = "Send no resources for whose value one of these filters matches.";
        let exclude = fields.sections("metrics_exclude", doc, read_filter);
        if place.is_none() {
            unknown(fields, name, "attribute", ATTRIBUTES.iter().map(|(name, _)| *name));
        }
        let (include, exclude) =
            (include.into_iter().flatten().collect(), exclude.into_iter().flatten().collect());
        place.map(|place| (place, AttributeChoice { is_on, include, exclude }))
    });
    for (place, choice) in read.into_iter().flatten() {
        choices[place] = choice;
    }
    choices
}

fn read_filter(fields: &mut Fields<'_>) -> Option<Filter> {
    let strict = fields.non_empty_string("strict", "The value.");
    let doc = "Regular expression that matches anywhere in the value.";
    let regexp = fields.parsed("regexp", "a regular expression", None, doc, Pattern::new);
    match (strict, regexp) {
        (Some(text), None) => Some(Filter::Strict(text)),
        (None, Some(pattern)) => Some(Filter::Regexp(pattern)),
        _ => {
            fields.error("needs `strict` or `regexp`, and not both");
            None
        }
    }
}

fn unknown(
    fields: &mut Fields<'_>,
    name: &str,
    what: &str,
    known: impl Iterator<Item = &'static str>,
) {
    let message = format!("is no {what} of this receiver");
    match nearest(name, known) {
        Some(nearest) => {
            fields.error_with_hint(&message, &format!("did you mean `{nearest}`?"));
        }
        None => fields.error(&message),
    }
}

#[cfg(test)]
mod tests {
    use sluice_config::read_text;

    use super::*;

    fn read(text: &str) -> (KubeletStatsConfig, Vec<String>) {
        let (config, diagnostics) =
            read_text("receivers.kubeletstats", text, KubeletStatsConfig::read);
        let said = diagnostics.items().iter().map(|item| diagnostics.line(item)).collect();
        (config, said)
    }

    fn direct(text: &str) -> (Endpoint, HttpConfig) {
        match read(text).0.source {
            Source::Direct { endpoint, http } => (endpoint, *http),
            Source::Proxied { .. } => panic!("it is not proxied"),
        }
    }

    #[test]
    fn endpoints_are_those_of_the_collector() {
        let url = |text: &str| Endpoint::Url(text.to_owned());
        let secure = Endpoint::Host { scheme: "https", port: 10250 };
        for (text, expected) in [
            ("auth_type: serviceAccount", secure),
            ("auth_type: none", Endpoint::Host { scheme: "http", port: 10255 }),
            ("{auth_type: none, endpoint: 'n:1'}", url("http://n:1")),
            ("{auth_type: none, endpoint: 'https://n:1'}", url("https://n:1")),
            ("{auth_type: serviceAccount, endpoint: 'n:10250'}", url("https://n:10250")),
        ] {
            assert_eq!(direct(text).0, expected, "{text}");
        }
    }

    /// Guarantee: the token of the service account is that in its file at each request, and its
    /// authority is trusted unless the options name another.
    #[test]
    fn the_service_account_is_that_of_the_pod() {
        let (_, http) = direct("auth_type: serviceAccount");
        let token = SecretSource::File(TOKEN_FILE.into());
        let expected = Credentials::Header { scheme: "Bearer".to_owned(), credentials: token };
        assert_eq!(http.credentials, Some(expected));
        let authorities = |http: &HttpConfig| http.tls.common.authorities.clone();
        assert_eq!(authorities(&http), Some(Pem::File(AUTHORITY_FILE.into())));
        let (_, http) = direct("{auth_type: serviceAccount, ca_file: /a}");
        assert_eq!(authorities(&http), Some(Pem::File("/a".into())));
    }

    #[test]
    fn mistakes_are_named() {
        for (options, expected) in [
            ("", "needs `cert_file` and `key_file` for `auth_type: tls`"),
            ("{auth_type: none, endpoint: 'http://'}", "endpoint` cannot be used"),
            ("{auth_type: none, collection_interval: 0s}", "collection_interval` must be"),
            ("{auth_type: kubeConfig}", "endpoint` must be the node's name"),
            (
                "{auth_type: kubeConfig, endpoint: n, insecure_skip_verify: true}",
                "insecure_skip_verify` is not for `kubeConfig`",
            ),
            ("{auth_type: none, cert_file: a}", "cert_file` has no effect"),
            ("{auth_type: none, context: a}", "context` has no effect"),
            ("{auth_type: none, metric_groups: [pods]}", "has `pods`, which is not one"),
            ("{auth_type: none, metric_groups: []}", "metric_groups` is empty"),
            ("{auth_type: none, extra_metadata_labels: [x]}", "has `x`, which is not one"),
            (
                "{auth_type: none, extra_metadata_labels: [container.id, container.id]}",
                "extra_metadata_labels` has a name twice",
            ),
            (
                "{auth_type: none, metrics: {container.cpu.utilization: {enabled: false}}}",
                "metrics.container.cpu.utilization` is no metric of this receiver",
            ),
            (
                "{auth_type: none, metrics: {k8s.node.uptime: {attributes: [a]}}}",
                "k8s.node.uptime` has no option `attributes`",
            ),
            (
                "{auth_type: none, metrics: {k8s.pod.network.io: {attributes: [fs.type]}}}",
                "has `fs.type`, which is not one",
            ),
            (
                "{auth_type: none, resource_attributes: {k8s.pod.names: {enabled: true}}}",
                "resource_attributes.k8s.pod.names` is no attribute of this receiver",
            ),
            (
                "{auth_type: none, resource_attributes: {k8s.pod.uid: {metrics_include: [{}]}}}",
                "needs `strict` or `regexp`",
            ),
            (
                "{auth_type: none, metrics: {k8s.pod.cpu.node.utilization: {enabled: true}}}",
                "needs `node` and `k8s_api_config`",
            ),
        ] {
            let said = read(options).1;
            assert!(said.len() == 1 && said[0].contains(expected), "{options}: {said:?}");
        }
    }

    /// Guarantee: options of the Collector's own examples are taken.
    #[test]
    fn options_take_effect() {
        let (config, said) = read(
            "{auth_type: none, timeout: 3s, node: n, k8s_api_config: {auth_type: none}, \
             metric_groups: [volume], extra_metadata_labels: [k8s.volume.type], metrics: {\
             k8s.pod.memory.node.utilization: {enabled: true}, \
             k8s.pod.network.io: {attributes: [direction], aggregation_strategy: max}}}",
        );
        assert_eq!(said, Vec::<String>::new());
        assert_eq!((config.interval, config.timeout), (INTERVAL, Duration::from_secs(3)));
        assert_eq!(config.node.as_deref(), Some("n"));
        let settings = &config.settings;
        let groups = Groups { container: false, pod: false, node: false, volume: true };
        assert_eq!(settings.groups, groups);
        assert!(settings.needs_pods() && settings.needs_node() && !settings.container_ids);
        let io = METRICS.iter().position(|it| it.name == "k8s.pod.network.io").expect("is known");
        let io = &settings.metrics[io];
        assert_eq!((io.is_on, io.keeps, io.strategy), (true, [false, true], Strategy::Max));
        assert_eq!(read("auth_type: none").0.timeout, INTERVAL);
    }
}
