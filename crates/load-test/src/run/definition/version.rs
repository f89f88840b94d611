//! Asks a program for its version.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A program that does not answer by then has no version.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The first word of its answer that looks like a version.
pub(in crate::run) fn ask(program: &Path, args: &[String]) -> Option<String> {
    if args.is_empty() {
        return None;
    }
    let mut command = Command::new(program);
    let piped =
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().ok()?;
    let began = Instant::now();
    while child.try_wait().ok()?.is_none() {
        if began.elapsed() > ANSWER_WITHIN {
            // An error means that it has just ended.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().ok()?;
    [output.stdout, output.stderr].iter().find_map(|text| find(&String::from_utf8_lossy(text)))
}

/// A word of digits and dots, with or without a `v` before and more behind.
fn find(text: &str) -> Option<String> {
    let number = |word: &str| {
        let word = word.trim_start_matches('v').trim_end_matches([',', ')']);
        let major = word.split('.').next()?;
        let is_number =
            word.contains('.') && !major.is_empty() && major.chars().all(|c| c.is_ascii_digit());
        is_number.then(|| word.to_owned())
    };
    text.split([' ', '\n', '\t', '/', '(']).find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_print() {
        for (text, expected) in [
            ("otelcol version 0.160.0\n", "0.160.0"),
            ("rotel 0.0.1-alpha10", "0.0.1-alpha10"),
            ("Fluent Bit v5.1.0\nGit commit: 0123", "5.1.0"),
            ("vector 0.51.1 (x86_64-unknown-linux-gnu 1b2c 2025-11-01)", "0.51.1"),
            ("nginx version: nginx/1.22.1", "1.22.1"),
            ("Telegraf 1.37.2 (git: HEAD@1)", "1.37.2"),
        ] {
            assert_eq!(find(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!((find("Telegraf unknown"), find("")), (None, None));
    }

    #[test]
    fn a_program_is_asked_and_one_that_says_nothing_has_none() {
        let ask = |script: &str| ask(Path::new("/bin/sh"), &["-c".to_owned(), script.to_owned()]);
        assert_eq!(ask("echo engine 1.2.3 >&2").as_deref(), Some("1.2.3"));
        assert_eq!(ask("true"), None);
    }
}
