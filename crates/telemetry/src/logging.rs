//! Structured logs on standard error, limited in rate by call site and component, so that an outage says what is wrong
//! without filling a disk.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

/// So many alike events a window are written, the rest are counted and summed up.
const BURST: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);
/// Call sites times components that are told apart; beyond it they share one account.
const ACCOUNTS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    #[default]
    Console,
    Json,
}

/// Changes the level while running (reload of the configuration).
pub struct LevelHandle(reload::Handle<EnvFilter, tracing_subscriber::Registry>);

impl LevelHandle {
    pub fn set(&self, level: &str) {
        let _ = self.0.reload(filter(level));
    }
}

fn filter(level: &str) -> EnvFilter {
    // HTTP libraries log every frame at debug: they stay at warn unless asked for.
    let own = std::env::var("SLUICE_LOG").unwrap_or_else(|_| {
        if level == "debug" || level == "trace" { format!("warn,sluice={level}") } else { level.to_owned() }
    });
    EnvFilter::builder().parse_lossy(with_own_crates(&own))
}

/// `sluice=LEVEL` means all of Sluice's crates.
fn with_own_crates(directives: &str) -> String {
    let mut all = Vec::new();
    for directive in directives.split(',') {
        all.push(directive.to_owned());
        if let Some(level) = directive.strip_prefix("sluice=") {
            for name in ["engine", "net", "receivers", "processors", "exporters", "load_test"] {
                all.push(format!("sluice_{name}={level}"));
            }
        }
    }
    all.join(",")
}

/// Installs the process-wide subscriber. Call once.
pub fn install(level: &str, encoding: Encoding) -> LevelHandle {
    let (level_filter, handle) = reload::Layer::new(filter(level));
    let writer = std::io::stderr;
    let layer = match encoding {
        Encoding::Console => tracing_subscriber::fmt::layer()
            .with_writer(writer)
            .with_target(false)
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .with_filter(RateLimit::default())
            .boxed(),
        Encoding::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(writer)
            .with_filter(RateLimit::default())
            .boxed(),
    };
    let _ = tracing_subscriber::registry().with(level_filter).with(layer).try_init();
    LevelHandle(handle)
}

struct Account {
    since: Instant,
    written: u32,
    suppressed: u64,
}

/// Lets through a burst of alike events a window.
#[derive(Default)]
struct RateLimit {
    accounts: Mutex<HashMap<u64, Account>>,
}

impl RateLimit {
    /// Whether an event may be written, and how many before it were not.
    fn admit(&self, key: u64, now: Instant) -> (bool, u64) {
        let mut accounts = self.accounts.lock();
        let key = if accounts.len() >= ACCOUNTS_MAX && !accounts.contains_key(&key) { 0 } else { key };
        let account = accounts.entry(key).or_insert(Account { since: now, written: 0, suppressed: 0 });
        let mut before = 0;
        if now.saturating_duration_since(account.since) >= WINDOW {
            before = account.suppressed;
            *account = Account { since: now, written: 0, suppressed: 0 };
        }
        if account.written >= BURST {
            account.suppressed += 1;
            return (false, 0);
        }
        account.written += 1;
        (true, before)
    }
}

/// The fields that tell components apart.
struct ComponentHash(DefaultHasher);

impl Visit for ComponentHash {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), "pipeline" | "exporter" | "receiver" | "component") {
            format!("{value:?}").hash(&mut self.0);
        }
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
        let (admitted, suppressed) = self.admit(component.0.finish(), Instant::now());
        if suppressed > 0 {
            eprintln!("({suppressed} messages like the next one were not written)");
        }
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_alike_events_is_cut_and_summed_up_and_others_are_not_touched() {
        let limit = RateLimit::default();
        let now = Instant::now();
        let written = (0..1000).filter(|_| limit.admit(1, now).0).count();
        assert_eq!(written, BURST as usize);
        assert_eq!(limit.admit(2, now), (true, 0), "another component is heard");
        assert_eq!(limit.admit(1, now + WINDOW), (true, 990), "the next window says how many were left out");
    }

    #[test]
    fn the_accounts_are_bounded() {
        let limit = RateLimit::default();
        let now = Instant::now();
        for key in 1..100_000 {
            limit.admit(key, now);
        }
        assert!(limit.accounts.lock().len() <= ACCOUNTS_MAX + 1);
    }
}
