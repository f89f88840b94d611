//! The allocator, and how soon it gives freed memory back.
//!
//! Each thread keeps freed memory for some milliseconds, and has fragments of its own. With sixteen
//! threads that can exceed the memory of all requests: up to 140 MiB were resident while a sender
//! of gzip members that hold nothing had 13 MiB in flight. Returning memory at once halves that,
//! but doubles the CPU time of a request, so it is done only while memory is short.
//!
//! Memory that another thread frees returns to the thread that took it, which collects it only at
//! every 100th page that it asks for, or when it ends. A block above 64 KiB is a page of its own:
//! sixteen threads kept 100 MiB of bodies of 2 MiB that other threads had freed, while 30 MiB were
//! in use. So a block of a megabyte or more is a mapping, which ends with it on any thread.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ffi::{mi_collect as collect, mi_option_get as option, mi_option_set as set_option};
use sluice_engine::process;

/// Byte buffers of all sizes are often allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mapped::Mapped = mapped::Mapped;

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

/// Returns the memory that the calling thread keeps, and that others have freed of it.
pub(crate) fn give_back() {
    collect(true);
}

/// Returns freed memory at once while memory is short.
pub(crate) async fn keep_within_limit() {
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

#[allow(unsafe_code)]
mod mapped {
    use std::alloc::{GlobalAlloc, Layout};
    use std::ptr::{copy_nonoverlapping, null_mut};

    use mimalloc::MiMalloc;
    use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

    /// Blocks from here on are mapped. That costs a tenth of a millisecond for each megabyte, which
    /// smaller blocks, being more frequent, cannot afford.
    const MAPPED_BYTES: usize = 1 << 20;
    /// The alignment of a mapping, at least.
    const PAGE_BYTES: usize = 4 << 10;

    /// mimalloc, and mappings of their own for large blocks.
    pub(super) struct Mapped;

    fn is_mapped(layout: Layout) -> bool {
        layout.size() >= MAPPED_BYTES && layout.align() <= PAGE_BYTES
    }

    /// Null if there is no memory, as an allocator has to tell.
    fn map(bytes: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address of a new mapping. It populates it at once, which
        // takes half as long as a fault for each page.
        let mapped = unsafe {
            mmap_anonymous(null_mut(), bytes, access, MapFlags::PRIVATE | MapFlags::POPULATE)
        };
        mapped.map_or(null_mut(), |it| it.cast())
    }

    // SAFETY: a layout alone decides where a block comes from, and its size is that of the mapping.
    unsafe impl GlobalAlloc for Mapped {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if is_mapped(layout) {
                return map(layout.size());
            }
            // SAFETY: as the caller assures.
            unsafe { MiMalloc.alloc(layout) }
        }

        unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
            if is_mapped(layout) {
                return map(layout.size());
            }
            // SAFETY: as the caller assures.
            unsafe { MiMalloc.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the caller gives back a block of this layout, which it does not use any more.
            unsafe {
                if is_mapped(layout) {
                    // It fails only where the kernel cannot split a mapping, which stays then.
                    let _ = munmap(block.cast(), layout.size());
                } else {
                    MiMalloc.dealloc(block, layout);
                }
            }
        }

        unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
            // SAFETY: the caller assures that the new size is valid with this alignment, and that
            // the block is of this layout.
            unsafe {
                let new = Layout::from_size_align_unchecked(new_size, layout.align());
                match (is_mapped(layout), is_mapped(new)) {
                    (false, false) => MiMalloc.realloc(block, layout, new_size),
                    (true, true) => {
                        let moved =
                            mremap(block.cast(), layout.size(), new_size, MremapFlags::MAYMOVE);
                        moved.map_or(null_mut(), |it| it.cast())
                    }
                    _ => {
                        let moved = self.alloc(new);
                        if !moved.is_null() {
                            copy_nonoverlapping(block, moved, layout.size().min(new_size));
                            self.dealloc(block, layout);
                        }
                        moved
                    }
                }
            }
        }
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

    /// Scenario: a large block grows, shrinks below a mapping and grows again. Guarantee: it keeps
    /// its content, and what is new is zero where that was asked for.
    #[test]
    fn blocks_keep_their_content_on_the_way_to_a_mapping_and_back() {
        let mut block: Vec<u8> = (0..100_u8).collect();
        for size in [1 << 20, 5_000_001, (1 << 20) - 1, 3 << 20, 100] {
            block.reserve_exact(size - block.len().min(size));
            block.resize(size, 0);
            block.shrink_to_fit();
            assert!(block[..100].iter().copied().eq(0..100));
            assert!(block[100..].iter().all(|byte| *byte == 0), "{size}");
        }
        assert!(vec![0_u8; 2 << 20].iter().all(|byte| *byte == 0));
    }
}
