//! The detectors of `resource_detection` against the real Collector's: the same section
//! `processors`, the same environment and the same services, and what arrives is the same.

mod services;

#[path = "../gateway/mod.rs"]
mod gateway;
#[path = "../peers/mod.rs"]
mod peers;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use gateway::{Gateway, Options, keeping_backend};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use peers::component;
use prost::Message as _;
use services::Services;
use sluice_load_test::Backend;
use sluice_load_test::subject::{Subject, SubjectSpec, free_addr};
use tonic::transport::Channel;

/// Name, and options of the processor.
type Case = (&'static str, String);
type Env = Vec<(String, String)>;

/// Each attribute that a detector has, and that is off by default.
fn all_of(names: &[&str]) -> String {
    let on: Vec<String> = names.iter().map(|name| format!("{name}: {{enabled: true}}")).collect();
    format!("resource_attributes: {{{}}}", on.join(", "))
}

fn env(pairs: &[(&str, &str)]) -> Env {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The environment that all have, and more.
fn common_env(services: &Services, more: &[(&str, &str)]) -> Env {
    let ecs = format!("http://{}/ecs", services.http);
    let ec2 = format!("http://{}", services.http);
    let docker = format!("unix://{}", services.docker.display());
    let mut env = env(&[
        ("OTEL_RESOURCE_ATTRIBUTES", "from.env=yes,cloud.provider=mine"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &ec2),
        ("AWS_REGION", "eu-west-1"),
        ("ECS_CONTAINER_METADATA_URI_V4", &ecs),
        ("DOCKER_HOST", &docker),
        ("KUBECONFIG", &services.kubeconfig.display().to_string()),
        ("K8S_NODE_NAME", "node-1"),
        ("GCE_METADATA_HOST", &services.http.to_string()),
    ]);
    env.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env
}

fn config(cases: &[Case], ports: &[SocketAddr], backend: &Backend, exporter: &str) -> String {
    let mut parts = [String::new(), String::new(), String::new()];
    for ((name, options), port) in cases.iter().zip(ports) {
        // Writing to a string cannot fail.
        let _ = write!(
            parts[0],
            "  otlp/{name}:\n    protocols:\n      grpc:\n        endpoint: {port}\n"
        );
        let _ = writeln!(parts[1], "  resource_detection/{name}: {options}");
        let _ = write!(
            parts[2],
            "    logs/{name}:\n      receivers: [otlp/{name}]\n      \
             processors: [resource_detection/{name}]\n      exporters: [otlp_grpc]\n"
        );
    }
    let [receivers, processors, pipelines] = parts;
    format!(
        "receivers:\n{receivers}processors:\n{processors}exporters:\n  otlp_grpc:\n    \
         endpoint: {}\n    tls:\n      insecure: true\n{exporter}service:\n  telemetry:\n    \
         metrics:\n      level: none\n  pipelines:\n{pipelines}",
        backend.addr()
    )
}

/// Resources without anything, with an attribute that detectors find too, and with a schema.
fn request() -> ExportLogsServiceRequest {
    let record = LogRecord { time_unix_nano: 1, ..LogRecord::default() };
    let scope_logs = vec![ScopeLogs { log_records: vec![record], ..ScopeLogs::default() }];
    let attribute = |key: &str| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue("old".to_owned())) }),
        ..KeyValue::default()
    };
    let attributes = vec![attribute("cloud.provider"), attribute("host.name"), attribute("own")];
    let of = |resource, schema_url: &str| ResourceLogs {
        resource,
        scope_logs: scope_logs.clone(),
        schema_url: schema_url.to_owned(),
    };
    let resource = Some(Resource { attributes, ..Resource::default() });
    ExportLogsServiceRequest {
        resource_logs: vec![of(None, ""), of(resource, ""), of(None, "https://schema")],
    }
}

