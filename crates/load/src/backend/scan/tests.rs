//! The scan against requests of the generator, of the official types, and broken ones.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{
    Histogram, HistogramDataPoint, Metric, ResourceMetrics, ScopeMetrics,
};
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use prost::Message as _;
use sluice_net::grpc::frame::PREFIX_BYTES;
use sluice_otlp::{Encoding, Signal};

use super::{Item, scan};
use crate::generate::Shape;
use crate::generate::template::Template;
use crate::identity::{Identity, Stamp};

const FIRST: Identity = Identity(3 << 48 | 500);
const TIME: u64 = 1_700_000_000_123_456_789;

fn request(signal: Signal) -> Bytes {
    let template = Template::new(&Shape::of(signal), Encoding::Identity);
    let mut frame = template.packed.frame.to_vec();
    template.stamp(&mut frame, Stamp { identity: FIRST, sent_unix_ns: TIME }, None);
    frame.split_off(PREFIX_BYTES).into()
}

fn scanned(signal: Signal, message: &[u8]) -> Vec<Item> {
    let mut items = Vec::new();
    scan(signal, &Bytes::copy_from_slice(message), &mut items).unwrap();
    items
}

fn expected(count: u64) -> Vec<Item> {
    (0..count)
        .map(|index| Some(Stamp { identity: Identity(FIRST.0 + index), sent_unix_ns: TIME }))
        .collect()
}

#[test]
fn every_item_is_found_with_its_identity_and_time() {
    for signal in Signal::ALL {
        assert_eq!(scanned(signal, &request(signal)), expected(100), "{signal}");
    }
}

/// Telegraf turns a resource's attributes into tags, and tags into attributes of a point.
#[test]
fn a_point_that_has_the_resources_mark_itself_is_known_by_it() {
    let mut message = ExportMetricsServiceRequest::decode(request(Signal::Metrics)).unwrap();
    let mut attributes = Vec::new();
    for resource in &mut message.resource_metrics {
        attributes = resource.resource.take().unwrap().attributes;
    }
    assert!(scanned(Signal::Metrics, &message.encode_to_vec()).iter().all(Item::is_none));
    for metric in message
        .resource_metrics
        .iter_mut()
        .flat_map(|one| &mut one.scope_metrics)
        .flat_map(|one| &mut one.metrics)
    {
        let Some(Data::Gauge(gauge)) = &mut metric.data else {
            panic!("the generator makes gauges")
        };
        for point in &mut gauge.data_points {
            point.attributes.extend(attributes.clone());
        }
    }
    assert_eq!(scanned(Signal::Metrics, &message.encode_to_vec()), expected(100));
}

#[test]
fn the_resource_may_come_after_the_items() {
    let mut resource_spans =
        ExportTraceServiceRequest::decode(request(Signal::Traces)).unwrap().resource_spans;
    let resource =
        ResourceSpans { resource: resource_spans[0].resource.take(), ..Default::default() };
    // Encoded messages merge when they are concatenated.
    let turned = [resource_spans[0].encode_to_vec(), resource.encode_to_vec()].concat();
    let mut message = vec![0x0a];
    prost::encode_length_delimiter(turned.len(), &mut message).unwrap();
    message.extend(turned);
    assert_eq!(scanned(Signal::Traces, &message), expected(100));
}

#[test]
fn identities_survive_the_official_types() {
    let mut decoded = ExportTraceServiceRequest::decode(&request(Signal::Traces)[..]).unwrap();
    decoded.resource_spans[0].scope_spans[0].spans.drain(..40);
    let found = scanned(Signal::Traces, &decoded.encode_to_vec());
    assert_eq!(found, expected(100)[40..]);
}

#[test]
fn items_of_unknown_origin_count_without_identity() {
    let mut decoded = ExportTraceServiceRequest::decode(&request(Signal::Traces)[..]).unwrap();
    decoded.resource_spans[0].resource = None;
    let found = scanned(Signal::Traces, &decoded.encode_to_vec());
    assert_eq!(found.len(), 100);
    assert!(found.iter().all(Item::is_none));
}

#[test]
fn the_bounds_of_a_histogram_are_not_taken_for_attributes() {
    let point = HistogramDataPoint {
        time_unix_nano: TIME,
        explicit_bounds: vec![0.5, 1e300],
        ..Default::default()
    };
    let data =
        Some(Data::Histogram(Histogram { data_points: vec![point], aggregation_temporality: 2 }));
    let scopes = vec![ScopeMetrics {
        metrics: vec![Metric { data, ..Default::default() }],
        ..Default::default()
    }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics: scopes, ..Default::default() }];
    let message = ExportMetricsServiceRequest { resource_metrics }.encode_to_vec();
    assert_eq!(scanned(Signal::Metrics, &message).len(), 1);
}

#[test]
fn a_truncated_message_is_malformed() {
    for signal in Signal::ALL {
        let message = request(signal);
        assert!(scan(signal, &message.slice(..message.len() - 1), &mut Vec::new()).is_err());
    }
}
