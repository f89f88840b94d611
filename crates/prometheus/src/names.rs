//! Names of metrics, labels and units, as Prometheus' `otlptranslator` makes them.

use crate::settings::Settings;

/// The translation of names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    #[default]
    UnderscoreEscapingWithSuffixes,
    UnderscoreEscapingWithoutSuffixes,
    NoUtf8EscapingWithSuffixes,
    NoTranslation,
}

impl Strategy {
    /// All strategies by the names that options have.
    pub const ALL: [(&'static str, Strategy); 4] = [
        ("UnderscoreEscapingWithSuffixes", Strategy::UnderscoreEscapingWithSuffixes),
        ("UnderscoreEscapingWithoutSuffixes", Strategy::UnderscoreEscapingWithoutSuffixes),
        ("NoUTF8EscapingWithSuffixes", Strategy::NoUtf8EscapingWithSuffixes),
        ("NoTranslation", Strategy::NoTranslation),
    ];

    /// Whether names have letters, digits, underscores and colons only.
    pub fn escapes(self) -> bool {
        use Strategy::*;
        matches!(self, UnderscoreEscapingWithSuffixes | UnderscoreEscapingWithoutSuffixes)
    }

    fn adds_suffixes(self) -> bool {
        use Strategy::*;
        matches!(self, UnderscoreEscapingWithSuffixes | NoUtf8EscapingWithSuffixes)
    }
}

/// The kind of a metric, as far as its suffix depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suffix {
    Counter,
    Gauge,
    Other,
}

const UNITS: [(&str, &str); 26] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
];

const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

fn looked_up<'a>(table: &[(&str, &'a str)], unit: &'a str) -> &'a str {
    table.iter().find(|(name, _)| *name == unit).map_or(unit, |(_, long)| long)
}

fn is_metric_char(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b':'
}

/// The parts between characters that a name of a metric cannot have.
fn tokens(name: &str, keeps_underscores: bool) -> impl Iterator<Item = &str> {
    let is_part = move |found: char| match u8::try_from(found) {
        Ok(byte) => is_metric_char(byte) || (keeps_underscores && byte == b'_'),
        Err(_) => false,
    };
    name.split(move |found| !is_part(found)).filter(|part| !part.is_empty())
}

fn joined<'a>(tokens: impl Iterator<Item = &'a str>) -> String {
    let mut name = String::new();
    for token in tokens {
        if !name.is_empty() {
            name.push('_');
        }
        name.push_str(token);
    }
    name
}

/// The unit before and behind the slash: `meters` and `per_second`.
fn unit_suffixes(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let known = |part: &'_ str| !part.is_empty() && !part.contains(['{', '}']);
    let (main, per) = (main.trim(), per.trim());
    let main = if known(main) { looked_up(&UNITS, main) } else { "" };
    let per = if known(per) { looked_up(&PER_UNITS, per) } else { "" };
    (main.to_owned(), if per.is_empty() { String::new() } else { format!("per_{per}") })
}

/// Underscores for all that a name cannot have, none twice, none in front.
fn clean_unit(unit: &str) -> String {
    let mut clean = String::with_capacity(unit.len());
    for found in unit.chars() {
        match u8::try_from(found) {
            Ok(byte) if is_metric_char(byte) => clean.push(found),
            _ if clean.ends_with('_') => {}
            _ => clean.push('_'),
        }
    }
    clean.strip_prefix('_').map(str::to_owned).unwrap_or(clean)
}

/// The name of a metric. `None`: nothing is left of it.
pub(crate) fn metric_name(
    strategy: Strategy,
    namespace: &str,
    name: &str,
    unit: &str,
    suffix: Suffix,
) -> Option<String> {
    if !strategy.escapes() {
        let name = unescaped_name(strategy, namespace, name, unit, suffix);
        return (!name.is_empty()).then_some(name);
    }
    let namespace = joined(tokens(namespace, true));
    let mut built = match strategy.adds_suffixes() {
        true => suffixed_name(&namespace, name, unit, suffix),
        false => {
            let parts = Some(&*namespace).filter(|it| !it.is_empty()).into_iter();
            let own = joined(tokens(name, true));
            joined(parts.chain([&*own]))
        }
    };
    if built.starts_with(|first: char| first.is_ascii_digit()) {
        built.insert(0, '_');
    }
    let is_name = built == name || built.bytes().any(|byte| byte != b'_');
    (is_name && !built.is_empty()).then_some(built)
}

