//! Names in the path of a container's log file.

use sluice_otlp::AnyValue;

use crate::field::put;
use crate::parsers::values::{Map, excerpt};

/// A path, and the attributes that it stands for.
#[derive(Clone)]
pub(in crate::parsers) struct Pod {
    path: String,
    attributes: Map,
}

impl Pod {
    /// `…/NAMESPACE_POD_UID/CONTAINER/RESTARTS.log`, where separators may be backslashes, and a
    /// rotated file has its time behind, `.20250219-233547`, and `.gz` if it is compressed.
    ///
    /// # Errors
    /// The path has another form.
    pub(in crate::parsers) fn read(path: &str) -> Result<Pod, String> {
        let wrong = || {
            let example = "/var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log";
            let path = excerpt(path);
            format!("{path} is no path of a container's log to take metadata from, as {example}")
        };
        const KEYS: [&str; 5] = [
            "k8s.namespace.name",
            "k8s.pod.name",
            "k8s.pod.uid",
            "k8s.container.name",
            "k8s.container.restart_count",
        ];
        let names = names(path).ok_or_else(wrong)?;
        let attribute =
            |(key, name): (&str, &str)| (key.to_owned(), AnyValue::String(name.to_owned()));
        let attributes = KEYS.into_iter().zip(names).map(attribute).collect();
        Ok(Pod { path: path.to_owned(), attributes })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(in crate::parsers) fn add_to(&self, resource: &mut Map) {
        if resource.is_empty() {
            resource.clone_from(&self.attributes);
            return;
        }
        for (key, value) in &self.attributes {
            put(resource, key, value.clone());
        }
    }
}

/// Namespace, pod, uid, container and restarts.
fn names(path: &str) -> Option<[&str; 5]> {
    let mut parts = path.rsplitn(4, ['/', '\\']);
    let (file, container, pod) = (parts.next()?, parts.next()?, parts.next()?);
    // There is a directory above, be it the root.
    parts.next()?;
    let (restarts, rotation) = file.split_once(".log")?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let is_rotation = rotation.strip_prefix('.').and_then(|time| {
        // Unlike in the Collector: a receiver may read files that the kubelet has compressed.
        time.strip_suffix(".gz").unwrap_or(time).split_once('-')
    });
    let is_rotation = is_rotation.is_some_and(|(date, time)| {
        (date.len(), time.len()) == (8, 6) && digits(date) && digits(time)
    });
    let mut names = pod.split('_');
    let (namespace, pod, uid) = (names.next()?, names.next()?, names.next()?);
    let is_uid = |byte: u8| matches!(byte, b'a'..=b'f' | b'0'..=b'9' | b'-');
    let fits = names.next().is_none()
        && uid.bytes().all(is_uid)
        && !container.contains(['.', '_'])
        && digits(restarts)
        && (rotation.is_empty() || is_rotation);
    let found = [namespace, pod, uid, container, restarts];
    Some(found).filter(|names| fits && names.iter().all(|name| !name.is_empty()))
}
