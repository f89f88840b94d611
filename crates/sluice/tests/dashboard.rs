//! The Grafana dashboard among the examples: complete, of metrics that there are, and of
//! expressions for which Prometheus has data.

#[path = "../../load-test/tests/support/component.rs"]
mod component;
mod gateway;
mod prometheus;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use gateway::{Gateway, eventually, exporter, faulty_backend, get, request};
use prometheus::Prometheus;
use serde_json::Value;
use sluice_engine::reference::metric_tables;
use sluice_load_test::subject::free_addr;
use sluice_load_test::{Backend, Faults};
use sluice_otlp::Signal;
use sluice_telemetry::table::{Declared, MetricKind};
use tempfile::TempDir;

fn dashboard() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/grafana/sluice.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    serde_json::from_str(&text).expect("JSON")
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no text `{name}`: {value}"))
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no list `{name}`: {value}"))
}

/// All panels but the headings of rows.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let all = list(dashboard, "panels").iter();
    all.filter(|panel| text(panel, "type") != "row").collect()
}

/// Guarantee: what the command prints for import is the dashboard among the examples.
#[test]
fn the_command_prints_the_example() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    let output = command.args(["docs", "dashboard"]).output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, dashboard());
}

/// Guarantee: each panel has a unit, a data source, a legend, and the words of the tables; panels
/// do not overlap; each variable that an expression uses is one of the dashboard.
#[test]
fn every_panel_says_what_it_shows() {
    let dashboard = dashboard();
    let variables: BTreeSet<&str> =
        list(&dashboard["templating"], "list").iter().map(|it| text(it, "name")).collect();
    let wanted = ["datasource", "exporter", "instance", "job", "pipeline"];
    assert_eq!(variables, BTreeSet::from(wanted));
    let meanings: Vec<&str> = metric_tables()
        .iter()
        .flat_map(|table| table.metrics.clone())
        .map(|it| it.meaning)
        .collect();
    let (mut ids, mut cells) = (BTreeSet::new(), BTreeSet::new());
    for panel in list(&dashboard, "panels") {
        assert!(ids.insert(panel["id"].as_u64()), "two panels have the id {}", panel["id"]);
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|it| panel["gridPos"][it].as_u64().expect(it));
        assert!(x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(cells.insert(cell), "{} covers another panel", panel["title"]);
        }
    }
    let panels = panels(&dashboard);
    assert!(panels.len() >= 40, "{} panels", panels.len());
    for panel in panels {
        let (title, description) = (text(panel, "title"), text(panel, "description"));
        assert!(meanings.iter().any(|it| description.contains(it)), "{title}: {description}");
        assert!(!text(&panel["fieldConfig"]["defaults"], "unit").is_empty(), "{title}");
        let targets = list(panel, "targets");
        assert!(!targets.is_empty(), "{title}");
        let mut legends = BTreeSet::new();
        for target in targets {
            assert_eq!(text(&target["datasource"], "uid"), "${datasource}", "{title}");
            let legend = text(target, "legendFormat");
            assert!(!legend.is_empty() && legends.insert(legend), "{title}: {legend}");
            let used = text(target, "expr").split('$').skip(1).map(|rest| {
                let end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
                rest.split(end).next().unwrap_or_default()
            });
            for variable in used.filter(|it| !["__rate_interval", "__range"].contains(it)) {
                assert!(variables.contains(variable), "{title}: ${variable}");
            }
        }
    }
}

/// One selector of an expression.
struct Selector {
    names: Vec<String>,
    /// Label and value, without the quotes.
    matchers: Vec<(String, String)>,
    is_range: bool,
}

/// The selectors of an expression, each with at least one matcher; and the labels of its groups.
fn parse(expression: &str) -> (Vec<Selector>, Vec<&str>) {
    let mut selectors = Vec::new();
    for (at, _) in expression.match_indices('{') {
        let before = &expression[..at];
        let begin = before.rfind(|it: char| !it.is_ascii_lowercase() && it != '_');
        let mut names = vec![before[begin.map_or(0, |it| it + 1)..].to_owned()];
        let (inside, after) = expression[at + 1..].split_once('}').expect("the end");
        let mut matchers = Vec::new();
        for matcher in inside.trim_end_matches('"').split("\",") {
            let (label, value) = matcher.split_once("=~\"").expect("a regular expression");
            match label {
                "__name__" => names = value.split('|').map(str::to_owned).collect(),
                _ => matchers.push((label.to_owned(), value.to_owned())),
            }
        }
        selectors.push(Selector { names, matchers, is_range: after.starts_with('[') });
    }
    let groups = expression.split(" by (").skip(1).map(|it| it.split(')').next().expect("labels"));
    (selectors, groups.flat_map(|it| it.split(", ")).collect())
}

