//! Structured logs, limited in rate by call site and component: an outage says what is wrong and
//! fills no disk. A thread of its own writes them: an output that takes nothing stops nothing else.

mod json;
mod lines;
mod reports;
mod tap;

use std::collections::HashMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_config::document::{LogSampling, OwnLogs};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::sampler::Sampler;
use json::JsonLines;
use lines::Lines;
pub use reports::{Reports, reports};
pub use tap::{LogQueue, LogTap, push_span};

/// Call sites times components that are told apart; beyond it they share one account.
const ACCOUNTS_MAX: usize = 1024;
/// A file that is created for the log.
const FILE_MODE: u32 = 0o640;
/// The end does not wait longer for an output that takes nothing.
const END_WAIT: Duration = Duration::from_secs(1);

/// Names of the options, except `level`, in which two configurations differ.
fn differing(one: &OwnLogs, other: &OwnLogs) -> Vec<&'static str> {
    let options = [
        ("encoding", one.is_json == other.is_json),
        ("output_paths", one.output == other.output),
        ("sampling", one.sampling == other.sampling),
    ];
    options.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}

/// Changes what a reload of the configuration can change. Dropped, it waits for the last lines.
pub struct LoggingHandle {
    lines: Arc<Lines>,
    tap: Arc<LogTap>,
    level: reload::Handle<EnvFilter, tracing_subscriber::Registry>,
    installed: OwnLogs,
}

impl LoggingHandle {
    /// For lines that are pushed.
    pub fn tap(&self) -> &Arc<LogTap> {
        &self.tap
    }

    /// Sets the level. Returns the names of the other options that differ: they need a restart.
    pub fn apply(&self, options: &OwnLogs) -> Vec<&'static str> {
        let _ = self.level.reload(filter(options.level));
        differing(&self.installed, options)
    }
}

impl Drop for LoggingHandle {
    fn drop(&mut self) {
        self.lines.wait_until_written(END_WAIT);
    }
}

fn filter(level: &str) -> EnvFilter {
    // HTTP libraries log every frame at debug. All of Sluice's crates begin with `sluice`. kube has
    // an error for each request that fails, of which we tell the first one.
    let directives = std::env::var("SLUICE_LOG").unwrap_or_else(|_| match level {
        "debug" | "trace" => format!("warn,kube_client=off,sluice={level}"),
        _ => format!("{level},kube_client=off"),
    });
    // Without the span, lines of pushing would be pushed.
    let span = format!("{}=error", tap::PUSH_TARGET).parse();
    let filter = EnvFilter::builder().parse_lossy(directives);
    span.map(|span| filter.clone().add_directive(span)).unwrap_or(filter)
}

/// Installs the process-wide subscriber. Call once.
///
/// # Errors
/// If the output is a file that cannot be opened, or no thread can be started.
pub fn install(options: &OwnLogs) -> std::io::Result<LoggingHandle> {
    let (level_filter, level) = reload::Layer::new(filter(options.level));
    let (is_terminal, output): (bool, Box<dyn Write + Send>) = match options.output.as_str() {
        "stderr" => (std::io::stderr().is_terminal(), Box::new(std::io::stderr())),
        "stdout" => (std::io::stdout().is_terminal(), Box::new(std::io::stdout())),
        path => (false, Box::new(open(Path::new(path))?)),
    };
    let lines = Lines::start(output)?;
    reports::install(lines.clone(), options.is_json);
    let limit = RateLimit { sampling: options.sampling, accounts: Mutex::default() };
    let layer = tracing_subscriber::fmt::layer().with_writer(lines.clone()).with_target(false);
    let layer = match options.is_json {
        false => layer.with_ansi(is_terminal).boxed(),
        true => layer.event_format(JsonLines).boxed(),
    };
    let tap = Arc::<LogTap>::default();
    let layer = layer.and_then(tap::TapLayer(tap.clone())).with_filter(limit);
    let _ = tracing_subscriber::registry().with(level_filter).with(layer).try_init();
    Ok(LoggingHandle { lines, tap, level, installed: options.clone() })
}

/// Opens the log's file, which may have texts of telemetry and peers: not for all users.
fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(FILE_MODE).open(path)
}

