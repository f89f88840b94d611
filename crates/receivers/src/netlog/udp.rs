//! Datagrams: read as they come, while the ones before are submitted. Those for which there is no
//! room are counted and lost.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sluice_flow::source::Permit;
use sluice_net::server::Listener;
use sluice_tail::End;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::attributes::{Attributes, Names};
use super::config::UdpConfig;
use super::intake::Intake;
use super::records::{Batch, Sender};
use super::refused::{Reason, Refused};

/// The longest datagram.
const DATAGRAM_BYTES: usize = 64 << 10;
/// A request is made of about this much.
const WINDOW_BYTES: usize = 256 << 10;
/// Memory of a request's datagrams, of their records and of the request, by the bytes of the first.
const GROWTH: usize = 3;
/// Datagrams that wait while others are submitted, in bytes with [`EACH_BYTES`] for each.
const WAITING_MAX_BYTES: usize = 8 << 20;
const EACH_BYTES: usize = 64;
/// Memory is asked for in steps.
const STEP_BYTES: usize = 64 << 10;
/// Records of a request.
const RECORDS_MAX: usize = 8192;
/// Datagrams that come within this time are one request.
const LINGER: Duration = Duration::from_millis(100);
/// Datagrams between two looks at other things to do.
const READS_AT_ONCE: usize = 256;
/// At the end, datagrams are still read from the kernel this often at most, until none comes for a
/// moment.
const LAST_READS: usize = 256;
const LAST_GAP: Duration = Duration::from_millis(20);

pub(super) struct Datagrams {
    pub intake: Arc<Intake>,
    pub config: UdpConfig,
    /// Of all records.
    pub attributes: Attributes,
    pub names: Arc<Names>,
    pub own: Option<SocketAddr>,
    /// Numbers the senders.
    pub hasher: RandomState,
}

/// Datagrams that wait. Those that are left when it is dropped are counted as lost.
struct Waiting {
    datagrams: Arc<Datagrams>,
    bytes: Vec<u8>,
    /// The end of each, and its sender.
    ends: Vec<(usize, SocketAddr)>,
    /// The first one that is left, and its start.
    next: usize,
    start: usize,
    permit: Option<Permit>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let message = "datagrams were cut off on their way";
        self.refuse_left(&Refused::new(Reason::CutOff, message));
    }
}

impl Waiting {
    fn new(datagrams: &Arc<Datagrams>) -> Waiting {
        let (bytes, ends) = (Vec::new(), Vec::new());
        Waiting { datagrams: Arc::clone(datagrams), bytes, ends, next: 0, start: 0, permit: None }
    }

    fn weight(&self) -> usize {
        self.bytes.len() + self.ends.len() * EACH_BYTES
    }

    fn left_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The next datagram, and its sender.
    fn next(&mut self) -> Option<(&[u8], SocketAddr)> {
        let (end, peer) = *self.ends.get(self.next)?;
        let datagram = &self.bytes[self.start..end];
        (self.next, self.start) = (self.next + 1, end);
        Some((datagram, peer))
    }

    /// Counts the records that are left as lost.
    fn refuse_left(&mut self, refused: &Refused) {
        let (datagrams, mut items) = (Arc::clone(&self.datagrams), 0);
        while let Some((datagram, _)) = self.next() {
            datagrams.cut(datagram, |_| items += 1);
        }
        if items > 0 {
            datagrams.intake.refuse(None, &Refused { items, ..refused.clone() });
        }
    }

    /// # Errors
    /// There is no room.
    fn push(&mut self, bytes: &[u8], peer: SocketAddr) -> Result<(), Refused> {
        let weight = self.weight() + bytes.len() + EACH_BYTES;
        if weight > WAITING_MAX_BYTES {
            let message = "too many datagrams wait to be submitted";
            return Err(Refused::new(Reason::Overloaded, message));
        }
        let needed = weight.next_multiple_of(STEP_BYTES);
        match &mut self.permit {
            Some(permit) => permit.grow_to(needed)?,
            None => {
                let ingress = &self.datagrams.intake.ingress;
                self.permit = Some(Permit::take(ingress.waiting(true), needed)?);
            }
        }
        self.bytes.extend_from_slice(bytes);
        self.ends.push((self.bytes.len(), peer));
        Ok(())
    }
}

