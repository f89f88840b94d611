//! Inputs: `inputs.tail` has a file of its own.

use serde_json::{Value, json};

use super::connection::{self, address};
use super::parts::{Agent, Ids, Input, InputKind};
use super::source::Section;
use super::tail;
use super::values;
use crate::migrate::report::Report;

const ELSEWHERE: &str = "Sluice has no such input: keep Telegraf for it, and let its \
                         `outputs.influxdb` write to Sluice's receiver `influxdb`";
/// Telegraf's interval.
const INTERVAL: &str = "10s";

pub(super) fn read(
    plugins: Vec<(String, Section)>,
    agent: &Agent,
    ids: &mut Ids,
    report: &mut Report,
) -> Vec<Input> {
    let mut inputs = Vec::new();
    for (kind, section) in plugins {
        let input = match kind.as_str() {
            "tail" => tail::read(section, report),
            "influxdb_listener" => listener(section, ":8186", ids, report),
            "http_listener" => {
                let text = "Telegraf has removed this name: it is read as `influxdb_listener`";
                report.note(section.line, &section.name, text);
                listener(section, ":8186", ids, report)
            }
            "influxdb_v2_listener" => listener(section, ":8086", ids, report),
            "opentelemetry" => Some(otlp(section, ids, report)),
            "prometheus" => prometheus(section, agent, ids, report),
            _ => {
                report.left_out(section.line, &section.name, ELSEWHERE);
                None
            }
        };
        inputs.extend(input);
    }
    inputs
}

fn finished(
    mut section: Section,
    kind: InputKind,
    extensions: Vec<(String, Value)>,
    report: &mut Report,
) -> Input {
    let (line, name) = (section.line, section.name.clone());
    let tags = tail::own_tags(&mut section, report);
    connection::refuse_filters(&mut section, report);
    section.ignore(&["interval", "precision"]);
    section.finish(report);
    Input { line, name, kind, tags, extensions }
}

/// `inputs.influxdb_listener` and `inputs.influxdb_v2_listener`: the receiver `influxdb` has both
/// APIs.
fn listener(
    mut section: Section,
    default: &str,
    ids: &mut Ids,
    report: &mut Report,
) -> Option<Input> {
    if let Some(line) = section.line_of("token_shared_secret") {
        let text = "signed tokens are not checked, and so the input is left out: senders without \
                    them would be let in. Use `basic_username`, or an extension that knows tokens";
        report.left_out(line, &section.place("token_shared_secret"), text);
        return None;
    }
    section.ignore(&["token_shared_secret"]);
    if connection::has_half_a_user(&section, report) {
        return None;
    }
    let endpoint = connection::text(&mut section, "service_address", report);
    let endpoint = endpoint.unwrap_or_else(|| default.to_owned());
    let mut config = json!({"endpoint": address(&endpoint)});
    if let Some(tls) = connection::server_tls(&mut section, report) {
        config["tls"] = tls;
    }
    if let Some(timeout) = connection::duration(&mut section, "read_timeout", report) {
        config["read_timeout"] = json!(timeout);
    }
    if let Some((line, size)) = section.text("max_body_size", report) {
        match values::bytes(&size) {
            Some(0) => {}
            Some(bytes) => config["max_request_body_size"] = json!(bytes),
            None => report.left_out(line, &section.place("max_body_size"), "is no size"),
        }
    }
    let mut extensions = Vec::new();
    let user = connection::text(&mut section, "basic_username", report);
    let password = connection::secret(&mut section, "basic_password", report);
    let token = connection::secret(&mut section, "token", report);
    if let (Some(user), Some(password)) = (user, password) {
        let id = ids.next("basicauth");
        config["auth"] = json!({"authenticator": id});
        let users = json!({"htpasswd": {"inline": format!("{user}:{password}")}});
        extensions.push((id, users));
    } else if let Some(token) = token {
        let id = ids.next("bearertokenauth");
        config["auth"] = json!({"authenticator": id});
        extensions.push((id, json!({"token": token})));
    }
    let place = "the database of a write is the resource's attribute `influxdb.database`, of which \
                 no tag is made";
    let others = [
        ("database_tag", place),
        ("retention_policy_tag", place),
        ("bucket_tag", place),
        ("http_headers", "write them into `response_headers` of the receiver"),
    ];
    section.refuse(&others, report);
    section.ignore(&["write_timeout", "parser_type", "max_line_size", "max_undelivered_metrics"]);
    let kind = InputKind::Lines(ids.next("influxdb"), config);
    Some(finished(section, kind, extensions, report))
}

fn otlp(mut section: Section, ids: &mut Ids, report: &mut Report) -> Input {
    let endpoint = connection::text(&mut section, "service_address", report);
    let endpoint = endpoint.unwrap_or_else(|| "0.0.0.0:4317".to_owned());
    let mut grpc = json!({"endpoint": address(&endpoint)});
    if let Some(tls) = connection::server_tls(&mut section, report) {
        grpc["tls"] = tls;
    }
    if let Some((line, size)) = section.text("max_msg_size", report) {
        match values::bytes(&size) {
            Some(bytes) => grpc["max_recv_msg_size_mib"] = json!(bytes.div_ceil(1 << 20).max(1)),
            None => report.left_out(line, &section.place("max_msg_size"), "is no size"),
        }
    }
    let text = "only metrics are sent on, as InfluxDB takes no traces and logs here: give them a \
                pipeline with an exporter of their own";
    let others =
        [("span_dimensions", text), ("log_record_dimensions", text), ("profile_dimensions", text)];
    section.refuse(&others, report);
    let text = "a metric is a measurement with the field `value`, as in `prometheus-v1`; a sum's \
                or a gauge's field has another name in Telegraf";
    report.left_out(section.line, &section.place("metrics_schema"), text);
    section.ignore(&["timeout", "metrics_schema"]);
    let config = json!({"protocols": {"grpc": grpc}});
    let kind = InputKind::Others(ids.next("otlp"), config);
    finished(section, kind, Vec::new(), report)
}

