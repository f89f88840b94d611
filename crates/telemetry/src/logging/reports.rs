//! Text of components that is written like log lines: to the log's output, in its format, at
//! `info`. It is not rate-limited and not pushed.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use super::lines::Lines;

static REPORTS: OnceLock<Reports> = OnceLock::new();

/// The log's output.
pub struct Reports {
    lines: Arc<Lines>,
    is_json: bool,
}

/// The output of the process's log. `None` while no log is installed, or if its level is above
/// `info`.
pub fn reports() -> Option<&'static Reports> {
    REPORTS.get().filter(|_| tracing::enabled!(tracing::Level::INFO))
}

pub(super) fn install(lines: Arc<Lines>, is_json: bool) {
    let _ = REPORTS.set(Reports { lines, is_json });
}

impl Reports {
    /// Writes a message with fields, the members of a JSON object (`"a": 1, "b": 2`). Blocks until
    /// the output has taken all lines before it.
    pub fn write(&self, message: &str, fields: &str) {
        let mut text = String::new();
        // A `String` takes all that is written.
        let _ = self.format(message, fields, &mut text);
        self.lines.write_when_idle(text.into_bytes());
    }

    fn format(&self, message: &str, fields: &str, text: &mut String) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let message = message.strip_suffix('\n').unwrap_or(message);
        match self.is_json {
            true => {
                let message = Value::from(message);
                let comma = if fields.is_empty() { "" } else { "," };
                let head = format!("{{\"level\":\"info\",\"ts\":\"{time}\",\"msg\":{message}");
                writeln!(text, "{head}{comma}{fields}}}")
            }
            false if fields.is_empty() => writeln!(text, "{time}\tinfo\t{message}"),
            false => writeln!(text, "{time}\tinfo\t{message}\t{{{fields}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    fn written(is_json: bool, lines: usize) -> Vec<String> {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let lines_of_log = Lines::start(writer).expect("a thread");
        let reports = Reports { lines: lines_of_log, is_json };
        reports.write("Traces", "\"spans\": 2");
        reports.write("two\nlines\n", "");
        let read = BufReader::new(reader).lines().take(lines);
        read.map(|line| line.expect("a line")).collect()
    }

    /// Guarantee: with `encoding: json` each message is one line of valid JSON, with the keys of
    /// other log lines; else it is text with time and level.
    #[test]
    fn messages_have_the_format_of_the_log() {
        let json = written(true, 2);
        let json: Vec<Value> =
            json.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for (line, message) in json.iter().zip(["Traces", "two\nlines"]) {
            assert_eq!((&line["level"], &line["msg"]), (&"info".into(), &message.into()), "{line}");
            assert!(line["ts"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");
        }
        assert_eq!((&json[0]["spans"], json[1].get("spans")), (&2.into(), None));
        let text = written(false, 3);
        assert!(text[0].ends_with("Z\tinfo\tTraces\t{\"spans\": 2}"), "{text:?}");
        assert!(text[1].ends_with("Z\tinfo\ttwo") && text[2] == "lines", "{text:?}");
    }
}
