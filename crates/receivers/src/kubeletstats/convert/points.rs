//! The points of a metric of one object.

use std::collections::HashMap;

use super::Capacity;
use super::metrics::{Field, METRICS, Metric};
use super::pods::Resources;
use super::stats::{Cpu, Fs, Memory, Network};

/// A metric as it is configured.
#[derive(Clone)]
pub(in crate::kubeletstats) struct Choice {
    pub(in crate::kubeletstats) is_on: bool,
    /// Whether points have the attribute, in the order of [`Metric::attributes`].
    pub(in crate::kubeletstats) keeps: [bool; 2],
    pub(in crate::kubeletstats) strategy: Strategy,
}

/// The way in which points become one that have the same attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kubeletstats) enum Strategy {
    Sum,
    Avg,
    Min,
    Max,
}

/// All that metrics of an object are read from.
#[derive(Default)]
pub(super) struct View<'a> {
    pub(super) now_ns: u64,
    pub(super) start_ns: Option<u64>,
    pub(super) cpu: Option<&'a Cpu>,
    pub(super) memory: Option<&'a Memory>,
    pub(super) fs: Option<&'a Fs>,
    pub(super) logs: Option<&'a Fs>,
    pub(super) interfaces: &'a [Network],
    pub(super) resources: Resources,
    pub(super) node: Capacity,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Double(f64),
}

pub(super) type PointAttributes<'a> = [Option<&'a str>; 2];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point<'a> {
    pub(super) number: Number,
    pub(super) attributes: PointAttributes<'a>,
}

impl Choice {
    /// All metrics with their defaults.
    pub(in crate::kubeletstats) fn defaults() -> Vec<Choice> {
        let choice =
            |it: &Metric| Choice { is_on: it.is_on, keeps: [true; 2], strategy: Strategy::Sum };
        METRICS.iter().map(choice).collect()
    }
}

/// The points of a metric; none if the kubelet does not tell the number.
pub(super) fn points<'a>(metric: &Metric, choice: &Choice, view: &View<'a>) -> Vec<Point<'a>> {
    let (receive, transmit) = (Some("receive"), Some("transmit"));
    let all: Vec<(Option<u64>, PointAttributes<'a>)> = match metric.field {
        Field::NetworkIo | Field::NetworkErrors => {
            let pair = |it: &'a Network| {
                let (received, transmitted) = match metric.field {
                    Field::NetworkIo => (it.rx_bytes, it.tx_bytes),
                    _ => (it.rx_errors, it.tx_errors),
                };
                let name = Some(&*it.name);
                [(received, [name, receive]), (transmitted, [name, transmit])]
            };
            view.interfaces.iter().flat_map(pair).collect()
        }
        Field::EphemeralUsed => {
            let used = |fs: Option<&Fs>| fs.and_then(|fs| fs.used_bytes);
            let (rootfs, logs) = ([Some("rootfs"), None], [Some("logs"), None]);
            vec![(used(view.fs), rootfs), (used(view.logs), logs)]
        }
        field => {
            let point = |number| Point { number, attributes: [None; 2] };
            return number(field, view).map(point).into_iter().collect();
        }
    };
    let told = all.into_iter().filter_map(|(number, attributes)| {
        // As in the Collector, numbers of 64 bits change their sign.
        Some((number? as i64, attributes))
    });
    combined(choice, told)
}

/// Points that have the same attributes become one.
fn combined<'a>(
    choice: &Choice,
    points: impl Iterator<Item = (i64, PointAttributes<'a>)>,
) -> Vec<Point<'a>> {
    let mut found: Vec<(i64, i64, PointAttributes<'a>)> = Vec::new();
    let mut places: HashMap<PointAttributes<'a>, usize> = HashMap::new();
    for (number, attributes) in points {
        let kept = |at: usize| attributes[at].filter(|_| choice.keeps[at]);
        let attributes = [kept(0), kept(1)];
        let place = *places.entry(attributes).or_insert(found.len());
        match found.get_mut(place) {
            None => found.push((number, 1, attributes)),
            Some((all, count, _)) => {
                *count += 1;
                *all = match choice.strategy {
                    Strategy::Sum | Strategy::Avg => all.wrapping_add(number),
                    Strategy::Min => number.min(*all),
                    Strategy::Max => number.max(*all),
                };
            }
        }
    }
    let finish = |(all, count, attributes)| {
        let number = if choice.strategy == Strategy::Avg { all / count } else { all };
        Point { number: Number::Int(number), attributes }
    };
    found.into_iter().map(finish).collect()
}

