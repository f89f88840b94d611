//! The options of the `influxdb` exporter: the Collector's, and those of lines.

use std::time::Duration;

use http::HeaderValue;
use http::header::AUTHORIZATION;
use sluice_config::{Fields, Secret};
use sluice_influx::{Moved, Precision};
use sluice_net::auth::client::{basic_credentials, read_authenticator};
use sluice_net::client::{Origin, UrlError, read_headers};
use sluice_net::tls::ClientTlsOptions;
use sluice_otlp::Encoding;

use super::url::{Api, Place, query_url, url};
use crate::client_options::{ClientOptions, GZIP_LEVELS, compression_level, declare_unsupported};
use crate::connections::Connections;
use crate::sending::Sending;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Ten thousand lines of 300 bytes.
const LIMIT_BYTES: u64 = 3_000_000;
const MAX_LINES: usize = 10_000;

#[derive(Clone)]
pub(super) struct InfluxConfig {
    /// With path and query. Empty if the endpoint cannot be used.
    pub url: String,
    /// The query of the endpoint itself, which may have keys.
    pub own_query: Option<String>,
    /// A database of 1.x that is created if it is missing.
    pub created: Option<Created>,
    pub precision: Precision,
    /// Points that get another time if another one has it.
    pub moved: Option<Moved>,
    pub max_lines: usize,
    pub encoding: Encoding,
    pub client: ClientOptions,
    pub connections: Connections,
}

#[derive(Clone)]
pub(super) struct Created {
    pub name: String,
    /// The URL that statements are posted to.
    pub query_url: String,
}

/// The section `v1_compatibility`.
#[derive(Default)]
struct Compatibility {
    is_enabled: bool,
    database: String,
    creates_database: bool,
    retention_policy: String,
    username: Option<String>,
    password: Option<Secret>,
}

impl InfluxConfig {
    pub(super) fn read(fields: &mut Fields<'_>) -> InfluxConfig {
        let doc = "URL of the server. If it has no path, that of the API is appended: `/write`, \
                   `/api/v2/write` or `/api/v3/write_lp`.";
        let endpoint = fields.required_string("endpoint", doc);
        let (place, v1) = read_place(fields);
        let token = fields.secret("token", "Token of InfluxDB.");
        let token = token.filter(|token| !token.expose().is_empty());
        let precisions = [
            ("ns", Precision::Nanoseconds),
            ("us", Precision::Microseconds),
            ("ms", Precision::Milliseconds),
            ("s", Precision::Seconds),
        ];
        let doc = "Unit of times. A longer one packs better, and cuts times.";
        let precision = fields.choice("precision", Precision::Nanoseconds, &precisions, doc);
        let moves =
            [("shift", Some(Moved::Deltas)), ("shift_all", Some(Moved::All)), ("overwrite", None)];
        let doc = "Points of a request with the same series, field and time, of which InfluxDB \
                   keeps the last: `shift` moves the later ones to the next free time if they are \
                   increments, `shift_all` all of them, `overwrite` none. (Sluice's own option.)";
        let moved = fields.choice("collisions", Some(Moved::Deltas), &moves, doc);
        let doc = "Most lines of a request. One goes out once it has 5000, or fewer after requests \
                   that were not answered within `timeout`.";
        let max_lines = fields.integer("payload_max_lines", MAX_LINES, 1..=1_000_000, doc);
        let doc = "Most bytes of a request before compression; larger ones are split. (The \
                   Collector's default is 10000000.)";
        let range = 1024..=u64::from(u32::MAX);
        let max_request_bytes = fields.size("payload_max_bytes", LIMIT_BYTES, range, doc) as usize;
        let encodings =
            [("gzip", Encoding::Gzip), ("none", Encoding::Identity), ("", Encoding::Identity)];
        let doc = "Compression of requests.";
        let encoding = fields.choice("compression", Encoding::Gzip, &encodings, doc);
        let highest_level = (encoding == Encoding::Gzip).then_some(GZIP_LEVELS).flatten();
        let mut client = ClientOptions {
            timeout: ClientOptions::read_timeout(fields, TIMEOUT),
            compression_level: compression_level(fields, highest_level),
            tls: ClientTlsOptions::read(fields),
            headers: read_headers(fields),
            authenticator: read_authenticator(fields),
            max_request_bytes,
            sending: Sending::read(fields),
            is_idempotent: false,
        };
        let connections = Connections::read(fields);
        let creates = v1.is_enabled && v1.creates_database;
        set_credentials(fields, &mut client, place.api, v1, token);
        let (url, own_query) = read_url(fields, &endpoint, &place, precision);
        let created = creates.then(|| read_created(fields, &endpoint, &place)).flatten();
        connections.check(fields, "endpoint", &url);
        refuse_others(fields);
        InfluxConfig {
            url,
            own_query,
            created,
            precision,
            moved,
            max_lines,
            encoding,
            client,
            connections,
        }
    }
}

