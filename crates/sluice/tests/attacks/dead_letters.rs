//! Data that the backend refuses for good: each part that is at fault becomes a dead letter.

use sluice_load_test::Faults;
use sluice_net::grpc::Code;

use crate::gateway::refusing;
use crate::peers::{log_of, post_for_ever};
use crate::scene::{DEAD_LOGS, ON_DISK, Scene};
use crate::{Target, withstand};

withstand!(
    small_dead_letters in in_memory(SMALL_LETTERS),
    large_dead_letters in in_memory(LARGE_LETTERS),
    small_dead_letters_on_disk in on_disk(SMALL_LETTERS),
    large_dead_letters_on_disk in Scene {
        // Hundreds of megabytes a second fill the disk also if all of them are delivered, and a
        // request beside them waits for the disk. The letters must cost it nothing more.
        compared_with: Some(taking_all),
        ..on_disk(LARGE_LETTERS)
    },
);

/// Dead letters of an attack, at least.
const SMALL_LETTERS: f64 = 200.0;
const LARGE_LETTERS: f64 = 5.0;

const fn in_memory(letters: f64) -> Scene {
    let scene = Scene { faults: refusing_most, ..DEAD_LOGS };
    scene.reaches("sluice_delivery_dead_letter_items_total", &[("reason", "rejected")], letters)
}

const fn on_disk(letters: f64) -> Scene {
    Scene { config: ON_DISK, ..in_memory(letters) }
}

fn taking_all() -> Faults {
    Faults { discard: true, ..Faults::default() }
}

/// A backend that takes a tenth: this shows that it refuses the rest for its own sake.
fn refusing_most() -> Faults {
    Faults { discard: true, ..refusing(0.9, Code::InvalidArgument) }
}

const SENDERS: usize = 8;

/// Requests of many small records, each of which becomes a letter.
async fn post_small(target: Target) {
    const RECORDS: usize = 100;
    post_for_ever(target, SENDERS, "", log_of(2).repeat(RECORDS)).await;
}

async fn post_large(target: Target) {
    post_for_ever(target, SENDERS, "", log_of(2 << 20)).await;
}

async fn small_dead_letters(target: Target) {
    post_small(target).await;
}

async fn large_dead_letters(target: Target) {
    post_large(target).await;
}

async fn small_dead_letters_on_disk(target: Target) {
    post_small(target).await;
}

async fn large_dead_letters_on_disk(target: Target) {
    post_large(target).await;
}
