//! The dashboard's content: what an operator asks, from the most urgent question to the least.

use super::expression::{Query, Read};

pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) panels: &'static [Panel],
}

pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) shape: Shape,
    pub(super) queries: &'static [Query],
    /// Before the metrics' own descriptions.
    pub(super) note: &'static str,
}

#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// The present value, coloured by these limits.
    Stat(Limits),
    Lines,
    /// Areas, one on the other.
    Stack,
}

#[derive(Clone, Copy)]
pub(super) enum Limits {
    None,
    /// Anything but zero is a fault.
    Zero,
    /// Anything but zero wants a look.
    Look,
    /// As the alert rules have it: seconds until a budget is spent.
    Forecast,
    /// As the alert rules have it: the age of undelivered data.
    Age,
}

impl Limits {
    /// Colours, each from a value on.
    pub(super) fn steps(self) -> &'static [(&'static str, Option<f64>)] {
        match self {
            Limits::None => &[("blue", None)],
            Limits::Zero => &[("green", None), ("red", Some(0.001))],
            Limits::Look => &[("green", None), ("orange", Some(0.001))],
            Limits::Forecast => &[("red", None), ("orange", Some(300.0)), ("green", Some(1800.0))],
            Limits::Age => &[("green", None), ("orange", Some(300.0)), ("red", Some(900.0))],
        }
    }
}

const DELIVERY: &[&str] = &["pipeline", "exporter"];
const SIGNAL: &[&str] = &["signal"];
const INSTANCE: &[&str] = &["instance"];

const fn stat(title: &'static str, limits: Limits, queries: &'static [Query]) -> Panel {
    Panel { title, shape: Shape::Stat(limits), queries, note: "" }
}

const fn lines(title: &'static str, queries: &'static [Query]) -> Panel {
    Panel { title, shape: Shape::Lines, queries, note: "" }
}

const fn stack(title: &'static str, queries: &'static [Query]) -> Panel {
    Panel { title, shape: Shape::Stack, queries, note: "" }
}

