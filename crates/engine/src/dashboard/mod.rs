//! A Grafana dashboard for operators, from the tables of metrics: `panels` says what it shows, a
//! panel's description, unit and expressions come from the tables. It is written in the classic
//! JSON model, which every Grafana since 10.3 imports and newer ones upgrade.

mod expression;
mod panels;

use serde_json::{Value, json};
use sluice_telemetry::table::TableDoc;

use self::expression::{Metrics, Query};
use self::panels::{Limits, Panel, ROWS, Row, Shape};
use crate::metrics;

/// Of the classic model, as Grafana 10.3 writes it.
const SCHEMA_VERSION: u32 = 39;
const COLUMNS: u32 = 24;
const STAT_WIDTH: u32 = 4;
const STAT_HEIGHT: u32 = 4;
const GRAPH_WIDTH: u32 = 12;
const GRAPH_HEIGHT: u32 = 8;

/// A variable of the dashboard that filters by a label of this name.
pub(crate) const FILTERS: [(&str, &str, &str); 4] = [
    ("job", "Job", "label_values(sluice_build_info, job)"),
    ("instance", "Instance", "label_values(sluice_build_info{job=~\"$job\"}, instance)"),
    (
        "pipeline",
        "Delivery: pipeline",
        "label_values(sluice_delivery_backlog_bytes{job=~\"$job\",instance=~\"$instance\"}, \
         pipeline)",
    ),
    (
        "exporter",
        "Delivery: exporter",
        "label_values(sluice_delivery_backlog_bytes{job=~\"$job\",instance=~\"$instance\",\
         pipeline=~\"$pipeline\"}, exporter)",
    ),
];

/// The dashboard as JSON.
pub fn dashboard_json() -> String {
    let tables = metrics::tables();
    let text = serde_json::to_string_pretty(&dashboard(&tables)).unwrap_or_default();
    text + "\n"
}

fn dashboard(tables: &[TableDoc]) -> Value {
    let mut layout = Layout { metrics: Metrics::new(tables), panels: Vec::new(), y: 0 };
    ROWS.iter().for_each(|row| layout.add_row(row));
    json!({
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": "10.3.0"},
            {"type": "datasource", "id": "prometheus", "name": "Prometheus", "version": "1.0.0"},
            {"type": "panel", "id": "stat", "name": "Stat", "version": ""},
            {"type": "panel", "id": "timeseries", "name": "Time series", "version": ""},
        ],
        "annotations": {"list": []},
        "description": "What Sluice receives, holds and delivers. Generated from its tables of \
                        metrics (sluice docs dashboard).",
        "editable": true,
        "fiscalYearStartMonth": 0,
        "graphTooltip": 1,
        "id": null,
        "links": [],
        "panels": layout.panels,
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["sluice"],
        "templating": {"list": variables()},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": "Sluice",
        "uid": "sluice",
        "version": 1,
        "weekStart": "",
    })
}

fn data_source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables() -> Vec<Value> {
    let source = json!({
        "current": {"selected": false, "text": "default", "value": "default"},
        "hide": 0,
        "includeAll": false,
        "label": "Data source",
        "multi": false,
        "name": "datasource",
        "options": [],
        "query": "prometheus",
        "refresh": 1,
        "regex": "",
        "skipUrlSync": false,
        "type": "datasource",
    });
    let filters = FILTERS.iter().map(|(name, label, query)| {
        json!({
            // Without it "All" is a list of every value, which can be longer than a request may be.
            "allValue": ".*",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
            "datasource": data_source(),
            "definition": query,
            "hide": 0,
            "includeAll": true,
            "label": label,
            "multi": true,
            "name": name,
            "options": [],
            "query": {"query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
            "refresh": 2,
            "regex": "",
            "skipUrlSync": false,
            "sort": 1,
            "type": "query",
        })
    });
    std::iter::once(source).chain(filters).collect()
}

/// Places panels from left to right, and row below row.
struct Layout<'a> {
    metrics: Metrics<'a>,
    panels: Vec<Value>,
    y: u32,
}

