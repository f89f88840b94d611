//! The allocator, and how soon it gives freed memory back.
//!
//! Each thread keeps freed memory for some milliseconds, and has fragments of its own. With sixteen
//! threads that can exceed the memory of all requests: up to 140 MiB were resident while a sender
//! of gzip members that hold nothing had 13 MiB in flight. Returning memory at once halves that,
//! but doubles the CPU time of a request, so it is done only while memory is short.
//!
//! Memory that another thread frees returns to the thread that took it, which collects it only at
//! every 100th page that it asks for, or when it ends. A block above 64 KiB is a page of its own: a
//! thread that inflates large requests would keep a hundred, so it collects before each one.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ffi::{mi_collect as collect, mi_option_get as option, mi_option_set as set_option};
use sluice_engine::process;
use sluice_net::compress;

/// Byte buffers of all sizes are often allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Limit of the process's memory; none yet.
static LIMIT_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Interval of checking the resident memory.
const INTERVAL: Duration = Duration::from_millis(50);

/// Number of the option `mi_option_purge_delay`, which is in milliseconds, in mimalloc 2.
const PURGE_DELAY: c_int = 15;
const AT_ONCE: c_long = 0;

/// Sets the memory limit. Memory is short above three quarters of it.
pub(crate) fn set_limit(bytes: u64) {
    LIMIT_BYTES.store(bytes, Ordering::Relaxed);
}

/// Returns freed memory at once while memory is short, and always before a large payload.
pub(crate) async fn keep_within_limit() {
    compress::set_before_large(|| collect(false));
    let soon = option(PURGE_DELAY);
    let mut looks = tokio::time::interval(INTERVAL);
    loop {
        looks.tick().await;
        let is_short = process::resident_bytes() > LIMIT_BYTES.load(Ordering::Relaxed) / 4 * 3;
        set_option(PURGE_DELAY, if is_short { AT_ONCE } else { soon });
        if is_short {
            // Memory that ended threads left behind, and that was freed since.
            collect(false);
        }
    }
}

#[allow(unsafe_code)]
mod ffi {
    use std::ffi::{c_int, c_long};

    // Part of the library that holds the allocator; the crate has no safe functions for them.
    unsafe extern "C" {
        pub(super) safe fn mi_collect(is_forced: bool);
        pub(super) safe fn mi_option_get(option: c_int) -> c_long;
        pub(super) safe fn mi_option_set(option: c_int, value: c_long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: the number names the option that it should, whatever version is linked.
    #[test]
    fn the_option_is_the_delay() {
        let default = 10;
        assert_eq!(option(PURGE_DELAY), default);
        set_option(PURGE_DELAY, AT_ONCE);
        assert_eq!(option(PURGE_DELAY), AT_ONCE);
        set_option(PURGE_DELAY, default);
    }
}
