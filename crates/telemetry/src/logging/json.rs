//! Lines of JSON with the Collector's keys, as its logger zap writes them: `level` in lower case,
//! `ts`, `msg`, then the fields of the event.

use std::fmt::{self, Write as _};

use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

pub(super) struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut line: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        write!(line, "{{\"level\":\"{level}\",\"ts\":\"")?;
        SystemTime.format_time(&mut line)?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { message, rest } = fields;
        writeln!(line, "\",\"msg\":{}{rest}}}", Value::from(message))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    /// `,"name":value` for each.
    rest: String,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        let (name, value) = (Value::from(field.name()), value.into());
        // A `String` takes all that is written.
        let _ = write!(self.rest, ",{name}:{value}");
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            _ => self.add(field, format!("{value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Guarantee: the keys, their order and the level are those of the Collector, and any text
    /// stays one line of valid JSON.
    #[test]
    fn a_line_is_as_the_collector_writes_it() {
        let written = Written::default();
        let of_layer = written.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || of_layer.clone())
            .event_format(JsonLines);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let (error, pipeline) = ("a \"b\"\n", "traces/1");
            tracing::warn!(%pipeline, count = 3, share = 0.5, ok = true, %error, "no {}", 1);
        });
        let text = String::from_utf8(written.0.lock().clone()).expect("UTF-8");
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).expect("JSON");
        let (at, _) = text.split_once("\",\"msg\"").expect("msg after ts");
        let at = at.strip_prefix("{\"level\":\"warn\",\"ts\":\"").expect("level, then ts");
        assert!(at.len() > 20 && at.ends_with('Z') && at.as_bytes()[10] == b'T', "{at}");
        let expected = serde_json::json!({
            "level": "warn", "ts": at, "msg": "no 1", "pipeline": "traces/1", "count": 3,
            "share": 0.5, "ok": true, "error": "a \"b\"\n",
        });
        assert_eq!(line, expected);
    }
}
