//! Disks that fail, for tests.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of this")]

pub mod at_rest;
pub mod calls;
pub mod faulty_disk;
pub mod faulty_file;
pub mod frames;
pub mod memory_file;
pub mod names;
pub mod no_sync;
pub mod note;
pub mod troubles;
