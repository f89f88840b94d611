//! Processors, connectors and mistakes, as the author of a configuration meets them.

mod gateway;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use gateway::{
    Gateway, Options, SOON, assert_all_accepted, assert_arrives_once, exporter, keeping_backend,
};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use prost::Message;
use sluice_load_test::Backend;
use sluice_otlp::Signal;

fn value<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

fn requests(backend: &Backend) -> Vec<ExportTraceServiceRequest> {
    let decode = |body: &[u8]| ExportTraceServiceRequest::decode(body).expect("valid OTLP");
    backend.kept().iter().map(|request| decode(&request.body)).collect()
}

/// Guarantee: attributes of resources and spans are inserted, changed and removed, in every span,
/// and nothing else is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processors_change_what_they_say() {
    let backend = keeping_backend(256).await;
    let config = format!(
        "processors:\n  resource:\n    attributes:\n      - {{action: insert, key: k8s.cluster.name, value: test-cluster}}\n  \
         attributes:\n    actions:\n      \
         - {{action: insert, key: test.inserted, value: new}}\n      \
         - {{action: update, key: load_test.mark, value: updated}}\n      \
         - {{action: delete, key: test.absent}}\n\
         exporters:\n{}service:\n  pipelines:\n    traces:\n      receivers: [otlp]\n      \
         processors: [resource, attributes]\n      exporters: [otlp/backend]\n",
        exporter("backend", &backend)
    );
    let gateway = Gateway::start(&config).await;
    let report = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
    assert_all_accepted(&report);
    assert_arrives_once(&report, &backend, SOON).await;
    let mut spans = 0;
    for resource_spans in requests(&backend).into_iter().flat_map(|request| request.resource_spans)
    {
        let resource = resource_spans.resource.expect("a resource");
        assert_eq!(value(&resource.attributes, "k8s.cluster.name"), Some("test-cluster"));
        for span in resource_spans.scope_spans.into_iter().flat_map(|scope_spans| scope_spans.spans)
        {
            assert_eq!(value(&span.attributes, "test.inserted"), Some("new"));
            assert_eq!(value(&span.attributes, "load_test.mark"), Some("updated"));
            assert_eq!(span.attributes.len(), 41, "40 came, one was inserted");
            spans += 1;
        }
    }
    assert_eq!(spans, 1_000);
}

/// Guarantee: a `forward` connector joins pipelines: the steps before and after it each run once,
/// and a pipeline without steps of its own sends the result of the shared one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forward_connector_joins_pipelines() {
    let [all, edited] = [keeping_backend(256).await, keeping_backend(256).await];
    let config = format!(
        "processors:\n  resource:\n    attributes:\n      - {{action: insert, key: test.before, value: shared}}\n  \
         attributes:\n    actions:\n      - {{action: insert, key: test.after, value: own}}\n\
         connectors:\n  forward:\nexporters:\n{}{}\
         service:\n  pipelines:\n    traces/in:\n      receivers: [otlp]\n      \
         processors: [resource]\n      \
         exporters: [forward]\n    traces/all:\n      receivers: [forward]\n      \
         exporters: [otlp/all]\n    \
         traces/edited:\n      receivers: [forward]\n      processors: [attributes]\n      \
         exporters: [otlp/edited]\n",
        exporter("all", &all),
        exporter("edited", &edited)
    );
    let gateway = Gateway::start(&config).await;
    let report = gateway.load(Signal::Traces).items(1_000).run().await.expect("a load");
    assert_all_accepted(&report);
    for (backend, after) in [(&all, None), (&edited, Some("own"))] {
        assert_arrives_once(&report, backend, SOON).await;
        for resource_spans in
            requests(backend).into_iter().flat_map(|request| request.resource_spans)
        {
            let resource = resource_spans.resource.expect("a resource");
            let before = resource
                .attributes
                .iter()
                .filter(|attribute| attribute.key == "test.before")
                .count();
            assert_eq!(before, 1);
            let mut spans =
                resource_spans.scope_spans.iter().flat_map(|scope_spans| &scope_spans.spans);
            assert!(spans.all(|span| value(&span.attributes, "test.after") == after));
        }
    }
}

