//! From configuration files to a plan, with everything that is wrong on the way.

use sluice_config::document::{Document, PrometheusReader};
use sluice_config::{Diagnostics, Environment};
use sluice_receivers::{RECEIVERS, ReceiverKinds};
use sluice_telemetry::exposition::{Naming, labels_of_resource};

use super::read::Read;
use super::{MetricsPlan, Plan, build};
use crate::catalog::Components;

/// Reads, checks and plans a configuration. There is a plan only if nothing is wrong.
pub fn load(locations: &[String], environment: &dyn Environment) -> (Option<Plan>, Diagnostics) {
    load_with(locations, environment, &RECEIVERS)
}

/// As [`load`], with these kinds of receivers instead of those of the build.
pub fn load_with(
    locations: &[String],
    environment: &dyn Environment,
    receivers: &ReceiverKinds,
) -> (Option<Plan>, Diagnostics) {
    let components = Components { receivers };
    let (document, mut diagnostics) = sluice_config::load(locations, environment, &components);
    let Some(document) = document else { return (None, diagnostics) };
    let read = Read::components(&document, receivers, &mut diagnostics);
    if diagnostics.has_errors() {
        return (None, diagnostics);
    }
    let metrics = metrics(&document);
    let plan = build::build(&document, read, metrics, &mut diagnostics);
    ((!diagnostics.has_errors()).then_some(plan), diagnostics)
}

fn metrics(document: &Document) -> Option<MetricsPlan> {
    let PrometheusReader { host, port, without_type_suffix, without_units, .. } =
        document.telemetry.readers.first()?.clone();
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let resource = document.telemetry.resource.iter();
    let constant_labels = labels_of_resource(
        resource.filter_map(|(name, value)| Some((name.as_str(), value.as_deref()?))),
    );
    let naming = Naming { without_type_suffix, without_units, constant_labels };
    Some(MetricsPlan { endpoint: format!("{host}:{port}"), naming })
}
