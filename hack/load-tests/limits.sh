#!/usr/bin/env bash
# Writes docs/limits.md: every scenario of the limit test, for every subject that is there, beside the published results of
# the Kyma telemetry load test (published.tsv) and of the "k6 with Telegraf" experiment (published-k6.tsv). About 40 minutes on a
# quiet machine with two cores or more.
#
#   hack/load-tests/limits.sh                   all of it; called again it goes on where it was interrupted
#   hack/load-tests/limits.sh --again           from the beginning
#   DURATION=2 SEARCH=10 hack/load-tests/limits.sh --document FILE
#
# SLUICE is the binary, else the release build of this repository. Other subjects are found as `sluice load-test --subject` finds
# them. The records of the runs stay in target/limits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

sluice=${SLUICE:-${CARGO_TARGET_DIR:-target}/release/sluice}
# Seconds of each load, and of each subject's search for its limit.
duration=${DURATION:-15}
search=${SEARCH:-90}
document=docs/limits.md
results=target/limits
again=false
while [ $# -gt 0 ]; do
    case $1 in
        --document) document=${2:?"--document needs a file"}; shift 2 ;;
        --again) again=true; shift ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2 ;;
    esac
done
if [ ! -x "$sluice" ]; then
    echo "limits.sh: no sluice binary at $sluice: run 'make build', or set SLUICE to its path" >&2
    exit 1
fi
if $again; then rm -rf "$results"; fi
mkdir -p "$results"

subjects=(sluice otelcol rotel telegraf fluent-bit vector df_engine)
targets=(traces metrics logs-otel metricagent logagent logs-fluentbit)
scenarios=(single multi backpressure both)
# Samples of k6 on their way to InfluxDB, HTTP requests/s of its script.
k6_subjects=(direct telegraf telegraf-json telegraf-csv sluice sluice-interval sluice-json sluice-csv)
k6_rates=(2000 5000 10000 20000)

# --- records of what was not measured here ---------------------------------------------------------------------

# published.tsv's columns on standard input, one record a line → records below $results/$1. `cannot` says why there is nothing.
records_of_rows() {
    awk -F '\t' -v folder="$results/$1" -v source="$2" -v cannot="$3" '
        function quote(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); gsub(/[[:cntrl:]]/, " ", text); return "\"" text "\"" }
        function number(text, factor) { return text == "-" ? "null" : sprintf("%.3f", text * factor) }
        /^#/ || NF < 10 { next }
        {
            bytes = $1 == "logs-fluentbit"
            names = bytes ? "received_bytes_per_s exported_bytes_per_s buffer_bytes" : "received_per_s exported_per_s queue"
            split(names, name, " ")
            factor = bytes ? 1024 : 1
            kpis = ""
            for (i = 1; i <= 3; i++) kpis = kpis quote(name[i]) ":" number($(5 + i), factor) ","
            kpis = kpis "\"memory_bytes\":" number($9, 1048576) ",\"cpu_cores\":" number($10, 1)
            turns = cannot == "" ? "[{\"kpis\":{" kpis "}}]" : "[]"
            path = folder "/" NR
            system("mkdir -p " path)
            file = path "/run.json"
            printf "{\"format\":1,\"tool_version\":\"-\",\"machine\":{\"cores\":0},\"started_unix_ms\":%.0f,\"duration_s\":0,\"interrupted\":false,", 4102444800000 + NR > file
            printf "\"scenario\":{\"target\":%s,\"name\":%s,\"multi\":%s,\"backpressure\":%s,\"load_s\":0,\"pipelines\":1},", quote($1), quote($2), $4, $5 > file
            printf "\"subjects\":[{\"name\":%s,\"limits\":{},\"turns\":%s", quote($3), turns > file
            if (source != "") printf ",\"measured_elsewhere\":%s", quote(source) > file
            if (cannot != "") printf ",\"cannot\":%s", quote(cannot) > file
            print "}]}" > file
            close(file)
        }'
}

# published-k6.tsv's columns on standard input, one record a line → records below $results/$1.
k6_records_of_rows() {
    awk -F '\t' -v folder="$results/$1" -v source="$2" '
        function quote(text) { gsub(/\\/, "\\\\", text); gsub(/"/, "\\\"", text); return "\"" text "\"" }
        function number(text, factor) { return text == "-" ? "null" : sprintf("%.3f", text * factor) }
        /^#/ || NF < 9 { next }
        {
            path = folder "/" NR
            system("mkdir -p " path)
            file = path "/run.json"
            printf "{\"format\":1,\"tool_version\":\"-\",\"machine\":{\"cores\":0},\"started_unix_ms\":%.0f,\"duration_s\":0,\"interrupted\":false,", 4102444800000 + NR > file
            printf "\"scenario\":{\"target\":\"k6\",\"name\":%s,\"multi\":false,\"backpressure\":false,\"load_s\":0,\"pipelines\":1},", quote($1) > file
            printf "\"subjects\":[{\"name\":%s,\"limits\":{},\"measured_elsewhere\":%s,\"turns\":[{", quote($2), quote(source) > file
            printf "\"kpis\":{\"cpu_cores\":%s,\"memory_max_bytes\":%s},", number($5, 1), number($8, 1048576) > file
            printf "\"k6\":{\"source\":\"k6\",\"database\":\"InfluxDB\",\"requests_per_s\":%s,", number($3, 1) > file
            printf "\"source_cpu_cores\":%s,\"source_memory_max_bytes\":%s,", number($4, 1), number($7, 1048576) > file
            printf "\"database_cpu_cores\":%s,\"database_memory_max_bytes\":%s}}]}]}\n", number($6, 1), number($9, 1048576) > file
            close(file)
        }'
}