fn sluice(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sluice")).args(arguments).output().expect("sluice runs")
}

const GOOD: &str = "receivers:
  otlp:
    protocols:
      grpc:
        endpoint: 127.0.0.1:4317
exporters:
  otlp:
    endpoint: 127.0.0.1:14317
    tls:
      insecure: true
service:
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [otlp]
";

fn write(folder: &Path, config: &str) -> String {
    let path = folder.join("gateway.yaml");
    std::fs::write(&path, config).expect("a file");
    path.display().to_string()
}

/// Guarantee: for every mistake the commands name the file, line and column and the nearest valid
/// name, and exit with a failure; `run` does not start.
#[test]
fn mistakes_are_named_where_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    // Text and its replacement; the place of the mistake; words that have to be in the message.
    let authenticates = |extension: &str| {
        format!(
            "      insecure: true\n    auth:\n      authenticator: bearertokenaut\n{extension}\
             service:\n  extensions: [bearertokenauth]\n"
        )
    };
    let client_auth = authenticates("extensions:\n  bearertokenauth:\n    token: t\n");
    let [not_a_user, unsupported] = ["alice", "alice:$apr1$salt$hash"].map(|line| {
        format!(
            "extensions:\n  basicauth:\n    htpasswd:\n      inline: '{line}'\nservice:\n  extensions: [basicauth]\n"
        )
    });
    let tls = |option: &str| format!("      insecure: true\n      {option}\nservice:\n");
    let mistakes: [(&str, &str, &str, &[&str]); 15] = [
        ("insecure: true", "insecur: true", "10:7", &["insecur", "insecure"]),
        ("  otlp:\n    endpoint", "  otpl:\n    endpoint", "7:3", &["otpl", "otlp"]),
        ("exporters: [otlp]", "exporters: [otlp/a]", "15:19", &["otlp/a"]),
        ("    traces:", "    trace:", "13:5", &["trace", "traces"]),
        ("insecure: true", "insecure: maybe", "10:17", &["maybe", "true"]),
        ("service:", "processors:\n  transform:\nservice:", "12:3", &["transform"]),
        (
            "      insecure: true\nservice:\n",
            &client_auth,
            "12:22",
            &["bearertokenaut", "did you mean `bearertokenauth`?"],
        ),
        ("service:\n", &not_a_user, "14:7", &["line 1 is not `user:password-hash`"]),
        ("service:\n", &unsupported, "14:7", &["user `alice`", "bcrypt"]),
        (
            "      insecure: true\nservice:\n",
            &tls(
                "cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA1]",
            ),
            "11:62",
            &["did you mean `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`?"],
        ),
        (
            "      insecure: true\nservice:\n",
            &tls("curve_preferences: [P257]"),
            "11:27",
            &["`P256`"],
        ),
        (
            "      insecure: true\nservice:\n",
            &tls("server_name_override: a b"),
            "11:29",
            &["a host name"],
        ),
        (
            "      insecure: true\nservice:\n",
            &tls("curve_preferences: x25518"),
            "11:26",
            &["did you mean `X25519`?"],
        ),
        (
            "      insecure: true\nservice:\n",
            &tls("ca_file: '${env:SLUICE_TEST_UNSET}'"),
            "11:16",
            &[
                "`exporters.otlp.tls.ca_file` is a security option",
                "`${env:SLUICE_TEST_UNSET}`",
                "leave",
            ],
        ),
        (
            "endpoint: 127.0.0.1:14317",
            "endpoint: ${env:SLUICE_TEST_UNSET}",
            "8:",
            &["SLUICE_TEST_UNSET"],
        ),
    ];
    for (from, to, place, words) in mistakes {
        let path = write(folder.path(), &GOOD.replacen(from, to, 1));
        // The last one is how the Collector is started.
        for command in ["validate", "plan", "run", "--config"] {
            let output = sluice(&[command, &path]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command} with {to}: {said}");
            assert!(
                said.contains(&format!("{path}:{place}")),
                "{command} with {to}, at {place}:\n{said}"
            );
            assert!(
                words.iter().all(|word| said.contains(word)),
                "{command} with {to}, {words:?}:\n{said}"
            );
        }
    }
    assert!(sluice(&["validate", &write(folder.path(), GOOD)]).status.success());
}