impl Datagrams {
    /// Until it is told to stop; then all that has come is submitted.
    pub(super) async fn receive(self: Arc<Self>, listener: Listener, stop: CancellationToken) {
        let Some(socket) = listener.datagrams() else { return };
        let mut buffer = vec![0; DATAGRAM_BYTES];
        let mut waiting = Waiting::new(&self);
        let mut due = Instant::now();
        let mut submitting: Option<AbortOnDropHandle<()>> = None;
        loop {
            let (is_empty, now) = (waiting.ends.is_empty(), Instant::now());
            let is_due = !is_empty && (now >= due || waiting.bytes.len() >= WINDOW_BYTES);
            if is_due && submitting.is_none() {
                let batch = std::mem::replace(&mut waiting, Waiting::new(&self));
                let this = Arc::clone(&self);
                submitting = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                    this.submit(batch).await;
                })));
            }
            let is_free = submitting.is_none();
            let submitted = async {
                if let Some(submitting) = &mut submitting {
                    let _ = submitting.await;
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = submitted, if !is_free => submitting = None,
                () = sleep_until(due), if is_free && !waiting.ends.is_empty() => {}
                ready = socket.readable() => {
                    let was_empty = waiting.ends.is_empty();
                    if ready.is_ok() {
                        self.read(socket, &mut buffer, &mut waiting, READS_AT_ONCE);
                    }
                    if was_empty {
                        due = Instant::now() + LINGER;
                    }
                }
            }
        }
        for _ in 0..LAST_READS {
            if timeout(LAST_GAP, socket.readable()).await.is_err() {
                break;
            }
            self.read(socket, &mut buffer, &mut waiting, READS_AT_ONCE);
        }
        drop(listener);
        if let Some(submitting) = submitting {
            let _ = submitting.await;
        }
        self.submit(waiting).await;
    }

    /// Reads at most this number of datagrams that have come.
    fn read(&self, socket: &UdpSocket, buffer: &mut [u8], waiting: &mut Waiting, most: usize) {
        for _ in 0..most {
            let (length, peer) = match socket.try_recv_from(buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // Such as a port that is unreachable, of something that was never sent.
                Err(_) => continue,
            };
            if let Err(refused) = waiting.push(&buffer[..length], peer) {
                self.intake.counters.dropped_datagrams.fetch_add(1, Ordering::Relaxed);
                let peer = peer.to_string();
                let mut items = 0;
                self.cut(&buffer[..length], |_| items += 1);
                self.intake.refuse(Some(&peer), &Refused { items, ..refused });
            }
        }
    }

    async fn submit(&self, mut waiting: Waiting) {
        let metadata = Arc::default();
        let mut sender: Option<(SocketAddr, Sender)> = None;
        while waiting.next < waiting.ends.len() {
            let most = waiting.left_bytes().min(WINDOW_BYTES);
            let admitted = self.intake.admit(GROWTH * most + STEP_BYTES, true, None).await;
            let permit = match admitted {
                Ok((_, permit)) => permit,
                Err(refused) => return waiting.refuse_left(&refused),
            };
            let (mut batch, began_at) = (Batch::new(0), waiting.start);
            while batch.bytes < permit.bytes()
                && batch.items() < RECORDS_MAX
                && waiting.start - began_at < WINDOW_BYTES
                && let Some((datagram, peer)) = waiting.next()
            {
                let (_, sender) = match &mut sender {
                    Some(known) if known.0 == peer => known,
                    sender => sender.insert((peer, self.sender(peer))),
                };
                self.cut(datagram, |text| self.intake.records.push(&mut batch, text, sender));
            }
            let received_bytes = waiting.start - began_at;
            let made = self.intake.records.make(batch);
            self.intake.submit(made, Some(permit), &metadata, received_bytes).await;
        }
    }

    /// Each address is a stream of its own.
    fn sender(&self, peer: SocketAddr) -> Sender {
        let mut attributes = self.attributes.clone();
        let peer = canonical(peer);
        if self.config.adds_attributes {
            self.names.set(&mut attributes, "IP.UDP", Some(peer), self.own);
        }
        Sender::new(self.hasher.hash_one(peer), attributes)
    }

    /// Calls `visit` with the text of each record of a datagram.
    fn cut(&self, datagram: &[u8], mut visit: impl FnMut(&[u8])) {
        let UdpConfig { splitter, is_one_record, decoded_from, .. } = &self.config;
        let decoded = decoded_from.map_or(Cow::Borrowed(datagram), |from| from.decode(datagram));
        // As in the Collector: control characters and NULs at the end.
        let length = decoded.iter().rposition(|byte| *byte >= 32).map_or(0, |last| last + 1);
        let mut rest = &decoded[..length];
        if *is_one_record {
            if !rest.is_empty() {
                visit(rest);
            }
            return;
        }
        let mut is_within = false;
        while let Some(cut) = splitter.next(rest, End::Last, is_within) {
            if let Some((start, stop)) = cut.text
                && start < stop
            {
                visit(&rest[start..stop]);
            }
            is_within = cut.is_within;
            rest = &rest[cut.consumed..];
        }
    }
}

/// An IPv4 address that a socket for both families shows as IPv6.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    SocketAddr::new(ip, address.port())
}
