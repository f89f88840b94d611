use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::span::{Event, Link};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::generate::{Shape, attributes, counter, id, open_enum, resource, scope, small, text};

pub fn request(shape: Shape) -> BoxedStrategy<ExportTraceServiceRequest> {
    let scope_spans = (scope(shape), vec(span(shape), 0..4), text())
        .prop_map(|(scope, spans, schema_url)| ScopeSpans { scope, spans, schema_url });
    let resource_spans = (resource(shape), vec(scope_spans, 0..3), text()).prop_map(
        |(resource, scope_spans, schema_url)| ResourceSpans { resource, scope_spans, schema_url },
    );
    vec(resource_spans, 0..3)
        .prop_map(|resource_spans| ExportTraceServiceRequest { resource_spans })
        .boxed()
}

pub fn span(shape: Shape) -> BoxedStrategy<Span> {
    let identity = (id(shape, 16), id(shape, 8), text(), id(shape, 8), small());
    let what = (text(), open_enum(6), counter(), counter());
    let parts =
        (attributes(shape), vec(event(shape), 0..3), vec(link(shape), 0..3), option::of(status()));
    (identity, what, parts, (small(), small(), small()))
        .prop_map(|(identity, what, parts, dropped)| {
            let (trace_id, span_id, trace_state, parent_span_id, flags) = identity;
            let (name, kind, start_time_unix_nano, end_time_unix_nano) = what;
            let (attributes, events, links, status) = parts;
            let (dropped_attributes_count, dropped_events_count, dropped_links_count) = dropped;
            Span {
                trace_id,
                span_id,
                trace_state,
                parent_span_id,
                flags,
                name,
                kind,
                start_time_unix_nano,
                end_time_unix_nano,
                attributes,
                dropped_attributes_count,
                events,
                dropped_events_count,
                links,
                dropped_links_count,
                status,
            }
        })
        .boxed()
}

fn event(shape: Shape) -> impl Strategy<Value = Event> {
    (counter(), text(), attributes(shape), small()).prop_map(
        |(time_unix_nano, name, attributes, dropped_attributes_count)| Event {
            time_unix_nano,
            name,
            attributes,
            dropped_attributes_count,
        },
    )
}

fn link(shape: Shape) -> impl Strategy<Value = Link> {
    (id(shape, 16), id(shape, 8), text(), attributes(shape), small(), small()).prop_map(
        |(trace_id, span_id, trace_state, attributes, dropped_attributes_count, flags)| Link {
            trace_id,
            span_id,
            trace_state,
            attributes,
            dropped_attributes_count,
            flags,
        },
    )
}

fn status() -> impl Strategy<Value = Status> {
    (text(), open_enum(3)).prop_map(|(message, code)| Status { message, code })
}