/// The API, and where lines are stored.
fn read_place(fields: &mut Fields<'_>) -> (Place, Compatibility) {
    let doc = "InfluxDB 1.x: `/write`. So do VictoriaMetrics and others.";
    let v1 = fields.section_or_default("v1_compatibility", doc, read_compatibility);
    let apis = [("v2", Api::V2), ("v3", Api::V3)];
    let doc = "API of InfluxDB 2.x or 3, without `v1_compatibility`. Unset: `v2`. (Sluice's own \
               option.)";
    let api = fields.optional_choice("api", &apis, doc);
    let doc = "Organization, by name or id. InfluxDB 2.x needs it.";
    let org = fields.string("org", "", doc);
    let doc = "Bucket; with `api: v3` the database.";
    let bucket = fields.string("bucket", "", doc);
    if v1.is_enabled {
        for key in ["api", "org", "bucket"] {
            if fields.is_given(key) {
                fields.error_at(key, "cannot stand beside `v1_compatibility`");
            }
        }
        let (database, retention_policy) = (v1.database.clone(), v1.retention_policy.clone());
        return (Place { api: Api::V1, database, retention_policy, org: String::new() }, v1);
    }
    let api = api.unwrap_or(Api::V2);
    if bucket.is_empty() {
        fields.error_missing("bucket");
    }
    match api {
        Api::V3 if !org.is_empty() => fields.warn_at("org", "has no effect with `api: v3`"),
        Api::V2 if org.is_empty() => fields.error_missing("org"),
        _ => {}
    }
    (Place { api, database: bucket, retention_policy: String::new(), org }, v1)
}

fn read_compatibility(fields: &mut Fields<'_>) -> Compatibility {
    let is_enabled = fields.boolean("enabled", false, "Use the API of InfluxDB 1.x.");
    let v1 = Compatibility {
        is_enabled,
        database: fields.string(
            "db",
            "",
            "Database. It has to exist unless `create_database` is true.",
        ),
        creates_database: fields.boolean(
            "create_database",
            false,
            "Create the database with `CREATE DATABASE` if InfluxDB answers that it does not \
             exist. The user needs the right to do so. (Sluice's own option.)",
        ),
        retention_policy: fields.string(
            "rp",
            "",
            "Retention policy. Unset: the database's own. (Sluice's own option.)",
        ),
        username: fields.non_empty_string("username", "User, for HTTP basic authentication."),
        password: fields.secret("password", "Password of `username`."),
    };
    if is_enabled && v1.database.is_empty() {
        fields.error_missing("db");
    }
    for key in ["db", "create_database", "rp", "username", "password"] {
        if !is_enabled && fields.is_given(key) {
            fields.warn_at(key, "has no effect without `enabled: true`");
        }
    }
    if is_enabled && v1.password.is_some() && v1.username.is_none() {
        fields.error_at("password", "needs `username`");
    }
    v1
}

fn set_credentials(
    fields: &mut Fields<'_>,
    client: &mut ClientOptions,
    api: Api,
    v1: Compatibility,
    token: Option<Secret>,
) {
    let user = v1.username.filter(|_| v1.is_enabled);
    let (key, value) = match (&user, &token) {
        (None, None) => return,
        (Some(_), Some(_)) => {
            fields.error_at("token", "cannot stand beside `v1_compatibility.username`");
            return;
        }
        (Some(user), None) => {
            let password = v1.password.unwrap_or_else(|| Secret::new(""));
            let credentials = basic_credentials(format!("{user}:{}", password.expose()));
            ("v1_compatibility", credentials)
        }
        (None, Some(token)) => {
            let scheme = if api == Api::V3 { "Bearer" } else { "Token" };
            ("token", format!("{scheme} {}", token.expose()))
        }
    };
    if client.authenticator.is_some() {
        fields.error_at(key, "has credentials, and so has `auth`: only one of them can be sent");
    }
    if client.headers.contains_key(AUTHORIZATION) {
        fields.error_at(key, "has credentials, and so has `headers`: leave `Authorization` out");
    }
    match HeaderValue::try_from(value) {
        Ok(mut value) => {
            value.set_sensitive(true);
            client.headers.insert(AUTHORIZATION, value);
        }
        Err(_) => fields.error_at(key, "has a character that a header cannot have"),
    }
}

/// The URL that requests are posted to, and the query that the endpoint has itself.
fn read_url(
    fields: &mut Fields<'_>,
    endpoint: &str,
    place: &Place,
    precision: Precision,
) -> (String, Option<String>) {
    if endpoint.is_empty() {
        return (String::new(), None);
    }
    match Origin::of(endpoint) {
        Ok(origin) => (url(&origin.uri, place, precision), origin.uri.query().map(str::to_owned)),
        Err(error) => {
            fields.error_at("endpoint", &format!("cannot be used: {error}"));
            if error == UrlError::Credentials {
                fields.hide("endpoint");
            }
            (String::new(), None)
        }
    }
}

/// The database to create. An endpoint that cannot be used is reported elsewhere.
fn read_created(fields: &mut Fields<'_>, endpoint: &str, place: &Place) -> Option<Created> {
    let origin = Origin::of(endpoint).ok()?;
    let query_url = query_url(&origin.uri);
    if query_url.is_none() {
        let text = "has a path that does not end in `/write`, so that the one of queries is not \
                    known: leave out `v1_compatibility.create_database`, and create the database \
                    yourself";
        fields.error_at("endpoint", text);
    }
    query_url.map(|query_url| Created { name: place.database.clone(), query_url })
}

fn refuse_others(fields: &mut Fields<'_>) {
    let schema = "a choice of schemas. There is one: a gauge or a sum has the field `value`, a \
                  histogram its bounds, `count` and `sum`. Leave the option out";
    fields.not_yet("metrics_schema", schema);
    fields.not_yet("span_dimensions", "traces; only metrics are sent");
    fields.not_yet("log_record_dimensions", "logs; only metrics are sent");
    fields.not_yet("cookies", "cookies of the backend");
    declare_unsupported(fields);
}
