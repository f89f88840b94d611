//! The options of `kubernetes_sd_configs`.

use sluice_config::Fields;
use sluice_net::client::Origin;
use sluice_net::tls::{ClientTlsOptions, TlsOptions};

use super::sources::refuse_oauth2;
use crate::http_config::{HttpConfig, ProxyConfig};

/// Targets from the API of Kubernetes.
#[derive(Clone, Debug)]
pub struct KubernetesSd {
    pub role: Role,
    /// `None`: that of the pod's service account, or of the kubeconfig.
    pub api_server: Option<Origin>,
    pub kubeconfig_file: Option<String>,
    pub http: HttpConfig,
    /// Empty: all.
    pub namespaces: Vec<String>,
    pub own_namespace: bool,
    pub selectors: Vec<Selector>,
    pub attach_node: bool,
    pub attach_namespace: bool,
    pub attach_deployment: bool,
    pub attach_job: bool,
    pub attach_cron_job: bool,
}

/// The objects that become targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Pod,
    Service,
    Endpoints,
    EndpointSlice,
    Node,
    Ingress,
}

/// Which objects are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub role: Role,
    pub label: String,
    pub field: String,
}

const ROLES: [(&str, Role); 6] = [
    ("pod", Role::Pod),
    ("service", Role::Service),
    ("endpoints", Role::Endpoints),
    ("endpointslice", Role::EndpointSlice),
    ("node", Role::Node),
    ("ingress", Role::Ingress),
];

impl Role {
    pub(crate) fn name(self) -> &'static str {
        ROLES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }

    /// The objects that are looked at for this role.
    fn selectable(self) -> &'static [Role] {
        match self {
            Role::Pod => &[Role::Pod, Role::Node],
            Role::Service => &[Role::Service],
            Role::Endpoints => &[Role::Pod, Role::Service, Role::Endpoints],
            Role::EndpointSlice => &[Role::Pod, Role::Service, Role::EndpointSlice],
            Role::Node => &[Role::Node],
            Role::Ingress => &[Role::Ingress],
        }
    }
}

impl KubernetesSd {
    /// Reads one of `kubernetes_sd_configs`. Nothing without a role.
    pub fn read(fields: &mut Fields<'_>) -> Option<KubernetesSd> {
        let doc = "The objects that become targets.";
        let role = fields.optional_choice("role", &ROLES, doc);
        if !fields.is_present("role") {
            fields.error_missing("role");
        }
        let doc = "URL of the API server. Unset: that of the pod's service account.";
        let parse = |text: &str| Origin::of(text).map_err(|error| error.to_string());
        let api_server = fields.parsed("api_server", "a URL", None, doc, parse);
        let doc = "File that says where the API server is, and who we are.";
        let kubeconfig_file = fields.non_empty_string("kubeconfig_file", doc);
        let http = HttpConfig::read(fields);
        refuse_options(&http, fields);
        let doc = "The namespaces that are looked at. Unset: all.";
        let (own_namespace, namespaces) = fields.section_or_default("namespaces", doc, |fields| {
            let own = fields.boolean("own_namespace", false, "Our own namespace.");
            (own, fields.texts("names", "Names of namespaces."))
        });
        let doc = "Which objects are asked for.";
        let selectors = fields.sections("selectors", doc, Selector::read).into_iter().flatten();
        let selectors: Vec<Selector> = selectors.collect();
        let doc = "Labels of other objects.";
        let attach = fields.section_or_default("attach_metadata", doc, |fields| {
            let node = fields.boolean("node", false, "The node's.");
            let namespace = fields.boolean("namespace", false, "The namespace's.");
            let deployment = fields.boolean("deployment", false, "The deployment's.");
            let job = fields.boolean("job", false, "The job's.");
            [node, namespace, deployment, job, fields.boolean("cronjob", false, "The cron job's.")]
        });
        let [attach_node, attach_namespace, attach_deployment, attach_job, attach_cron_job] =
            attach;

        if api_server.is_some() && kubeconfig_file.is_some() {
            fields.error("has `api_server` and `kubeconfig_file`: only one of them can be used");
        }
        if api_server.is_none() && http != HttpConfig::default() {
            fields.error("has options of HTTP without `api_server`, which they are for");
        }
        if own_namespace && (api_server.is_some() || kubeconfig_file.is_some()) {
            fields.error("has `own_namespace`, which only the pod's service account tells");
        }
        let role = role?;
        for (at, selector) in selectors.iter().enumerate() {
            if !role.selectable().contains(&selector.role) {
                let names: Vec<&str> = role.selectable().iter().map(|role| role.name()).collect();
                let shown = selector.role.name();
                let names = names.join(", ");
                let message = format!("has the role `{shown}`: `{}` has only {names}", role.name());
                fields.error_at("selectors", &message);
            }
            if selectors[..at].iter().any(|other| other.role == selector.role) {
                let message = format!("has the role `{}` twice", selector.role.name());
                fields.error_at("selectors", &message);
            }
        }
        Some(KubernetesSd {
            role,
            api_server,
            kubeconfig_file,
            http,
            namespaces,
            own_namespace,
            selectors,
            attach_node,
            attach_namespace,
            attach_deployment,
            attach_job,
            attach_cron_job,
        })
    }
}

/// Options of other requests that those to API servers do not have.
fn refuse_options(http: &HttpConfig, fields: &mut Fields<'_>) {
    refuse_oauth2(http, fields);
    let what = "is not in this build of Sluice for the API of Kubernetes";
    let hint = "use a kubeconfig, which may have `proxy-url`";
    match http.proxy {
        ProxyConfig::None => {}
        ProxyConfig::Environment => {
            fields.error_at_with_hint("proxy_from_environment", what, hint);
        }
        ProxyConfig::Url(_) => fields.error_at_with_hint("proxy_url", what, hint),
    }
    let default = ClientTlsOptions::default().common;
    let versions = |tls: &TlsOptions| (tls.min_version, tls.max_version);
    if versions(&http.tls.common) != versions(&default) {
        let message = format!("has versions of TLS: the choice {what}");
        fields.error_at("tls_config", &message);
    }
    for (key, is_set, why) in [
        ("follow_redirects", http.follow_redirects, "a redirect counts as a failure"),
        ("enable_http2", http.http2, "the API server is asked over HTTP/1.1"),
    ] {
        if fields.is_given(key) && is_set {
            fields.warn_at(key, &format!("has no effect: {why}"));
        }
    }
}

/// The first term of a selector of fields that says no value. A comma behind a backslash is of a
/// value.
fn not_a_term(selector: &str) -> Option<&str> {
    let mut is_escaped = false;
    let mut terms = selector.split(|character: char| {
        let ends = character == ',' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        ends
    });
    terms.find(|term| !term.is_empty() && !term.contains('='))
}

impl Selector {
    fn read(fields: &mut Fields<'_>) -> Option<Selector> {
        let role = fields.optional_choice("role", &ROLES, "The objects that it selects.");
        if !fields.is_present("role") {
            fields.error_missing("role");
        }
        let label = fields.string("label", "", "Selector of labels.");
        let field = fields.string("field", "", "Selector of fields.");
        if let Some(term) = not_a_term(&field) {
            let message = format!("has the term `{term}`, which is no FIELD=VALUE or FIELD!=VALUE");
            fields.error_at("field", &message);
        }
        Some(Selector { role: role?, label, field })
    }
}
