//! Makes whole configurations of fragments.

use std::path::Path;

/// The place of a file's text in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// No configuration of Sluice's components: the table says why.
    None,
    /// A whole configuration.
    Whole,
    /// The value at this path; of each of the file's keys, if it ends in `each`, or in `*`, which
    /// stands for the key.
    At(Vec<String>),
}

/// Parts of a configuration, merged in this order.
pub(crate) enum Configuration {
    Whole(String),
    /// The class and the id of a component, if it is one, and the text.
    Fragment {
        class: String,
        id: String,
        text: String,
    },
}

const BASE: &str = "\
receivers:
  otlp/base: {protocols: {grpc: {endpoint: 'localhost:4399'}}}
exporters:
  nop/base:
  otlp_grpc/queue: {endpoint: 'localhost:4399'}
";

/// For exporters and receivers that name an extension which is not in the same file.
const AUTHENTICATOR: &str = "\
extensions:
  bearertokenauth/base: {token: t}
";

impl Place {
    pub(crate) fn parse(text: &str) -> Place {
        match text {
            "-" => Place::None,
            "whole" => Place::Whole,
            path => Place::At(path.split('.').map(str::to_owned).collect()),
        }
    }

    /// The parts of a file, each with its name.
    pub(crate) fn configurations(&self, text: &str) -> Vec<(String, Configuration)> {
        let path = match self {
            Place::None => return Vec::new(),
            Place::Whole => {
                return vec![(String::new(), Configuration::Whole(with_known_components(text)))];
            }
            Place::At(path) => path,
        };
        let (last, start) = path.split_last().expect("a path");
        let parts = match last.as_str() {
            "each" | "*" => keys(text),
            _ => vec![(String::new(), text.to_owned())],
        };
        let configuration = |(key, value): (String, String)| {
            let mut path = start.to_vec();
            match last.as_str() {
                "each" => {}
                "*" => path.push(key.clone()),
                name => path.push(name.to_owned()),
            }
            let value = value.replace("authenticator: test", "authenticator: bearertokenauth/base");
            let value = value.replace("authenticator: nop", "authenticator: bearertokenauth/base");
            let value = value.replace("auth: oauth2client", "auth: bearertokenauth/base");
            let (class, id) = (path[0].clone(), path[1].clone());
            (key, Configuration::Fragment { class, id, text: nested(&path, &value) })
        };
        parts.into_iter().map(configuration).collect()
    }
}

impl Configuration {
    /// Writes the files of the configuration. The locations of each variant, by signal.
    pub(crate) fn write(&self, folder: &Path) -> Vec<Vec<String>> {
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::write(&path, text).expect("writes");
            path.to_string_lossy().into_owned()
        };
        let Configuration::Fragment { class, id, text } = self else {
            let Configuration::Whole(text) = self else { unreachable!("the other variant") };
            return vec![vec![write("whole.yaml", text)]];
        };
        let list = |own: &str, base: &str| if class == own { id.clone() } else { base.to_owned() };
        let (receivers, exporters) =
            (list("receivers", "otlp/base"), list("exporters", "nop/base"));
        let processors = list("processors", "");
        let needs_base = text.contains("bearertokenauth/base");
        let mut extensions = vec![list("extensions", "")];
        extensions.retain(|id| !id.is_empty());
        let mut files = vec![write("base.yaml", BASE)];
        if needs_base {
            files.push(write("authenticator.yaml", AUTHENTICATOR));
            extensions.push("bearertokenauth/base".to_owned());
        }
        files.push(write("fragment.yaml", text));
        if !extensions.is_empty() {
            files.push(format!("yaml:service::extensions: [{}]", extensions.join(", ")));
        }
        let of_signal = |signal: &str| {
            let pipeline = format!(
                "yaml:service::pipelines::{signal}: {{receivers: [{receivers}], processors: \
                 [{processors}], exporters: [{exporters}]}}"
            );
            [&files[..], &[pipeline]].concat()
        };
        let signals: &[&str] = match class.as_str() {
            "processors" | "receivers" => &["traces", "logs", "metrics"],
            _ => &["traces"],
        };
        signals.iter().map(|signal| of_signal(signal)).collect()
    }
}

/// The keys of a mapping with the text of their values.
fn keys(text: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.split_once(':') {
            Some((key, rest)) if !line.starts_with([' ', '#']) => {
                parts.push((key.to_owned(), format!("{rest}\n")));
            }
            _ => {
                if let Some((_, value)) = parts.last_mut() {
                    value.push_str(&format!("{line}\n"));
                }
            }
        }
    }
    parts
}

/// `a: {b: value}` as block mappings.
fn nested(path: &[String], value: &str) -> String {
    let mut text = String::new();
    for (depth, key) in path.iter().enumerate() {
        text.push_str(&format!("{}{key}:\n", "  ".repeat(depth)));
    }
    let indent = "  ".repeat(path.len());
    let lines = value.lines().map(|line| format!("{indent}{line}\n"));
    text + &lines.collect::<String>()
}

/// The Collector's tests use `nop` for what Sluice calls otherwise.
fn with_known_components(text: &str) -> String {
    let mut section = "";
    let mut lines = Vec::new();
    for line in text.lines() {
        if !line.starts_with(' ') && !line.is_empty() {
            section = line.trim_end_matches(':');
        }
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        let (key, rest) = trimmed.split_once(':').unwrap_or((trimmed, ""));
        let connector = key.replace("nop/", "forward/");
        let line = match (section, key) {
            ("receivers", "nop") => "  otlp: {protocols: {grpc: }}".to_owned(),
            ("processors", "nop") => "  batch:".to_owned(),
            ("extensions", "nop") => "  bearertokenauth: {token: t}".to_owned(),
            ("connectors", _) if key.starts_with("nop/") => format!("{indent}{connector}:{rest}"),
            ("service", "receivers" | "processors" | "extensions" | "exporters") => {
                let own = match key {
                    "receivers" => "otlp",
                    "processors" => "batch",
                    "extensions" => "bearertokenauth",
                    _ => "nop",
                };
                let ids = rest.trim().trim_matches(['[', ']']).split(',').map(str::trim);
                let ids = ids.map(|id| match id {
                    "nop" => own.to_owned(),
                    id => id.replace("nop/", "forward/"),
                });
                format!("{indent}{key}: [{}]", ids.collect::<Vec<_>>().join(", "))
            }
            _ => line.to_owned(),
        };
        lines.push(line);
    }
    lines.join("\n") + "\n"
}
