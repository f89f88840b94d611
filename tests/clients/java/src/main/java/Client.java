import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.logs.Severity;
import io.opentelemetry.exporter.otlp.http.logs.OtlpHttpLogRecordExporter;
import io.opentelemetry.exporter.otlp.http.metrics.OtlpHttpMetricExporter;
import io.opentelemetry.exporter.otlp.http.trace.OtlpHttpSpanExporter;
import io.opentelemetry.exporter.otlp.logs.OtlpGrpcLogRecordExporter;
import io.opentelemetry.exporter.otlp.metrics.OtlpGrpcMetricExporter;
import io.opentelemetry.exporter.otlp.trace.OtlpGrpcSpanExporter;
import io.opentelemetry.sdk.common.CompletableResultCode;
import io.opentelemetry.sdk.logs.SdkLoggerProvider;
import io.opentelemetry.sdk.logs.data.LogRecordData;
import io.opentelemetry.sdk.logs.export.BatchLogRecordProcessor;
import io.opentelemetry.sdk.logs.export.LogRecordExporter;
import io.opentelemetry.sdk.metrics.InstrumentType;
import io.opentelemetry.sdk.metrics.SdkMeterProvider;
import io.opentelemetry.sdk.metrics.data.AggregationTemporality;
import io.opentelemetry.sdk.metrics.data.MetricData;
import io.opentelemetry.sdk.metrics.export.CardinalityLimitSelector;
import io.opentelemetry.sdk.metrics.export.MetricExporter;
import io.opentelemetry.sdk.metrics.export.PeriodicMetricReader;
import io.opentelemetry.sdk.resources.Resource;
import io.opentelemetry.sdk.trace.SdkTracerProvider;
import io.opentelemetry.sdk.trace.data.SpanData;
import io.opentelemetry.sdk.trace.export.BatchSpanProcessor;
import io.opentelemetry.sdk.trace.export.SpanExporter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * Sends a counted number of spans, metric points and log records with the OpenTelemetry SDK for Java. The
 * command line and what is sent are described in ../README.md.
 */
public final class Client {
  private static final String SCOPE = "sluice.test";
  private static final long FLUSH_SECONDS = 60;
  private static final List<String> SIGNALS = List.of("traces", "metrics", "logs");
  private static final AttributeKey<String> RUN = AttributeKey.stringKey("sluice.test.run");
  private static final AttributeKey<Long> SEQ = AttributeKey.longKey("sluice.test.seq");

  private boolean grpc;
  private String endpoint;
  private String compression = "none";
  private List<String> signals = SIGNALS;
  private int count;
  private String runId;
  private final Map<String, String> headers = new LinkedHashMap<>();
  private byte[] ca;

  /** What one signal's exporter reported: items in exports that succeeded, and exports that failed. */
  private static final class Tally {
    private int items;
    private final List<String> failures = new ArrayList<>();

    CompletableResultCode watch(CompletableResultCode result, int batch) {
      return result.whenComplete(() -> note(result, batch));
    }

    private synchronized void note(CompletableResultCode result, int batch) {
      if (result.isSuccess()) {
        items += batch;
      } else {
        failures.add(batch + " items: " + result.getFailureThrowable());
      }
    }

    synchronized void fail(String reason) {
      failures.add(reason);
    }

    synchronized boolean holds(int count) {
      return failures.isEmpty() && items == count;
    }

    @Override
    public synchronized String toString() {
      return items + " exported; failures " + failures;
    }
  }

  private record WatchedSpans(SpanExporter inner, Tally tally) implements SpanExporter {
    @Override
    public CompletableResultCode export(Collection<SpanData> spans) {
      return tally.watch(inner.export(spans), spans.size());
    }

    @Override
    public CompletableResultCode flush() {
      return inner.flush();
    }

    @Override
    public CompletableResultCode shutdown() {
      return inner.shutdown();
    }
  }

  private record WatchedMetrics(MetricExporter inner, Tally tally) implements MetricExporter {
    @Override
    public AggregationTemporality getAggregationTemporality(InstrumentType type) {
      return inner.getAggregationTemporality(type);
    }

    @Override
    public CompletableResultCode export(Collection<MetricData> metrics) {
      int points = metrics.stream().mapToInt(metric -> metric.getData().getPoints().size()).sum();
      return tally.watch(inner.export(metrics), points);
    }

    @Override
    public CompletableResultCode flush() {
      return inner.flush();
    }

    @Override
    public CompletableResultCode shutdown() {
      return inner.shutdown();
    }
  }

  private record WatchedLogs(LogRecordExporter inner, Tally tally) implements LogRecordExporter {
    @Override
    public CompletableResultCode export(Collection<LogRecordData> records) {
      return tally.watch(inner.export(records), records.size());
    }

    @Override
    public CompletableResultCode flush() {
      return inner.flush();
    }

    @Override
    public CompletableResultCode shutdown() {
      return inner.shutdown();
    }
  }

