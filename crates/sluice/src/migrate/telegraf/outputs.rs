//! Outputs.

use serde_json::{Value, json};

use super::connection;
use super::parts::{Agent, Ids, Output};
use super::source::Section;
use super::values::{self, Globs, Place};
use crate::migrate::report::Report;

const ELSEWHERE: &str = "Sluice has no such output: keep Telegraf for it behind Sluice, with an \
                         exporter `influxdb` that writes to its `inputs.influxdb_listener`";

pub(super) fn read(
    plugins: Vec<(String, Section)>,
    agent: &Agent,
    takes_lines: bool,
    ids: &mut Ids,
    report: &mut Report,
) -> Vec<Output> {
    let mut outputs = Vec::new();
    for (kind, mut section) in plugins {
        if takes_lines && ["influxdb", "influxdb_v2"].contains(&kind.as_str()) {
            unsigned_values(&mut section, report);
        }
        match kind.as_str() {
            "influxdb" => outputs.push(influxdb(section, Api::V1, agent, ids, report)),
            "influxdb_v2" => outputs.push(influxdb(section, Api::V2, agent, ids, report)),
            "file" => outputs.extend(file(section, ids, report)),
            "opentelemetry" => outputs.push(otlp(section, ids, report)),
            "prometheus_client" => outputs.extend(prometheus(section, ids, report)),
            _ => report.left_out(section.line, &section.name, ELSEWHERE),
        }
    }
    outputs
}

