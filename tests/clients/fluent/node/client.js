// Sends records by the forward protocol, or receives them: see ../README.md.
"use strict";

const { readFileSync } = require("node:fs");
const { parseArgs } = require("node:util");
const { EventTime, FluentClient, FluentServer } = require("@fluent-org/logger");

const { values: options } = parseArgs({
  options: {
    endpoint: { type: "string" },
    count: { type: "string" },
    "run-id": { type: "string" },
    mode: { type: "string", default: "PackedForward" },
    "shared-key": { type: "string" },
    username: { type: "string" },
    password: { type: "string" },
    ca: { type: "string" },
    cert: { type: "string" },
    key: { type: "string" },
    "no-ack": { type: "boolean", default: false },
    serve: { type: "boolean", default: false },
  },
});

async function send() {
  const [host, port] = options.endpoint.split(":");
  const count = Number(options.count);
  const security = options["shared-key"] && {
    clientHostname: "node-client",
    sharedKey: options["shared-key"],
    username: options.username,
    password: options.password,
  };
  const tls = options.ca && { ca: readFileSync(options.ca), servername: "localhost" };
  const client = new FluentClient("sluice", {
    eventMode: options.mode,
    socket: { host, port: Number(port), timeout: 10000, tls },
    security,
    ack: options["no-ack"] ? undefined : { ackTimeout: 20000 },
    eventRetry: { attempts: 10, minDelay: 100, maxDelay: 1000 },
    sendQueueSyncFlushLimit: { length: 100 },
  });
  client.socketOn("error", (error) => console.error(String(error)));
  const sent = [];
  for (let i = 0; i < count; i += 1) {
    const record = { message: `log-${i}`, run: options["run-id"], seq: i, nested: { half: i + 0.5 } };
    sent.push(client.emit("test", record, new EventTime(1700000000 + i, 5)));
  }
  await Promise.all(sent);
  await client.shutdown();
  console.log(`sent ${count}`);
}

async function serve() {
  const [host, port] = options.endpoint.split(":");
  const security = options["shared-key"] && {
    serverHostname: "node-server",
    sharedKey: options["shared-key"],
    authorize: options.username !== undefined,
    userDict: { [options.username]: options.password },
  };
  const listenOptions = { host, port: Number(port) };
  const tlsOptions = options.cert && { cert: readFileSync(options.cert), key: readFileSync(options.key) };
  const server = new FluentServer({ listenOptions, security, tlsOptions });
  server.on("entry", (tag, time, record) => {
    const at = time instanceof EventTime ? [time.epoch, time.nano] : [time, 0];
    console.log(JSON.stringify({ tag, time: at, record }));
  });
  await server.listen();
}

(options.serve ? serve() : send()).catch((error) => {
  console.error(error);
  process.exit(1);
});
