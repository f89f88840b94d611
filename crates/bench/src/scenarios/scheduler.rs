//! Ablations of the read scheduler: delivery and memory under a flood as in `overload`, without
//! each of its rules, compared turn by turn with all rules.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use sluice_net::server::Rule;

use super::overload::{CPU_CORES, FLOOD, many_senders, of_few_senders, under_load};
use super::*;
use crate::rows::ENDLESS;

const ALL_RULES: &str = "all rules";

/// All rules, then each rule that is left out.
const CASES: [&str; Rule::ALL.len() + 1] = {
    let mut cases = [ALL_RULES; Rule::ALL.len() + 1];
    let mut index = 0;
    while index < Rule::ALL.len() {
        cases[index + 1] = Rule::ALL[index].name();
        index += 1;
    }
    cases
};

struct Flood {
    /// A case of `overload`.
    case: &'static str,
    /// Prefix of its figures: the delivered rate, peak memory and refusals, each also relative to
    /// all rules.
    id: &'static str,
    /// Stalled connections during the flood.
    stalled: usize,
    cpu_cores: f64,
}

const FLOODS: [Flood; 6] = [
    flood("memory 256 × 1", "m256"),
    flood("memory 16 × 16", "m16"),
    flood("delivered 256 × 1", "d256"),
    flood("delivered 16 × 16", "d16"),
    // Many times the requests that there is memory for.
    flood("memory 64 × 32", "m64"),
    Flood {
        stalled: STALLED,
        cpu_cores: CPU_CORES_BESIDE_STALLED,
        ..flood("memory 16 × 16", "stalled")
    },
];
/// More than the lowest limit on requests in flight.
const STALLED: usize = 128;
/// Cores of the subject beside stalled connections: enough to fill the memory for receiving.
const CPU_CORES_BESIDE_STALLED: f64 = 0.6;

/// A sender of requests of 20 kB beside senders of 2 MiB, and cores of the subject: a quota would
/// show in latencies.
const LITTLE_ITEMS: u32 = 10;
const LITTLE_PER_S: f64 = 1_000.0;
const LARGE_ITEMS: u32 = 1_100;
const LARGE_SENDERS: usize = 8;
const CPU_CORES_BESIDE_LARGE: f64 = 2.0;

const fn flood(case: &'static str, id: &'static str) -> Flood {
    Flood { case, id, stalled: 0, cpu_cores: CPU_CORES }
}

pub(super) const SCENARIO: Scenario = Scenario {
    id: "scheduler",
    title: "overload without each rule of the read scheduler, relative to all rules",
    cases: &CASES,
    case_head: "without",
    takes: |contestant, _| contestant.is_sluice(),
    measure: |turn| Box::pin(measure(turn)),
    compare: |all| {
        for Flood { id, .. } in FLOODS {
            for (ratio, figure) in [("rate", "per_s"), ("memory", "bytes")] {
                let (ratio, figure) = (format!("{id}_{ratio}_ratio"), format!("{id}_{figure}"));
                compare(all, ALL_RULES, &ratio, &figure, Div::div);
            }
            let (more, figure) = (format!("{id}_more_refused"), format!("{id}_refused_percent"));
            compare(all, ALL_RULES, &more, &figure, Sub::sub);
        }
        compare(all, ALL_RULES, "beside_large_ratio", "beside_large_p99_s", Div::div);
    },
    columns: &[
        ("memory 256 × 1: rate", |series| series.cell("m256_rate_ratio", 2)),
        ("memory", |series| series.cell("m256_memory_ratio", 2)),
        ("memory 16 × 16: rate", |series| series.cell("m16_rate_ratio", 2)),
        ("memory", |series| series.cell("m16_memory_ratio", 2)),
        ("delivered 256 × 1: rate", |series| series.cell("d256_rate_ratio", 2)),
        ("memory", |series| series.cell("d256_memory_ratio", 2)),
        ("delivered 16 × 16: rate", |series| series.cell("d16_rate_ratio", 2)),
        ("memory", |series| series.cell("d16_memory_ratio", 2)),
        ("memory 64 × 32: rate", |series| series.cell("m64_rate_ratio", 2)),
        ("memory", |series| series.cell("m64_memory_ratio", 2)),
        ("refused", |series| series.cell("m64_more_refused", 0)),
        ("beside stalled: rate", |series| series.cell("stalled_rate_ratio", 2)),
        ("memory", |series| series.cell("stalled_memory_ratio", 2)),
        ("refused", |series| series.cell("stalled_more_refused", 0)),
        ("beside large: p99", |series| series.cell("beside_large_ratio", 2)),
    ],
    // A rule has its reason where something gets worse without it; all of them together must work.
    holds: |series| series.case != ALL_RULES || series.median("m256_per_s") > 0.0,
    notes: |_| {
        format!(
            "The load of `overload` at {FLOOD} times what few senders get through with all rules. \
             What is delivered under it and the peak of resident memory, relative to the same \
             flood with all rules in the same turn. Refused: of what was answered, in percentage \
             points more than with all rules. Heads: how senders are answered, connections × \
             streams. Stalled: {STALLED} connections that have each begun a request and send \
             nothing more, beside memory 16 × 16 and with {CPU_CORES_BESIDE_STALLED} cores. Beside \
             large: answers to requests of 20 kB beside {LARGE_SENDERS} senders of 2 MiB requests."
        )
    },
};

