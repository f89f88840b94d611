//! Whole files, and what becomes of them.

use serde_json::{Value, json};

use super::translate;
use crate::migrate::report::Report;

const OUTPUT: &str = "[[outputs.influxdb]]\ndatabase = 'k6'\nskip_database_creation = true\n";
const JSON: &str = "[[inputs.tail]]\nfiles = ['/k6.json']\ndata_format = 'json'\n\
                    json_name_key = 'metric'\njson_time_key = 'data_time'\n\
                    tag_keys = ['data_tags_method']\njson_string_fields = ['data_tags_url']\n";

fn translated(text: &str) -> (Value, Report) {
    let mut report = Report::default();
    let config = translate(text, &mut report).unwrap();
    (config, report)
}

fn says(report: &Report, text: &str) -> bool {
    report.left().iter().any(|(_, said)| said.contains(text))
}

/// Scenario: a server has a name without a password, or the other way round. Guarantee: Telegraf
/// lets in few then, and so no server is written that lets in all.
#[test]
fn half_a_user_opens_no_server() {
    for key in ["basic_username", "basic_password"] {
        let input = format!("[[inputs.influxdb_listener]]\n{key} = 'x'\n{OUTPUT}");
        let (config, report) = translated(&input);
        assert_eq!(config.get("receivers"), None, "{config}");
        assert!(says(&report, &format!("{key}: ")), "{:?}", report.left());
        let (config, report) = translated(&format!("[[outputs.prometheus_client]]\n{key} = 'x'\n"));
        assert_eq!(config.get("exporters"), None, "{config}");
        assert!(says(&report, &format!("{key}: ")), "{:?}", report.left());
    }
}

/// Scenario: of two aggregators with names of their own, one drops what it takes. Guarantee: the
/// samples that the other takes are sent, and so are those of no aggregator, with all of their tags
/// and fields.
#[test]
fn each_aggregator_drops_its_own() {
    let text = format!(
        "{JSON}[[aggregators.basicstats]]\nnamepass = ['a']\ndrop_original = true\n\
         stats = ['mean']\n[[aggregators.minmax]]\nnamepass = ['b']\n{OUTPUT}"
    );
    let (config, report) = translated(&text);
    let rules = &config["processors"]["interval"]["rules"];
    let kept = [0, 1].map(|at| rules[at].get("keep_points"));
    assert_eq!(kept, [None, Some(&json!(true))], "{config}");
    let k6 = &config["receivers"]["k6"];
    assert_eq!(k6["tags_as_fields"], json!(["url"]), "{config}");
    assert_eq!(k6["tags"], json!(["method", "url"]), "{config}");
    assert!(says(&report, "`data_value` of a sample"), "{:?}", report.left());
    let text = text.replace("[[aggregators.minmax]]\nnamepass = ['b']\n", "");
    let (config, _) = translated(&text);
    assert_eq!(config["receivers"]["k6"]["tags_as_fields"], json!(["url"]), "{config}");
}

/// Guarantee: an aggregator's `tagexclude` leaves out tags that are the same for all samples too;
/// where samples are sent themselves it is reported.
#[test]
fn aggregators_exclude_tags_of_the_agent() {
    let text = format!(
        "[global_tags]\nenv = 'x'\ndc = 'y'\n[agent]\nhostname = 'h'\n{JSON}\
         [[aggregators.basicstats]]\ndrop_original = true\nstats = ['sum']\n\
         tagexclude = ['host', 'path', 'env']\n{OUTPUT}"
    );
    let (config, report) = translated(&text);
    let expected = json!({"attributes": [{"key": "dc", "value": "y", "action": "insert"}]});
    assert_eq!(config["processors"]["resource"], expected);
    assert!(report.is_whole(), "{:?}", report.left());
    let (_, report) = translated(&text.replace("drop_original = true", ""));
    assert!(says(&report, "aggregators: tagexclude"), "{:?}", report.left());
}

