//! The answer to `/stats/summary` (`k8s.io/kubelet/pkg/apis/stats/v1alpha1`), as far as it becomes
//! metrics. All else is skipped while it is read.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use sluice_operators::rfc3339;

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Summary {
    #[serde(deserialize_with = "nullable")]
    pub(super) node: Node,
    #[serde(deserialize_with = "nullable")]
    pub(super) pods: Vec<Pod>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Node {
    #[serde(deserialize_with = "nullable")]
    pub(super) node_name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub(super) system_containers: Vec<Container>,
    #[serde(rename = "startTime", deserialize_with = "time")]
    pub(super) start_ns: Option<u64>,
    pub(super) cpu: Option<Box<Cpu>>,
    pub(super) memory: Option<Box<Memory>>,
    pub(super) network: Option<Box<Network>>,
    pub(super) fs: Option<Box<Fs>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Pod {
    #[serde(deserialize_with = "nullable")]
    pub(super) pod_ref: PodRef,
    #[serde(rename = "startTime", deserialize_with = "time")]
    pub(super) start_ns: Option<u64>,
    #[serde(deserialize_with = "nullable")]
    pub(super) containers: Vec<Container>,
    pub(super) cpu: Option<Box<Cpu>>,
    pub(super) memory: Option<Box<Memory>>,
    pub(super) network: Option<Box<Network>>,
    #[serde(rename = "volume", deserialize_with = "nullable")]
    pub(super) volumes: Vec<Fs>,
    #[serde(rename = "ephemeral-storage")]
    pub(super) ephemeral_storage: Option<Box<Fs>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PodRef {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub(super) namespace: Box<str>,
    #[serde(deserialize_with = "nullable")]
    pub(super) uid: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: Box<str>,
    #[serde(rename = "startTime", deserialize_with = "time")]
    pub(super) start_ns: Option<u64>,
    pub(super) cpu: Option<Box<Cpu>>,
    pub(super) memory: Option<Box<Memory>>,
    pub(super) rootfs: Option<Box<Fs>>,
    pub(super) logs: Option<Box<Fs>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Cpu {
    pub(super) usage_nano_cores: Option<u64>,
    pub(super) usage_core_nano_seconds: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Memory {
    pub(super) available_bytes: Option<u64>,
    pub(super) usage_bytes: Option<u64>,
    pub(super) working_set_bytes: Option<u64>,
    pub(super) rss_bytes: Option<u64>,
    pub(super) page_faults: Option<u64>,
    pub(super) major_page_faults: Option<u64>,
}

/// The default interface, and all of them with it.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Network {
    #[serde(deserialize_with = "nullable")]
    pub(super) name: Box<str>,
    pub(super) rx_bytes: Option<u64>,
    pub(super) rx_errors: Option<u64>,
    pub(super) tx_bytes: Option<u64>,
    pub(super) tx_errors: Option<u64>,
    /// Of the default interface; others have none.
    #[serde(deserialize_with = "nullable")]
    pub(super) interfaces: Vec<Network>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Fs {
    /// Of a volume; others have none.
    #[serde(deserialize_with = "nullable")]
    pub(super) name: Box<str>,
    pub(super) available_bytes: Option<u64>,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) used_bytes: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) inodes_free: Option<u64>,
    pub(super) inodes_used: Option<u64>,
}

/// Null is the default, as servers in Go write it.
pub(super) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Nanoseconds since 1970 of a time of RFC 3339.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let time_ns = rfc3339(&text).ok_or_else(|| D::Error::custom("a start is no time"))?;
    Ok(u64::try_from(time_ns).ok().filter(|time_ns| *time_ns > 0))
}