/// For each resource that arrives its schema, and its attributes as sorted lines.
async fn relayed(port: SocketAddr, backend: &Backend) -> Vec<Vec<String>> {
    let before = backend.counts().taken_requests;
    let channel = Channel::from_shared(format!("http://{port}")).expect("a URL").connect().await;
    let mut client = LogsServiceClient::new(channel.expect("connects"));
    client.export(request()).await.expect("is taken");
    let taken = backend.counts().taken_requests;
    assert_eq!(taken, before + 1, "delivered when the sender is answered");
    let kept = backend.kept();
    let body = kept.last().expect("a request").body.clone();
    let logs = ExportLogsServiceRequest::decode(body).expect("logs").resource_logs;
    let lines = logs.into_iter().map(|logs| {
        let attributes = logs.resource.unwrap_or_default().attributes;
        let line = |it: KeyValue| format!("{}={:?}", it.key, it.value.and_then(|it| it.value));
        let mut lines: Vec<String> = attributes.into_iter().map(line).collect();
        lines.sort();
        lines.insert(0, format!("schema {}", logs.schema_url));
        lines
    });
    lines.collect()
}

/// Runs the cases in both, and returns what arrived from Sluice in each.
async fn compare(cases: &[Case], env: &Env) -> Option<Vec<Vec<Vec<String>>>> {
    let binary = component("SLUICE_TEST_OTELCOL")?;
    let backends = [keeping_backend(1).await, keeping_backend(1).await];
    let ports: Vec<_> = (0..2 * cases.len()).map(|_| free_addr().expect("a port")).collect();
    let (for_collector, for_sluice) = ports.split_at(cases.len());
    let at_once =
        "    sending_queue:\n      enabled: false\n    retry_on_failure:\n      enabled: false\n";
    let collector = Subject::start(SubjectSpec {
        name: "otelcol".to_owned(),
        binary,
        args: ["--config", "{config}"].map(str::to_owned).to_vec(),
        config: config(cases, for_collector, &backends[0], at_once),
        config_file: "config.yaml".to_owned(),
        env: env.clone(),
        ready: Some(for_collector[cases.len() - 1].into()),
        ..SubjectSpec::default()
    });
    let _collector = collector.await.unwrap_or_else(|error| panic!("{error}"));
    let config = config(cases, for_sluice, &backends[1], "");
    let config = format!("buffer:\n  ack: delivered\n{config}");
    let options = Options { env: env.clone(), ..Options::default() };
    let _gateway = Gateway::start_with(&config, options).await;
    // The ports of the Collector are opened one after the other.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (mut differences, mut all) = (Vec::new(), Vec::new());
    for (index, (name, _)) in cases.iter().enumerate() {
        let expected = relayed(for_collector[index], &backends[0]).await;
        let actual = relayed(for_sluice[index], &backends[1]).await;
        if expected != actual {
            differences.push(format!("{name}:\n Collector {expected:#?}\n Sluice {actual:#?}"));
        }
        all.push(actual);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    Some(all)
}

fn system(more: &str) -> String {
    format!("{{detectors: [env, system], timeout: 20s, {more}}}")
}

/// Scenario: the host that the test runs on, with defaults and with everything, and each source of
/// its name. Guarantee: attributes, their types, and schemas are those of the Collector.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_is_described_as_the_collector_describes_it() {
    let all = all_of(&[
        "host.arch",
        "host.cpu.cache.l2.size",
        "host.cpu.family",
        "host.cpu.model.id",
        "host.cpu.model.name",
        "host.cpu.stepping",
        "host.cpu.vendor.id",
        "host.id",
        "host.interface",
        "host.ip",
        "host.mac",
        "os.build.id",
        "os.description",
        "os.name",
        "os.version",
    ]);
    let cases = [
        ("defaults", system("")),
        ("everything", system(&format!("system: {{hostname_sources: [os], {all}}}"))),
        ("keeps", system("override: false")),
        ("cname", system("system: {hostname_sources: [cname, os]}")),
        ("lookup", system("system: {hostname_sources: [lookup, os]}")),
        ("env", "{}".to_owned()),
    ];
    let env = env(&[("OTEL_RESOURCE_ATTRIBUTES", "from.env=yes,cloud.provider=mine")]);
    let Some(all) = compare(&cases, &env).await else { return };
    // Cases that compare little would prove little.
    for (index, least) in [(0, 5), (1, 18), (5, 3)] {
        assert!(all[index][0].len() >= least, "{:?}", all[index][0]);
    }
}

