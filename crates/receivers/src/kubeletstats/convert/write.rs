//! One resource with its metrics as OTLP has it.

use sluice_otlp::wire::{write_len_field, write_message};
use sluice_prometheus::build::{attribute, double, fixed64};

use super::Settings;
use super::metrics::{METRICS, Metric, Of, Shape};
use super::points::{Number, Point, View, points};
use super::resource::Attributes;

/// The Collector's, for which rules behind this receiver may look.
const SCOPE: &str =
    "github.com/open-telemetry/opentelemetry-collector-contrib/receiver/kubeletstatsreceiver";
/// The release that writes them, as in the Collector.
const SCOPE_VERSION: &str = env!("CARGO_PKG_VERSION");

const CUMULATIVE: [u8; 2] = [2 << 3, 2];
const MONOTONIC: [u8; 2] = [3 << 3, 1];

/// Writes the metrics of an object; answers the number of their points. Without any, and if
/// filters leave it out, nothing is written.
pub(super) fn resource(
    out: &mut Vec<u8>,
    settings: &Settings,
    of: Of,
    attributes: &Attributes<'_>,
    view: &View<'_>,
) -> u32 {
    let Some(sent) = attributes.sent(&settings.attributes) else { return 0 };
    let (before, mut items) = (out.len(), 0);
    write_message(out, 1, 2, |out| {
        write_message(out, 1, 2, |out| {
            for (name, value) in sent {
                attribute(out, 1, name, value);
            }
        });
        write_message(out, 2, 2, |out| {
            write_message(out, 1, 1, |out| {
                write_len_field(out, 1, SCOPE.as_bytes());
                write_len_field(out, 2, SCOPE_VERSION.as_bytes());
            });
            for (metric, choice) in METRICS.iter().zip(&settings.metrics) {
                if metric.of == of && choice.is_on {
                    let points = points(metric, choice, view);
                    items += points.len() as u32;
                    if !points.is_empty() {
                        write_message(out, 2, 2, |out| content(out, metric, &points, view));
                    }
                }
            }
        });
    });
    if items == 0 {
        out.truncate(before);
    }
    items
}

fn content(out: &mut Vec<u8>, metric: &Metric, points: &[Point<'_>], view: &View<'_>) {
    write_len_field(out, 1, metric.name.as_bytes());
    write_len_field(out, 2, metric.description.as_bytes());
    write_len_field(out, 3, metric.unit.as_bytes());
    let field = if metric.shape == Shape::Gauge { 5 } else { 7 };
    write_message(out, field, 1, |out| {
        for Point { number, attributes } in points {
            write_message(out, 1, 1, |out| {
                if let Some(start_ns) = view.start_ns {
                    fixed64(out, 2, start_ns);
                }
                fixed64(out, 3, view.now_ns);
                match *number {
                    Number::Double(number) => double(out, 4, number),
                    Number::Int(number) => fixed64(out, 6, number as u64),
                }
                for (name, value) in metric.attributes().iter().zip(attributes) {
                    if let Some(value) = value {
                        attribute(out, 7, name, value);
                    }
                }
            });
        }
        if metric.shape != Shape::Gauge {
            out.extend_from_slice(&CUMULATIVE);
        }
        if metric.shape == Shape::Counter {
            out.extend_from_slice(&MONOTONIC);
        }
    });
}
