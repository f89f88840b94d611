use std::path::PathBuf;

use sluice_config::{Effect, read_text};
use sluice_net::tls::Pem;

use super::*;
use crate::http_config::{Credentials, ProxyConfig, SecretSource};

fn read(text: &str) -> (ScrapeConfigs, Vec<String>) {
    let (configs, diagnostics) = read_text("prometheus.config", text, ScrapeConfigs::read);
    (configs, diagnostics.items().iter().map(|item| diagnostics.line(item)).collect())
}

/// The jobs of a text without anything to say of it.
fn jobs(text: &str) -> Vec<ScrapeConfig> {
    let (configs, said) = read(text);
    assert_eq!(said, Vec::<String>::new(), "{text}");
    configs.jobs
}

/// Guarantee: a job that says nothing has Prometheus' defaults, and the Collector's fallback.
#[test]
fn defaults_are_those_of_prometheus() {
    let job = &jobs("scrape_configs: [{job_name: a}]")[0];
    assert_eq!((&*job.job, &*job.metrics_path, &*job.scheme), ("a", "/metrics", "http"));
    assert_eq!((job.interval, job.timeout), (Duration::from_secs(60), Duration::from_secs(10)));
    assert_eq!(job.protocols, ScrapeProtocol::defaults(false));
    assert_eq!(job.protocols[0].media_type(), "application/openmetrics-text;version=1.0.0");
    assert_eq!(job.fallback_protocol, ScrapeProtocol::PrometheusText0_0_4);
    assert!(job.honor_timestamps && !job.honor_labels && job.enable_compression);
    assert!(!job.track_timestamps_staleness && !job.extra_scrape_metrics);
    assert_eq!((job.names, job.escaping), (NameScheme::Utf8, Escaping::AllowUtf8));
    assert_eq!((job.limits, job.histograms), (Limits::default(), Histograms::default()));
    assert_eq!(job.http, HttpConfig::default());
    assert!(job.http.follow_redirects && job.http.http2 && job.sources.is_empty());
}

/// Guarantee: what a job does not say is as in `global`; what it says is its own.
#[test]
fn jobs_follow_global() {
    let text = r#"
global:
  scrape_interval: 5s
  scrape_protocols: [PrometheusText0.0.4]
  sample_limit: 7
  body_size_limit: 1MB
  metric_name_validation_scheme: legacy
  scrape_native_histograms: true
  convert_classic_histograms_to_nhcb: true
  extra_scrape_metrics: true
  external_labels: {cluster: 1}
scrape_configs:
- job_name: a
- job_name: 2
  scrape_interval: 1m30s
  scrape_timeout: 30s
  scrape_protocols: [OpenMetricsText1.0.0, PrometheusProto]
  fallback_scrape_protocol: PrometheusText1.0.0
  sample_limit: 9
  target_limit: 3
  label_limit: 4
  label_name_length_limit: 5
  label_value_length_limit: 6
  body_size_limit: 0
  metric_name_validation_scheme: utf8
  scrape_native_histograms: false
  always_scrape_classic_histograms: true
  convert_classic_histograms_to_nhcb: false
  native_histogram_bucket_limit: 160
  native_histogram_min_bucket_factor: 1.1
  params: {module: [http_2xx, 7]}
  honor_labels: true
  honor_timestamps: false
- job_name: c
  metric_name_escaping_scheme: dots
  scrape_interval: 0s
  scrape_timeout: 2s
"#;
    let (configs, said) = read(text);
    assert_eq!(said, Vec::<String>::new());
    assert_eq!(&**configs.global.external_labels.get("cluster"), "1");
    let [a, b, c] = configs.jobs.try_into().expect("three");
    assert_eq!((a.interval, a.timeout), (Duration::from_secs(5), Duration::from_secs(5)));
    assert_eq!(a.protocols, [ScrapeProtocol::PrometheusText0_0_4]);
    assert_eq!((a.limits.samples, a.limits.body_bytes), (7, 1 << 20));
    assert_eq!((a.names, a.escaping), (NameScheme::Legacy, Escaping::Underscores));
    assert!(a.histograms.scrape_native && a.histograms.convert_classic && a.extra_scrape_metrics);
    assert_eq!(a.native_buckets, NativeBuckets::default());

    assert_eq!((&*b.job, b.interval, b.timeout.as_secs()), ("2", Duration::from_secs(90), 30));
    let expected = [ScrapeProtocol::OpenMetricsText1_0_0, ScrapeProtocol::PrometheusProto];
    assert_eq!(b.protocols, expected);
    assert_eq!(b.fallback_protocol, ScrapeProtocol::PrometheusText1_0_0);
    let limits = Limits {
        body_bytes: 1 << 20,
        samples: 9,
        targets: 3,
        labels: 4,
        label_name_bytes: 5,
        label_value_bytes: 6,
    };
    assert_eq!(b.limits, limits);
    assert_eq!((b.names, b.escaping), (NameScheme::Utf8, Escaping::AllowUtf8));
    let histograms = Histograms { always_scrape_classic: true, ..Histograms::default() };
    assert_eq!(b.histograms, histograms);
    assert_eq!(b.native_buckets, NativeBuckets { limit: 160, schema: Some(2) });
    let texts = ["http_2xx", "7"].map(Text::from).to_vec();
    assert_eq!(b.params, [("module".into(), texts)]);
    assert!(b.honor_labels && !b.honor_timestamps);

    assert_eq!((c.interval.as_secs(), c.timeout.as_secs()), (5, 2));
    assert_eq!((c.names, c.escaping), (NameScheme::Legacy, Escaping::Dots));
}

