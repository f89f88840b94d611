//! Random requests: both versions say the same, and no bytes make the writer fail otherwise than
//! by an error.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::metrics::v1::Metric;
use proptest::prelude::*;
use prost::Message;

use super::build::{counter, gauge, histogram, histogram_point, number, request, scope, text};
use super::messages::{RequestV2, WriteRequest, labels_of};
use crate::inward::{Memory, read};
use crate::{CustomBuckets, ResourceLabels, Settings, Strategy, Version, write};

fn key() -> impl Strategy_<Value = String> {
    prop_oneof!["[a-c]{1,2}", "[_.a-zA-Z]{1,6}", Just("le".to_owned()), "\\PC{0,5}"]
}

use proptest::strategy::Strategy as Strategy_;

fn attributes() -> impl Strategy_<Value = Vec<(String, String)>> {
    prop::collection::vec((key(), "[a-z]{0,3}"), 0..6)
}

fn a_metric() -> impl Strategy_<Value = Metric> {
    let points = prop::collection::vec((attributes(), -5.0..5.0_f64), 0..4);
    (0..3, "[a-z.]{1,5}", points).prop_map(|(kind, name, points)| {
        let attributes = |pairs: &[(String, String)]| -> Vec<_> {
            pairs.iter().map(|(key, value)| text(key, value)).collect()
        };
        match kind {
            2 => {
                let points: Vec<_> =
                    points.iter().map(|(pairs, _)| histogram_point(&attributes(pairs))).collect();
                histogram(&name, &points)
            }
            _ => {
                let points: Vec<_> = points
                    .iter()
                    .map(|(pairs, value)| number(&attributes(pairs), *value))
                    .collect();
                if kind == 0 { gauge(&name, "1", &points) } else { counter(&name, "s", &points) }
            }
        }
    })
}

fn a_request() -> impl Strategy_<Value = Vec<u8>> {
    (attributes(), prop::collection::vec(a_metric(), 0..4)).prop_map(|(resource, metrics)| {
        let mut resource: Vec<_> = resource.iter().map(|(key, value)| text(key, value)).collect();
        resource.push(text("service.name", "shop"));
        request(&resource, Some(scope("lib", "")), metrics)
    })
}

fn settings() -> impl Strategy_<Value = Settings> {
    let strategies = (0..4_usize).prop_map(|index| Strategy::ALL[index].1);
    (strategies, any::<bool>(), 0..3).prop_map(|(strategy, all, custom)| Settings {
        strategy,
        resource_labels: if all { ResourceLabels::All } else { ResourceLabels::None },
        custom_buckets: [CustomBuckets::Classic, CustomBuckets::Native, CustomBuckets::Both]
            [custom as usize],
        ..Settings::default()
    })
}

proptest! {
    #[test]
    fn both_versions_have_the_same_sound_series(
        settings in settings(),
        requests in prop::collection::vec(a_request(), 1..3),
    ) {
        let request = requests.concat();
        let first = write(&settings, &request).expect("is written");
        let decoded = WriteRequest::decode(&*first.parts.concat()).expect("decodes");
        for series in &decoded.timeseries {
            prop_assert!(!labels_of(&series.labels)["__name__"].is_empty());
            prop_assert!(series.labels.iter().all(|label| !label.value.is_empty()));
            prop_assert_eq!(series.samples.len() + series.histograms.len(), 1);
        }
        let samples: usize = decoded.timeseries.iter().map(|it| it.samples.len()).sum();
        prop_assert_eq!(samples as u64, first.counts.samples);
        let settings = Settings { version: Version::V2, ..settings };
        let second = write(&settings, &request).expect("is written");
        prop_assert_eq!(first.counts, second.counts);
        let second = RequestV2::decode(&*second.parts.concat()).expect("decodes");
        let symbols: BTreeSet<_> = second.symbols.iter().collect();
        prop_assert_eq!(symbols.len(), second.symbols.len());
        for (first, mut second) in decoded.timeseries.into_iter().zip(second.as_v1()) {
            second.samples.iter_mut().for_each(|sample| sample.start = 0);
            second.histograms.iter_mut().for_each(|histogram| histogram.start = 0);
            prop_assert_eq!(first, second);
        }
    }

    /// Guarantee: what was written as remote write is the same after it was read.
    #[test]
    fn what_is_written_can_be_read_and_written_again(
        requests in prop::collection::vec(a_request(), 1..3),
        custom in any::<bool>(),
    ) {
        let custom_buckets =
            if custom { CustomBuckets::Native } else { CustomBuckets::Classic };
        for version in [Version::V1, Version::V2] {
            let settings =
                Settings { version, custom_buckets, target_info: false, ..Settings::default() };
            let first = write(&settings, &requests.concat()).expect("is written");
            let first = first.parts.concat();
            let read = read(version, &first, &Memory::default(), 1 << 20).expect("is read");
            prop_assert_eq!((read.invalid, read.reason), (0, None));
            let second = write(&settings, &read.request).expect("is written").parts.concat();
            let series = |message: &[u8]| {
                let mut series = match version {
                    Version::V1 => WriteRequest::decode(message).expect("decodes").timeseries,
                    Version::V2 => RequestV2::decode(message).expect("decodes").as_v1(),
                };
                series.sort_by_key(|series| format!("{series:?}"));
                series
            };
            prop_assert_eq!(series(&first), series(&second));
        }
    }

    #[test]
    fn bytes_of_any_kind_are_written_or_refused(
        request in a_request(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        noise in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        for mut bytes in [request, noise] {
            for (place, byte) in &changes {
                if !bytes.is_empty() {
                    let place = place.index(bytes.len());
                    bytes[place] = *byte;
                }
            }
            for version in [Version::V1, Version::V2] {
                let limit_bytes = 4096;
                let settings = Settings { version, limit_bytes, ..Settings::default() };
                let most_bytes = limit_bytes * 16 + 2 * bytes.len() + 256;
                if let Ok(read) = read(version, &bytes, &Memory::default(), limit_bytes) {
                    sluice_otlp::scan(sluice_otlp::Signal::Metrics, &read.request).ok();
                }
                let message = write(&Settings::default(), &bytes).map(|it| it.parts.concat());
                if let Ok(mut message) = message {
                    for (place, byte) in &changes {
                        if !message.is_empty() {
                            let place = place.index(message.len());
                            message[place] = *byte;
                        }
                    }
                    let read = read(version, &message, &Memory::default(), 1 << 20);
                    let is_valid = |request: &[u8]| {
                        sluice_otlp::scan(sluice_otlp::Signal::Metrics, request)
                            .map_or_else(|error| error.is_text(), |_| true)
                    };
                    prop_assert!(read.is_err() || read.is_ok_and(|it| is_valid(&it.request)));
                }
                if let Ok(written) = write(&settings, &bytes) {
                    prop_assert!(written.parts.iter().map(Vec::len).sum::<usize>() <= most_bytes);
                }
            }
        }
    }
}