/// Scenario: command lines of the Collector. Guarantee: `--set` overrides the file, wherever it
/// stands; a mistake in it is named; `--feature-gates` is taken with a warning.
#[test]
fn options_of_the_collectors_command_line_are_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write(folder.path(), GOOD);
    let plan = sluice(&["plan", "--set=exporters.otlp.sending_queue.num_consumers=3", &path]);
    assert!(plan.status.success(), "{}", String::from_utf8_lossy(&plan.stderr));
    let wrong = "--set=exporters.otlp.sending_queue.num_consumers=none";
    for arguments in [&["validate", &path, wrong][..], &[wrong, "--config", &path]] {
        let output = sluice(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("`exporters.otlp.sending_queue.num_consumers`"), "{said}");
    }
    let gates = sluice(&["validate", "--feature-gates=-a.b,+c", &path]);
    let said = String::from_utf8_lossy(&gates.stderr);
    assert!(gates.status.success() && said.contains("`--feature-gates -a.b,+c`"), "{said}");
}

/// Guarantee: the process's own lines of JSON have the Collector's keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_logs_in_json_are_as_the_collectors() {
    let backend = Backend::healthy().await.expect("a backend");
    let config = format!(
        "exporters:\n{}service:\n  telemetry: {{logs: {{encoding: json}}}}\n  pipelines:\n    \
         traces: {{receivers: [otlp], exporters: [otlp/backend]}}\n",
        exporter("backend", &backend)
    );
    let gateway = Gateway::start(&config).await;
    gateway.wait_for_output("\"msg\":\"", 1).await;
    let output = gateway.output();
    let mut lines = output.lines().filter(|line| line.starts_with('{')).peekable();
    assert!(lines.peek().is_some(), "{output}");
    let is_right = |line: &str| line.starts_with("{\"level\":\"info\",\"ts\":\"20");
    assert!(lines.all(is_right), "{output}");
}

/// Scenario: URLs with a user and a password, as they stand and from the environment, in every
/// option that is a URL; passwords with characters that end a URL's host. Guarantee: they are an
/// error at the option, and no command prints a part of them.
#[test]
fn credentials_in_urls_are_errors_that_hide_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let oauth2 = "otlphttp: {endpoint: 'http://a'}\nextensions:\n  oauth2client: {client_id: a, ";
    let options = [
        ("otlphttp: {", "endpoint"),
        ("otlphttp: {endpoint: 'http://a', ", "traces_endpoint"),
        ("otlphttp: {endpoint: 'http://a', ", "metrics_endpoint"),
        ("otlphttp: {endpoint: 'http://a', ", "logs_endpoint"),
        ("otlp: {", "endpoint"),
        (oauth2, "token_url"),
    ];
    let credentials =
        ["me:s3cret", "s3cret", "me:s3^cret", "me:1#s3cret", "me/s3cret", "me?s3cret"];
    for (section, option) in options {
        for credentials in credentials {
            for written in [credentials, "${env:CRED}"] {
                let url = format!("{section}{option}: 'https://{written}@backend:4317'}}");
                let said = refused(folder.path(), &url, credentials);
                assert!(said.contains(&format!(".{option}`")), "{url}: {said}");
            }
        }
    }
}

