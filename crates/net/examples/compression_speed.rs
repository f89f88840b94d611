//! What packing and unpacking cost, by library and level: the reason for the choices in `compress`.
//!
//! `cargo run --release -p sluice-net --example compression_speed`

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Instant;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use sluice_net::compress;
use sluice_otlp::Encoding;

/// About one export request: 100 spans of 40 attributes.
const LENGTH: usize = 190_000;

fn main() {
    let plain = Bytes::from(telemetry_like());
    println!("{} bytes of attributes with repeated keys and varying values", plain.len());
    for level in [1, 6] {
        let packed = compress::compress(Encoding::Gzip, std::slice::from_ref(&plain), Some(level)).expect("packs");
        measure(&format!("gzip {level} as exporters pack ({} bytes)", packed.len()), plain.len(), || {
            black_box(compress::compress(Encoding::Gzip, std::slice::from_ref(&plain), Some(level)).expect("packs"));
        });
        let mut libdeflate = Compressor::new(CompressionLvl::new(level).expect("is a level"));
        let mut room = vec![0; libdeflate.gzip_compress_bound(plain.len())];
        let packed = libdeflate.gzip_compress(&plain, &mut room).expect("packs");
        measure(&format!("gzip {level} libdeflate ({packed} bytes)"), plain.len(), || {
            black_box(libdeflate.gzip_compress(&plain, &mut room).expect("packs"));
        });
        let zlib_rs = || {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::with_capacity(LENGTH), flate2::Compression::new(level as u32));
            encoder.write_all(&plain).expect("packs");
            encoder.finish().expect("packs")
        };
        measure(&format!("gzip {level} zlib-rs ({} bytes)", zlib_rs().len()), plain.len(), || {
            black_box(zlib_rs());
        });
    }
    for (name, plain) in
        [("attributes", &plain[..]), ("lines", &lines()), ("an eighth of the lines", &lines()[..LENGTH / 8])]
    {
        unpack(name, plain);
    }
    let packed = compress::compress(Encoding::Zstd, std::slice::from_ref(&plain), None).expect("packs");
    measure(&format!("zstd 1 ({} bytes)", packed.len()), plain.len(), || {
        black_box(compress::compress(Encoding::Zstd, std::slice::from_ref(&plain), None).expect("packs"));
    });
    measure("unzstd, scratch buffer", plain.len(), || {
        compress::with_decompressed(Encoding::Zstd, &packed, usize::MAX, |plain| black_box(plain.bytes.len()))
            .expect("unpacks");
    });
}

/// As clients pack: zlib's format and zlib's usual level.
fn unpack(name: &str, plain: &[u8]) {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    packer.write_all(plain).expect("packs");
    let packed = packer.finish().expect("packs");
    println!("{name}: {} bytes, packed {}", plain.len(), packed.len());
    measure("gunzip as receivers do", plain.len(), || {
        compress::with_decompressed(Encoding::Gzip, &packed, usize::MAX, |plain| black_box(plain.bytes.len()))
            .expect("unpacks");
    });
    let (mut libdeflate, mut room) = (Decompressor::new(), vec![0; plain.len()]);
    measure("gunzip libdeflate", plain.len(), || {
        black_box(libdeflate.gzip_decompress(&packed, &mut room).expect("unpacks"));
    });
    measure("gunzip zlib-rs", plain.len(), || {
        let mut bytes = Vec::with_capacity(plain.len() + 1);
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("unpacks");
        black_box(bytes);
    });
}

/// The median of several rounds.
fn measure(name: &str, length: usize, mut work: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            (0..20).for_each(|_| work());
            start.elapsed().as_secs_f64() / 20.0
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let median = rounds[rounds.len() / 2];
    println!("{name:44} {:7.0} µs {:7.0} MB/s", median * 1e6, length as f64 / median / 1e6);
}

fn telemetry_like() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut state = 1_u64;
    while bytes.len() < LENGTH {
        for key in 0..40 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            write!(bytes, "\x0a\x1ck8s.attribute.number.{key:02}\x12\x12some text {:08x}", state >> 32)
                .expect("a vector");
        }
    }
    bytes
}

/// Of words, with a number now and then.
fn lines() -> Vec<u8> {
    const WORDS: &str =
        "request served from cache upstream latency user session order created status retry timeout closed 503 GET";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut bytes = Vec::new();
    let mut state = 1_u64;
    while bytes.len() < LENGTH {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match state >> 60 {
            0..3 => write!(bytes, "{:08x} ", state >> 16 & 0xffff_ffff),
            _ => write!(bytes, "{} ", words[(state >> 40) as usize % words.len()]),
        }
        .expect("a vector");
    }
    bytes
}