/// Lets through this many alike events a tick, and then samples.
struct RateLimit {
    sampling: Option<LogSampling>,
    accounts: Mutex<HashMap<u64, Sampler>>,
}

impl RateLimit {
    /// Whether an event may be written.
    fn admit(&self, key: u64, now: Instant) -> bool {
        let Some(sampling) = self.sampling else { return true };
        let mut accounts = self.accounts.lock();
        let key =
            if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&key) { 0 } else { key };
        accounts.entry(key).or_default().takes(sampling, now)
    }
}

/// The fields that tell components, and kinds of objects that one watches, apart.
struct ComponentHash(DefaultHasher);

impl Visit for ComponentHash {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(
            field.name(),
            "pipeline" | "exporter" | "receiver" | "component" | "destination" | "objects"
        ) {
            // Names are logged with `%`, whose `Debug` is their `Display`: this allocates nothing.
            let _ = fmt::Write::write_fmt(self, format_args!("{value:?}"));
        }
    }
}

impl fmt::Write for ComponentHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl<S: Subscriber> Filter<S> for RateLimit {
    fn enabled(&self, _: &tracing::Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() >= Level::DEBUG {
            return true;
        }
        let mut component = ComponentHash(DefaultHasher::new());
        metadata.callsite().hash(&mut component.0);
        event.record(&mut component);
        self.admit(component.0.finish(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn limit() -> RateLimit {
        let tick = Duration::from_secs(10);
        let sampling = Some(LogSampling { tick, initial: 10, thereafter: 100 });
        RateLimit { sampling, accounts: Mutex::default() }
    }

    /// Guarantee: other users cannot read a log file that is created, and one that exists keeps its
    /// mode.
    #[test]
    fn log_files_are_not_for_all_users() {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::temp_dir().join(format!("sluice-log-{}", std::process::id()));
        let mode = |file: File| file.metadata().expect("a file").permissions().mode() & 0o777;
        // The umask of the tests may take more.
        assert_eq!(mode(open(&path).expect("opens")) & !0o640, 0);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o604)).expect("is set");
        assert_eq!(mode(open(&path).expect("opens")), 0o604);
        std::fs::remove_file(&path).expect("is removed");
    }

    #[test]
    fn a_flood_of_alike_events_is_sampled_and_others_are_not_touched() {
        let limit = limit();
        let now = Instant::now();
        let written = (0..1010).filter(|_| limit.admit(1, now)).count();
        assert_eq!(written, 10 + 10, "the burst, then one of a hundred");
        assert!(limit.admit(2, now), "another component is heard");
        assert!(limit.admit(1, now + Duration::from_secs(10)), "the next window begins anew");
    }

    struct Written(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Scenario: fifty kinds of objects cannot be watched, each of which is told once. Guarantee:
    /// all are told, and one that is told again and again is sampled.
    #[test]
    fn each_kind_of_objects_is_heard() {
        let written = Arc::new(AtomicUsize::new(0));
        let layer = Written(Arc::clone(&written)).with_filter(limit());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let tell = |objects: usize| tracing::warn!(objects, "cannot be watched");
            (0..50).for_each(tell);
            assert_eq!(written.load(Ordering::Relaxed), 50);
            (0..50).for_each(|_| tell(99));
        });
        assert_eq!(written.load(Ordering::Relaxed), 50 + 10);
    }

    #[test]
    fn all_but_the_level_needs_a_restart() {
        let installed = OwnLogs {
            level: "info",
            is_json: false,
            output: "stderr".to_owned(),
            sampling: limit().sampling,
            processors: Vec::new(),
        };
        let quieter = OwnLogs { level: "debug", ..installed.clone() };
        assert!(differing(&installed, &quieter).is_empty());
        let other = OwnLogs {
            is_json: true,
            output: "stdout".to_owned(),
            sampling: None,
            ..installed.clone()
        };
        assert_eq!(differing(&installed, &other), ["encoding", "output_paths", "sampling"]);
    }

    #[test]
    fn the_accounts_are_bounded() {
        let limit = limit();
        let now = Instant::now();
        for key in 1..100_000 {
            limit.admit(key, now);
        }
        assert!(limit.accounts.lock().len() <= ACCOUNTS_MAX + 1);
    }
}
