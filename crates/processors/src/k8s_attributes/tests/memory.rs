//! The memory that the index takes, counted by the allocator: for this thread alone, because
//! other tests of this process allocate as well.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sluice_kubernetes::Indexed as _;

use super::super::related::{Interner, Related};
use super::*;

thread_local! {
    /// Bytes that this thread allocated less those that it freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
}

struct Counted;

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// The size of a block with its header, as glibc's allocator rounds it.
fn block_bytes(layout: Layout) -> isize {
    (layout.size().max(24) + 8).next_multiple_of(16).cast_signed()
}

// SAFETY: the system's allocator does all of it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + block_bytes(layout));
        // SAFETY: as the caller assures.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - block_bytes(layout));
        // SAFETY: as the caller assures.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Guarantee: a pod with common options takes no more than 1 KB, the index and what it allocates
/// included.
#[test]
fn a_pod_takes_at_most_a_kilobyte() {
    const PODS: usize = 50_000;
    let processor = Processor::new(
        "extract: {metadata: [k8s.namespace.name, k8s.pod.name, k8s.pod.uid, k8s.pod.start_time,\n  \
         k8s.deployment.name, k8s.node.name], labels: [{key: app}]}\n\
         pod_association:\n\
         - sources: [{from: resource_attribute, name: k8s.pod.uid}]\n\
         - sources: [{from: connection}]\n",
    );
    let pod = |number: usize| {
        let name = format!("service-{}-6c45f8d6f6-{number:05x}", number % 500);
        json!({
            "metadata": {
                "name": name, "namespace": format!("namespace-{}", number % 50),
                "uid": format!("038e2267-b473-489b-b48c-{number:012x}"),
                "creationTimestamp": format!("2026-11-28T07:{:02}:{:02}Z", number / 60 % 60, number % 60),
                "labels": {"app": format!("service-{}", number % 500), "pod-template-hash": "6c45f8d6f6"},
                "annotations": {"kubernetes.io/config.seen": "2026-11-28T07:00:00.000000000Z"},
                "ownerReferences": [{"kind": "ReplicaSet", "controller": true,
                    "name": format!("service-{}-6c45f8d6f6", number % 500),
                    "uid": format!("138e2267-b473-489b-b48c-{:012x}", number % 500)}]
            },
            "spec": {"nodeName": format!("ip-10-0-{}.us-west-2.compute.internal", number % 1000),
                     "containers": [{"name": "main", "image": "ghcr.io/example/service:1.2.3"}]},
            "status": {"podIP": format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255),
                       "startTime": "2026-11-28T07:00:05Z", "phase": "Running",
                       "containerStatuses": [{"name": "main", "restartCount": 0,
                           "containerID": format!("containerd://{number:064x}")}]}
        })
    };
    let before = LIVE.get();
    for number in 0..PODS {
        processor.pod_event(Event::Added(pod(number)));
    }
    let bytes = (LIVE.get() - before).cast_unsigned() / PODS;
    assert!((200..=1024).contains(&bytes), "a pod takes {bytes} bytes");
    let peer = Some("10.0.0.255:1");
    assert!(processor.enrich(peer, &[]).contains(&"k8s.namespace.name=namespace-5".to_owned()));
}

/// Guarantee: the names of attributes, which labels may give, count as memory of an object.
#[test]
fn names_of_attributes_count() {
    let rule = "extract: {labels: [{key_regex: '(.*)', tag_name: '$1', from: node}]}";
    let processor = Processor::new(rule);
    let weight = |name: &str| {
        let node = json!({"metadata": {"name": "n", "uid": "u", "labels": {(name): "x"}}});
        let node = serde_json::from_value(node).expect("an object");
        let texts = Interner::default();
        Related::new(From::Node, &node, &processor.options.rules, &texts).weight()
    };
    assert_eq!(weight(&"k".repeat(300)) - weight("k"), 299);
}