/// Guarantee: types that are declared are those of the fields; one that is not possible is
/// reported.
#[test]
fn declared_types_are_kept_or_reported() {
    let field = "[[inputs.tail.json_v2.field]]\n";
    let text = format!(
        "[[inputs.tail]]\nfiles = ['/k6.json']\ndata_format = 'json_v2'\n\
         [[inputs.tail.json_v2]]\nmeasurement_name_path = 'metric'\ntimestamp_path = 'data.time'\n\
         {field}path = 'data.value'\ntype = 'int'\n\
         {field}path = 'data.tags.status'\ntype = 'int'\n\
         {field}path = 'data.tags.load'\ntype = 'float'\n{OUTPUT}"
    );
    let (config, report) = translated(&text);
    let fields = &config["receivers"]["k6"]["tags_as_fields"];
    assert_eq!(*fields, json!(["status:int", "load:float"]), "{config}");
    assert!(says(&report, "type: the value of each sample"), "{:?}", report.left());
    let names = "['m', 't', 'v', 'check', 'error', 'error_code']";
    let text = format!(
        "[[inputs.tail]]\nfiles = ['/k6.csv']\ndata_format = 'csv'\ncsv_column_names = {names}\n\
         csv_measurement_column = 'm'\ncsv_timestamp_column = 't'\n\
         csv_column_types = ['string', 'int', 'float', 'string', 'time', 'string']\n{OUTPUT}"
    );
    let (config, report) = translated(&text);
    let fields = &config["receivers"]["k6"]["tags_as_fields"];
    assert_eq!(*fields, json!(["check", "error", "error_code"]), "{config}");
    assert!(says(&report, "csv_column_types: `time`"), "{:?}", report.left());
}

/// Guarantee: a pattern of fields does not become a tag of that name.
#[test]
fn patterns_of_fields_are_reported() {
    for pattern in ["data_tags_*", "*", "data_tags_[a-z]"] {
        let (config, report) =
            translated(&format!("{}{OUTPUT}", JSON.replace("data_tags_url", pattern)));
        assert_eq!(config["receivers"]["k6"]["tags"], json!(["method"]), "{config}");
        assert!(says(&report, "json_string_fields"), "{:?}", report.left());
    }
}

/// Guarantee: options that are empty, `false` or zero are not reported; the same ones with a value
/// are.
#[test]
fn options_that_are_off_are_none() {
    let text = |tag: &str, is_on: &str, ping: &str| {
        format!(
            "{JSON}{OUTPUT}database_tag = '{tag}'\ninflux_omit_timestamp = {is_on}\n\
             ping_timeout = '{ping}'\nnamepass = []\n"
        )
    };
    let lines = |text: &str| {
        let (_, report) = translated(text);
        report.left().iter().filter(|(_, said)| said.starts_with("outputs.")).count()
    };
    assert_eq!(lines(&text("", "false", "0s")), 0);
    assert_eq!(lines(&text("x", "true", "5s")), 3);
}

/// Guarantee: names of earlier versions mean what they meant: an output goes nowhere else.
#[test]
fn removed_names_are_read() {
    let (config, report) = translated(
        "[tags]\ndc = 'x'\n[agent]\nomit_hostname = true\n[[inputs.http_listener]]\n\
         service_address = ':8186'\n[[outputs.influxdb]]\nurl = 'https://db:8086'\n\
         ssl_ca = '/ca.pem'\n",
    );
    let exporter = &config["exporters"]["influxdb"];
    assert_eq!(exporter["endpoint"], json!("https://db:8086"), "{config}");
    assert_eq!(exporter["tls"]["ca_file"], json!("/ca.pem"), "{config}");
    assert_eq!(config["receivers"]["influxdb"]["endpoint"], json!(":8186"), "{config}");
    assert_eq!(config["processors"]["resource"]["attributes"][0]["key"], json!("dc"), "{config}");
    let notes = report.lines("a");
    for name in ["url: ", "ssl_ca: ", "inputs.http_listener: ", "influx_uint_support: "] {
        assert!(notes.iter().any(|note| note.contains(name)), "{name}: {notes:?}");
    }
}