fn suffixed_name(namespace: &str, name: &str, unit: &str, suffix: Suffix) -> String {
    let mut parts: Vec<&str> = tokens(name, false).collect();
    let (main, per) = unit_suffixes(unit);
    let (main, per) = (clean_unit(&main), clean_unit(&per));
    let main = if parts.contains(&&*main) { "" } else { &*main };
    let per = if per == "per_" { "" } else { per.strip_suffix('_').unwrap_or(&per) };
    let per = if parts.contains(&per) { "" } else { per };
    let main = if per.is_empty() { main } else { main.strip_suffix('_').unwrap_or(main) };
    parts.extend([main, per].into_iter().filter(|part| !part.is_empty()));
    let last = match suffix {
        Suffix::Counter => Some("total"),
        // Counters of objects often have the unit 1, too: they are no ratios.
        Suffix::Gauge if unit == "1" => Some("ratio"),
        _ => None,
    };
    if let Some(last) = last {
        parts.retain(|part| *part != last);
        parts.push(last);
    }
    joined(Some(namespace).filter(|it| !it.is_empty()).into_iter().chain(parts))
}

/// A name in which all characters may stand.
fn unescaped_name(
    strategy: Strategy,
    namespace: &str,
    name: &str,
    unit: &str,
    suffix: Suffix,
) -> String {
    let mut built = match namespace {
        "" => name.to_owned(),
        namespace => format!("{namespace}_{name}"),
    };
    if !strategy.adds_suffixes() {
        return built;
    }
    // A suffix is taken off with the character before it, and put back behind the unit.
    let take_off = |built: &mut String, suffix: &str| {
        if built.ends_with(suffix) && built.len() > suffix.len() + 1 {
            let end = built.len() - suffix.len();
            let before = built[..end].chars().next_back().map_or(0, char::len_utf8);
            built.truncate(end - before);
        }
    };
    let mut last = "";
    if unit == "1" && suffix == Suffix::Gauge {
        last = "ratio";
    } else if suffix == Suffix::Counter {
        last = "total";
    }
    if !last.is_empty() {
        take_off(&mut built, last);
    }
    let (main, per) = unit_suffixes(unit);
    if !per.is_empty() {
        take_off(&mut built, &per);
    }
    if !main.is_empty() && !built.ends_with(&main) {
        built.push('_');
        built.push_str(&main);
    }
    for part in [&*per, last] {
        if !part.is_empty() {
            built.push('_');
            built.push_str(part);
        }
    }
    built
}

/// The name of the series that tells the attributes of a resource.
pub(crate) fn target_name(settings: &Settings) -> Option<String> {
    let name = match &*settings.namespace {
        "" => "target_info".to_owned(),
        namespace => format!("{namespace}_target_info"),
    };
    metric_name(settings.strategy, "", &name, "", Suffix::Other)
}

/// The unit of metadata: `bytes_per_second`.
pub(crate) fn unit_name(strategy: Strategy, unit: &str) -> String {
    let (main, per) = unit_suffixes(unit);
    let clean = |unit: String| if strategy.escapes() { clean_unit(&unit) } else { unit };
    let (main, per) = (clean(main), clean(per));
    let both = joined([&*main, &*per].into_iter().filter(|part| !part.is_empty()));
    let both = both.strip_prefix('_').unwrap_or(&both);
    both.strip_suffix('_').unwrap_or(both).to_owned()
}