/// A number that has no attributes.
fn number(field: Field, view: &View<'_>) -> Option<Number> {
    const NANO: f64 = 1e9;
    let int = |number: Option<u64>| number.map(|number| Number::Int(number as i64));
    let cores = |cpu: &Cpu| cpu.usage_nano_cores.map(|nano| nano as f64 / NANO);
    let ratio = |number: Option<f64>, whole: f64| {
        number.filter(|_| whole > 0.0).map(|number| Number::Double(number / whole))
    };
    let View { cpu, memory, fs, resources, node, .. } = view;
    let used_cores = || cpu.and_then(cores);
    let used_memory = || memory.and_then(|it| it.usage_bytes).map(|bytes| bytes as f64);
    match field {
        Field::Uptime => {
            let passed_ns = view.now_ns as i64 - view.start_ns? as i64;
            Some(Number::Int(passed_ns / 1_000_000_000))
        }
        Field::CpuTime => {
            cpu.as_ref()?.usage_core_nano_seconds.map(|nano| Number::Double(nano as f64 / NANO))
        }
        Field::CpuUsage => used_cores().map(Number::Double),
        Field::CpuOfNode => ratio(used_cores(), node.cores),
        Field::CpuOfLimit => ratio(used_cores(), resources.cpu_limit),
        Field::CpuOfRequest => ratio(used_cores(), resources.cpu_request),
        Field::MemoryAvailable => int(memory.as_ref()?.available_bytes),
        Field::MemoryUsage => int(memory.as_ref()?.usage_bytes),
        Field::MemoryRss => int(memory.as_ref()?.rss_bytes),
        Field::WorkingSet => int(memory.as_ref()?.working_set_bytes),
        Field::PageFaults => int(memory.as_ref()?.page_faults),
        Field::MajorPageFaults => int(memory.as_ref()?.major_page_faults),
        Field::MemoryOfNode => ratio(used_memory(), node.memory_bytes),
        Field::MemoryOfLimit => ratio(used_memory(), resources.memory_limit),
        Field::MemoryOfRequest => ratio(used_memory(), resources.memory_request),
        Field::FsAvailable => int(fs.as_ref()?.available_bytes),
        Field::FsCapacity => int(fs.as_ref()?.capacity_bytes),
        Field::FsUsed => int(fs.as_ref()?.used_bytes),
        Field::FsInodes => int(fs.as_ref()?.inodes),
        Field::FsInodesFree => int(fs.as_ref()?.inodes_free),
        Field::FsInodesUsed => int(fs.as_ref()?.inodes_used),
        // They have attributes.
        Field::EphemeralUsed | Field::NetworkIo | Field::NetworkErrors => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: points with the same attributes are one, as the strategy says.
    #[test]
    fn points_without_a_difference_are_combined() {
        let eth = Some("eth0");
        let points = [(5, [eth, Some("receive")]), (8, [eth, Some("transmit")]), (3, [None; 2])];
        let all = |strategy, keeps| {
            let choice = Choice { is_on: true, keeps, strategy };
            let found = combined(&choice, points.into_iter());
            let number = |point: Point<'_>| match point.number {
                Number::Int(number) => number,
                Number::Double(_) => panic!("they are whole"),
            };
            found.into_iter().map(number).collect::<Vec<_>>()
        };
        assert_eq!(all(Strategy::Sum, [true; 2]), [5, 8, 3]);
        assert_eq!(all(Strategy::Sum, [true, false]), [13, 3]);
        assert_eq!(all(Strategy::Avg, [true, false]), [6, 3]);
        assert_eq!(all(Strategy::Min, [false; 2]), [3]);
        assert_eq!(all(Strategy::Max, [false; 2]), [8]);
    }
}
