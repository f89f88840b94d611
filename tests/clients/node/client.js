// Sends a counted number of spans, metric points and log records with the OpenTelemetry SDK for Node.js.
// The command line and what is sent are described in ../README.md.
'use strict';

const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');
const { parseArgs } = require('node:util');
const { diag, DiagLogLevel } = require('@opentelemetry/api');
const { SeverityNumber } = require('@opentelemetry/api-logs');
const { CompressionAlgorithm } = require('@opentelemetry/otlp-exporter-base');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { BatchLogRecordProcessor, LoggerProvider } = require('@opentelemetry/sdk-logs');
const { MeterProvider, PeriodicExportingMetricReader } = require('@opentelemetry/sdk-metrics');
const { BasicTracerProvider, BatchSpanProcessor } = require('@opentelemetry/sdk-trace-base');

const SCOPE = 'sluice.test';
const FLUSH_MS = 60_000;
const PACKAGES = { grpc: 'grpc', http: 'proto', 'http-json': 'http' };
const EXPORTERS = {
  traces: ['trace', 'OTLPTraceExporter'],
  metrics: ['metrics', 'OTLPMetricExporter'],
  logs: ['logs', 'OTLPLogExporter'],
};

function usage(message) {
  console.error(`client: ${message}`);
  process.exit(2);
}

function parseArguments() {
  const text = { type: 'string' };
  const { values } = parseArgs({
    options: {
      protocol: text,
      endpoint: text,
      compression: { ...text, default: 'none' },
      signals: { ...text, default: Object.keys(EXPORTERS).join(',') },
      count: text,
      'run-id': text,
      header: { ...text, multiple: true, default: [] },
      ca: text,
    },
  });
  const count = Number(values.count);
  if (!Object.hasOwn(PACKAGES, values.protocol)) usage(`unknown protocol ${values.protocol}`);
  if (!['none', 'gzip'].includes(values.compression)) usage(`unknown compression ${values.compression}`);
  if (!values.endpoint || !values['run-id'] || !Number.isInteger(count) || count <= 0) {
    usage('--endpoint, --count and --run-id are needed');
  }
  const signals = values.signals.split(',');
  for (const signal of signals) if (!Object.hasOwn(EXPORTERS, signal)) usage(`unknown signal ${signal}`);
  const headers = {};
  for (const header of values.header) {
    const at = header.indexOf('=');
    if (at < 0) usage('a header is NAME=VALUE');
    headers[header.slice(0, at)] = header.slice(at + 1);
  }
  const ca = values.ca && fs.readFileSync(values.ca);
  const endpoint = values.endpoint.includes('://') ? values.endpoint : `${ca ? 'https' : 'http'}://${values.endpoint}`;
  return { ...values, runId: values['run-id'], count, signals, headers, ca, endpoint };
}

function makeExporter(options, signal) {
  const [part, name] = EXPORTERS[signal];
  const Exporter = require(`@opentelemetry/exporter-${part}-otlp-${PACKAGES[options.protocol]}`)[name];
  const compression = options.compression === 'gzip' ? CompressionAlgorithm.GZIP : CompressionAlgorithm.NONE;
  if (options.protocol === 'grpc') {
    const { credentials, Metadata } = require('@grpc/grpc-js');
    const metadata = new Metadata();
    for (const [name, value] of Object.entries(options.headers)) metadata.set(name, value);
    const secure = options.ca && { credentials: credentials.createSsl(options.ca) };
    return new Exporter({ url: options.endpoint, metadata, compression, ...secure });
  }
  return new Exporter({
    url: `${options.endpoint.replace(/\/+$/, '')}/v1/${signal}`,
    headers: options.headers,
    compression,
    httpAgentOptions: options.ca ? { ca: options.ca } : {},
  });
}

const points = (data) =>
  data.scopeMetrics.flatMap((scope) => scope.metrics).reduce((sum, metric) => sum + metric.dataPoints.length, 0);

// Makes `exporter` note what it reports: items in exports that succeeded, and exports that failed.
function watch(exporter, count) {
  const tally = { items: 0, answered: 0, failures: [] };
  const send = exporter.export.bind(exporter);
  exporter.export = (batch, done) =>
    send(batch, (result) => {
      tally.answered += count(batch);
      if (result.code === 0) tally.items += count(batch);
      else tally.failures.push(`${count(batch)} items: ${result.error}`);
      done(result);
    });
  return tally;
}

async function send(options, signal) {
  const { count, runId } = options;
  const resource = resourceFromAttributes({ 'service.name': 'sluice-test-node' });
  const attributes = (seq) => ({ 'sluice.test.run': runId, 'sluice.test.seq': seq });
  const exporter = makeExporter(options, signal);
  const tally = watch(exporter, signal === 'metrics' ? points : (batch) => batch.length);
  // The queues hold everything: the SDK's own drops are not what is tested.
  const queue = { maxQueueSize: Math.max(count, 512) };
  let provider;
  if (signal === 'traces') {
    provider = new BasicTracerProvider({ resource, spanProcessors: [new BatchSpanProcessor(exporter, queue)] });
    const tracer = provider.getTracer(SCOPE);
    for (let seq = 0; seq < count; seq++) tracer.startSpan(`span-${seq}`, { attributes: attributes(seq) }).end();
  } else if (signal === 'metrics') {
    const cardinalityLimits = { counter: count + 1 };
    const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000, cardinalityLimits });
    provider = new MeterProvider({ resource, readers: [reader] });
    const counter = provider.getMeter(SCOPE).createCounter('sluice.test.counter');
    for (let seq = 0; seq < count; seq++) counter.add(1, attributes(seq));
  } else {
    provider = new LoggerProvider({ resource, processors: [new BatchLogRecordProcessor({ exporter, ...queue })] });
    const logger = provider.getLogger(SCOPE);
    for (let seq = 0; seq < count; seq++) {
      logger.emit({
        severityNumber: SeverityNumber.INFO,
        severityText: 'INFO',
        body: `log-${seq}`,
        attributes: attributes(seq),
      });
    }
  }
  // Only flushed, never shut down: a metric reader's shutdown would export the same points once more.
  try {
    await provider.forceFlush();
    // Its flush does not wait for an export that was already under way.
    const deadline = Date.now() + FLUSH_MS;
    while (tally.answered < count && Date.now() < deadline) await sleep(10);
  } catch (error) {
    tally.failures.push(`flush: ${[error].flat().join('; ')}`);
  }
  return tally;
}

async function main() {
  const options = parseArguments();
  const note = (...words) => console.error('client:', ...words);
  diag.setLogger({ error: note, warn: note, info() {}, debug() {}, verbose() {} }, DiagLogLevel.WARN);
  const report = ['exported'];
  let failed = false;
  for (const signal of options.signals) {
    const { items, failures } = await send(options, signal);
    if (failures.length > 0 || items !== options.count) {
      failed = true;
      console.error(`client: ${signal}: ${items} of ${options.count} exported; ${failures.join('; ')}`);
    }
    report.push(`${signal}=${items}`);
  }
  if (!failed) console.log(report.join(' '));
  process.exit(failed ? 1 : 0);
}

main().catch((error) => usage(error.stack));