/// Guarantee: the resolution is the highest of Prometheus' whose buckets grow by this factor.
#[test]
fn a_factor_of_buckets_is_a_resolution() {
    for (factor, schema) in [
        (0.0, None),
        (1.0, None),
        (1.0027, None),
        (1.00272, Some(7)),
        (1.1, Some(2)),
        (1.19, Some(1)),
        (2.0, Some(0)),
        (2.1, Some(-1)),
        (16.0, Some(-2)),
        (257.0, Some(-4)),
        (f64::MAX, Some(-4)),
    ] {
        assert_eq!(schema_of(factor), schema, "{factor}");
    }
}

/// Guarantee: credentials are kept as secrets or as paths of files, TLS as Sluice's own options.
#[test]
fn clients_have_credentials_and_tls() {
    let inline = |text: &str| SecretSource::Inline(sluice_config::Secret::new(text));
    let file = |path: &str| SecretSource::File(PathBuf::from(path));
    let header = |scheme: &str, credentials| {
        Some(Credentials::Header { scheme: scheme.to_owned(), credentials })
    };
    for (text, expected) in [
        (
            "basic_auth: {username: u, password_file: /p}",
            Some(Credentials::Basic { user: inline("u"), password: file("/p") }),
        ),
        ("authorization: {credentials: t}", header("Bearer", inline("t"))),
        ("authorization: {type: ' X ', credentials_file: f}", header("X", file("f"))),
        ("bearer_token: t", header("Bearer", inline("t"))),
        ("bearer_token_file: f", header("Bearer", file("f"))),
    ] {
        let job = &jobs(&format!("scrape_configs: [{{job_name: a, {text}}}]"))[0];
        assert_eq!(job.http.credentials, expected, "{text}");
    }
    let text = r#"
scrape_configs:
- job_name: a
  scheme: https
  follow_redirects: false
  enable_http2: false
  proxy_url: http://u:p@proxy:3128
  tls_config: {ca_file: ca, cert_file: c, key_file: k, server_name: n, min_version: TLS13}
  http_headers: {X-One: {values: [a, b], secrets: [s], files: [f]}}
  oauth2:
    client_id: id
    client_secret_file: secret
    token_url: https://t
    scopes: [x]
    endpoint_params: {p: q}
    tls_config: {insecure_skip_verify: true}
"#;
    let http = &jobs(text)[0].http;
    assert!(!http.follow_redirects && !http.http2);
    assert!(matches!(http.proxy, ProxyConfig::Url(_)));
    assert_eq!(http.tls.common.authorities, Some(Pem::File("ca".into())));
    assert_eq!(http.tls.common.key, Some(Pem::File("k".into())));
    assert_eq!(http.tls.common.min_version, rustls::ProtocolVersion::TLSv1_3);
    assert_eq!(http.tls.server_name_override.as_deref(), Some("n"));
    let values: Vec<&SecretSource> = http.headers.iter().map(|(_, value)| value).collect();
    assert_eq!(values, [&inline("a"), &inline("b"), &inline("s"), &file("f")]);
    let Some(Credentials::OAuth2(oauth2)) = &http.credentials else { panic!("{http:?}") };
    assert_eq!((&*oauth2.client_id, &oauth2.client_secret), ("id", &file("secret")));
    assert!(oauth2.tls.insecure_skip_verify && oauth2.scopes == ["x"]);
}

