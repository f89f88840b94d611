//! Foreign programs that the tests need: found through `tests/components/env`.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::path::PathBuf;

/// The program that a variable of `tests/components/env` names. `None`: the test skips itself, and
/// this function has said so.
///
/// # Panics
/// If it is missing and SLUICE_TEST_REQUIRE_COMPONENTS=1.
pub(crate) fn component(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if found.is_none() {
        pass_over(&format!("{variable} names no file"));
    }
    found
}

/// Says that a test is skipped, or fails it where everything has to be there.
pub(crate) fn pass_over(reason: &str) {
    let required =
        std::env::var_os("SLUICE_TEST_REQUIRE_COMPONENTS").is_some_and(|value| value == "1");
    assert!(!required, "{reason}: run tests/components/install");
    eprintln!("skipped: {reason} (tests/components/install makes it available)");
}