impl Layout<'_> {
    fn add_row(&mut self, row: &Row) {
        let place = json!({"h": 1, "w": COLUMNS, "x": 0, "y": self.y});
        self.push(json!({
            "collapsed": false,
            "gridPos": place,
            "panels": [],
            "title": row.title,
            "type": "row",
        }));
        self.y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in row.panels {
            let (w, h) = match panel.shape {
                Shape::Stat(_) => (STAT_WIDTH, STAT_HEIGHT),
                Shape::Lines | Shape::Stack => (GRAPH_WIDTH, GRAPH_HEIGHT),
            };
            if x + w > COLUMNS || (x > 0 && h != height) {
                self.y += height;
                x = 0;
            }
            let mut json = self.panel(panel);
            json["gridPos"] = json!({"h": h, "w": w, "x": x, "y": self.y});
            self.push(json);
            (x, height) = (x + w, h);
        }
        self.y += height;
    }

    fn push(&mut self, mut panel: Value) {
        panel["id"] = json!(self.panels.len() + 1);
        self.panels.push(panel);
    }

    fn panel(&self, panel: &Panel) -> Value {
        let queries = panel.queries.iter().flat_map(|query| self.metrics.targets(query, panel));
        let targets = queries.zip('A'..='Z').map(|(target, id)| {
            let is_instant = matches!(panel.shape, Shape::Stat(_));
            json!({
                "datasource": data_source(),
                "editorMode": "code",
                "expr": target.expression,
                "instant": is_instant,
                "legendFormat": target.legend,
                "range": !is_instant,
                "refId": id.to_string(),
            })
        });
        let targets: Vec<Value> = targets.collect();
        let (kind, options) = match panel.shape {
            Shape::Stat(_) => ("stat", stat_options()),
            Shape::Lines | Shape::Stack => ("timeseries", graph_options()),
        };
        json!({
            "datasource": data_source(),
            "description": self.description(panel),
            "fieldConfig": {"defaults": self.defaults(panel), "overrides": []},
            "gridPos": {},
            "options": options,
            "targets": targets,
            "title": panel.title,
            "type": kind,
        })
    }

    /// The note, and the meaning of each metric as its table has it.
    fn description(&self, panel: &Panel) -> String {
        let mut metrics: Vec<&str> = panel.queries.iter().flat_map(Query::metrics).collect();
        metrics.dedup();
        let is_alone = metrics.len() == 1;
        let meanings = metrics.iter().map(|metric| match self.metrics.meaning(metric) {
            meaning if is_alone => meaning,
            meaning => format!("`{metric}`: {meaning}"),
        });
        let note = Some(panel.note.to_owned()).filter(|note| !note.is_empty());
        note.into_iter().chain(meanings).collect::<Vec<_>>().join("\n\n")
    }

    fn defaults(&self, panel: &Panel) -> Value {
        let unit = self.metrics.unit(panel);
        let (color, custom) = match panel.shape {
            Shape::Stat(_) => ("thresholds", json!({})),
            Shape::Lines => ("palette-classic", custom(0, "none")),
            Shape::Stack => ("palette-classic", custom(25, "normal")),
        };
        let limits = match panel.shape {
            Shape::Stat(limits) => limits,
            Shape::Lines | Shape::Stack => Limits::None,
        };
        let steps: Vec<Value> = limits
            .steps()
            .iter()
            .map(|(color, from)| json!({"color": color, "value": from}))
            .collect();
        let mut defaults = json!({
            "color": {"mode": color},
            "custom": custom,
            "mappings": [],
            "thresholds": {"mode": "absolute", "steps": steps},
            "unit": unit,
        });
        match panel.shape {
            // A growth is extrapolated to the ends of the range: not a whole number.
            Shape::Stat(_) => defaults["decimals"] = json!(0),
            Shape::Lines | Shape::Stack => defaults["min"] = json!(0),
        }
        if panel.queries.iter().any(Query::is_capped) {
            let options =
                json!({expression::CAP_S.to_string(): {"index": 0, "text": "a day or more"}});
            defaults["mappings"] = json!([{"options": options, "type": "value"}]);
        }
        defaults
    }
}

fn custom(fill: u32, stacking: &str) -> Value {
    json!({
        "drawStyle": "line",
        "fillOpacity": fill,
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": false,
        "stacking": {"group": "A", "mode": stacking},
    })
}

fn stat_options() -> Value {
    json!({
        "colorMode": "background",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "percentChangeColorMode": "standard",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": false},
        "showPercentChange": false,
        "textMode": "auto",
        "wideLayout": true,
    })
}

fn graph_options() -> Value {
    json!({
        "legend": {
            "calcs": ["lastNotNull", "max"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": true,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    })
}