/// Scenario: URLs with credentials where something else is wrong, or where they are allowed.
/// Guarantee: no command prints a part of them.
#[test]
fn credentials_in_urls_are_hidden_beside_other_mistakes() {
    let folder = tempfile::tempdir().expect("a folder");
    for section in [
        "otlp: {endpoint: 'me:s3cret@backend:4317'}",
        "otlp: {endpoint: 's3cret@backend:4317', timeout: soon}",
        "otlphttp: {endpoint: 'http://a', proxy_url: 'http://me:s3cret@proxy:1', timeout: soon}",
        "otlphttp: {endpoint: 'http://a', proxy_url: 'http://me:1/s3cret@proxy:1'}",
        "otlphttp: {endpoint: 'http://a', proxy_url: 'me:s3cret://@proxy:1'}",
        "otlphttp: {endpoint: 'http://a', proxy: 'http://me:s3cret@proxy:1'}",
        "otlphttp: {endpoint: 'http://a', timeout: 'http://me:s3cret@backend'}",
        "otlphtp: {endpoint: 'http://me:s3cret@backend'}",
        "otlphttp: {endpoint: 'http://me:s3cret@backend',, }",
        "otlphttp: {endpoint: 'http://a'}\n  https://me:s3cret@backend: {}",
    ] {
        refused(folder.path(), section, "");
    }
}