#[test]
fn sources_are_read() {
    let text = r#"
scrape_configs:
- job_name: a
  static_configs:
  - {targets: [a:1, b:2], labels: {env: prod, shard: 1}}
  - {targets: [c:3]}
  file_sd_configs: [{files: [/etc/*.json, t.yml], refresh_interval: 1m}]
  http_sd_configs: [{url: 'https://sd/x', refresh_interval: 10s, bearer_token: t}]
"#;
    let job = &jobs(text)[0];
    let [SourceConfig::Static(groups), SourceConfig::File(file), SourceConfig::Http(http)] =
        job.sources.as_slice()
    else {
        panic!("{job:?}")
    };
    assert_eq!((groups.len(), groups[0].targets.len(), &*groups[1].key), (2, 2, "1"));
    assert_eq!(&**groups[0].labels.get("shard"), "1");
    assert_eq!(&**groups[1].targets[0].get("__address__"), "c:3");
    assert_eq!((file.files.len(), file.refresh_interval.as_secs()), (2, 60));
    assert_eq!((&*http.url, http.refresh_interval.as_secs()), ("https://sd/x", 10));
    assert!(http.http.credentials.is_some());
}

/// Guarantee: every mistake is named, with its job and a reason.
#[test]
fn mistakes_are_named_with_their_job() {
    for (job, reason) in [
        ("scrape_interval: 1.5s", "scrape_interval`: `1.5s` is not a duration: `.` is not a unit"),
        ("scrape_timeout: 2m", "scrape_timeout` is longer than the interval of 1m"),
        ("scheme: ftp", "scheme`: `ftp` is not a scheme: it is neither"),
        ("body_size_limit: 5", "body_size_limit`: `5` is not a size: a unit is missing"),
        ("sample_limit: -1", "sample_limit` must be"),
        ("scrape_protocols: []", "scrape_protocols` must not be empty"),
        ("scrape_protocols: [PrometheusProto, PrometheusProto]", "has `PrometheusProto` twice"),
        ("scrape_protocols: [Proto]", "has `Proto`, which is not one of its values"),
        ("fallback_scrape_protocol: x", "must be one of `PrometheusProto`"),
        (
            "metric_name_validation_scheme: legacy, metric_name_escaping_scheme: allow-utf-8",
            "cannot be `allow-utf-8` with",
        ),
        ("basic_auth: {username: u}, bearer_token: t", "has `basic_auth` and `bearer_token`: only"),
        ("basic_auth: {password: p, password_file: f}", "basic_auth.password` is there together"),
        ("authorization: {type: basic, credentials: c}", "authorization.type` cannot be `basic`"),
        ("authorization: {type: x}", "authorization` needs `credentials`"),
        (
            "oauth2: {client_id: a, token_url: b, grant_type: jwt}",
            "grant_type`: `jwt` is not a grant",
        ),
        ("oauth2: {token_url: b}", "oauth2.client_id` is required"),
        ("proxy_url: 'https://p'", "proxy_url` cannot be used: a proxy URL can start only with"),
        ("proxy_url: 'http://p', proxy_from_environment: true", "proxy_url` is there together"),
        ("proxy_url: 'http://p', no_proxy: x", "no_proxy` is not in this build"),
        ("tls_config: {cert_file: c}", "tls_config` has `cert_file` without `key_file`"),
        ("tls_config: {min_version: TLS13, max_version: TLS12}", "min_version` is above"),
        ("http_headers: {Host: {values: [a]}}", "http_headers.Host` is not the name of a header"),
        ("relabel_configs: [{}]", "relabel_configs[0].target_label` is required"),
        ("static_configs: [{targets: ['http://a']}]", "static_configs[0].targets` has `http://a`"),
        ("static_configs: [{targets: [a], label: {}}]", "static_configs[0]` has no option `label`"),
        ("file_sd_configs: [{}]", "file_sd_configs[0].files` is required"),
        ("file_sd_configs: [{files: [a.txt]}]", "has `a.txt`, which does not end with"),
        ("file_sd_configs: [{files: ['*/a.yml']}]", "has a `*` before the last part"),
        ("http_sd_configs: [{}]", "http_sd_configs[0].url` is required"),
        ("http_sd_configs: [{url: sd}]", "url` cannot be used: it must start with http://"),
        ("dns_sd_configs: [{names: [a], type: A}]", "dns_sd_configs[0].port` is required"),
        ("dns_sd_configs: [{}]", "dns_sd_configs[0].names` is required"),
        ("kubernetes_sd_configs: [{}]", "kubernetes_sd_configs[0].role` is required"),
        ("consul_sd_configs: [{server: a}]", "consul_sd_configs` is not in this build of Sluice"),
        ("colour: red", "` has no option `colour`"),
    ] {
        let (_, said) = read(&format!("scrape_configs: [{{job_name: node, {job}}}]"));
        let [line] = said.as_slice() else { panic!("{job}: {said:?}") };
        assert!(line.contains("`prometheus.config.scrape_configs[node]"), "{job}: {line}");
        assert!(line.contains(reason), "{job}: {line}");
    }
    for (text, reason) in [
        ("scrape_configs: [{}]", "scrape_configs[0].job_name` is required"),
        ("scrape_configs: [{job_name: a}, {job_name: a}]", "has the job `a` twice"),
        ("remote_write: [{url: x}]", "remote_write` is not in this build of Sluice"),
        ("scrape_config_files: [absent.yml]", "scrape_config_files` has `absent.yml`: no file"),
        ("scrape_config_files: [a/*/b.yml]", "which has a `*` before the last part"),
        ("global: {external_labels: {a: $HOST}}", "has a `$` in the value of `a`"),
        ("global: {scrape_timeout: 2m}", "is longer than the interval of 1m"),
        ("global: {evaluation_interval: 2m}", "has no effect: it is of the Prometheus server"),
        ("storage: {tsdb: }", "storage` has no effect"),
    ] {
        let (_, said) = read(text);
        assert!(said.len() == 1 && said[0].contains(reason), "{text}: {said:?}");
    }
}

/// Scenario: a list of groups has a dash and nothing else. Guarantee: a warning says so.
#[test]
fn an_empty_group_is_told() {
    let (configs, said) = read("scrape_configs:\n- job_name: a\n  static_configs:\n  -\n");
    assert_eq!(configs.jobs.len(), 1);
    assert!(said.len() == 1 && said[0].contains("static_configs[0]` is empty"), "{said:?}");
}

/// Guarantee: rules without a URL in an address may make the address.
#[test]
fn addresses_that_rules_change_may_be_urls() {
    let text = "scrape_configs: [{job_name: a, static_configs: [{targets: ['http://a']}], \
                relabel_configs: [{source_labels: [__address__], target_label: __param_target}]}]";
    assert_eq!(jobs(text)[0].relabel.len(), 1);
}

fn kubernetes(text: &str) -> (Option<KubernetesSd>, Vec<String>) {
    let (config, diagnostics) = read_text("k", text, KubernetesSd::read);
    (config, diagnostics.items().iter().map(|item| diagnostics.line(item)).collect())
}

/// Guarantee: the options of Kubernetes' discovery are those of Prometheus, and so are the
/// combinations that it refuses.
#[test]
fn options_of_kubernetes_are_read() {
    let text = "role: endpoints\nnamespaces: {names: [a, b], own_namespace: true}\n\
                selectors: [{role: pod, label: 'app=x'}, {role: service, field: 'a=x\\,y,b!=z'}]\n\
                attach_metadata: {node: true, cronjob: true}";
    let (config, said) = kubernetes(text);
    assert_eq!(said, Vec::<String>::new());
    let config = config.expect("a role");
    assert_eq!((config.role, config.own_namespace), (Role::Endpoints, true));
    assert_eq!(config.namespaces, ["a", "b"]);
    assert_eq!((&*config.selectors[0].label, config.selectors[1].role), ("app=x", Role::Service));
    assert!(config.attach_node && config.attach_cron_job && !config.attach_namespace);
    let (config, _) = kubernetes("role: pod\napi_server: https://k:6443\nbearer_token_file: f");
    let config = config.expect("a role");
    assert!(config.api_server.is_some() && config.http.credentials.is_some());
    for (text, reason) in [
        ("{}", "`k.role` is required"),
        ("role: pods", "`k.role` must be one of `pod`"),
        ("{role: pod, bearer_token: t}", "has options of HTTP without `api_server`"),
        ("{role: pod, api_server: 'http://a', kubeconfig_file: f}", "has `api_server` and"),
        ("{role: pod, kubeconfig_file: f, namespaces: {own_namespace: true}}", "`own_namespace`"),
        ("{role: pod, selectors: [{role: service}]}", "`pod` has only pod, node"),
        ("{role: pod, selectors: [{role: pod}, {role: pod}]}", "has the role `pod` twice"),
        ("{role: pod, selectors: [{role: pod, field: 'a=b,c'}]}", "has the term `c`"),
        ("{role: pod, selectors: [{label: a}]}", "`k.selectors[0].role` is required"),
        ("{role: pod, api_server: 'http://a', proxy_url: 'http://p'}", "`k.proxy_url` is not in"),
        ("{role: pod, api_server: 'http://a', follow_redirects: true}", "has no effect"),
        (
            "{role: pod, api_server: 'http://a', tls_config: {min_version: TLS13}}",
            "`k.tls_config` has versions of TLS",
        ),
        (
            "{role: pod, api_server: 'http://a', oauth2: {client_id: c, token_url: 'http://t'}}",
            "`k.oauth2` is not in this build",
        ),
    ] {
        let (_, said) = kubernetes(text);
        assert!(said.len() == 1 && said[0].contains(reason), "{text}: {said:?}");
    }
}

/// Guarantee: each option is declared once, and those that are not there yet say so.
#[test]
fn options_are_documented_once() {
    let options = Fields::describe(ScrapeConfigs::read);
    let mut paths: Vec<&str> = options.iter().map(|option| &*option.path).collect();
    let all = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), all);
    let effect = |path: &str| {
        let option = options.iter().find(|option| option.path == path);
        option.map(|option| option.effect.clone())
    };
    let consul = effect("scrape_configs[].consul_sd_configs");
    assert!(matches!(consul, Some(Effect::NotYet(_))), "{consul:?}");
    assert_eq!(effect("scrape_configs[].relabel_configs[].regex"), Some(Effect::Used));
}

