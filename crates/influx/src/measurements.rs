//! Points of requests by measurement, without reading the points.

use sluice_otlp::wire::{Fields, Malformed};

use crate::point::Metric;

/// The measurement of the lines that a metric becomes. `metric`: encoded, with or without points.
pub fn measurement(metric: &[u8]) -> Result<&[u8], Malformed> {
    Ok(Metric::read(metric)?.names().0)
}

/// Tells each metric of a request: its measurement, and its data points. A measurement may come
/// several times.
pub fn count_points(request: &[u8], mut count: impl FnMut(&[u8], u64)) -> Result<(), Malformed> {
    let mut resources = Fields::of(request);
    while let Some(resource) = resources.next_message(1)? {
        let resource = &request[resource.content()];
        let mut scopes = Fields::of(resource);
        while let Some(scope) = scopes.next_message(2)? {
            let scope = &resource[scope.content()];
            let mut metrics = Fields::of(scope);
            while let Some(metric) = metrics.next_message(2)? {
                let metric = Metric::read(&scope[metric.content()])?;
                count(metric.names().0, points_of(&metric)?);
            }
        }
    }
    Ok(())
}

fn points_of(metric: &Metric<'_>) -> Result<u64, Malformed> {
    let mut number = 0;
    for data in &metric.data {
        let mut points = Fields::of(data);
        while points.next_message(1)?.is_some() {
            number += 1;
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Builder, Form, Limits, Precision, Reader, Settings, Written, write_counted};

    const LINES: &str = "http_reqs,method=GET url=\"u\",value=1 1\nhttp_reqs value=2 2\n\
        cpu,host=a idle=1,user=2,name=\"x\" 3\nonly text=\"t\" 4\nodd\\ name value=3i 5\n";

    type Points = BTreeMap<String, u64>;

    fn add(counts: &mut Points, name: &[u8], points: u64) {
        *counts.entry(String::from_utf8_lossy(name).into_owned()).or_default() += points;
    }

    /// Guarantee: a request has the same points by measurement where it is made, where it is
    /// walked, and where it is written as lines.
    #[test]
    fn points_are_the_same_wherever_they_are_counted() {
        let mut builder = Builder::new(&Settings::default());
        let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
        reader.read(LINES.as_bytes(), |line| builder.add(line, 0));
        let [mut built, mut walked, mut written] = [(); 3].map(|()| Points::new());
        builder.counts().iter().for_each(|(name, points)| add(&mut built, name, *points));
        let total = u64::from(builder.points());
        let request = builder.take(&[]);
        assert!(builder.counts().is_empty(), "a new request begins");
        count_points(&request, |name, points| add(&mut walked, name, points)).expect("is valid");
        let form =
            Form { limit_bytes: 9_999, precision: Precision::Nanoseconds, needs_times: true };
        let count = &mut |name: &[u8], part: Written| add(&mut written, name, part.points);
        write_counted(&form, &request, &mut Vec::new(), count).expect("fits");
        let expected = [("cpu", 2), ("http_reqs", 2), ("odd name", 1), ("only", 1)];
        let expected: Points = expected.map(|(name, points)| (name.to_owned(), points)).into();
        assert_eq!([&built, &walked, &written], [&expected; 3]);
        assert_eq!(total, expected.values().sum::<u64>());
    }

    /// Guarantee: points without a line are counted apart, by measurement.
    #[test]
    fn points_without_a_line_are_told() {
        let mut builder = Builder::new(&Settings::default());
        let mut reader = Reader::new(Precision::Nanoseconds, Limits::default());
        reader.read(b"late value=1 1\n", |line| builder.add(line, 0));
        let request = builder.take(&[]);
        // Without its time.
        let time = [&[3 << 3 | 1][..], &1_u64.to_le_bytes()].concat();
        let at = request.windows(9).position(|it| it == time).expect("a time");
        let mut request = request;
        request[at] = 15 << 3 | 1;
        let form =
            Form { limit_bytes: 9_999, precision: Precision::Nanoseconds, needs_times: true };
        let mut told = Vec::new();
        let count = &mut |name: &[u8], it: Written| told.push((name.to_vec(), it));
        write_counted(&form, &request, &mut Vec::new(), count).expect("fits");
        let [(name, Written { points: 0, left_out: 1, .. })] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(name, b"late");
    }
}
