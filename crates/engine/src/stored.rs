//! The metadata that the log on disk keeps of a frame beside its payload, byte by byte in
//! `docs/formats/frame-metadata.md`.

use sluice_flow::Metadata;
use sluice_flow::hop::{Fetched, Ranges};
use sluice_otlp::{Encoding, Signal};

const VERSION: u8 = 1;
/// Tags of the fields behind the headers.
const LOG: u8 = 1;
const RANGES: u8 = 2;
const FETCHED: u8 = 3;
/// Bits of a frame's flags that are its signal.
const SIGNAL_MASK: u8 = 0b11;

/// A frame's metadata as it was read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameMetadata {
    /// Id of the receiver that took the frame.
    pub receiver: String,
    /// Fingerprints of the processors that were run before the frame was stored, in order.
    pub prepared: Vec<u64>,
    pub sender: Metadata,
    /// The log that it was appended to first, and where it has its offset.
    pub log: Option<u128>,
    /// The ranges of the frame that another Sluice named.
    pub ranges: Option<Ranges>,
    /// The name that its source gave it.
    pub fetched: Option<Fetched>,
}

/// Bytes that a frame costs beside its payload: its place in the log and its metadata.
const OVERHEAD_BYTES: u64 = 512;

/// Bytes that a frame counts against the budget of each delivery that it is for.
pub fn charge_bytes(payload_len: usize) -> u64 {
    payload_len as u64 + OVERHEAD_BYTES
}

/// Appends the metadata of a frame.
pub fn encode(receiver: &str, prepared: &[u64], sender: &Metadata, output: &mut Vec<u8>) {
    output.push(VERSION);
    put_bytes(output, receiver.as_bytes());
    put_len(output, prepared.len());
    prepared.iter().for_each(|fingerprint| output.extend_from_slice(&fingerprint.to_le_bytes()));
    output.push(u8::from(sender.peer.is_some()));
    put_bytes(output, sender.peer.as_deref().unwrap_or_default().as_bytes());
    put_len(output, sender.headers.len());
    for (name, value) in &sender.headers {
        put_bytes(output, name.as_bytes());
        put_bytes(output, value);
    }
}

/// Appends what other processes know a frame by, behind the output of [`encode`].
pub fn encode_identity(
    log: Option<u128>,
    ranges: Option<&Ranges>,
    fetched: Option<&Fetched>,
    output: &mut Vec<u8>,
) {
    if let Some(log) = log {
        output.push(LOG);
        put_bytes(output, &log.to_le_bytes());
    }
    if let Some(ranges) = ranges {
        output.push(RANGES);
        put_bytes(output, ranges.to_string().as_bytes());
    }
    if let Some(Fetched { run, number }) = fetched {
        output.push(FETCHED);
        put_bytes(output, &[&run.to_le_bytes()[..], &number.to_le_bytes()].concat());
    }
}

impl FrameMetadata {
    /// Reads the output of [`encode`] and [`encode_identity`]. Fields that a later release appended
    /// are left out.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut rest = bytes;
        match rest.split_off_first() {
            Some(&VERSION) | None => take_metadata(rest).ok_or_else(|| {
                "its metadata is cut off or holds text that is not UTF-8".to_owned()
            }),
            Some(other) => Err(format!(
                "its metadata has the version {other}; this release knows version {VERSION}"
            )),
        }
    }
}

/// Whether metadata has a version that this release does not know.
pub(crate) fn is_of_newer_release(metadata: &[u8]) -> bool {
    metadata.first().is_some_and(|version| *version > VERSION)
}

/// The order of the encodings is that of their codes, and stays.
pub fn encoding_code(encoding: Encoding) -> u8 {
    encoding as u8
}

/// None if this release does not know the encoding.
pub fn encoding_of(code: u8) -> Option<Encoding> {
    Encoding::ALL.into_iter().find(|encoding| encoding_code(*encoding) == code)
}

/// The order of the signals is that of their codes, and stays.
pub fn flags(signal: Signal) -> u8 {
    signal as u8 + 1
}

/// The signal of a frame. None if this release does not know it.
pub fn signal_of(flags_of_frame: u8) -> Option<Signal> {
    Signal::ALL.into_iter().find(|signal| flags(*signal) == flags_of_frame & SIGNAL_MASK)
}

fn put_len(output: &mut Vec<u8>, len: usize) {
    // Metadata is at most 16 MiB long.
    output.extend_from_slice(&(len as u32).to_le_bytes());
}

fn put_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    put_len(output, bytes.len());
    output.extend_from_slice(bytes);
}

/// Reads the metadata behind the version.
fn take_metadata(mut rest: &[u8]) -> Option<FrameMetadata> {
    let receiver = take_text(&mut rest)?;
    // Nothing is reserved for lengths that may be damaged.
    let count = take_len(&mut rest)?;
    let fingerprint = |_| Some(u64::from_le_bytes(rest.split_off(..8)?.try_into().ok()?));
    let prepared = (0..count).map(fingerprint).collect::<Option<_>>()?;
    let has_peer = *rest.split_off_first()? != 0;
    let peer = Some(take_text(&mut rest)?).filter(|_| has_peer);
    let count = take_len(&mut rest)?;
    let header = |_| Some((take_text(&mut rest)?, take_bytes(&mut rest)?.to_vec()));
    let headers = (0..count).map(header).collect::<Option<_>>()?;
    let sender = Metadata { peer, headers };
    let mut metadata =
        FrameMetadata { receiver, prepared, sender, log: None, ranges: None, fetched: None };
    // A release before these fields ends here. What cannot be read is of a later one.
    while let Some((tag, value)) = take_field(&mut rest) {
        match tag {
            LOG => metadata.log = value.try_into().ok().map(u128::from_le_bytes),
            RANGES => {
                let text = str::from_utf8(value).ok();
                metadata.ranges = text.and_then(|text| Ranges::parse(text).ok());
            }
            FETCHED => metadata.fetched = fetched_of(value),
            _ => {}
        }
    }
    Some(metadata)
}