const FINDERS: [&str; 12] = [
    "kubernetes_services",
    "monitor_kubernetes_pods",
    "monitor_kubernetes_pods_method",
    "monitor_kubernetes_pods_namespace",
    "monitor_kubernetes_pods_port",
    "monitor_kubernetes_pods_scheme",
    "monitor_kubernetes_pods_path",
    "pod_scrape_scope",
    "node_ip",
    "kubernetes_label_selector",
    "kubernetes_field_selector",
    "consul",
];

fn prometheus(
    mut section: Section,
    agent: &Agent,
    ids: &mut Ids,
    report: &mut Report,
) -> Option<Input> {
    let text = "write a job with `kubernetes_sd_configs`, or another way to find targets, into \
                `scrape_configs`";
    section.refuse(&FINDERS.map(|key| (key, text)), report);
    let (line, urls) = section.texts("urls", report)?;
    let place = section.place("urls");
    let place = values::Place { line, name: &place };
    let urls: Vec<String> = urls.iter().map(|url| values::text(url, &place, report)).collect();
    let interval = connection::duration(&mut section, "interval", report);
    let interval = match (interval, &agent.interval) {
        (None, Some((line, text))) => {
            let place = values::Place { line: *line, name: "agent: interval" };
            values::duration(text, &place, report)
        }
        (interval, _) => interval,
    };
    let mut common = json!({});
    let timeout = connection::duration(&mut section, "timeout", report);
    let timeout = timeout.or(connection::duration(&mut section, "response_timeout", report));
    if let Some(timeout) = timeout {
        common["scrape_timeout"] = json!(timeout);
    }
    credentials(&mut section, &mut common, report);
    let text = "a metric is a measurement with the field `value`; Telegraf names the field after \
                the metric's type, or after the metric with `metric_version = 2`";
    report.left_out(line, &section.place("metric_version"), text);
    let tag = "a target's label is `instance`, which is the attribute `service.instance.id`";
    section.refuse(&[("url_tag", tag), ("http_headers", HEADERS)], report);
    section.ignore(&["metric_version", "enable_request_metrics", "ignore_timestamp"]);
    let jobs = jobs(&urls, &common, &place, report);
    let interval = interval.unwrap_or_else(|| INTERVAL.to_owned());
    let config = json!({"config": {
        "global": {"scrape_interval": interval},
        "scrape_configs": jobs,
    }});
    let kind = InputKind::Others(ids.next("prometheus"), config);
    Some(finished(section, kind, Vec::new(), report))
}

const HEADERS: &str = "write them into `http_headers` of the job";

fn credentials(section: &mut Section, job: &mut Value, report: &mut Report) {
    if let Some(file) = connection::text(section, "bearer_token", report) {
        job["authorization"] = json!({"credentials_file": file});
    }
    if let Some(token) = connection::secret(section, "bearer_token_string", report) {
        job["authorization"] = json!({"credentials": token});
    }
    let user = connection::text(section, "username", report);
    let password = connection::secret(section, "password", report);
    if let Some(user) = user {
        let password = password.unwrap_or_default();
        job["basic_auth"] = json!({"username": user, "password": password});
    }
    if let Some(mut tls) = connection::client_tls(section, report)
        && let Some(tls) = tls.as_object_mut()
    {
        if let Some(name) = tls.remove("server_name_override") {
            tls.insert("server_name".to_owned(), name);
        }
        if let Some(version) = tls.remove("min_version") {
            let version = if version == "1.3" { "TLS13" } else { "TLS12" };
            tls.insert("min_version".to_owned(), json!(version));
        }
        job["tls_config"] = json!(tls);
    }
}

/// One job for each scheme and path.
fn jobs(
    urls: &[String],
    common: &Value,
    place: &values::Place<'_>,
    report: &mut Report,
) -> Vec<Value> {
    let mut jobs: Vec<Value> = Vec::new();
    for url in urls {
        let Some((scheme, rest)) = url.split_once("://") else {
            report.left_out(place.line, place.name, format!("`{url}` has no scheme"));
            continue;
        };
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        if path.contains('?') || !["http", "https"].contains(&scheme) {
            let text = format!("`{url}`: write a job with `params`, or another way to scrape");
            report.left_out(place.line, place.name, text);
            continue;
        }
        let path = if path == "/" { "/metrics" } else { path };
        let same =
            jobs.iter_mut().find(|job| job["scheme"] == scheme && job["metrics_path"] == path);
        if let Some(job) = same {
            if let Some(targets) = job["static_configs"][0]["targets"].as_array_mut() {
                targets.push(json!(host));
            }
            continue;
        }
        let number = jobs.len() + 1;
        let name = if number == 1 { "telegraf".to_owned() } else { format!("telegraf-{number}") };
        let mut job = json!({"job_name": name, "scheme": scheme, "metrics_path": path});
        if let (Some(job), Some(common)) = (job.as_object_mut(), common.as_object()) {
            job.extend(common.clone());
        }
        job["static_configs"] = json!([{"targets": [host]}]);
        jobs.push(job);
    }
    jobs
}
