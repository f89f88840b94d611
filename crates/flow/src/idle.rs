//! Memory that a thread keeps for its next work.
//!
//! An allocator keeps what a thread frees, and what others free of it, until the thread allocates
//! again. A thread that has worked through a burst and sleeps keeps all of that.

use std::sync::OnceLock;

static GIVE_BACK: OnceLock<fn()> = OnceLock::new();

/// Sets the function that gives back the calling thread's freed memory. The first one stays.
pub fn set_give_back(give_back: fn()) {
    let _ = GIVE_BACK.set(give_back);
}

/// Gives back memory that the calling thread has for its next work: for a thread that has little to
/// do from now on. Takes less than a millisecond.
pub fn give_back() {
    if let Some(give_back) = GIVE_BACK.get() {
        give_back();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    static CALLS: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn memory_is_given_back_as_the_first_says() {
        give_back();
        set_give_back(|| {
            CALLS.fetch_add(1, Ordering::Relaxed);
        });
        set_give_back(|| panic!("the second"));
        give_back();
        assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    }
}
