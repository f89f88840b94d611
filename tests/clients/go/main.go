// Command client sends a counted number of spans, metric points and log records with the OpenTelemetry
// SDK for Go. The command line and what is sent are described in ../README.md.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/credentials"
)

const (
	scope        = "sluice.test"
	flushTimeout = 60 * time.Second
)

var allSignals = []string{"traces", "metrics", "logs"}

type options struct {
	protocol    string
	endpoint    string // a URL
	compression string
	signals     []string
	count       int
	runID       string
	headers     map[string]string
	tls         *tls.Config // nil without --ca
}

func parseArguments() (options, error) {
	o := options{headers: map[string]string{}}
	var signals, ca string
	flag.StringVar(&o.protocol, "protocol", "", "grpc or http")
	flag.StringVar(&o.endpoint, "endpoint", "", "HOST:PORT or a URL")
	flag.StringVar(&o.compression, "compression", "none", "none or gzip")
	flag.StringVar(&signals, "signals", strings.Join(allSignals, ","), "what to send")
	flag.IntVar(&o.count, "count", 0, "items of each signal")
	flag.StringVar(&o.runID, "run-id", "", "value of sluice.test.run")
	flag.StringVar(&ca, "ca", "", "PEM file with the authority to trust")
	flag.Func("header", "NAME=VALUE, may be given several times", func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("a header is NAME=VALUE")
		}
		o.headers[name] = value
		return nil
	})
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.protocol != "grpc" && o.protocol != "http":
		return o, fmt.Errorf("unknown protocol %q", o.protocol)
	case o.compression != "none" && o.compression != "gzip":
		return o, fmt.Errorf("unknown compression %q", o.compression)
	case o.endpoint == "" || o.runID == "" || o.count <= 0:
		return o, errors.New("--endpoint, --count and --run-id are needed")
	}
	o.signals = strings.Split(signals, ",")
	for _, s := range o.signals {
		if !slices.Contains(allSignals, s) {
			return o, fmt.Errorf("unknown signal %q", s)
		}
	}
	scheme := "http://"
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return o, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return o, fmt.Errorf("no certificate in %s", ca)
		}
		o.tls = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		scheme = "https://"
	}
	if !strings.Contains(o.endpoint, "://") {
		o.endpoint = scheme + o.endpoint
	}
	return o, nil
}

func (o options) url(signal string) string {
	if o.protocol == "grpc" {
		return o.endpoint
	}
	return strings.TrimRight(o.endpoint, "/") + "/v1/" + signal
}

// with returns the options of an exporter; the six exporters' packages each have their own types.
func with[T any](o options, signal string, url func(string) T, headers func(map[string]string) T, gzip T, tlsConfig func(*tls.Config) T) []T {
	list := []T{url(o.url(signal)), headers(o.headers)}
	if o.compression == "gzip" {
		list = append(list, gzip)
	}
	if o.tls != nil {
		list = append(list, tlsConfig(o.tls))
	}
	return list
}

func spanExporter(ctx context.Context, o options) (sdktrace.SpanExporter, error) {
	if o.protocol == "grpc" {
		creds := func(c *tls.Config) otlptracegrpc.Option {
			return otlptracegrpc.WithTLSCredentials(credentials.NewTLS(c))
		}
		return otlptracegrpc.New(ctx, with(o, "traces", otlptracegrpc.WithEndpointURL, otlptracegrpc.WithHeaders,
			otlptracegrpc.WithCompressor("gzip"), creds)...)
	}
	return otlptracehttp.New(ctx, with(o, "traces", otlptracehttp.WithEndpointURL, otlptracehttp.WithHeaders,
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression), otlptracehttp.WithTLSClientConfig)...)
}

func metricExporter(ctx context.Context, o options) (sdkmetric.Exporter, error) {
	if o.protocol == "grpc" {
		creds := func(c *tls.Config) otlpmetricgrpc.Option {
			return otlpmetricgrpc.WithTLSCredentials(credentials.NewTLS(c))
		}
		return otlpmetricgrpc.New(ctx, with(o, "metrics", otlpmetricgrpc.WithEndpointURL, otlpmetricgrpc.WithHeaders,
			otlpmetricgrpc.WithCompressor("gzip"), creds)...)
	}
	return otlpmetrichttp.New(ctx, with(o, "metrics", otlpmetrichttp.WithEndpointURL, otlpmetrichttp.WithHeaders,
		otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression), otlpmetrichttp.WithTLSClientConfig)...)
}