/// The name of a label. `None`: nothing is left of it.
pub(crate) fn label_name(strategy: Strategy, name: &str) -> Option<String> {
    if !strategy.escapes() {
        return name.bytes().any(|byte| byte != b'_').then(|| name.to_owned());
    }
    let inner = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
    let mut built = String::with_capacity(name.len() + 4);
    for found in inner.unwrap_or(name).chars() {
        match found.is_ascii_alphanumeric() {
            true => built.push(found),
            false if built.ends_with('_') => {}
            false => built.push('_'),
        }
    }
    if inner.is_some() {
        built = format!("__{built}__");
    } else if built.starts_with(|first: char| first.is_ascii_digit()) {
        built.insert_str(0, "key_");
    } else if built.starts_with('_') {
        built.insert_str(0, "key");
    }
    built.bytes().any(|byte| byte != b'_').then_some(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(strategy: Strategy, namespace: &str, metric: (&str, &str, Suffix)) -> String {
        let (name, unit, suffix) = metric;
        metric_name(strategy, namespace, name, unit, suffix).unwrap_or_default()
    }

    /// Guarantee: the names of `otlptranslator`'s own tests.
    #[test]
    fn metrics_are_named_as_prometheus_names_them() {
        use Strategy::*;
        use Suffix::*;
        for (strategy, namespace, metric, expected) in [
            (UnderscoreEscapingWithoutSuffixes, "", ("simple_metric", "", Gauge), "simple_metric"),
            (UnderscoreEscapingWithoutSuffixes, "", ("a@b#c$d", "", Gauge), "a_b_c_d"),
            (UnderscoreEscapingWithoutSuffixes, "", ("123m", "", Gauge), "_123m"),
            (UnderscoreEscapingWithoutSuffixes, "ns", ("m", "s", Gauge), "ns_m"),
            (UnderscoreEscapingWithoutSuffixes, "", ("a@@@b.__c", "", Gauge), "a_b___c"),
            (UnderscoreEscapingWithoutSuffixes, "", ("@#$%", "", Gauge), ""),
            (UnderscoreEscapingWithSuffixes, "", ("requests", "", Counter), "requests_total"),
            (UnderscoreEscapingWithSuffixes, "", ("total.count", "1", Counter), "count_total"),
            (UnderscoreEscapingWithSuffixes, "", ("cpu.use", "1", Gauge), "cpu_use_ratio"),
            (UnderscoreEscapingWithSuffixes, "", ("io", "By/s", Gauge), "io_bytes_per_second"),
            (UnderscoreEscapingWithSuffixes, "", ("io.bytes", "By", Gauge), "io_bytes"),
            (UnderscoreEscapingWithSuffixes, "", ("x", "{packet}", Counter), "x_total"),
            (UnderscoreEscapingWithSuffixes, "", ("x", "{req}/s", Gauge), "x_per_second"),
            (UnderscoreEscapingWithSuffixes, "", ("a__b_c", "", Other), "a_b_c"),
            (UnderscoreEscapingWithSuffixes, "ns", ("t", "ms", Other), "ns_t_milliseconds"),
            (UnderscoreEscapingWithSuffixes, "", ("字", "", Other), ""),
            (UnderscoreEscapingWithSuffixes, "", ("x", "_foo_/_", Other), "x_foo_"),
            (NoUtf8EscapingWithSuffixes, "", ("a.b", "s", Counter), "a.b_seconds_total"),
            (NoUtf8EscapingWithSuffixes, "", ("a.b.total", "By/s", Counter), {
                "a.b_bytes_per_second_total"
            }),
            (NoUtf8EscapingWithSuffixes, "n", ("a_ratio", "1", Gauge), "n_a_ratio"),
            (NoTranslation, "", ("a.b", "s", Counter), "a.b"),
            (NoTranslation, "", ("", "s", Counter), ""),
        ] {
            assert_eq!(name(strategy, namespace, metric), expected, "{strategy:?} {metric:?}");
        }
        // The character before a suffix may have several bytes.
        let odd = name(NoUtf8EscapingWithSuffixes, "", ("xé字total", "", Counter));
        assert_eq!(odd, "xé_total");
    }

    #[test]
    fn labels_are_named_as_prometheus_names_them() {
        let of = |name| label_name(Strategy::default(), name).unwrap_or_default();
        for (name, expected) in [
            ("http.method", "http_method"),
            ("label:with:colons", "label_with_colons"),
            ("123label", "key_123label"),
            ("_private", "key_private"),
            ("__a", "key_a"),
            ("__reserved__label__", "__reserved_label__"),
            ("a__b..c", "a_b_c"),
            ("trailing___", "trailing_"),
            ("字", "key_"),
            ("____", ""),
            ("_", "key_"),
            ("", ""),
        ] {
            assert_eq!(of(name), expected, "{name}");
        }
        let kept = |name| label_name(Strategy::NoTranslation, name);
        assert_eq!(kept("http.method").as_deref(), Some("http.method"));
        assert_eq!(kept("__"), None);
    }

    #[test]
    fn units_are_named_as_prometheus_names_them() {
        let of = |unit| unit_name(Strategy::default(), unit);
        for (unit, expected) in [
            ("By", "bytes"),
            ("By/s", "bytes_per_second"),
            ("1", ""),
            ("{packet}/m", "per_minute"),
            ("_x!_", "x"),
        ] {
            assert_eq!(of(unit), expected, "{unit}");
        }
    }
}
