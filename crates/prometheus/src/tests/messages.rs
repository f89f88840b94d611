//! The messages of remote write, as a peer decodes them.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<TimeSeries>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) metadata: Vec<MetricMetadata>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MetricMetadata {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) help: String,
    #[prost(string, tag = "5")]
    pub(crate) unit: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) exemplars: Vec<Exemplar>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Sample {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
    /// Of 2.0.
    #[prost(int64, tag = "3")]
    pub(crate) start: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Exemplar {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
    #[prost(int64, tag = "3")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Histogram {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) count: Option<u64>,
    #[prost(double, optional, tag = "2")]
    pub(crate) count_float: Option<f64>,
    #[prost(double, tag = "3")]
    pub(crate) sum: f64,
    #[prost(sint32, tag = "4")]
    pub(crate) schema: i32,
    #[prost(double, tag = "5")]
    pub(crate) zero_threshold: f64,
    #[prost(uint64, optional, tag = "6")]
    pub(crate) zero_count: Option<u64>,
    #[prost(double, optional, tag = "7")]
    pub(crate) zero_count_float: Option<f64>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    pub(crate) negative_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "10")]
    pub(crate) negative_counts: Vec<f64>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    pub(crate) positive_deltas: Vec<i64>,
    #[prost(double, repeated, tag = "13")]
    pub(crate) positive_counts: Vec<f64>,
    #[prost(int32, tag = "14")]
    pub(crate) reset_hint: i32,
    #[prost(int64, tag = "15")]
    pub(crate) timestamp: i64,
    #[prost(double, repeated, tag = "16")]
    pub(crate) custom_values: Vec<f64>,
    /// Of 2.0.
    #[prost(int64, tag = "17")]
    pub(crate) start: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct Span {
    #[prost(sint32, tag = "1")]
    pub(crate) offset: i32,
    #[prost(uint32, tag = "2")]
    pub(crate) length: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RequestV2 {
    #[prost(string, repeated, tag = "4")]
    pub(crate) symbols: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) timeseries: Vec<TimeSeriesV2>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TimeSeriesV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) labels: Vec<u32>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) histograms: Vec<Histogram>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) exemplars: Vec<ExemplarV2>,
    #[prost(message, optional, tag = "5")]
    pub(crate) metadata: Option<MetadataV2>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExemplarV2 {
    #[prost(uint32, repeated, tag = "1")]
    pub(crate) labels: Vec<u32>,
    #[prost(double, tag = "2")]
    pub(crate) value: f64,
    #[prost(int64, tag = "3")]
    pub(crate) timestamp: i64,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(crate) struct MetadataV2 {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(uint32, tag = "3")]
    pub(crate) help: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) unit: u32,
}

impl RequestV2 {
    pub(crate) fn text(&self, number: u32) -> &str {
        &self.symbols[number as usize]
    }

    fn labels(&self, numbers: &[u32]) -> Vec<Label> {
        assert!(numbers.len().is_multiple_of(2), "labels are pairs");
        let text = |number| self.text(number).to_owned();
        let pair = |pair: &[u32]| Label { name: text(pair[0]), value: text(pair[1]) };
        numbers.chunks(2).map(pair).collect()
    }

    /// The series as 1.0 would have them.
    pub(crate) fn as_v1(&self) -> Vec<TimeSeries> {
        let series = self.timeseries.iter().map(|series| TimeSeries {
            labels: self.labels(&series.labels),
            samples: series.samples.clone(),
            histograms: series.histograms.clone(),
            exemplars: series
                .exemplars
                .iter()
                .map(|it| Exemplar {
                    labels: self.labels(&it.labels),
                    value: it.value,
                    timestamp: it.timestamp,
                })
                .collect(),
        });
        series.collect()
    }
}

/// Labels as a map; they are sorted, and each stands once.
pub(crate) fn labels_of(labels: &[Label]) -> BTreeMap<&str, &str> {
    assert!(labels.is_sorted_by(|a, b| a.name < b.name), "{labels:?}");
    labels.iter().map(|label| (&*label.name, &*label.value)).collect()
}