async fn measure(turn: Turn<'_>) -> Result<Figures> {
    let without = ["--scheduler-without", turn.case];
    let args = if turn.case == ALL_RULES { &[][..] } else { &without };
    let few_per_s = of_few_senders(turn, ALL_RULES).await?;
    let mut figures = json!({ "few_senders_per_s": few_per_s });
    for Flood { case, id, stalled, cpu_cores } in FLOODS {
        let mut stalled_connections = Ok(Vec::new());
        let load = |load: Load| {
            stalled_connections = (0..stalled).map(|_| stall(load.target)).collect();
            many_senders(load, case, FLOOD * few_per_s * cpu_cores / CPU_CORES)
        };
        let (stage, observed) = under_load(turn, case, cpu_cores, args, load).await?;
        stalled_connections.context("stalled connections")?;
        figures[format!("{id}_per_s")] = json!(observed.delivered_per_s());
        figures[format!("{id}_bytes")] = stage.memory()?["peak_rss_bytes"].take();
        let report = &observed.report;
        let answered = (report.accepted + report.refused).max(1);
        figures[format!("{id}_refused_percent")] =
            json!(report.refused as f64 * 100.0 / answered as f64);
    }
    let mut large = None;
    let beside_large = |load: Load| {
        let senders = load.clone().items_per_request(LARGE_ITEMS).concurrency(LARGE_SENDERS, 1);
        large = Some(Load { duration: Some(ENDLESS), ..senders }.start());
        load.items_per_request(LITTLE_ITEMS).concurrency(1, 32).rate(LITTLE_PER_S)
    };
    let (_stage, observed) =
        under_load(turn, "memory", CPU_CORES_BESIDE_LARGE, args, beside_large).await?;
    large.context("the load was not asked for")??.stop();
    figures["beside_large_p99_s"] = json!(observed.report.acknowledged_after.p99.as_secs_f64());
    Ok(figures)
}

/// A gRPC request of which only the announced length arrives.
fn stall(target: SocketAddr) -> std::io::Result<TcpStream> {
    const PREFACE_AND_SETTINGS: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PATH: &[u8] = b"/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    // HPACK: POST, http, then literals for path, authority, content-type and te.
    let headers = [
        b"\x83\x86\x04\x3b".as_slice(),
        PATH,
        b"\x01\x09localhost\x0f\x10\x10application/grpc\0\x02te\x08trailers",
    ];
    let headers = headers.concat();
    let frame = |kind: u8, flags: u8, payload: &[u8]| {
        let len = (payload.len() as u32).to_be_bytes();
        [&len[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    };
    let length_prefix = b"\0\0\x01\0\0";
    let mut connection = TcpStream::connect(target)?;
    connection.write_all(
        &[PREFACE_AND_SETTINGS, &frame(1, 4, &headers), &frame(0, 0, length_prefix)].concat(),
    )?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::series;

    #[test]
    fn every_rule_is_left_out_once_and_set_against_all_rules() {
        assert!(Rule::ALL.iter().all(|rule| CASES[1..].contains(&rule.name())));
        let turn = |per_s: u64, bytes: u64| json!({ "d16_per_s": per_s, "d16_bytes": bytes });
        let all_rules = series(ALL_RULES, &[turn(1_000, 100), turn(2_000, 100), turn(1_000, 100)]);
        let without = series("forecast", &[turn(900, 110), turn(1_000, 120), turn(800, 115)]);
        let mut all = [all_rules, without];
        (SCENARIO.compare)(&mut all);
        assert_eq!(
            (all[1].median("d16_rate_ratio"), all[1].median("d16_memory_ratio")),
            (0.8, 1.15)
        );
        assert_eq!(all[0].median("d16_rate_ratio"), 1.0);
    }
}