  private Client(String[] arguments) throws IOException {
    for (int i = 0; i < arguments.length; i += 2) {
      if (i + 1 == arguments.length) {
        throw new IllegalArgumentException(arguments[i] + " needs a value");
      }
      String value = arguments[i + 1];
      switch (arguments[i]) {
        case "--protocol" -> {
          if (!value.equals("grpc") && !value.equals("http")) {
            throw new IllegalArgumentException("unknown protocol " + value);
          }
          grpc = value.equals("grpc");
        }
        case "--endpoint" -> endpoint = value;
        case "--compression" -> compression = value;
        case "--signals" -> signals = List.of(value.split(","));
        case "--count" -> count = Integer.parseInt(value);
        case "--run-id" -> runId = value;
        case "--header" -> {
          String[] parts = value.split("=", 2);
          if (parts.length < 2) {
            throw new IllegalArgumentException("a header is NAME=VALUE");
          }
          headers.put(parts[0], parts[1]);
        }
        case "--ca" -> ca = Files.readAllBytes(Path.of(value));
        default -> throw new IllegalArgumentException("unknown argument " + arguments[i]);
      }
    }
    if (!List.of(arguments).contains("--protocol") || endpoint == null || count <= 0 || runId == null) {
      throw new IllegalArgumentException("--protocol, --endpoint, --count and --run-id are needed");
    }
    if (!SIGNALS.containsAll(signals)) {
      throw new IllegalArgumentException("unknown signal in " + signals);
    }
    if (!endpoint.contains("://")) {
      endpoint = (ca == null ? "http://" : "https://") + endpoint;
    }
  }

  private String url(String signal) {
    return endpoint.replaceAll("/+$", "") + "/v1/" + signal;
  }

  // The six builders share their methods' names but no type.
  private SpanExporter spanExporter() {
    if (grpc) {
      var builder = OtlpGrpcSpanExporter.builder().setEndpoint(endpoint).setCompression(compression);
      headers.forEach(builder::addHeader);
      return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
    }
    var builder = OtlpHttpSpanExporter.builder().setEndpoint(url("traces")).setCompression(compression);
    headers.forEach(builder::addHeader);
    return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
  }

  private MetricExporter metricExporter() {
    if (grpc) {
      var builder = OtlpGrpcMetricExporter.builder().setEndpoint(endpoint).setCompression(compression);
      headers.forEach(builder::addHeader);
      return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
    }
    var builder = OtlpHttpMetricExporter.builder().setEndpoint(url("metrics")).setCompression(compression);
    headers.forEach(builder::addHeader);
    return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
  }

  private LogRecordExporter logExporter() {
    if (grpc) {
      var builder = OtlpGrpcLogRecordExporter.builder().setEndpoint(endpoint).setCompression(compression);
      headers.forEach(builder::addHeader);
      return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
    }
    var builder = OtlpHttpLogRecordExporter.builder().setEndpoint(url("logs")).setCompression(compression);
    headers.forEach(builder::addHeader);
    return (ca == null ? builder : builder.setTrustedCertificates(ca)).build();
  }

  private Tally send(String signal) {
    var resource = Resource.create(Attributes.of(AttributeKey.stringKey("service.name"), "sluice-test-java"));
    var tally = new Tally();
    // The queues hold everything: the SDK's own drops are not what is tested. Nothing is shut down, only
    // flushed: a metric reader's shutdown would export the same points once more.
    int queue = Math.max(count, 512);
    CompletableResultCode flush;
    switch (signal) {
      case "traces" -> {
        var processor = BatchSpanProcessor.builder(new WatchedSpans(spanExporter(), tally)).setMaxQueueSize(queue);
        var provider = SdkTracerProvider.builder().setResource(resource).addSpanProcessor(processor.build()).build();
        var tracer = provider.get(SCOPE);
        for (int seq = 0; seq < count; seq++) {
          tracer.spanBuilder("span-" + seq).setAllAttributes(attributes(seq)).startSpan().end();
        }
        flush = provider.forceFlush();
      }
      case "metrics" -> {
        var reader =
            PeriodicMetricReader.builder(new WatchedMetrics(metricExporter(), tally))
                .setInterval(Duration.ofHours(1))
                .build();
        CardinalityLimitSelector limit = type -> count + 1;
        var provider = SdkMeterProvider.builder().setResource(resource).registerMetricReader(reader, limit).build();
        var counter = provider.get(SCOPE).counterBuilder("sluice.test.counter").build();
        for (int seq = 0; seq < count; seq++) {
          counter.add(1, attributes(seq));
        }
        flush = provider.forceFlush();
      }
      default -> {
        var processor = BatchLogRecordProcessor.builder(new WatchedLogs(logExporter(), tally)).setMaxQueueSize(queue);
        var provider =
            SdkLoggerProvider.builder().setResource(resource).addLogRecordProcessor(processor.build()).build();
        var logger = provider.get(SCOPE);
        for (int seq = 0; seq < count; seq++) {
          logger
              .logRecordBuilder()
              .setSeverity(Severity.INFO)
              .setSeverityText("INFO")
              .setBody("log-" + seq)
              .setAllAttributes(attributes(seq))
              .emit();
        }
        flush = provider.forceFlush();
      }
    }
    if (!flush.join(FLUSH_SECONDS, TimeUnit.SECONDS).isSuccess()) {
      tally.fail("the flush failed or did not finish");
    }
    return tally;
  }

  private Attributes attributes(int seq) {
    return Attributes.of(RUN, runId, SEQ, (long) seq);
  }

  public static void main(String[] arguments) {
    Client client;
    try {
      client = new Client(arguments);
    } catch (IOException | IllegalArgumentException error) {
      System.err.println("client: " + error.getMessage());
      System.exit(2);
      return;
    }
    boolean failed = false;
    var report = new StringBuilder("exported");
    for (String signal : client.signals) {
      Tally tally = client.send(signal);
      if (!tally.holds(client.count)) {
        failed = true;
        System.err.println("client: " + signal + ": of " + client.count + " " + tally);
      }
      report.append(' ').append(signal).append('=').append(client.count);
    }
    if (!failed) {
      System.out.println(report);
    }
    // The HTTP client's threads would keep the process alive for a minute.
    System.exit(failed ? 1 : 0);
  }
}
