//! Turns an encoded request into another wire form of the same request: one that a peer may legally
//! send, but that the generated types never write themselves.

use fastrand::Rng;
use sluice_otlp::Signal;

use super::schema::{Field, Kind, LEN, Message, Presence};
use super::wire::{Record, read_varint, records, write_record, write_varint};

/// Freedoms of the wire format that a rewrite uses. Each is used at random, not everywhere.
#[derive(Clone, Copy, Debug)]
pub struct Freedoms {
    /// Fields in any order, descending order (as the Collector writes them) in some messages.
    pub order: bool,
    /// Repeated scalars unpacked, in several packed runs, in empty runs.
    pub packing: bool,
    /// Tags, lengths and values as varints that are longer than they need be; bits above 32 in
    /// 32-bit values; true as something else than 1.
    pub long_varints: bool,
    /// A singular message as two occurrences, which a reader merges.
    pub split_messages: bool,
    /// Fields that the schema does not know, in any message; groups among them.
    pub unknown_fields: bool,
    /// Default values written out, and earlier occurrences of a singular scalar or a oneof that a
    /// later one replaces.
    pub superseded: bool,
}

impl Freedoms {
    pub const ALL: Freedoms = Freedoms {
        order: true,
        packing: true,
        long_varints: true,
        split_messages: true,
        unknown_fields: true,
        superseded: true,
    };
    pub const NONE: Freedoms = Freedoms {
        order: false,
        packing: false,
        long_varints: false,
        split_messages: false,
        unknown_fields: false,
        superseded: false,
    };
}

/// Another wire form of the request `encoded`. The same seed gives the same form.
pub fn rewrite(signal: Signal, encoded: &[u8], freedoms: Freedoms, seed: u64) -> Vec<u8> {
    Rewriter { freedoms, rng: Rng::with_seed(seed) }
        .message(super::request(signal), encoded)
        .concat()
}

struct Rewriter {
    freedoms: Freedoms,
    rng: Rng,
}

/// One encoded field occurrence, and its rank, which decides its place in the message: two of the
/// same rank keep their order.
struct Piece {
    rank: u32,
    bytes: Vec<u8>,
}

/// Members of a oneof supersede each other, so they are ordered among themselves as one field is.
const ONEOF_RANK: u32 = u32::MAX;

impl Rewriter {
    /// The message as encoded pieces; any cut between two of them may become a border between two
    /// occurrences.
    fn message(&mut self, message: &'static Message, encoded: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        let original = records(encoded);
        if self.freedoms.superseded {
            self.add_superseded(message, &original, &mut pieces);
        }
        for record in original {
            match super::field(message, record.number) {
                Some(field) => self.known(field, record, &mut pieces),
                None => self.unchanged(record.number, record, &mut pieces),
            }
        }
        if self.freedoms.unknown_fields {
            self.add_unknown(message, &mut pieces);
        }
        if self.freedoms.order {
            self.reorder(&mut pieces);
        }
        pieces.into_iter().map(|piece| piece.bytes).collect()
    }

    fn known(&mut self, field: &'static Field, record: Record, pieces: &mut Vec<Piece>) {
        let rank = if field.presence == Presence::Oneof { ONEOF_RANK } else { field.number };
        match field.kind {
            Kind::Message(child) => {
                let parts = self.message(child, &record.value);
                let singular = field.presence != Presence::Repeated;
                if singular && self.freedoms.split_messages && self.rng.u8(..3) == 0 {
                    let cut = self.rng.usize(..=parts.len());
                    self.length_delimited(rank, field.number, parts[..cut].concat(), pieces);
                    self.length_delimited(rank, field.number, parts[cut..].concat(), pieces);
                } else {
                    self.length_delimited(rank, field.number, parts.concat(), pieces);
                }
            }
            kind if kind.wire_type() != LEN && record.wire_type == LEN => {
                let values = unpack(kind, &record.value);
                self.repeated_scalar(field, values, pieces);
            }
            kind if record.wire_type == 0 => {
                let mut rest = record.value.as_slice();
                let value = read_varint(&mut rest);
                self.varint(rank, field.number, kind, value, pieces);
            }
            _ => self.unchanged(rank, record, pieces),
        }
    }

    fn repeated_scalar(&mut self, field: &Field, values: Vec<Vec<u8>>, pieces: &mut Vec<Piece>) {
        if !self.freedoms.packing {
            return self.length_delimited(field.number, field.number, values.concat(), pieces);
        }
        let mut rest = values.as_slice();
        while !rest.is_empty() {
            let run = self.rng.usize(..=rest.len());
            if self.rng.bool() {
                self.length_delimited(field.number, field.number, rest[..run].concat(), pieces);
            } else {
                for value in &rest[..run] {
                    let record = Record {
                        number: field.number,
                        wire_type: field.kind.wire_type(),
                        value: value.clone(),
                    };
                    self.unchanged(field.number, record, pieces);
                }
            }
            rest = &rest[run..];
        }
    }

    fn varint(
        &mut self,
        rank: u32,
        number: u32,
        kind: Kind,
        mut value: u64,
        pieces: &mut Vec<Piece>,
    ) {
        let mut padding = 0;
        if self.freedoms.long_varints && self.rng.u8(..4) == 0 {
            padding = self.rng.usize(..10);
            value = match kind {
                Kind::Bool if value != 0 => self.rng.u64(1..),
                Kind::Uint32 | Kind::Sint32 => {
                    value & 0xffff_ffff | u64::from(self.rng.u32(..)) << 32
                }
                _ => value,
            };
        }
        let mut bytes = Vec::new();
        write_varint(&mut bytes, value, padding);
        self.unchanged(rank, Record { number, wire_type: 0, value: bytes }, pieces);
    }

