//! Output of commands for people. A reader that has ended (`| head`) is no error.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;

/// Writes to the standard output, as the last step of a command.
pub(crate) fn print(text: &str) -> Result<ExitCode> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(anyhow::Error::new(error).context("cannot write to the standard output"))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a line to the standard error. Unlike `eprintln!`, it does not panic where that is closed.
macro_rules! complain {
    ($($message:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($message)*);
    }};
}
pub(crate) use complain;
