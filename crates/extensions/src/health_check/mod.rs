//! `health_check`: 200 from start to shutdown. The engine serves it: it alone knows the deliveries.

use sluice_config::{ComponentKind, Fields, Kind};

use crate::extension::{Extension, HealthCheck};

pub(crate) const KIND: ComponentKind<Extension> = ComponentKind::new(
    Kind::new(
        "health_check",
        "Answers 200 once all components have started and until shutdown begins, even while \
         senders are refused. The body names deliveries and disks in trouble.",
    )
    .aliases(&["healthcheck", "healthcheckv2"]),
    |fields| Extension { health_check: Some(read(fields)), ..Extension::default() },
);

fn read(fields: &mut Fields<'_>) -> HealthCheck {
    fields.no_effect("check_collector_pipeline", "the body names the deliveries in trouble");
    fields.no_effect("response_body", "the body names the deliveries in trouble");
    fields.not_yet("tls", "the health check over TLS");
    fields.no_effect("use_v2", "there is one health check");
    let doc = "Address to listen on, `host:port`.";
    let endpoint = fields.string("endpoint", "localhost:13133", doc);
    let doc = "Path of the check, for any HTTP method. A path that ends in `/` includes all paths \
               below it.";
    let path = fields.string("path", "/", doc);
    if !path.starts_with('/') {
        fields.error_at("path", "must begin with `/`");
    }
    HealthCheck { endpoint, path }
}
