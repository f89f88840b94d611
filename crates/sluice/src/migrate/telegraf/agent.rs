//! `[agent]` and `[global_tags]`.

use super::parts::{Agent, Host};
use super::source::Section;
use super::values::{self, Place};
use crate::migrate::report::Report;

const REFUSED: [(&str, &str); 3] = [
    ("logfile", "write the file's name into `service.telemetry.logs.output_paths`"),
    (
        "statefile",
        "set `buffer.directory`: the places in files are kept there, with what is not sent yet",
    ),
    ("logtarget", "Sluice logs to the standard error, or to a file: `output_paths`"),
];

/// Options that say how Telegraf goes about it. Sluice sends what it has at once.
const INERT: [&str; 10] = [
    "round_interval",
    "precision",
    "logformat",
    "log_with_timezone",
    "structured_log_message_key",
    "skip_processors_after_aggregators",
    "always_include_local_tags",
    "always_include_global_tags",
    "buffer_strategy",
    "snmp_translator",
];

/// `tags`: later ones replace earlier ones of the same name.
pub(super) fn read(
    agent: Option<Section>,
    tags: [Option<Section>; 2],
    report: &mut Report,
) -> Agent {
    let mut found = Agent::default();
    if let Some(section) = agent {
        found = read_agent(section, report);
    }
    for section in tags.into_iter().flatten() {
        let name = section.name.clone();
        for (line, key, text) in section.into_pairs(report) {
            let place = format!("{name}: {key}");
            let value = values::text(&text, &Place { line, name: &place }, report);
            found.tags.retain(|(name, _)| *name != key);
            found.tags.push((key, value));
        }
    }
    found
}

fn read_agent(mut section: Section, report: &mut Report) -> Agent {
    let interval = section.text("interval", report);
    let mut agent = Agent { interval, ..Agent::default() };
    if let Some((line, _)) = section.text("flush_interval", report) {
        let text = "nothing waits for it: a request goes out as soon as there is something to send";
        report.note(line, &section.place("flush_interval"), text);
    }
    if let Some((line, text)) = section.text("metric_batch_size", report) {
        let place = section.place("metric_batch_size");
        agent.batch_size = values::integer(&text, &Place { line, name: &place }, report);
    }
    if let Some((line, _)) = section.text("metric_buffer_limit", report) {
        let text = "`buffer.memory.limit_mib` bounds what waits, in bytes. While it is full, files \
                    are not read on and senders wait: nothing is dropped";
        report.note(line, &section.place("metric_buffer_limit"), text);
    }
    let hostname = section.text("hostname", report);
    agent.host = match (section.boolean("omit_hostname", report), hostname) {
        (Some(true), _) => Host::Omitted,
        (_, Some((line, text))) => {
            let place = section.place("hostname");
            Host::Named(values::text(&text, &Place { line, name: &place }, report))
        }
        (_, None) => Host::Detected,
    };
    if section.boolean("quiet", report) == Some(true) {
        agent.log_level = Some("error");
    }
    if section.boolean("debug", report) == Some(true) {
        agent.log_level = Some("debug");
    }
    for (key, remedy) in REFUSED {
        if let Some((line, _)) = section.text(key, report) {
            report.left_out(line, &section.place(key), remedy);
        }
    }
    section.ignore(&INERT);
    let is_rotation = ["logfile_rotation_interval", "logfile_rotation_max_size"];
    section.ignore(&is_rotation);
    section.ignore(&["logfile_rotation_max_archives"]);
    section.finish(report);
    agent
}