/// Senders may write unsigned values, and they stay that.
fn unsigned_values(section: &mut Section, report: &mut Report) {
    if section.boolean("influx_uint_support", report) != Some(true) {
        let text = "an unsigned value that a sender writes (`5u`) stays one, while Telegraf writes \
                    `5i`: InfluxDB 1.x refuses it, and so does a field that has integers. Let \
                    senders write `i`";
        report.note(section.line, &section.place("influx_uint_support"), text);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Api {
    V1,
    V2,
}

fn finished(
    mut section: Section,
    (id, config): (String, Value),
    extensions: Vec<(String, Value)>,
    report: &mut Report,
) -> Output {
    let mut excluded = Vec::new();
    if let Some((line, tags)) = section.texts("tagexclude", report) {
        match Globs(tags.clone()).are_names() {
            true => excluded = tags,
            false => {
                let text = "list the tags one by one: `attributes` leaves out tags by name";
                report.left_out(line, &section.place("tagexclude"), text);
            }
        }
    }
    connection::refuse_filters(&mut section, report);
    section.ignore(&["metric_buffer_limit", "flush_interval", "metric_batch_size"]);
    section.finish(report);
    Output { id, config, excluded, extensions }
}

/// The first of several URLs: Sluice sends to one, Telegraf to any of them.
fn url(section: &mut Section, default: &str, report: &mut Report) -> (usize, String) {
    section.rename_removed("url", "urls", report);
    let Some((line, urls)) = section.texts("urls", report) else {
        return (section.line, default.to_owned());
    };
    let place = section.place("urls");
    if urls.len() > 1 {
        let text = "only the first is used: let a proxy or a name with several addresses stand for \
                    all of them";
        report.left_out(line, &place, text);
    }
    let first = urls.into_iter().next().unwrap_or_else(|| default.to_owned());
    if !first.starts_with("http") && !values::has_variable(&first) {
        let text = format!("`{first}`: only HTTP is spoken to InfluxDB; give the URL of its API");
        report.left_out(line, &place, text);
    }
    (line, values::text(&first, &Place { line, name: &place }, report))
}

/// An endpoint with a path is used as it stands: the API's own is appended to it here.
fn endpoint(url: &str, path: &str) -> String {
    let url = url.trim_end_matches('/');
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    if rest.contains('/') { format!("{url}{path}") } else { url.to_owned() }
}

fn influxdb(
    mut section: Section,
    api: Api,
    agent: &Agent,
    ids: &mut Ids,
    report: &mut Report,
) -> Output {
    let (_, url) = url(&mut section, "http://127.0.0.1:8086", report);
    let path = if api == Api::V1 { "/write" } else { "/api/v2/write" };
    let mut config = json!({"endpoint": endpoint(&url, path)});
    match api {
        Api::V1 => config["v1_compatibility"] = compatibility(&mut section, report),
        Api::V2 => {
            let required = [("organization", "org"), ("bucket", "bucket")];
            for (theirs, ours) in required {
                match connection::text(&mut section, theirs, report) {
                    Some(text) => config[ours] = json!(text),
                    None => {
                        let text = format!("is missing: write `{ours}` into the exporter");
                        report.left_out(section.line, &section.place(theirs), text);
                        config[ours] = json!("missing");
                    }
                }
            }
            if let Some(token) = connection::secret(&mut section, "token", report) {
                config["token"] = json!(token);
            }
        }
    }
    if let Some(timeout) = connection::duration(&mut section, "timeout", report) {
        config["timeout"] = json!(timeout);
    }
    match section.text("content_encoding", report) {
        Some((_, encoding)) if encoding == "identity" => config["compression"] = json!("none"),
        Some((line, encoding)) if encoding != "gzip" => {
            let text = format!("`{encoding}` is not known: requests are packed with gzip");
            report.left_out(line, &section.place("content_encoding"), text);
        }
        _ => {}
    }
    let batch_size = connection::integer(&mut section, "metric_batch_size", report);
    if let Some(size) = batch_size.or_else(|| agent.batch_size.clone()) {
        config["payload_max_lines"] = size;
    }
    let mut headers = serde_json::Map::new();
    for (line, key, text) in section.pairs("http_headers", report) {
        let place = section.place(&format!("http_headers.{key}"));
        headers.insert(key, json!(values::text(&text, &Place { line, name: &place }, report)));
    }
    if let Some(agent) = connection::text(&mut section, "user_agent", report) {
        headers.insert("User-Agent".to_owned(), json!(agent));
    }
    if !headers.is_empty() {
        config["headers"] = Value::Object(headers);
    }
    if let Some(proxy) = connection::secret(&mut section, "http_proxy", report) {
        config["proxy_url"] = json!(proxy);
    }
    if let Some(tls) = connection::client_tls(&mut section, report) {
        config["tls"] = tls;
    }
    let place = "all points go to one place: give each its own exporter and pipeline";
    let others = [
        ("database_tag", place),
        ("exclude_database_tag", place),
        ("retention_policy_tag", place),
        ("exclude_retention_policy_tag", place),
        ("bucket_tag", place),
        ("exclude_bucket_tag", place),
        ("write_consistency", "leave it to the server's default"),
        ("influx_omit_timestamp", "each point has its time, so that it can be sent again"),
        ("ping_timeout", "an idle connection is closed after `idle_conn_timeout`"),
    ];
    section.refuse(&others, report);
    section.ignore(&[
        "influx_uint_support",
        "read_idle_timeout",
        "concurrent_writes",
        "local_addr",
        // For UDP only, which is reported with its URL.
        "udp_payload",
        // Telegraf takes it, and has no use for it.
        "precision",
    ]);
    section.ignore(&["rate_limit", "rate_limit_period"]);
    finished(section, (ids.next("influxdb"), config), Vec::new(), report)
}

/// The section of InfluxDB 1.x.
fn compatibility(section: &mut Section, report: &mut Report) -> Value {
    let database = connection::text(section, "database", report);
    let database = database.unwrap_or_else(|| "telegraf".to_owned());
    let mut v1 = json!({"enabled": true, "db": database});
    if section.boolean("skip_database_creation", report) != Some(true) {
        v1["create_database"] = json!(true);
    }
    if let Some(policy) = connection::text(section, "retention_policy", report) {
        v1["rp"] = json!(policy);
    }
    let user = connection::text(section, "username", report);
    let password = connection::secret(section, "password", report);
    if let Some(user) = user {
        v1["username"] = json!(user);
        if let Some(password) = password {
            v1["password"] = json!(password);
        }
    }
    v1
}

/// The standard output is `debug`; a file has OTLP as JSON.
fn file(mut section: Section, ids: &mut Ids, report: &mut Report) -> Vec<Output> {
    let (line, files) =
        section.texts("files", report).unwrap_or((section.line, vec!["stdout".to_owned()]));
    let place = section.place("files");
    let mut found = Vec::new();
    for file in files {
        let file = values::text(&file, &Place { line, name: &place }, report);
        if file == "stdout" {
            let text = "the standard output gets `debug`'s text: it is for people to read, and has \
                        another form than line protocol";
            report.note(line, &place, text);
            let config = json!({"verbosity": "detailed", "use_internal_logger": false});
            found.push((ids.next("debug"), config));
        } else {
            let text = format!("`{file}` gets OTLP as JSON, not the lines of `data_format`");
            report.left_out(line, &place, text);
            let config = json!({"path": file, "append": true});
            found.push((ids.next("file"), config));
        }
    }
    let text = "see `rotation` of the exporter `file`";
    let rotation =
        ["rotation_interval", "rotation_max_size", "rotation_max_archives"].map(|key| (key, text));
    section.refuse(&rotation, report);
    section
        .refuse(&[("compression_algorithm", "see `compression` of the exporter `file`")], report);
    section.ignore(&["data_format", "use_batch_format", "influx_sort_fields"]);
    let each = |part| finished(section.clone(), part, Vec::new(), report);
    found.into_iter().map(each).collect()
}

fn otlp(mut section: Section, ids: &mut Ids, report: &mut Report) -> Output {
    let address = connection::text(&mut section, "service_address", report);
    let address = address.unwrap_or_else(|| "localhost:4317".to_owned());
    let mut config = json!({"endpoint": address});
    config["tls"] = match connection::client_tls(&mut section, report) {
        Some(tls) => tls,
        None => json!({"insecure": true}),
    };
    if let Some(timeout) = connection::duration(&mut section, "timeout", report) {
        config["timeout"] = json!(timeout);
    }
    if let Some(compression) = connection::text(&mut section, "compression", report) {
        config["compression"] = json!(compression);
    }
    let mut headers = serde_json::Map::new();
    for (line, key, text) in section.pairs("headers", report) {
        let place = section.place(&format!("headers.{key}"));
        headers.insert(key, json!(values::text(&text, &Place { line, name: &place }, report)));
    }
    if !headers.is_empty() {
        config["headers"] = Value::Object(headers);
    }
    let others = [
        ("coralogix", "write its token and names into `headers`"),
        ("attributes", "add them with a processor `resource` in the pipeline"),
        ("encoding_type", "OTLP over HTTP is the exporter `otlphttp`, which has `encoding`"),
    ];
    section.refuse(&others, report);
    finished(section, (ids.next("otlp"), config), Vec::new(), report)
}

fn prometheus(mut section: Section, ids: &mut Ids, report: &mut Report) -> Option<Output> {
    if connection::has_half_a_user(&section, report) {
        return None;
    }
    let listen = connection::text(&mut section, "listen", report);
    let listen = listen.unwrap_or_else(|| ":9273".to_owned());
    let mut config = json!({"endpoint": connection::address(&listen)});
    if let Some((line, path)) = section.text("path", report)
        && path != "/metrics"
    {
        let text = "the page is at `/metrics`: give the scraper that path";
        report.left_out(line, &section.place("path"), text);
    }
    let expiration = connection::duration(&mut section, "expiration_interval", report);
    match expiration.as_deref() {
        Some("0s") => {
            let text = "a series that gets no points is removed after a year at the latest";
            report.note(section.line, &section.place("expiration_interval"), text);
            config["metric_expiration"] = json!("8760h");
        }
        Some(expiration) => config["metric_expiration"] = json!(expiration),
        None => config["metric_expiration"] = json!("60s"),
    }
    // Telegraf's names are the measurement and the field, and nothing behind them.
    config["add_metric_suffixes"] = json!(false);
    if let Some(tls) = connection::server_tls(&mut section, report) {
        config["tls"] = tls;
    }
    let mut extensions = Vec::new();
    let user = connection::text(&mut section, "basic_username", report);
    let password = connection::secret(&mut section, "basic_password", report);
    if let (Some(user), Some(password)) = (user, password) {
        let id = ids.next("basicauth/scrapers");
        config["auth"] = json!({"authenticator": id});
        let users = json!({"htpasswd": {"inline": format!("{user}:{password}")}});
        extensions.push((id, users));
    }
    let others = [
        ("ip_range", "let a firewall or `tls_allowed_cacerts` say who may scrape"),
        ("export_timestamp", "see `send_timestamps` of the exporter `prometheus`"),
    ];
    section.refuse(&others, report);
    section.ignore(&["metric_version", "collectors_exclude", "string_as_label", "read_timeout"]);
    section.ignore(&["write_timeout", "http_headers", "metric_type", "basic_description"]);
    Some(finished(section, (ids.next("prometheus"), config), extensions, report))
}