/// The metric of the tables that has this name in some naming, with all its labels.
fn declared(name: &str) -> (Declared, Vec<String>) {
    for table in metric_tables() {
        for metric in &table.metrics {
            let mut names = metric.names();
            let unit = format!("_{}", metric.unit);
            let bare = names.iter().filter_map(|it| it.strip_suffix(&unit).map(str::to_owned));
            let bare: Vec<String> = bare.filter(|it| it.starts_with("otelcol_")).collect();
            names.extend(bare);
            let is_counter = metric.kind == MetricKind::Counter;
            let has = |it: &String| *it == name || is_counter && format!("{it}_total") == name;
            if names.iter().any(has) {
                let labels = [table.labels, metric.labels].concat();
                let labels = labels.iter().map(|label| label.replace('.', "_"));
                let of_scrape = ["job", "instance"].map(str::to_owned);
                return (*metric, labels.chain(of_scrape).collect());
            }
        }
    }
    panic!("no table has {name}")
}

/// Guarantee: each metric and label of the expressions is in the tables; what counts is read as a
/// growth, and nothing else is.
#[test]
fn every_metric_of_the_dashboard_is_in_the_tables() {
    let dashboard = dashboard();
    let mut metrics = BTreeSet::new();
    for panel in panels(&dashboard) {
        for target in list(panel, "targets") {
            let expression = text(target, "expr");
            let (selectors, groups) = parse(expression);
            assert!(!selectors.is_empty(), "{expression}");
            for Selector { names, matchers, is_range } in selectors {
                for name in names {
                    let (metric, labels) = declared(&name);
                    metrics.insert(metric.name);
                    let is_counter = metric.kind == MetricKind::Counter;
                    let is_uptime = metric.name == "otelcol_process_uptime";
                    assert_eq!(is_range, is_counter && !is_uptime, "{expression}");
                    let used = matchers.iter().map(|(label, _)| label.as_str());
                    for label in used.chain(groups.iter().copied()) {
                        assert!(labels.iter().any(|it| it == label), "{label}: {expression}");
                    }
                }
            }
        }
    }
    assert!(metrics.len() >= 40, "{metrics:?}");
}

/// Guarantee: each value of a label that an expression names is one that `/metrics` has.
#[tokio::test]
async fn every_value_of_the_dashboard_is_exported() {
    let backend = Backend::healthy().await.expect("a backend");
    let gateway = Gateway::start(&gateway::fan_out(Signal::Traces, 64, &[("b", &backend)])).await;
    let (_, page) = get(gateway.metrics, "/metrics").await.expect("a page");
    let dashboard = dashboard();
    let targets = panels(&dashboard).into_iter().flat_map(|panel| list(panel, "targets"));
    let mut values = 0;
    for (label, value) in
        targets.flat_map(|target| parse(text(target, "expr")).0).flat_map(|it| it.matchers)
    {
        for value in value.split('|').filter(|it| !it.starts_with('$')) {
            assert!(page.contains(&format!("{label}=\"{value}\"")), "{label} {value}: {page}");
            values += 1;
        }
    }
    assert!(values >= 10, "{values}");
}

/// A pipeline for each signal, one to a dead backend, one that a reload removes, a processor, and
/// own telemetry that is pushed.
fn config(
    metrics: SocketAddr,
    directory: &TempDir,
    backend: &Backend,
    dead: &Backend,
    spelled: bool,
    gone: bool,
) -> String {
    let readers = format!(
        "      readers:\n        - pull: {{exporter: {{prometheus: {{host: {}, port: {}, \
         without_type_suffix: {}, without_units: {}}}}}}}\n        - periodic:\n            \
         interval: 500\n            exporter: {{otlp: {{protocol: grpc, endpoint: 'http://{}', \
         insecure: true}}}}\n",
        metrics.ip(),
        metrics.port(),
        !spelled,
        !spelled,
        backend.addr()
    );
    let exporters = exporter("b", backend) + &exporter("dead", dead);
    let pipeline = |name: &str, exporter: &str| {
        format!(
            "    {name}:\n      receivers: [otlp]\n      processors: [resource]\n      \
             exporters: [otlp/{exporter}]\n"
        )
    };
    let mut pipelines: String =
        [("traces", "b"), ("metrics", "b"), ("logs", "b"), ("traces/dead", "dead")]
            .map(|(name, exporter)| pipeline(name, exporter))
            .concat();
    if gone {
        pipelines += &pipeline("traces/gone", "dead");
    }
    format!(
        "processors:\n  resource:\n    attributes:\n      - {{action: insert, key: a, value: b}}\n\
         exporters:\n{exporters}buffer:\n  directory: {}\n  memory:\n    limit_mib: 128\n  \
         disk:\n    limit_mib: 256\nservice:\n  telemetry:\n    metrics:\n{readers}  \
         pipelines:\n{pipelines}",
        directory.path().display()
    )
}