# --- runs ------------------------------------------------------------------------------------------------------

is_done() { grep -q '"interrupted": false' "$results/$1/run.json" 2>/dev/null; }

# run NAME SECONDS ARGUMENT...: one call of the load test, which may take so long.
run() {
    local name=$1 limit=$2
    shift 2
    if is_done "$name"; then
        printf '%-28s there\n' "$name"
        return
    fi
    printf '%-28s sluice load-test %s\n' "$name" "$*"
    # An interrupted call still writes what it has; one that fails leaves a gap and its message.
    local status=0
    timeout --signal=INT --kill-after=60 "$limit" "$sluice" load-test "$@" --quiet --overwrite --output "$results/$name" \
        >/dev/null 2>"$results/$name.log" || status=$?
    if [ ! -e "$results/$name/run.json" ]; then
        printf '%-28s gave nothing (status %s): %s\n' "$name" "$status" "$(tail -n 1 "$results/$name.log")" >&2
    fi
}

# The options of a scenario: single, multi, backpressure or both.
options_of() {
    case $1 in
        multi) echo -m ;;
        backpressure) echo -b ;;
        both) echo -m -b ;;
    esac
}

# What a target needs beside its defaults to tell something in so short a time: with one scrape in 30 s there would be none.
options_of_target() {
    case $1 in
        metricagent) echo -r 20000 -d "$((2 * duration))" ;;
        *) echo -d "$duration" ;;
    esac
}

# able_of TARGET SUBJECT...: sets `able` to the options of the subjects that are here. Others get rows with the reason.
able_of() {
    local target=$1 subject reason
    shift
    able=()
    rm -rf "$results/absent-$target"
    for subject in "$@"; do
        if reason=$("$sluice" load-test --dry-run -t "$target" --subject "$subject" 2>&1 >/dev/null); then
            able+=(--subject "$subject")
        elif [[ $reason != *"cannot be tested with"* ]]; then
            # It could, and is not here: its row has dashes.
            printf '%s\there\t%s\tfalse\tfalse\t-\t-\t-\t-\t-\n' "$target" "$subject" |
                records_of_rows "absent-$target/$subject" "" "${reason##*"$subject: "}"
        fi
    done
}

measure() {
    local target=$1 able scenario
    able_of "$target" "${subjects[@]}"
    if [ ${#able[@]} = 0 ]; then return; fi
    for scenario in "${scenarios[@]}"; do
        # shellcheck disable=SC2046
        run "$target-$scenario" $((${#able[@]} * (2 * duration + 45))) -t "$target" -n here "${able[@]}" \
            $(options_of "$scenario") $(options_of_target "$target") --drain-within 10
    done
}

# `direct` and Sluice are always here. Without an influxd a sink stands in for it, which warnings say.
measure_k6() {
    local able rate
    able_of k6 "${k6_subjects[@]}"
    for rate in "${k6_rates[@]}"; do
        run "k6-$rate" $((${#able[@]} * (duration + 45))) -t k6 -n "$rate/s" "${able[@]}" -r "$rate" -d "$duration" --drain-within 20
    done
}

# The metric gateway's `batch` keeps its last items for 10 s: a try that waited less would always have lost some.
find_limits() {
    local target=$1
    run "$target-limit" $((2 * (search + 75))) -t "$target" -n highest-rate --find-limit --find-limit-within "$search" -d 5 \
        --subject sluice --subject otelcol --drain-within 15
}

began=$SECONDS
for target in "${targets[@]}"; do measure "$target"; done
measure_k6
for target in traces metrics logs-otel; do find_limits "$target"; done
rm -rf "$results/published" "$results/published-k6"
records_of_rows published "the Kyma telemetry load test, two nodes of 4 CPU, 20 minutes; memory and CPU are the mean of two pods" "" \
    <hack/load-tests/published.tsv
k6_records_of_rows published-k6 'the "k6 with Telegraf" high-TPS experiment on Kubernetes, five minutes; CPU and memory are the highest' \
    <hack/load-tests/published-k6.tsv

# --- the document ----------------------------------------------------------------------------------------------

{
    cat <<END
# Limits

Throughput and cost of Sluice and other engines, measured with [\`sluice load-test\`](load-test.md). The tables have the layout of the Kyma telemetry
load test. Its published rows are included (marked \\*: another machine, longer runs, two pods), and those of the "k6 with Telegraf"
experiment below [k6 to InfluxDB](#k6-to-influxdb). Each subject had half of the machine's cores;
generator and backends had the other half. If generator and backends were the limit, a warning says so. Loads lasted $duration s, those of the
metric agent twice as long.

- Machine: $(nproc) $(uname -m | tr _ -) cores
- Made by \`hack/load-tests/limits.sh\` on $(date -u +%Y-%m-%d); the command of each run is below its target's tables.
- A dash means: not measured, or could not be run here. The reasons are below the tables as well.

END
    "$sluice" load-test report "$results"
} >"$document.new"
mv "$document.new" "$document"
echo "$document after $(((SECONDS - began) / 60)) minutes"