fn fetched_of(mut value: &[u8]) -> Option<Fetched> {
    let run = u128::from_le_bytes(value.split_off(..16)?.try_into().ok()?);
    let number = u64::from_le_bytes(value.try_into().ok()?);
    Some(Fetched { run, number })
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let tag = *rest.split_off_first()?;
    Some((tag, take_bytes(rest)?))
}

fn take_len(rest: &mut &[u8]) -> Option<usize> {
    Some(u32::from_le_bytes(rest.split_off(..4)?.try_into().ok()?) as usize)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = take_len(rest)?;
    rest.split_off(..len)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    Some(std::str::from_utf8(take_bytes(rest)?).ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use sluice_flow::hop;

    use super::*;

    fn example() -> FrameMetadata {
        FrameMetadata {
            receiver: "otlp/größe".to_owned(),
            prepared: vec![1, u64::MAX],
            sender: Metadata {
                peer: Some("[::1]:4317".to_owned()),
                headers: vec![
                    ("tenant".to_owned(), vec![0, 255, b'x']),
                    ("tenant".to_owned(), Vec::new()),
                ],
            },
            log: Some(1 << 100),
            ranges: Some(ranges()),
            fetched: Some(Fetched { run: 3 << 70, number: 1 << 40 }),
        }
    }

    fn ranges() -> Ranges {
        let source = hop::Source(9 << 64 | 8);
        Ranges::new([(source, hop::Place::new(3, 0)..hop::Place::behind(4))])
    }

    fn encoded(metadata: &FrameMetadata) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&metadata.receiver, &metadata.prepared, &metadata.sender, &mut bytes);
        let FrameMetadata { log, ranges, fetched, .. } = metadata;
        encode_identity(*log, ranges.as_ref(), fetched.as_ref(), &mut bytes);
        bytes
    }

    #[test]
    fn everything_comes_back_and_what_a_later_release_appends_is_left_out() {
        for metadata in [example(), FrameMetadata::default()] {
            let mut bytes = encoded(&metadata);
            assert_eq!(FrameMetadata::decode(&bytes), Ok(metadata.clone()));
            bytes.extend_from_slice(b"later");
            assert_eq!(FrameMetadata::decode(&bytes), Ok(metadata));
        }
    }

    proptest! {
        #[test]
        fn all_metadata_comes_back(
            receiver: String,
            prepared in vec(any::<u64>(), 0..4),
            peer: Option<String>,
            headers in vec((any::<String>(), vec(any::<u8>(), 0..20)), 0..4),
            log: Option<u128>,
            has_ranges: bool,
            fetched: Option<(u128, u64)>,
        ) {
            let (sender, ranges) = (Metadata { peer, headers }, has_ranges.then(ranges));
            let fetched = fetched.map(|(run, number)| Fetched { run, number });
            let metadata =
                FrameMetadata { receiver, prepared, sender, log, ranges, fetched };
            prop_assert_eq!(FrameMetadata::decode(&encoded(&metadata)), Ok(metadata));
        }

        /// Damaged metadata is refused, or is read as metadata that reads the same after it is
        /// written again.
        #[test]
        fn damaged_metadata_is_refused_or_read(
            damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = encoded(&example());
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(metadata) = FrameMetadata::decode(&bytes) {
                prop_assert_eq!(FrameMetadata::decode(&encoded(&metadata)), Ok(metadata));
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_is_refused() {
        let bytes = encoded(&example());
        let mut without = Vec::new();
        let FrameMetadata { receiver, prepared, sender, .. } = example();
        encode(&receiver, &prepared, &sender, &mut without);
        for end in 0..without.len() {
            assert!(FrameMetadata::decode(&bytes[..end]).unwrap_err().contains("cut off"), "{end}");
        }
        let refused = |bytes: &[u8]| FrameMetadata::decode(bytes).unwrap_err();
        assert!(refused(&[2]).contains("has the version 2"));
        assert!(refused(&[1, 255, 255, 255, 255]).contains("cut off"));
    }

    #[test]
    fn the_bytes_are_those_of_the_documentation() {
        let metadata = FrameMetadata {
            receiver: "otlp".to_owned(),
            prepared: vec![7],
            ..FrameMetadata::default()
        };
        let expected = b"\x01\x04\0\0\0otlp\x01\0\0\0\x07\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(encoded(&metadata), expected);
        let mut identity = Vec::new();
        let fetched = Fetched { run: 6, number: 7 };
        encode_identity(Some(5), Some(&ranges()), Some(&fetched), &mut identity);
        let log = b"\x01\x10\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let text = ranges().to_string();
        let of_ranges = [&[2, text.len() as u8, 0, 0, 0][..], text.as_bytes()].concat();
        let of_fetched = [&[3, 24, 0, 0, 0, 6][..], &[0; 15], &[7], &[0; 7]].concat();
        assert_eq!(identity, [&log[..], &of_ranges, &of_fetched].concat());
        assert_eq!(Encoding::ALL.map(encoding_code), [0, 1, 2, 3]);
        assert_eq!(Signal::ALL.map(flags), [1, 2, 3]);
        assert_eq!(
            (encoding_of(9), signal_of(0), signal_of(0b110)),
            (None, None, Some(Signal::Metrics))
        );
    }
}
