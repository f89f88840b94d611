//! Options that say where the API server is, and who we are.

use sluice_config::Fields;

use crate::access::Access;

#[derive(Clone, Copy, PartialEq, Eq)]
enum AuthType {
    ServiceAccount,
    None,
    KubeConfig,
}

impl Access {
    /// Reads `auth_type` and `context`, as the Collector has them.
    pub fn read(fields: &mut Fields<'_>) -> Access {
        let types = [
            ("serviceAccount", AuthType::ServiceAccount),
            ("none", AuthType::None),
            ("kubeConfig", AuthType::KubeConfig),
        ];
        let doc = "Who we are for the API server: the service account of our pod, no one, or the \
                   user of the kubeconfig (`KUBECONFIG`, or `~/.kube/config`).";
        let auth_type = fields.choice("auth_type", AuthType::ServiceAccount, &types, doc);
        let doc = "Context of the kubeconfig. Unset: its current one.";
        let context = fields.non_empty_string("context", doc);
        if context.is_some() && auth_type != AuthType::KubeConfig {
            fields.warn_at("context", "has no effect: it is for `auth_type: kubeConfig`");
        }
        match auth_type {
            AuthType::ServiceAccount => Access::ServiceAccount,
            AuthType::None => Access::Anonymous,
            AuthType::KubeConfig => Access::Kubeconfig { file: None, context },
        }
    }
}
