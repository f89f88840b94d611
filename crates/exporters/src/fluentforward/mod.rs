//! Logs by the forward protocol, to Fluent Bit, Fluentd or a Collector.

mod attempts;
mod config;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluice_config::{ComponentKind, Kind, shown_url};
use sluice_flow::{BoxFuture, Exporter, Outcome, PackError, Packed};
use sluice_net::client::{ConnectOptions, ForwardClient, ForwardOptions, Proxy, Secrets};
use sluice_net::compress::compress;
use sluice_net::forward::message::{chunk_id, write_event_time, write_packed};
use sluice_net::forward::msgpack::Write as _;
use sluice_otlp::{Encoding, Signal};

use crate::client_options::ClientOptions;
use crate::exporter::{BuildContext, BuildError, ExporterConfig, NamedTarget};
use crate::fluent::{self, MessagePack, Stop, each_record};
use crate::outcome;
use attempts::{Attempts, LOSSES_MAX};
use config::FluentForwardConfig;

/// Memory for a message beside its tag and its events.
const MESSAGE_BYTES: usize = 256;

pub(crate) const KIND: ComponentKind<Box<dyn ExporterConfig>> = ComponentKind::new(
    Kind {
        signals: &[Signal::Logs],
        ..Kind::new("fluentforward", "Sends logs to Fluent Bit, Fluentd or a Collector")
    },
    |fields| Box::new(FluentForwardConfig::read(fields)),
);

impl ExporterConfig for FluentForwardConfig {
    fn client(&self) -> Option<&ClientOptions> {
        Some(&self.client)
    }

    fn destinations(&self) -> Vec<NamedTarget> {
        let (text, target) = (shown_url(&self.endpoint), Some(self.target.clone()));
        vec![NamedTarget { option: "endpoint", text, target, tls: Some(self.tls) }]
    }

    fn build(&self, _: &BuildContext<'_>) -> Result<Arc<dyn Exporter>, BuildError> {
        let mut connect = ConnectOptions::default();
        let proxy: Result<Option<Proxy>, String> = Ok(None);
        self.client.set_connect(&mut connect, self.tls, proxy)?;
        let options = ForwardOptions {
            connect,
            secret: self.secret.clone(),
            user: self.user.clone(),
            idle_timeout: self.idle_timeout,
        };
        let client = ForwardClient::new(self.target.clone(), options);
        let attempts = Attempts::default();
        Ok(Arc::new(FluentForward { config: self.clone(), client, attempts }))
    }
}

struct FluentForward {
    config: FluentForwardConfig,
    client: ForwardClient,
    attempts: Attempts,
}

/// The events of one tag.
#[derive(Default)]
struct Tagged {
    events: Vec<u8>,
    count: usize,
}

impl FluentForward {
    /// The events of a request by their tags.
    fn events(&self, chunks: &[Bytes]) -> Result<Vec<(String, Tagged)>, Stop> {
        let config = &self.config;
        let limit_bytes = fluent::limit_bytes(&config.client);
        let tag_from = config.tag_from.as_deref();
        let (mut places, mut tagged) = (HashMap::new(), Vec::<(String, Tagged)>::new());
        let mut written_bytes = 0;
        each_record::<MessagePack>(chunks, &config.layout, limit_bytes, |record| {
            let own = tag_from.and_then(|name| record.text(name));
            let without = tag_from.filter(|_| own.is_some());
            let tag = own.map_or(Cow::from(&*config.tag), String::from_utf8_lossy);
            let place = match places.get(&*tag) {
                Some(place) => *place,
                None => {
                    written_bytes += tag.len() + MESSAGE_BYTES;
                    places.insert(tag.clone().into_owned(), tagged.len());
                    tagged.push((tag.into_owned(), Tagged::default()));
                    tagged.len() - 1
                }
            };
            let Tagged { events, count } = &mut tagged[place].1;
            let before = events.len();
            events.write_array(2);
            write_event_time(events, record.time_ns);
            let room = limit_bytes.saturating_sub(written_bytes);
            let written = record.write::<MessagePack>(events, None, without, before + room);
            written.map_err(|stop| match stop {
                Stop::TooLarge { .. } => Stop::TooLarge { limit_bytes },
                stop => stop,
            })?;
            *count += 1;
            written_bytes += events.len() - before;
            Ok(())
        })?;
        Ok(tagged)
    }

    async fn deliver(&self, request: &Packed) -> Outcome {
        let Some(mut attempt) = self.attempts.begin(&request.chunks) else {
            let reason = format!(
                "{LOSSES_MAX} connections ended, or were given up, before the receiver \
                 acknowledged it, while it acknowledged other messages"
            );
            return Outcome::Failed { reason };
        };
        let Err(error) = self.client.send(&request.chunks, &attempt.progress).await else {
            attempt.is_delivered = true;
            return Outcome::Delivered;
        };
        let FluentForwardConfig { secret, user, .. } = &self.config;
        let key = secret.iter().map(|secret| secret.key.expose());
        let password = user.iter().map(|user| user.password.expose());
        let secrets = key.chain(password).fold(Secrets::default(), Secrets::and);
        outcome::of_transport_error(&error, &secrets)
    }
}

impl Exporter for FluentForward {
    /// A chunk for each message: one for each tag.
    fn pack(&self, _: Signal, chunks: Vec<Bytes>) -> Result<(Vec<Bytes>, Encoding), PackError> {
        let tagged = self.events(&chunks)?;
        let FluentForwardConfig { require_ack, is_gzip, client, .. } = &self.config;
        let messages = tagged.into_iter().map(|(tag, Tagged { events, count })| {
            let mut events = Bytes::from(events);
            if *is_gzip {
                let packed = compress(Encoding::Gzip, &[events], client.compression_level);
                events = packed.map_err(|error| error.to_string())?;
            }
            let chunk = require_ack.then(chunk_id);
            let mut message = Vec::with_capacity(events.len() + tag.len() + 64);
            write_packed(&mut message, &tag, &events, count, chunk.as_deref(), *is_gzip);
            Ok(Bytes::from(message))
        });
        Ok((messages.collect::<Result<_, PackError>>()?, Encoding::Identity))
    }

    fn packing_bytes(&self, request_bytes: usize, items: usize) -> usize {
        let FluentForwardConfig { client, tag, .. } = &self.config;
        fluent::packing_bytes(client, request_bytes, items, tag.len())
    }

    fn send<'a>(&'a self, request: &'a Packed) -> BoxFuture<'a, Outcome> {
        Box::pin(self.deliver(request))
    }

    fn timeout(&self) -> Duration {
        self.config.client.timeout
    }

    fn shutdown(&self) {
        self.client.shut_down();
    }
}
