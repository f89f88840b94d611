"""Sends a counted number of spans, metric points and log records with the OpenTelemetry SDK for Python.

The command line and what is sent are described in ../README.md.
"""

import argparse
import math
import sys
import threading

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

SCOPE = "sluice.test"
FLUSH_MS = 60_000
SIGNALS = ("traces", "metrics", "logs")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="client")
    parser.add_argument("--protocol", required=True, choices=["grpc", "http"])
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--compression", default="none", choices=["none", "gzip"])
    parser.add_argument("--signals", default=",".join(SIGNALS))
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--ca")
    arguments = parser.parse_args()
    arguments.signals = arguments.signals.split(",")
    for signal in arguments.signals:
        if signal not in SIGNALS:
            parser.error(f"unknown signal {signal!r}")
    if any("=" not in header for header in arguments.header):
        parser.error("a header is NAME=VALUE")
    arguments.headers = dict(header.split("=", 1) for header in arguments.header)
    if "://" not in arguments.endpoint:
        arguments.endpoint = ("https://" if arguments.ca else "http://") + arguments.endpoint
    return arguments


def make_exporters(arguments):
    if arguments.protocol == "grpc":
        import grpc
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        options = {
            "endpoint": arguments.endpoint,
            "headers": {name.lower(): value for name, value in arguments.headers.items()},
            "compression": grpc.Compression.Gzip if arguments.compression == "gzip" else grpc.Compression.NoCompression,
        }
        if arguments.ca:
            with open(arguments.ca, "rb") as file:
                options["credentials"] = grpc.ssl_channel_credentials(file.read())
        options = dict.fromkeys(SIGNALS, options)
    else:
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        options = {
            signal: {
                "endpoint": f"{arguments.endpoint.rstrip('/')}/v1/{signal}",
                "headers": arguments.headers,
                "certificate_file": arguments.ca,
                "compression": Compression.Gzip if arguments.compression == "gzip" else Compression.NoCompression,
            }
            for signal in SIGNALS
        }
    kinds = {"traces": OTLPSpanExporter, "metrics": OTLPMetricExporter, "logs": OTLPLogExporter}
    return {signal: kinds[signal](**options[signal]) for signal in arguments.signals}


class Tally:
    """What one signal's exporter reported: items in exports that succeeded, and exports that failed."""

    def __init__(self):
        self.lock = threading.Lock()
        self.items = 0
        self.failures = []

    def watch(self, exporter, count):
        export = exporter.export

        def counted(batch, *args, **kwargs):
            result = export(batch, *args, **kwargs)
            with self.lock:
                if result.name == "SUCCESS":
                    self.items += count(batch)
                else:
                    self.failures.append(f"{result.name} for {count(batch)} items")
            return result

        exporter.export = counted


def points(metrics_data):
    return sum(
        len(metric.data.data_points)
        for resource in metrics_data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def main():
    arguments = parse_arguments()
    count = arguments.count
    resource = Resource.create({"service.name": "sluice-test-python"})
    exporters = make_exporters(arguments)
    tallies = {}
    flushes = []

    def attributes(seq):
        return {"sluice.test.run": arguments.run_id, "sluice.test.seq": seq}

    for signal, exporter in exporters.items():
        tallies[signal] = Tally()
        tallies[signal].watch(exporter, points if signal == "metrics" else len)
        # The queues hold everything: the SDK's own drops are not what is tested.
        if signal == "traces":
            provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=max(count, 512)))
            tracer = provider.get_tracer(SCOPE)
            for seq in range(count):
                tracer.start_span(f"span-{seq}", attributes=attributes(seq)).end()
        elif signal == "metrics":
            reader = PeriodicExportingMetricReader(
                exporter,
                export_interval_millis=math.inf,
                cardinality_limits={Counter: count + 1},
            )
            provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
            counter = provider.get_meter(SCOPE).create_counter("sluice.test.counter")
            for seq in range(count):
                counter.add(1, attributes(seq))
        else:
            provider = LoggerProvider(resource=resource, shutdown_on_exit=False)
            provider.add_log_record_processor(BatchLogRecordProcessor(exporter, max_queue_size=max(count, 512)))
            logger = provider.get_logger(SCOPE)
            for seq in range(count):
                logger.emit(
                    LogRecord(
                        severity_number=SeverityNumber.INFO,
                        severity_text="INFO",
                        body=f"log-{seq}",
                        attributes=attributes(seq),
                    )
                )
        flushes.append((signal, provider))

    # Only flushed, never shut down: a reader's shutdown would export the same points once more.
    for signal, provider in flushes:
        if not provider.force_flush(FLUSH_MS):
            tallies[signal].failures.append("the flush did not finish")

    failed = False
    for signal, tally in tallies.items():
        if tally.failures or tally.items != count:
            failed = True
            print(f"client: {signal}: {tally.items} of {count} exported; {tally.failures}", file=sys.stderr)
    if failed:
        return 1
    print("exported " + " ".join(f"{signal}={tally.items}" for signal, tally in tallies.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
