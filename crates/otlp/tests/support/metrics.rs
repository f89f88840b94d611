use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary,
    SummaryDataPoint, exemplar, number_data_point,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::generate::{
    Shape, attributes, counter, double, id, open_enum, resource, scope, small, text,
};

pub fn request(shape: Shape) -> BoxedStrategy<ExportMetricsServiceRequest> {
    let scope_metrics = (scope(shape), vec(metric(shape), 0..4), text())
        .prop_map(|(scope, metrics, schema_url)| ScopeMetrics { scope, metrics, schema_url });
    let resource_metrics = (resource(shape), vec(scope_metrics, 0..3), text()).prop_map(
        |(resource, scope_metrics, schema_url)| ResourceMetrics {
            resource,
            scope_metrics,
            schema_url,
        },
    );
    vec(resource_metrics, 0..3)
        .prop_map(|resource_metrics| ExportMetricsServiceRequest { resource_metrics })
        .boxed()
}

pub fn metric(shape: Shape) -> BoxedStrategy<Metric> {
    (text(), text(), text(), attributes(shape), option::weighted(0.9, data(shape)))
        .prop_map(|(name, description, unit, metadata, data)| Metric {
            name,
            description,
            unit,
            metadata,
            data,
        })
        .boxed()
}

fn data(shape: Shape) -> impl Strategy<Value = Data> {
    let gauge =
        vec(number_point(shape), 0..4).prop_map(|data_points| Data::Gauge(Gauge { data_points }));
    let sum = (vec(number_point(shape), 0..4), open_enum(3), any::<bool>()).prop_map(
        |(data_points, aggregation_temporality, is_monotonic)| {
            Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
        },
    );
    let histogram = (vec(histogram_point(shape), 0..3), open_enum(3)).prop_map(
        |(data_points, aggregation_temporality)| {
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        },
    );
    let exponential = (vec(exponential_point(shape), 0..3), open_enum(3)).prop_map(
        |(data_points, aggregation_temporality)| {
            Data::ExponentialHistogram(ExponentialHistogram {
                data_points,
                aggregation_temporality,
            })
        },
    );
    let summary = vec(summary_point(shape), 0..3)
        .prop_map(|data_points| Data::Summary(Summary { data_points }));
    prop_oneof![gauge, sum, histogram, exponential, summary]
}

fn number_point(shape: Shape) -> impl Strategy<Value = NumberDataPoint> {
    let value = prop_oneof![
        double().prop_map(number_data_point::Value::AsDouble),
        any::<i64>().prop_map(number_data_point::Value::AsInt)
    ];
    (
        attributes(shape),
        counter(),
        counter(),
        exemplars(shape),
        small(),
        option::weighted(0.9, value),
    )
        .prop_map(
            |(attributes, start_time_unix_nano, time_unix_nano, exemplars, flags, value)| {
                NumberDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    exemplars,
                    flags,
                    value,
                }
            },
        )
}

fn histogram_point(shape: Shape) -> impl Strategy<Value = HistogramDataPoint> {
    let totals = (counter(), option::of(double()), option::of(double()), option::of(double()));
    let buckets = (vec(counter(), 0..6), vec(double(), 0..6));
    (attributes(shape), (counter(), counter()), totals, buckets, exemplars(shape), small())
        .prop_map(
            |(
                attributes,
                (start_time_unix_nano, time_unix_nano),
                totals,
                buckets,
                exemplars,
                flags,
            )| {
                let (count, sum, min, max) = totals;
                let (bucket_counts, explicit_bounds) = buckets;
                HistogramDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    count,
                    sum,
                    bucket_counts,
                    explicit_bounds,
                    exemplars,
                    flags,
                    min,
                    max,
                }
            },
        )
}

fn exponential_point(shape: Shape) -> impl Strategy<Value = ExponentialHistogramDataPoint> {
    let totals = (counter(), option::of(double()), option::of(double()), option::of(double()));
    let scale = (any::<i32>(), counter(), double());
    let buckets = (option::of(buckets()), option::of(buckets()));
    (attributes(shape), (counter(), counter()), totals, scale, buckets, exemplars(shape), small())
        .prop_map(
            |(
                attributes,
                (start_time_unix_nano, time_unix_nano),
                totals,
                scale,
                buckets,
                exemplars,
                flags,
            )| {
                let (count, sum, min, max) = totals;
                let (scale, zero_count, zero_threshold) = scale;
                let (positive, negative) = buckets;
                ExponentialHistogramDataPoint {
                    attributes,
                    start_time_unix_nano,
                    time_unix_nano,
                    count,
                    sum,
                    scale,
                    zero_count,
                    positive,
                    negative,
                    flags,
                    exemplars,
                    min,
                    max,
                    zero_threshold,
                }
            },
        )
}

fn buckets() -> impl Strategy<Value = Buckets> {
    (any::<i32>(), vec(counter(), 0..6))
        .prop_map(|(offset, bucket_counts)| Buckets { offset, bucket_counts })
}

fn summary_point(shape: Shape) -> impl Strategy<Value = SummaryDataPoint> {
    let quantile =
        (double(), double()).prop_map(|(quantile, value)| ValueAtQuantile { quantile, value });
    (attributes(shape), counter(), counter(), counter(), double(), vec(quantile, 0..3), small())
        .prop_map(
            |(
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                count,
                sum,
                quantile_values,
                flags,
            )| SummaryDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                count,
                sum,
                quantile_values,
                flags,
            },
        )
}

fn exemplars(shape: Shape) -> BoxedStrategy<Vec<Exemplar>> {
    let value = prop_oneof![
        double().prop_map(exemplar::Value::AsDouble),
        any::<i64>().prop_map(exemplar::Value::AsInt)
    ];
    let exemplar =
        (attributes(shape), counter(), id(shape, 8), id(shape, 16), option::weighted(0.9, value))
            .prop_map(|(filtered_attributes, time_unix_nano, span_id, trace_id, value)| Exemplar {
                filtered_attributes,
                time_unix_nano,
                span_id,
                trace_id,
                value,
            });
    vec(exemplar, 0..2).boxed()
}
