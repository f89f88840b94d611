use sluice_config::Fields;
use sluice_otlp::Signal;

use crate::BuildError;
use crate::actions::{self, Actions};
use crate::matching::{self, Properties};

#[derive(Clone, Debug, Default)]
pub struct Config {
    pub actions: Actions,
    pub include: Option<Properties>,
    pub exclude: Option<Properties>,
}

pub fn read(fields: &mut Fields<'_>) -> Config {
    let include = "Only items with all of these properties are changed.";
    let exclude = "Of those, items with all of these properties are not changed.";
    Config {
        actions: actions::read(fields, "actions", "Actions on the attributes of every selected item, in this order."),
        include: fields.section("include", include, matching::read),
        exclude: fields.section("exclude", exclude, matching::read),
    }
}

/// What is left of `include` or `exclude` (that is its `name`) for items of one signal; nothing if
/// that is nothing, which the Collector allows for metrics only.
pub(super) fn restrict(
    name: &str,
    properties: Properties,
    signal: Signal,
    warnings: &mut Vec<String>,
) -> Result<Option<Properties>, BuildError> {
    let unfit = |message: String| Err(BuildError::Unfit { signal, message });
    let foreign = foreign_properties(&properties, signal);
    let is_refused = |property: &&&str| match signal {
        Signal::Traces => property.starts_with("log_"),
        Signal::Logs => ["services", "span_names", "span_kinds"].contains(property),
        Signal::Metrics => false,
    };
    if let Some(property) = foreign.iter().find(is_refused) {
        return unfit(format!("`{name}` cannot have `{property}`"));
    }
    if !foreign.is_empty() {
        let foreign: Vec<String> = foreign.iter().map(|property| format!("`{name}.{property}`")).collect();
        warnings.push(format!("{} cannot be matched against {signal} and has no effect there", foreign.join(" and ")));
    }
    let properties = properties.for_signal(signal);
    if !properties.is_empty() {
        return Ok(Some(properties));
    }
    let needed = match signal {
        Signal::Traces => "`services`, `span_names`, `span_kinds`, `attributes`, `resources` or `libraries`",
        Signal::Logs => {
            "`attributes`, `libraries`, `resources`, `log_bodies`, `log_severity_texts` or `log_severity_number`"
        }
        Signal::Metrics => {
            warnings.push(format!("`{name}` without `metric_names` or `resources` selects every metric"));
            return Ok(None);
        }
    };
    unfit(format!("`{name}` needs at least one of {needed}"))
}

/// The properties that are given although items of the signal do not have them.
fn foreign_properties(properties: &Properties, signal: Signal) -> Vec<&'static str> {
    let (traces, logs, metrics) = (signal == Signal::Traces, signal == Signal::Logs, signal == Signal::Metrics);
    let given = [
        ("services", properties.services.is_some(), traces),
        ("span_names", properties.span_names.is_some(), traces),
        ("span_kinds", properties.span_kinds.is_some(), traces),
        ("log_bodies", properties.log_bodies.is_some(), logs),
        ("log_severity_texts", properties.log_severity_texts.is_some(), logs),
        ("log_severity_number", properties.log_severity_number.is_some(), logs),
        ("metric_names", properties.metric_names.is_some(), metrics),
        ("attributes", !properties.attributes.is_empty(), !metrics),
        ("libraries", !properties.libraries.is_empty(), !metrics),
    ];
    given.into_iter().filter(|(_, given, fits)| *given && !fits).map(|(name, ..)| name).collect()
}