func logExporter(ctx context.Context, o options) (sdklog.Exporter, error) {
	if o.protocol == "grpc" {
		creds := func(c *tls.Config) otlploggrpc.Option {
			return otlploggrpc.WithTLSCredentials(credentials.NewTLS(c))
		}
		return otlploggrpc.New(ctx, with(o, "logs", otlploggrpc.WithEndpointURL, otlploggrpc.WithHeaders,
			otlploggrpc.WithCompressor("gzip"), creds)...)
	}
	return otlploghttp.New(ctx, with(o, "logs", otlploghttp.WithEndpointURL, otlploghttp.WithHeaders,
		otlploghttp.WithCompression(otlploghttp.GzipCompression), otlploghttp.WithTLSClientConfig)...)
}

// tally is what one signal's exporter reported: items in exports that succeeded, and those that failed.
type tally struct {
	mu       sync.Mutex
	items    int
	failures []error
}

func (t *tally) note(items int, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failures = append(t.failures, fmt.Errorf("%d items: %w", items, err))
	} else {
		t.items += items
	}
	return err
}

type watchedSpans struct {
	sdktrace.SpanExporter
	tally *tally
}

func (w watchedSpans) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	return w.tally.note(len(spans), w.SpanExporter.ExportSpans(ctx, spans))
}

type watchedMetrics struct {
	sdkmetric.Exporter
	tally *tally
}

func (w watchedMetrics) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	points := 0
	for _, sm := range rm.ScopeMetrics {
		for _, m := range sm.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok {
				points += len(sum.DataPoints)
			}
		}
	}
	return w.tally.note(points, w.Exporter.Export(ctx, rm))
}

type watchedLogs struct {
	sdklog.Exporter
	tally *tally
}

func (w watchedLogs) Export(ctx context.Context, records []sdklog.Record) error {
	return w.tally.note(len(records), w.Exporter.Export(ctx, records))
}

func send(ctx context.Context, o options, signal string, res *resource.Resource, t *tally) error {
	item := func(seq int) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("sluice.test.run", o.runID), attribute.Int("sluice.test.seq", seq)}
	}
	// The queues hold everything: the SDK's own drops are not what is tested. Nothing is shut down, only
	// flushed: a metric reader's shutdown would export the same points once more.
	switch signal {
	case "traces":
		exporter, err := spanExporter(ctx, o)
		if err != nil {
			return err
		}
		provider := sdktrace.NewTracerProvider(sdktrace.WithResource(res),
			sdktrace.WithBatcher(watchedSpans{exporter, t}, sdktrace.WithMaxQueueSize(o.count)))
		tracer := provider.Tracer(scope)
		for seq := range o.count {
			_, span := tracer.Start(ctx, fmt.Sprintf("span-%d", seq))
			span.SetAttributes(item(seq)...)
			span.End()
		}
		return provider.ForceFlush(ctx)
	case "metrics":
		exporter, err := metricExporter(ctx, o)
		if err != nil {
			return err
		}
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithCardinalityLimit(o.count+1),
			sdkmetric.WithReader(sdkmetric.NewPeriodicReader(watchedMetrics{exporter, t}, sdkmetric.WithInterval(time.Hour))))
		counter, err := provider.Meter(scope).Int64Counter("sluice.test.counter")
		if err != nil {
			return err
		}
		for seq := range o.count {
			counter.Add(ctx, 1, metric.WithAttributes(item(seq)...))
		}
		return provider.ForceFlush(ctx)
	default:
		exporter, err := logExporter(ctx, o)
		if err != nil {
			return err
		}
		provider := sdklog.NewLoggerProvider(sdklog.WithResource(res),
			sdklog.WithProcessor(sdklog.NewBatchProcessor(watchedLogs{exporter, t}, sdklog.WithMaxQueueSize(o.count))))
		logger := provider.Logger(scope)
		for seq := range o.count {
			var record log.Record
			record.SetTimestamp(time.Now())
			record.SetSeverity(log.SeverityInfo)
			record.SetSeverityText("INFO")
			record.SetBody(attribute.StringValue(fmt.Sprintf("log-%d", seq)))
			record.AddAttributes(item(seq)...)
			logger.Emit(ctx, record)
		}
		return provider.ForceFlush(ctx)
	}
}

func main() {
	o, err := parseArguments()
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(2)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { fmt.Fprintln(os.Stderr, "client:", err) }))
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	res := resource.NewSchemaless(attribute.String("service.name", "sluice-test-go"))

	failed := false
	report := "exported"
	for _, signal := range o.signals {
		t := &tally{}
		err := send(ctx, o, signal, res, t)
		t.mu.Lock()
		if failures := append(t.failures, err); errors.Join(failures...) != nil || t.items != o.count {
			failed = true
			fmt.Fprintf(os.Stderr, "client: %s: %d of %d exported; %v\n", signal, t.items, o.count, errors.Join(failures...))
		}
		report += fmt.Sprintf(" %s=%d", signal, t.items)
		t.mu.Unlock()
	}
	if failed {
		os.Exit(1)
	}
	fmt.Println(report)
}