/// Guarantee: no command prints the query of a URL, which may have a key, nor where something else
/// is wrong with it; the rest of the URL is shown.
#[test]
fn queries_of_urls_are_hidden() {
    let folder = tempfile::tempdir().expect("a folder");
    for section in [
        "otlphttp: {endpoint: 'http://a', timeout: soon, traces_endpoint: 'http://b?key=s3cret'}",
        "otlphttp: {endpoint: 'http://a:b?key=s3cret'}",
        "otlphttp: {endpiont: 'http://a?key=s3cret'}",
        "otlp: {endpoint: 'http://a:1/x?key=s3cret'}",
        "otlp: {endpoint: 'backend:4317?key=s3cret'}",
    ] {
        refused(folder.path(), section, "");
    }
    let exporter = "exporters: {otlphttp: {traces_endpoint: 'http://127.0.0.1:1/in?key=s3cret'}}";
    let text = format!(
        "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\n{exporter}\nservice: {{pipelines: \
         {{traces: {{receivers: [otlp], exporters: [otlphttp]}}}}}}\n"
    );
    let output = sluice(&["plan", &write(folder.path(), &text)]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("otlphttp sends to http://127.0.0.1:1/in?… (no TLS"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

/// The output of the commands for a file with these exporters, without the file's path. It must
/// have no part of `s3cret` and `s3^cret`.
fn refused(folder: &Path, section: &str, variable: &str) -> String {
    let (before, rest) = GOOD.split_once("  otlp:\n    endpoint").expect("an exporter");
    let after = &rest[rest.find("service:").expect("the section after it")..];
    let path = write(folder, &format!("{before}  {section}\n{after}"));
    let mut all = String::new();
    for command in ["validate", "plan", "run"] {
        let mut sluice = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let output = sluice.args([command, &path]).env("CRED", variable).output().expect("runs");
        assert_eq!(output.status.code(), Some(1), "{command} with {section}");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).replace(&path, "");
        assert!(!said.contains("s3") && !said.contains("^cret"), "{command} {section}: {said}");
        all += &said;
    }
    all
}

/// Guarantee: the configuration of the Kyma metric gateway, written for the Collector, is valid as
/// it is.
#[test]
fn the_kyma_metric_gateway_is_valid() {
    let original = include_str!("../../config/src/document/testdata/kyma-metric-gateway.yaml");
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    command.args(["validate", &write(folder.path(), original)]);
    // Variables that the cluster sets.
    command.env("MY_POD_IP", "127.0.0.1").env("KUBERNETES_SERVICE_HOST", "10.96.0.1");
    let output = command.env("OTLP_ENDPOINT", "http://127.0.0.1:24317").output();
    let output = output.expect("sluice runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Scenario: a proxy of the environment that Sluice cannot use. Guarantee: `validate` says it, as
/// `run` would, for every exporter that is behind it and for no other.
#[test]
fn a_proxy_that_cannot_be_used_is_a_mistake() {
    let said = |exporter: &str, variable: &str| {
        let config = format!(
            "receivers: {{otlp: {{protocols: {{grpc: }}}}}}\nexporters: {{{exporter}}}\nservice: \
             {{pipelines: {{logs: {{receivers: [otlp], exporters: [{}]}}}}}}\n",
            exporter.split(':').next().unwrap_or_default()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        for name in ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"] {
            command.env_remove(name).env_remove(name.to_lowercase());
        }
        command.args(["validate", &format!("yaml:{config}")]).env(variable, "socks5://proxy:1");
        let output = command.output().expect("sluice runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let plain = "otlp: {endpoint: 'backend.test:4317', tls: {insecure: true}}";
    let secure = "otlphttp: {endpoint: 'https://backend.test'}";
    let bit = "fluentbit_http: {host: backend.test}";
    for (exporter, variable) in
        [(plain, "HTTPS_PROXY"), (secure, "HTTPS_PROXY"), (bit, "HTTP_PROXY")]
    {
        let (code, said) = said(exporter, variable);
        assert_eq!(code, Some(1), "{exporter}: {said}");
        assert!(
            said.contains(&format!("is behind a proxy that cannot be used: {variable}")),
            "{said}"
        );
    }
    let local = "otlp: {endpoint: 'localhost:4317', tls: {insecure: true}}";
    let own = "otlphttp: {endpoint: 'https://backend.test', proxy_url: 'http://proxy:1'}";
    for (exporter, variable) in
        [(plain, "HTTP_PROXY"), (local, "HTTPS_PROXY"), (own, "HTTPS_PROXY")]
    {
        let (code, said) = said(exporter, variable);
        assert_eq!(code, Some(0), "{exporter}: {said}");
    }
}

/// Guarantee: as in every gRPC client, `HTTPS_PROXY` and not `HTTP_PROXY` applies to a backend over
/// gRPC without TLS.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grpc_backend_without_tls_is_behind_https_proxy() {
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let url = format!("http://{}", proxy.local_addr().expect("has an address"));
    let config = "exporters: {otlp: {endpoint: 'backend.test:4317', tls: {insecure: true}}}\n\
                  service:\n  extensions: [health_check]\n  pipelines:\n    \
                  traces: {receivers: [otlp], exporters: [otlp]}\n";
    let variables = [("HTTPS_PROXY", url.as_str()), ("HTTP_PROXY", "http://127.0.0.1:1")];
    let env = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let gateway = Gateway::start_with(config, Options { env, ..Options::default() }).await;
    let _load = gateway.load(Signal::Traces).items(1).start().expect("a load");
    let (stream, _) =
        tokio::time::timeout(SOON, proxy.accept()).await.expect("soon").expect("accepts");
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(stream);
    tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut line).await.expect("is read");
    assert_eq!(line, "CONNECT backend.test:4317 HTTP/1.1\r\n");
}

/// Guarantee: all mistakes of a file are reported at once, and a missing file is named.
#[test]
fn all_mistakes_are_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = GOOD.replace("insecure", "insecur").replace("protocols", "protcols");
    let output = sluice(&["validate", &write(folder.path(), &config)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("insecur") && said.contains("protcols"), "{said}");
    let missing = folder.path().join("nowhere.yaml").display().to_string();
    let output = sluice(&["run", &missing]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&missing), "{output:?}");
}

/// Guarantee: options of the Collector without effect here are named in a warning, and are no
/// error.
#[test]
fn options_without_effect_are_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = GOOD.replace("    tls:", "    sending_queue:\n      queue_size: 512\n    tls:");
    let output = sluice(&["validate", &write(folder.path(), &config)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("warning") && said.contains("queue_size"),
        "{said}"
    );
}

/// Scenario: senders shall wait for a delivery that never makes them wait; a queue is larger than
/// the memory. Guarantee: a message reports it, with the remedy.
#[test]
fn what_is_asked_for_in_vain_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let drops = GOOD.to_owned() + "      buffer: {policy: drop_oldest}\n";
    let queue = |options: &str| format!("    sending_queue: {{{options}}}\n    tls:");
    let cases = [
        (
            format!("{drops}buffer: {{ack: delivered}}\n"),
            "buffer.ack: delivered has no effect on traces of otlp",
        ),
        (
            drops.replace("    tls:", &queue("enabled: false")),
            "exporters.otlp.sending_queue.enabled: false has no effect",
        ),
        (
            GOOD.replace("    tls:", &queue("sizer: bytes, queue_size: 1000000000000")),
            "for its backlog",
        ),
    ];
    for (config, warning) in cases {
        let output = sluice(&["validate", &write(folder.path(), &config)]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.contains("warning") && said.contains(warning),
            "{said}"
        );
    }
    let heeded = format!("{GOOD}buffer: {{ack: delivered}}\n")
        .replace("    tls:", &queue("wait_for_result: true"));
    let output = sluice(&["validate", &write(folder.path(), &heeded)]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("warning"), "{output:?}");
}

/// Guarantee: a pipeline's own limit lowers how far it may lag and takes nothing from the others;
/// one that exceeds the pool is a warning at the option.
#[test]
fn a_pipelines_own_limit_takes_nothing_from_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let with = |own_mib: u64| {
        let second = format!(
            "    traces/second:\n      receivers: [otlp]\n      exporters: [otlp]\n      buffer: {{memory: {{limit_mib: {own_mib}}}}}\n"
        );
        write(folder.path(), &format!("{GOOD}{second}buffer: {{memory: {{limit_mib: 512}}}}\n"))
    };
    let budgets = |own_mib: u64| {
        let output = sluice(&["plan", &with(own_mib)]);
        let said = String::from_utf8(output.stdout).expect("text");
        let of = |line: &str| {
            line.split("; may lag by up to ").nth(1)?.split(' ').next()?.parse::<f64>().ok()
        };
        let budgets: [f64; 2] =
            said.lines().filter_map(of).collect::<Vec<_>>().try_into().expect(&said);
        budgets
    };
    let ([first, second], [more, less]) = (budgets(100), budgets(20));
    assert_eq!((second, less), (100.0, 20.0));
    assert!(first == more && first > 100.0, "{first} {more}");
    let output = sluice(&["validate", &with(400)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains(":19:") && said.contains("is 400 MiB, but all"),
        "{said}"
    );
}

/// Guarantee: an address in use is named, with the remedy, and the exit code is a failure.
#[test]
fn a_taken_address_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = taken.local_addr().expect("an address").to_string();
    let config =
        GOOD.replace("127.0.0.1:4317", &addr) + "  telemetry:\n    metrics:\n      level: none\n";
    let output = sluice(&["run", &write(folder.path(), &config)]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&addr) && said.contains("otlp"), "{said}");
}

