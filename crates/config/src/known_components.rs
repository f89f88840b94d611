//! Names of the Collector's components, core and contrib, with the names of older releases. They
//! tell a component that Sluice does not have from a misspelt name.

use crate::catalog::Class;

/// True if the Collector has a component of this type.
pub(crate) fn is_known(class: Class, name: &str) -> bool {
    let names = match class {
        Class::Receiver => RECEIVERS,
        Class::Processor => PROCESSORS,
        Class::Exporter => EXPORTERS,
        Class::Extension => EXTENSIONS,
        Class::Connector => CONNECTORS,
    };
    names.split_ascii_whitespace().any(|known| known == name)
}

const RECEIVERS: &str = "
    active_directory_ds aerospike apache apachespark awscloudwatch awscontainerinsightreceiver
    awsecscontainermetrics awsfirehose awslambda awsproxy awss3 awsxray azureblob azureeventhub
    azure_event_hub azuremonitor azure_monitor bigip carbon chrony ciscoos cloudflare cloudfoundry
    collectd couchdb datadog datadoglog docker_stats elasticsearch envoyals expvar faro file filelog
    file_log filestats flinkmetrics fluentforward githubactions github gitlab googlecloudmonitoring
    googlecloudpubsub googlecloudpubsub_push googlecloudspanner haproxy hostmetrics host_metrics
    httpcheck http_check huaweicloudces icmpcheck iis influxdb jaeger jmx journald k8s_cluster
    k8s_events k8sevents k8slog k8sobjects k8s_objects kafka kafkametrics kubeletstats libhoney loki
    macosunifiedlogging memcached mongodb mongodbatlas mysql namedpipe netflow netscaler nginx nop
    nsxt ntp opencensus oracledb osquery otlp otelarrow otlpjsonfile otlp_json_file podman_stats
    postgresql pprof prometheus prometheusremotewrite prometheus_remote_write prometheus_simple
    pulsar purefa purefb rabbitmq receiver_creator redfish redis riak saphana sapm signalfx
    simpleprometheus skywalking snmp snowflake solace splunk_hec splunkenterprise sqlquery sqlserver
    sshcheck statsd stef syslog systemd tcpcheck tcplog tcp_log tlscheck udplog udp_log vcenter vcr
    webhookevent windowseventlog windowsperfcounters windowsservice yanggrpc zipkin zookeeper
";

const PROCESSORS: &str = "
    attributes batch coralogix cumulativetodelta datadog deltatocumulative deltatorate dnslookup
    experimental_metricsgeneration filter geoip groupbyattrs groupbytrace interval isolationforest
    k8sattributes k8s_attributes logdedup log_dedup logstransform logs_transform lookup
    memory_limiter metricsgeneration metricstarttime metricstransform metrics_transform nop
    probabilistic_sampler redaction remotetap resource resourcedetection resource_detection routing
    schema servicegraph spanmetrics span spanpruning spanprocessor starttime sumologic tail_sampling
    transform unroll
";

const EXPORTERS: &str = "
    alertmanager alibabacloud_logservice awscloudwatchlogs awsemf awskinesis awss3 awsxray azureblob
    azuredataexplorer azuremonitor azure_monitor bmchelix carbon cassandra clickhouse coralogix
    datadog dataset debug doris dynatrace elasticsearch faro file googlecloud googlecloudpubsub
    googlecloudstorage googlemanagedprometheus honeycombmarker influxdb jaeger jaeger_thrift kafka
    kinetica load_balancing loadbalancing logging logicmonitor logzio loki mezmo nop opencensus
    opensearch otelarrow otlp otlp_grpc otlp_http otlphttp prometheus prometheusremotewrite
    prometheus_remote_write pulsar rabbitmq sapm sematext sentry signalfx skywalking splunk_hec stef
    sumologic syslog tencentcloud_logservice tinybird zipkin
";

const EXTENSIONS: &str = "
    ack asapclient awsproxy awscloudwatchmetricstreams_encoding avro_log_encoding awslogs_encoding
    awss3_provider azure_auth azure_encoding azureauth basicauth basic_auth bearertokenauth
    bearer_token_auth cfgardenobserver cgroupruntime datadog db_storage docker_observer ecs_observer
    ecs_task_observer file_storage googleclientauth googlecloudlogentry_encoding headers_setter
    health_check healthcheckv2 healthcheck host_observer http_forwarder jaegerencoding
    jaegerremotesampling jsonlogencoding json_log_encoding k8s_leader_elector k8s_observer
    kafkatopics_observer memory_ballast memory_limiter oauth2client oauth2_client oidc opamp
    otlp_encoding pprof redis_storage remotetap sigv4auth skywalking_encoding solarwindsapmsettings
    sumologic text_encoding zipkin_encoding zpages
";

const CONNECTORS: &str = "
    count datadog exceptions failover forward grafanacloud metricsaslogs otlpjson otlp_json
    roundrobin round_robin routing servicegraph service_graph signaltometrics signal_to_metrics
    slowsql spanmetrics span_metrics sum
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_components_by_class() {
        assert!(is_known(Class::Processor, "k8sattributes"));
        assert!(is_known(Class::Exporter, "prometheusremotewrite"));
        assert!(!is_known(Class::Receiver, "k8sattributes"));
        assert!(!is_known(Class::Processor, "k8sattribute"));
    }
}