/// Scenario: jobs in two files, of which one has a mistake. Guarantee: the jobs of both have the
/// defaults of `global`, the mistake has its own file and line, and a change of a file is seen.
#[test]
fn jobs_can_be_in_files_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let text = format!(
        "global: {{scrape_interval: 7s, scrape_timeout: 3s}}\nscrape_configs: [{{job_name: a}}]\n\
         scrape_config_files: ['{}/*.yml']\n",
        folder.path().display()
    );
    write("1.yml", "scrape_configs:\n- job_name: b\n  static_configs: [{targets: ['c:1']}]\n");
    write("2.yml", "scrape_configs:\n- job_name: d\n");
    let (found, said) = read(&text);
    assert_eq!(said, Vec::<String>::new());
    let jobs: Vec<&str> = found.jobs.iter().map(|job| &*job.job).collect();
    assert_eq!(jobs, ["a", "b", "d"]);
    assert!(found.jobs.iter().all(|job| job.interval == Duration::from_secs(7)));
    assert_eq!(found.jobs[1].sources.len(), 1);

    write("2.yml", "scrape_configs:\n- job_name: d\n  colour: red\n");
    let (changed, said) = read(&text);
    assert_ne!(changed.files_fingerprint, found.files_fingerprint);
    assert!(said.len() == 1 && said[0].contains("2.yml:3: `"), "{said:?}");
    assert!(said[0].contains("scrape_configs[d]` has no option `colour`"), "{said:?}");
    write("2.yml", "scrape_configs:\n- job_name: a\n");
    assert!(read(&text).1[0].contains("has the job `a` twice"));
    write("2.yml", "global: {scrape_interval: 1s}\n");
    assert!(read(&text).1[0].contains("has no option `global`"));
    write("2.yml", "- a\n- : b: c\n");
    assert_eq!(read(&text).1.len(), 1);
}
