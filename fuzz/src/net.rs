//! Decoders of a peer's bytes before they are OTLP: packed bodies, gRPC frames and statuses.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
#[cfg(target_arch = "x86_64")]
use flate2::{Decompress, FlushDecompress, Status as Inflated};
#[cfg(target_arch = "x86_64")]
use sluice_inflate::Inflater;
use sluice_net::compress::{DecompressError, Packing, decompress, with_decompressed};
use sluice_net::grpc::frame::MessageReader;
use sluice_net::grpc::status::Status;
use sluice_otlp::Encoding;

const LIMIT_BYTES: usize = 1 << 20;

/// Another decoder unpacks the input to the same.
pub fn check_gunzip(data: &[u8]) {
    const FHCRC: u8 = 1 << 1;
    if let Ok(unpacked) = check_unpack(Encoding::Gzip, data) {
        let mut judged = Vec::new();
        match MultiGzDecoder::new(data).read_to_end(&mut judged) {
            Ok(_) => assert!(unpacked == judged),
            // The header's own checksum is not looked at by all decoders.
            Err(error) => assert!(data[3] & FHCRC != 0, "another decoder says {error}"),
        }
    }
}

pub fn check_unzstd(data: &[u8]) {
    let _ = check_unpack(Encoding::Zstd, data);
}

pub fn check_unsnappy(data: &[u8]) {
    let _ = check_unpack(Encoding::Snappy, data);
}

pub fn check_inflate(data: &[u8]) {
    if let Ok(unpacked) =
        check_limit(data, |data, limit_bytes| decompress(Packing::Zlib, data, limit_bytes))
    {
        let mut judged = Vec::new();
        ZlibDecoder::new(data).read_to_end(&mut judged).expect("another decoder takes it");
        assert!(unpacked == judged);
    }
    #[cfg(target_arch = "x86_64")]
    check_inflater(data);
}

/// If the decoder of whole streams takes a stream, another decoder unpacks it to the same, and both
/// find its end in the same place. Without the checksum, which hardly any changed stream passes.
#[cfg(target_arch = "x86_64")]
fn check_inflater(data: &[u8]) {
    const HEADER_BYTES: usize = 2;
    let (Some(mut inflater), Some(stream)) = (Inflater::new(), data.get(HEADER_BYTES..)) else {
        return;
    };
    let mut judge = Decompress::new(false);
    let mut judged = Vec::with_capacity(LIMIT_BYTES);
    let judgement = judge.decompress_vec(stream, &mut judged, FlushDecompress::Finish);
    let mut output = vec![0; judged.len()];
    if let Some(taken) = inflater.inflate(stream, &mut output) {
        assert!(matches!(judgement, Ok(Inflated::StreamEnd)), "another decoder says {judgement:?}");
        assert_eq!(taken as u64, judge.total_in());
        assert!(output == judged);
    }
}

pub fn check_unlz4(data: &[u8]) {
    let _ = check_limit(data, |data, limit_bytes| decompress(Packing::Lz4, data, limit_bytes));
}

/// As [`check_limit`]; unpacking does the same in a buffer of its own and in a shared one.
fn check_unpack(encoding: Encoding, data: &[u8]) -> Result<Bytes, DecompressError> {
    let shared = with_decompressed(encoding, data, LIMIT_BYTES, |plain| plain.bytes.to_vec());
    let unpacked = check_limit(data, |data, limit_bytes| decompress(encoding, data, limit_bytes));
    match &unpacked {
        Ok(unpacked) => assert_eq!(shared.as_deref(), Ok(&unpacked[..])),
        // Of several faults, libzstd names one by the room that it has.
        Err(_) if encoding == Encoding::Zstd => assert!(shared.is_err(), "{shared:?}"),
        Err(error) => assert_eq!(shared.as_ref(), Err(error)),
    }
    unpacked
}

/// Unpacking ends at the limit, and does the same at a limit that just suffices.
fn check_limit(
    data: &[u8],
    unpack: impl Fn(&[u8], usize) -> Result<Bytes, DecompressError>,
) -> Result<Bytes, DecompressError> {
    let unpacked = unpack(data, LIMIT_BYTES)?;
    assert!(unpacked.len() <= LIMIT_BYTES);
    assert_eq!(unpack(data, unpacked.len()).as_ref(), Ok(&unpacked), "the limit is inclusive");
    if let Some(less) = unpacked.len().checked_sub(1) {
        let error = unpack(data, less).expect_err("the limit does not suffice");
        assert_eq!(error, DecompressError::TooLarge { limit_bytes: less });
    }
    Ok(unpacked)
}

/// A body gives the same message however it is cut into chunks: whole, and at a place that its
/// first byte tells.
pub fn check_grpc_frame(data: &[u8]) {
    let Some((&cut, body)) = data.split_first() else { return };
    let whole = read_frame(&[body]);
    let (head, tail) = body.split_at(usize::from(cut).min(body.len()));
    let cut = read_frame(&[head, tail]);
    match (&whole, &cut) {
        (Ok(whole), Ok(cut)) => assert_eq!(whole, cut),
        (Err(_), Err(_)) => {}
        _ => panic!("the cut decides: {whole:?} or {cut:?}"),
    }
    if let Ok(message) = whole {
        assert_eq!(&message[..], &body[5..], "the message is what follows the prefix");
    }
}

fn read_frame(chunks: &[&[u8]]) -> Result<Bytes, String> {
    let mut reader = MessageReader::new(LIMIT_BYTES);
    for chunk in chunks {
        reader.feed(*chunk).map_err(|error| error.to_string())?;
    }
    assert!(reader.received_bytes() <= LIMIT_BYTES);
    reader.finish().map(|message| message.bytes).map_err(|error| error.to_string())
}

/// `grpc-status-details-bin` as a backend may send it: a status that was understood survives being
/// written and read again.
pub fn check_grpc_status(data: &[u8]) {
    if let Some(status) = Status::decode_details(data) {
        let again = Status::decode_details(&status.encode_details());
        assert_eq!(again.as_ref(), Some(&status));
    }
}
