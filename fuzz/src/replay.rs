//! Replays the committed corpus on the stable compiler: each input as it is and with a bounded
//! number of changes, always the same ones. Included by a test of each crate whose decoders are
//! fuzzed.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use fastrand::Rng;

pub type Check = fn(&[u8]);

fn corpus(manifest: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(manifest).join("../../fuzz/corpus").join(target);
    let entries =
        fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    // The order of a directory is not everywhere the same; the changes depend on it.
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).expect("an input"))).collect()
}

/// Every committed input of the targets passes its check, and so does every change of it.
/// `manifest`: the directory of the crate that calls.
pub fn replay(manifest: &str, targets: &[(&str, Check)], changes_per_input: u64) {
    for (target, check) in targets {
        let inputs = corpus(manifest, target);
        assert!(inputs.len() >= 2, "{target} has {} inputs", inputs.len());
        for (number, (path, input)) in inputs.iter().enumerate() {
            run(*check, input, path);
            let (_, other) = &inputs[(number + 1) % inputs.len()];
            for change in 0..changes_per_input {
                let changed =
                    changed(input, other, &mut Rng::with_seed(change << 16 | number as u64));
                run(*check, &changed, path);
            }
        }
    }
}

fn run(check: Check, input: &[u8], path: &Path) {
    if let Err(panic) = panic::catch_unwind(|| check(input)) {
        eprintln!("from {}, as hexadecimal: {}", path.display(), hexadecimal(input));
        panic::resume_unwind(panic);
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One to four of the changes that fuzzers make: flipped bits, other bytes, cuts, repetitions, a
/// part of another input.
fn changed(input: &[u8], other: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..rng.usize(1..=4) {
        let at = rng.usize(..bytes.len().max(1));
        if bytes.is_empty() {
            bytes.push(rng.u8(..));
            continue;
        }
        match rng.u8(..7) {
            0 => bytes[at] ^= 1 << rng.u8(..8),
            1 => bytes[at] = rng.u8(..),
            2 => bytes[at] = [0x00, 0x7f, 0x80, 0xff, b'"', b'{'][rng.usize(..6)],
            3 => bytes.truncate(at),
            4 => bytes.insert(at, rng.u8(..)),
            5 => {
                let end = (at + rng.usize(1..16)).min(bytes.len());
                let repeated = bytes[at..end].to_vec();
                bytes.splice(at..at, repeated);
            }
            _ => {
                let start = rng.usize(..=other.len());
                let end = (start + rng.usize(..32)).min(other.len());
                bytes.splice(at..at, other[start..end].iter().copied());
            }
        }
    }
    bytes
}