/// The expression as Grafana sends it, for one process.
fn filled_in(expression: &str, instance: &str) -> String {
    let with = |text: String, (name, value): (&str, &str)| text.replace(name, value);
    let values = [
        ("$__rate_interval", "10s"),
        ("$__range", "60s"),
        ("$job", ".*"),
        ("$instance", instance),
        ("$pipeline", ".*"),
        ("$exporter", ".*"),
    ];
    values.into_iter().fold(expression.to_owned(), with)
}

impl Prometheus {
    /// The values of an expression, each with its labels.
    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let ask =
            format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nhost: {}\r\n\r\n", self.addr);
        let (status, answer) = request(self.addr, &ask).await.ok_or("no answer")?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        if status != 200 {
            return Err(format!("{expression}: {body}"));
        }
        let body: Value = serde_json::from_str(body).map_err(|error| error.to_string())?;
        Ok(list(&body["data"], "result").to_vec())
    }

    async fn value(&self, expression: &str) -> f64 {
        let values = self.query(expression).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(values.len(), 1, "{expression}: {values:?}");
        values[0]["value"][1].as_str().and_then(|it| it.parse().ok()).expect("a number")
    }
}

/// Scenario: a real Prometheus scrapes two gateways, whose metrics have the names with suffixes and
/// without. Guarantee: it evaluates every expression of the dashboard, and has data for each, of
/// each gateway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_has_data_for_every_panel() {
    let Some(prometheus) = Prometheus::start("") else { return };
    let backend = Backend::healthy().await.expect("a backend");
    let dead = faulty_backend(Faults::dead()).await;
    let mut gateways = Vec::new();
    for spelled in [true, false] {
        let (directory, metrics) =
            (TempDir::new().expect("a folder"), free_addr().expect("a port"));
        let config = |gone| config(metrics, &directory, &backend, &dead, spelled, gone);
        let mut gateway = Gateway::start(&config(true)).await;
        gateway.metrics = metrics;
        gateway.accepts(100).await;
        for signal in [Signal::Metrics, Signal::Logs] {
            gateway.load(signal).items(100).run().await.expect("a load");
        }
        gateway.holds("otlp/dead", 200).await;
        gateway.reload(&config(false)).await;
        gateways.push((gateway, directory));
    }
    let addrs: Vec<SocketAddr> = gateways.iter().map(|(gateway, _)| gateway.metrics).collect();
    prometheus.scrape(&addrs);
    let dashboard = dashboard();
    let targets = panels(&dashboard).into_iter().flat_map(|panel| list(panel, "targets"));
    let expressions: Vec<&str> = targets.map(|target| text(target, "expr")).collect();
    for addr in &addrs {
        let filled = |expression: &str| filled_in(expression, &addr.to_string());
        for expression in &expressions {
            let expression = filled(expression);
            let has_data =
                async || prometheus.query(&expression).await.is_ok_and(|it| !it.is_empty());
            let came = eventually(Duration::from_secs(60), has_data).await;
            assert!(came, "no data: {expression} {:?}", prometheus.query(&expression).await);
        }
        let of_panel = |title: &str| {
            let panel = panels(&dashboard).into_iter().find(|panel| text(panel, "title") == title);
            filled(text(&list(panel.expect(title), "targets")[0], "expr"))
        };
        assert_eq!(prometheus.value(&of_panel("Backends that take nothing")).await, 1.0);
        assert_eq!(prometheus.value(&of_panel("Processes")).await, 1.0);
        assert!(prometheus.value(&of_panel("Oldest data")).await > 0.0);
    }
}