    fn length_delimited(
        &mut self,
        rank: u32,
        number: u32,
        value: Vec<u8>,
        pieces: &mut Vec<Piece>,
    ) {
        self.unchanged(rank, Record { number, wire_type: 2, value }, pieces);
    }

    fn unchanged(&mut self, rank: u32, record: Record, pieces: &mut Vec<Piece>) {
        let (tag_padding, len_padding) = (self.padding(), self.padding());
        let mut bytes = Vec::new();
        write_record(&mut bytes, &record, tag_padding, len_padding);
        pieces.push(Piece { rank, bytes });
    }

    /// Tags and lengths have 32 bits: readers take five bytes of them at most, and minimal ones
    /// here have three or fewer (tags of the largest field numbers: five, which `add_unknown`
    /// writes without padding).
    fn padding(&mut self) -> usize {
        if self.freedoms.long_varints && self.rng.u8(..8) == 0 { self.rng.usize(1..=2) } else { 0 }
    }

    fn add_unknown(&mut self, message: &Message, pieces: &mut Vec<Piece>) {
        if self.rng.u8(..3) != 0 {
            return;
        }
        for _ in 0..self.rng.usize(1..=2) {
            let field = self.unknown();
            if super::field(message, field.number).is_none() {
                let mut bytes = Vec::new();
                write_record(&mut bytes, &field, 0, 0);
                pieces.push(Piece { rank: field.number, bytes });
            }
        }
    }

    fn unknown(&mut self) -> Record {
        const NUMBERS: [u32; 6] = [4, 13, 17, 99, 1000, (1 << 29) - 1];
        let number = NUMBERS[self.rng.usize(..NUMBERS.len())];
        let wire_type = [0, 1, 2, 3, 5][self.rng.usize(..5)];
        let mut value = Vec::new();
        match wire_type {
            0 => write_varint(&mut value, self.rng.u64(..), 0),
            1 => value.resize(8, 0xaa),
            5 => value.resize(4, 0xbb),
            // Few of few fields are groups: they nest now and then, and never deeply.
            3 => (0..self.rng.usize(..4))
                .for_each(|_| write_record(&mut value, &self.unknown(), 0, 0)),
            _ => value.extend((0..self.rng.usize(..12)).map(|_| self.rng.u8(..))),
        }
        Record { number, wire_type, value }
    }

    /// Only scalars are superseded: a message would be merged, not replaced.
    fn add_superseded(
        &mut self,
        message: &'static Message,
        original: &[Record],
        pieces: &mut Vec<Piece>,
    ) {
        let has = |field: &Field| original.iter().any(|record| record.number == field.number);
        let oneof_set =
            message.fields.iter().any(|field| field.presence == Presence::Oneof && has(field));
        for field in message.fields {
            if matches!(field.kind, Kind::Message(_)) || self.rng.u8(..8) != 0 {
                continue;
            }
            let (rank, any_value_fits) = match field.presence {
                Presence::Repeated => continue,
                Presence::Oneof if oneof_set => (ONEOF_RANK, true),
                Presence::Explicit if has(field) => (field.number, true),
                Presence::Oneof | Presence::Explicit => continue,
                Presence::Implicit => (field.number, has(field)),
            };
            let value = match (field.kind.wire_type(), any_value_fits) {
                (0, fits) => vec![u8::from(fits)],
                (1, fits) => vec![u8::from(fits); 8],
                (5, fits) => vec![u8::from(fits); 4],
                (_, true) if matches!(field.kind, Kind::Id(_)) => Vec::new(),
                (_, true) => b"superseded".to_vec(),
                (_, false) => Vec::new(),
            };
            self.unchanged(
                rank,
                Record { number: field.number, wire_type: field.kind.wire_type(), value },
                pieces,
            );
        }
    }

    fn reorder(&mut self, pieces: &mut Vec<Piece>) {
        match self.rng.u8(..3) {
            0 => pieces.sort_by_key(|piece| std::cmp::Reverse(piece.rank)),
            1 => {
                let ranks: Vec<u32> = {
                    let mut ranks: Vec<u32> = pieces.iter().map(|piece| piece.rank).collect();
                    self.rng.shuffle(&mut ranks);
                    ranks
                };
                // The shuffled ranks say whose turn it is; those of one rank come in their own
                // order.
                for rank in ranks {
                    let next = pieces
                        .iter()
                        .position(|piece| piece.rank == rank)
                        .expect("as many turns as pieces");
                    let piece = pieces.remove(next);
                    pieces.push(piece);
                }
            }
            _ => {}
        }
    }
}

fn unpack(kind: Kind, packed: &[u8]) -> Vec<Vec<u8>> {
    if kind.wire_type() == 1 {
        return packed.chunks(8).map(<[u8]>::to_vec).collect();
    }
    let mut rest = packed;
    let mut values = Vec::new();
    while !rest.is_empty() {
        let mut value = Vec::new();
        write_varint(&mut value, read_varint(&mut rest), 0);
        values.push(value);
    }
    values
}