/// Scenario: services of clouds, Docker and Kubernetes that answer. Guarantee: as above; those that
/// the variables do not speak of are not there for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_are_asked_as_the_collector_asks_them() {
    let folder = tempfile::tempdir().expect("a directory");
    let services = services::start(folder.path()).await;
    let docker = all_of(&["container.name", "container.image.name"]);
    let gce = all_of(&["gcp.gce.instance.hostname", "gcp.gce.instance.name"]);
    let tags = "ec2: {tags: [^team$, cost], tags_from_imds: true}";
    let cases = [
        ("docker", "{detectors: [docker]}".to_owned()),
        ("container", format!("{{detectors: [docker], docker: {{{docker}}}}}")),
        (
            "k8s",
            "{detectors: [k8s_api, kubeadm], k8s_api: {auth_type: kubeConfig}, \
             kubeadm: {auth_type: kubeConfig}}"
                .to_owned(),
        ),
        ("ec2", format!("{{detectors: [ec2, env], {tags}}}")),
        ("ecs", "{detectors: [ecs], override: false}".to_owned()),
        ("gce", format!("{{detectors: [gcp], gcp: {{{gce}}}}}")),
        ("absent", "{detectors: [lambda, heroku, elastic_beanstalk, aks]}".to_owned()),
    ];
    let env = common_env(&services, &[]);
    let Some(all) = compare(&cases, &env).await else { return };
    for (index, least) in [(0, 3), (1, 5), (2, 5), (3, 12), (4, 16), (5, 13)] {
        assert!(all[index][0].len() >= least, "{}: {:?}", cases[index].0, all[index][0]);
    }
}

/// Scenario: the variables of GKE, Lambda and Heroku; then those of Cloud Run, of a job and of App
/// Engine. Guarantee: as above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_decide_where_google_runs_us() {
    let folder = tempfile::tempdir().expect("a directory");
    let services = services::start(folder.path()).await;
    let gcp = || ("gcp", "{detectors: [gcp, lambda, heroku]}".to_owned());
    for (variables, least) in [
        (&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("AWS_LAMBDA_FUNCTION_NAME", "f")][..], 9),
        (&[("K_CONFIGURATION", "c"), ("K_SERVICE", "s"), ("K_REVISION", "r")][..], 8),
        (
            &[("CLOUD_RUN_JOB", "j"), ("CLOUD_RUN_EXECUTION", "e"), ("CLOUD_RUN_TASK_INDEX", "3")]
                [..],
            9,
        ),
        (&[("FUNCTION_TARGET", "t"), ("K_SERVICE", "s")][..], 7),
        (&[("GAE_ENV", "standard"), ("GAE_SERVICE", "s"), ("GAE_VERSION", "v")][..], 8),
        (&[("GAE_SERVICE", "s"), ("GAE_INSTANCE", "i"), ("HEROKU_APP_ID", "h")][..], 8),
    ] {
        let env = common_env(&services, variables);
        let Some(all) = compare(&[gcp()], &env).await else { return };
        assert!(all[0][0].len() >= least, "{variables:?}: {:?}", all[0][0]);
    }
}

/// Scenario: the API server does not know the node. Guarantee: the start fails as the Collector's
/// does, says what is missing, and nothing listens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_metadata_fails_and_says_why() {
    let folder = tempfile::tempdir().expect("a directory");
    let services = services::start(folder.path()).await;
    let mut env = common_env(&services, &[]);
    env.retain(|(name, _)| name != "K8S_NODE_NAME");
    env.push(("K8S_NODE_NAME".to_owned(), "node-2".to_owned()));
    let options = "{detectors: [env, k8s_api], k8s_api: {auth_type: kubeConfig}, \
                   timeout: 1s, fail_on_missing_metadata: true}";
    let port = free_addr().expect("a port");
    let backend = keeping_backend(1).await;
    let config = config(&[("k8s", options.to_owned())], &[port], &backend, "");
    let options = Options { env, still_starts: true, ..Options::default() };
    let gateway = Gateway::start_with(&config, options).await;
    let remedy = "take those out of `detectors` that are not for this place";
    gateway.wait_for_output(remedy, 1).await;
    let output = gateway.output();
    assert!(output.contains("`k8s_api`: the node node-2: there is no such thing"), "{output}");
    assert!(output.contains("resource_detection/k8s"), "{output}");
    assert!(tokio::net::TcpStream::connect(port).await.is_err());
}