const fn query(metric: &'static str, read: Read, by: &'static [&'static str]) -> Query {
    Query { metric, read, by, only: &[], word: "" }
}

const fn rate(metric: &'static str, by: &'static [&'static str]) -> Query {
    query(metric, Read::Rate, by)
}

const fn sum(metric: &'static str, by: &'static [&'static str]) -> Query {
    query(metric, Read::Sum, by)
}

const fn max(metric: &'static str, by: &'static [&'static str]) -> Query {
    query(metric, Read::Max, by)
}

const fn growth(metric: &'static str) -> Query {
    query(metric, Read::Growth, &[])
}

impl Panel {
    const fn note(mut self, note: &'static str) -> Panel {
        self.note = note;
        self
    }
}

impl Query {
    const fn called(mut self, word: &'static str) -> Query {
        self.word = word;
        self
    }

    const fn only(mut self, only: &'static [(&'static str, &'static str)]) -> Query {
        self.only = only;
        self
    }
}

const CAPPED: &str = "Shown up to a day: a higher forecast, and none, is a day.";
const IN_THE_RANGE: &str = "In the time range of the dashboard.";

pub(super) const ROWS: &[Row] = &[
    Row { title: "Is anything wrong?", panels: WRONG },
    Row { title: "Traffic in", panels: IN },
    Row { title: "Traffic out", panels: OUT },
    Row { title: "Refused, dropped, rejected", panels: LOSSES },
    Row { title: "Backlogs and the log", panels: LOG },
    Row { title: "Memory and overload", panels: OVERLOAD },
    Row { title: "Process", panels: PROCESS },
];

const WRONG: &[Panel] = &[
    stat("Deliveries held", Limits::Zero, &[sum("sluice_delivery_held", &[])]),
    stat("Backends that take nothing", Limits::Zero, &[sum("sluice_delivery_outage", &[])]),
    stat(
        "First budget spent in",
        Limits::Forecast,
        &[query("sluice_delivery_budget_spent_in_seconds", Read::CappedMin, &[])],
    )
    .note(CAPPED),
    stat("Oldest data", Limits::Age, &[max("sluice_delivery_oldest_age_seconds", &[])]),
    stat("Disk trouble", Limits::Zero, &[sum("sluice_log_trouble", &[])])
        .note("The number of logs in trouble."),
    stat("Reload failed", Limits::Zero, &[max("sluice_configuration_last_reload_failed", &[])]),
    stat("Items dropped", Limits::Zero, &[growth("sluice_delivery_dropped_items")])
        .note(IN_THE_RANGE),
    stat("Items lost on disk", Limits::Zero, &[growth("sluice_delivery_lost_items")])
        .note(IN_THE_RANGE),
    stat("Dead letters", Limits::Look, &[growth("sluice_delivery_dead_letter_items")])
        .note(IN_THE_RANGE),
    stat("Requests refused", Limits::Look, &[growth("sluice_receiver_refused_requests")])
        .note(IN_THE_RANGE),
    stat(
        "Kept, needs a decision",
        Limits::Look,
        &[
            sum("sluice_log_set_aside_files", &[]).called("files set aside"),
            sum("sluice_log_lost_cursors", &[]).called("lost cursors"),
        ],
    ),
    stat("Processes", Limits::None, &[query("sluice_build_info", Read::Count, &["version"])])
        .note("The number of processes, by version."),
    lines(
        "Budget spent in",
        &[query("sluice_delivery_budget_spent_in_seconds", Read::CappedMin, DELIVERY)],
    )
    .note(CAPPED),
    lines("Oldest data of each delivery", &[max("sluice_delivery_oldest_age_seconds", DELIVERY)]),
    lines(
        "Deliveries in trouble",
        &[
            max("sluice_delivery_held", DELIVERY).called("held:"),
            max("sluice_delivery_outage", DELIVERY).called("outage:"),
        ],
    ),
    lines(
        "Share of the budget in use",
        &[query(
            "sluice_delivery_backlog_bytes",
            Read::MaxOf("sluice_delivery_budget_bytes"),
            DELIVERY,
        )],
    )
    .note("Where the budget is the pool, a backlog ends at seven eighths of it."),
];

const IN: &[Panel] = &[
    stack("Items by signal", &[rate("otelcol_receiver_accepted", &[])]),
    lines("Items by receiver", &[rate("otelcol_receiver_accepted", &["receiver", "transport"])]),
    lines(
        "Requests by receiver",
        &[rate("sluice_receiver_accepted_requests", &["receiver", "transport", "signal"])],
    ),
    lines(
        "Bytes by receiver",
        &[rate("sluice_receiver_accepted_bytes", &["receiver", "transport", "signal"])],
    ),
    lines(
        "Open connections",
        &[sum("sluice_receiver_open_connections", &["receiver", "transport"])],
    ),
    lines(
        "Items into and out of processors",
        &[
            rate("otelcol_processor_incoming_items", &["processor", "otel_signal"]).called("in"),
            rate("otelcol_processor_outgoing_items", &["processor", "otel_signal"]).called("out"),
        ],
    ),
];

const OUT: &[Panel] = &[
    stack("Items sent by signal", &[rate("otelcol_exporter_sent", &[])]),
    lines("Items sent by delivery", &[rate("otelcol_exporter_sent", DELIVERY)]),
    lines(
        "Requests to backends by outcome",
        &[rate("sluice_delivery_requests", &["exporter", "outcome"])],
    ),
    lines("Bytes sent by delivery", &[rate("sluice_delivery_sent_bytes", DELIVERY)]),
    lines(
        "Requests in flight, and how many may be",
        &[
            sum("sluice_delivery_in_flight_requests", DELIVERY),
            sum("sluice_delivery_concurrency_limit", DELIVERY).called("limit:"),
        ],
    ),
    lines("Age of requests in flight", &[max("sluice_delivery_in_flight_age_seconds", DELIVERY)]),
];

const LOSSES: &[Panel] = &[
    lines("Refused requests by reason", &[rate("sluice_receiver_refused_requests", &["reason"])]),
    lines(
        "Refused requests by receiver",
        &[rate("sluice_receiver_refused_requests", &["receiver", "transport", "signal"])],
    ),
    lines(
        "Connections that ended early",
        &[rate("sluice_receiver_connections", &["receiver", "event"]).only(&[(
            "event",
            "refused|evicted|refused_stream|accept_error|tls_failure|\
                               handshake_timeout|failed|cut_off",
        )])],
    ),
    lines("Requests to unknown paths", &[rate("sluice_receiver_unknown_requests", &["receiver"])]),
    lines("Items dropped by delivery", &[rate("sluice_delivery_dropped_items", DELIVERY)]),
    lines(
        "Items rejected by backends",
        &[
            rate("sluice_delivery_partly_rejected_items", DELIVERY).called("partly:"),
            rate("sluice_delivery_returned_items", DELIVERY).called("returned to the sender:"),
        ],
    ),
    lines(
        "Dead letters by reason",
        &[rate("sluice_delivery_dead_letter_items", &["pipeline", "exporter", "reason"])],
    ),
    lines(
        "Dead letters stored",
        &[
            sum("sluice_delivery_dead_letters", DELIVERY),
            sum("sluice_delivery_unreadable_dead_letter_files", DELIVERY).called("unreadable:"),
        ],
    ),
];

const LOG: &[Panel] = &[
    lines("Backlog of each delivery", &[sum("sluice_delivery_backlog_bytes", DELIVERY)]),
    lines(
        "All backlogs and their limit",
        &[
            sum("sluice_backlog_pool_bytes", INSTANCE),
            sum("sluice_backlog_pool_limit_bytes", INSTANCE).called("limit:"),
        ],
    ),
    stack("Disk in use", &[sum("sluice_log_disk_bytes", SIGNAL)])
        .note("With buffer.directory, the limit of all backlogs is that of the disk."),
    lines(
        "Log in memory",
        &[
            sum("sluice_log_stored_bytes", SIGNAL),
            sum("sluice_log_unwritten_bytes", SIGNAL).called("not on disk:"),
        ],
    ),
    lines("Written to disk", &[rate("sluice_log_written_bytes", SIGNAL)]),
    lines("Syncs", &[rate("sluice_log_syncs", SIGNAL)]),
    lines(
        "Frames that cannot be read",
        &[
            rate("sluice_log_damaged_frames", SIGNAL).called("damaged:"),
            rate("sluice_log_newer_frames", SIGNAL).called("of a newer release:"),
        ],
    ),
    lines("Lost items", &[rate("sluice_delivery_lost_items", DELIVERY)]),
    lines(
        "Bytes kept that need a decision",
        &[
            sum("sluice_log_set_aside_bytes", SIGNAL).called("set aside:"),
            sum("sluice_log_orphan_bytes", &["signal", "delivery"]).called("not configured:"),
        ],
    ),
    lines("Failed writes", &[rate("sluice_log_write_failures", SIGNAL)]),
];

const OVERLOAD: &[Panel] = &[
    lines(
        "Memory of requests that are read",
        &[
            sum("sluice_receiving_memory_bytes", INSTANCE),
            sum("sluice_receiving_memory_limit_bytes", INSTANCE).called("limit:"),
        ],
    )
    .note("At the limit, requests wait to be admitted, and are refused after a second."),
    lines(
        "Refused because of overload",
        &[rate("sluice_receiver_refused_requests", &["receiver", "reason"])
            .only(&[("reason", "overloaded|too_slow")])],
    ),
    lines("Delayed answers", &[rate("sluice_delivery_delayed_answers", DELIVERY)]),
    lines(
        "Copies of requests in flight",
        &[sum("sluice_delivery_in_flight_copies_bytes", DELIVERY)],
    ),
    lines(
        "Requests that wait for their retry",
        &[sum("sluice_delivery_waiting_requests", DELIVERY)],
    ),
    lines("Requests that wait for a delivery", &[sum("otelcol_exporter_queue_size", DELIVERY)]),
];

const PROCESS: &[Panel] = &[
    lines("CPU", &[rate("otelcol_process_cpu_seconds", INSTANCE)]),
    lines("Resident memory", &[max("otelcol_process_memory_rss_bytes", INSTANCE)]),
    lines(
        "Time since the start",
        &[query("otelcol_process_uptime_seconds", Read::Level, INSTANCE)],
    ),
    lines("Reloads", &[rate("sluice_configuration_reloads", &["result"])]),
    lines(
        "Own telemetry pushed",
        &[
            rate("sluice_own_telemetry_sent_items", &["destination"]).called("sent to"),
            rate("sluice_own_telemetry_dropped_items", &["destination"]).called("dropped for"),
        ],
    ),
    lines("Own telemetry that waits", &[sum("sluice_own_telemetry_waiting", &["destination"])]),
];