/// Scenario: `validate` runs as a user who may not read a file with credentials, and one with a
/// key. Guarantee: a warning for each names the file and the user, and nothing else is wrong.
#[test]
fn files_that_only_the_service_may_read_are_warnings() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let set_mode = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode is set");
    };
    set_mode(folder.path(), 0o755);
    for name in ["token", "tls.crt", "tls.key"] {
        std::fs::write(at(name), "secret").expect("is written");
        set_mode(&at(name), 0);
    }
    let config = format!(
        "receivers:\n  otlp:\n    protocols:\n      grpc:\n        \
         auth: {{authenticator: bearertokenauth}}\n        \
         tls: {{cert_file: {0}/tls.crt, key_file: {0}/tls.key}}\nexporters: {{nop: }}\n\
         extensions: {{bearertokenauth: {{filename: {0}/token}}}}\nservice:\n  \
         extensions: [bearertokenauth]\n  \
         pipelines: {{logs: {{receivers: [otlp], exporters: [nop]}}}}\n",
        folder.path().display()
    );
    // Root may read everything; another user need not be able to reach the binary.
    let (binary, mut user) = (at("sluice"), rustix::process::geteuid().as_raw());
    std::fs::copy(env!("CARGO_BIN_EXE_sluice"), &binary).expect("is copied");
    let mut command = Command::new(binary);
    command.args(["validate", "--config", &format!("yaml:{config}")]);
    if user == 0 {
        user = 65_534;
        command.uid(user).gid(user);
    }
    let output = command.output().expect("sluice runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for name in ["token", "tls.crt", "tls.key"] {
        let path = at(name);
        let expected = format!("the user {user}, who checks, may not read {}", path.display());
        assert_eq!(said.matches(&expected).count(), 1, "{said}");
    }
    assert_eq!((said.matches("warning: ").count(), said.matches("error: ").count()), (3, 0));
}
