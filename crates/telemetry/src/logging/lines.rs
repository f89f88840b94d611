//! The queue between the threads that log and the one that writes.

use std::collections::VecDeque;
use std::io::{Result, Write};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// At most this many lines wait for the output; further ones are dropped and counted.
const WAITING_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct Lines {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The first one is being written.
    lines: VecDeque<Vec<u8>>,
    /// Since the last line that was taken.
    dropped: u64,
}

impl Lines {
    pub(super) fn start(output: impl Write + Send + 'static) -> Result<Arc<Lines>> {
        let lines = Arc::new(Lines::default());
        let of_thread = lines.clone();
        Builder::new().name("log-output".to_owned()).spawn(move || of_thread.write_to(output))?;
        Ok(lines)
    }

    fn write_to(&self, mut output: impl Write) {
        let mut queue = self.queue.lock();
        loop {
            self.changed.wait_while(&mut queue, |queue| queue.lines.is_empty());
            let line = std::mem::take(&mut queue.lines[0]);
            // There is no other place to say that an output is closed.
            let _ = MutexGuard::unlocked(&mut queue, || output.write_all(&line));
            queue.lines.pop_front();
            self.changed.notify_all();
        }
    }

    /// Waits until no other line waits, so that large text never piles up and displaces no lines.
    pub(super) fn write_when_idle(&self, text: Vec<u8>) {
        let mut queue = self.queue.lock();
        self.changed.wait_while(&mut queue, |queue| !queue.lines.is_empty());
        queue.lines.push_back(text);
        self.changed.notify_all();
    }

    pub(super) fn wait_until_written(&self, limit: Duration) {
        let mut queue = self.queue.lock();
        self.changed.wait_while_for(&mut queue, |queue| !queue.lines.is_empty(), limit);
    }
}

/// Takes a whole line at a time, as `tracing_subscriber` writes it. Never waits for the output.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> Result<usize> {
        let mut queue = self.queue.lock();
        if queue.lines.len() >= WAITING_MAX {
            queue.dropped += 1;
            return Ok(line.len());
        }
        let mut taken = line.to_vec();
        if queue.dropped > 0 {
            // A field more, at the end of a line of JSON or of text.
            let dropped = std::mem::take(&mut queue.dropped);
            let (end, field) = match line.ends_with(b"}\n") {
                true => (2, format!(",\"dropped_lines\":{dropped}}}\n")),
                false => (1, format!(" dropped_lines={dropped}\n")),
            };
            taken.truncate(line.len().saturating_sub(end));
            taken.extend_from_slice(field.as_bytes());
        }
        queue.lines.push_back(taken);
        self.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    /// Scenario: a pipe that is not read, then read again. Guarantee: lines never wait for it, the
    /// next line has the number of dropped ones, and the end waits no longer than it may.
    #[test]
    fn an_output_that_takes_nothing_stops_nothing() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let lines = Lines::start(writer).expect("a thread");
        let text = format!("{{\"a\":\"{}\"}}\n", "x".repeat(100));
        for _ in 0..10_000 {
            (&*lines).write_all(text.as_bytes()).expect("takes it");
        }
        lines.wait_until_written(Duration::from_millis(10));
        assert!(!lines.queue.lock().lines.is_empty());
        let read = BufReader::new(reader).lines().map(|line| line.expect("a line"));
        let (mut written, mut dropped) = (0, 0);
        let mut read = read.inspect(|line| {
            let said = line.split_once(",\"dropped_lines\":").map_or("0", |(_, said)| said);
            dropped += said.trim_end_matches('}').parse::<usize>().expect("a number");
            written += 1;
        });
        // More than the pipe takes: there is room again.
        assert_eq!(read.by_ref().take(1000).count(), 1000);
        (&*lines).write_all(b"{\"a\":\"end\"}\n").expect("takes it");
        assert!(read.by_ref().any(|line| line.contains("end")));
        lines.wait_until_written(Duration::from_secs(10));
        assert!(lines.queue.lock().lines.is_empty());
        lines.queue.lock().dropped = 2;
        (&*lines).write_all(b"INFO a text\n").expect("takes it");
        assert_eq!(read.next().as_deref(), Some("INFO a text dropped_lines=2"));
        assert!(dropped > 0);
        assert_eq!(written + dropped, 10_002);
    }
}
