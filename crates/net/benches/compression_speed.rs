//! The cost of packing and unpacking, by library and level: the reason for the choices in
//! `compress`.
//!
//! `cargo bench -p sluice-net --bench compression_speed`

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::Instant;

use bytes::Bytes;
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use lz4_flex::frame::{BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use sluice_net::compress;
use sluice_otlp::Encoding;

/// About one export request: 100 spans of 40 attributes.
const LENGTH: usize = 190_000;

fn main() {
    let plain = Bytes::from(telemetry_like());
    println!("{} bytes of attributes with repeated keys and varying values", plain.len());
    for level in [1, 6] {
        let packed = compress::compress(Encoding::Gzip, std::slice::from_ref(&plain), Some(level))
            .expect("packs");
        measure(
            &format!("gzip {level} as exporters pack ({} bytes)", packed.len()),
            plain.len(),
            || {
                black_box(
                    compress::compress(Encoding::Gzip, std::slice::from_ref(&plain), Some(level))
                        .expect("packs"),
                );
            },
        );
        let mut libdeflate = Compressor::new(CompressionLvl::new(level).expect("is a level"));
        let mut room = vec![0; libdeflate.gzip_compress_bound(plain.len())];
        let packed = libdeflate.gzip_compress(&plain, &mut room).expect("packs");
        measure(&format!("gzip {level} libdeflate ({packed} bytes)"), plain.len(), || {
            black_box(libdeflate.gzip_compress(&plain, &mut room).expect("packs"));
        });
        let zlib_rs = || {
            let mut encoder = flate2::write::GzEncoder::new(
                Vec::with_capacity(LENGTH),
                flate2::Compression::new(level as u32),
            );
            encoder.write_all(&plain).expect("packs");
            encoder.finish().expect("packs")
        };
        measure(&format!("gzip {level} zlib-rs ({} bytes)", zlib_rs().len()), plain.len(), || {
            black_box(zlib_rs());
        });
    }
    for (name, plain) in [
        ("spans of 40 attributes", spans()),
        ("metric points of 10 attributes", points()),
        ("log records of 10 attributes", records()),
        ("lines", lines()),
        ("an eighth of the lines", lines()[..LENGTH / 8].to_vec()),
    ] {
        unpack(name, &plain);
    }
    unpack_lz4();
    let packed =
        compress::compress(Encoding::Zstd, std::slice::from_ref(&plain), None).expect("packs");
    measure(&format!("zstd 1 ({} bytes)", packed.len()), plain.len(), || {
        black_box(
            compress::compress(Encoding::Zstd, std::slice::from_ref(&plain), None).expect("packs"),
        );
    });
    measure("unzstd, scratch buffer", plain.len(), || {
        compress::with_decompressed(Encoding::Zstd, &packed, usize::MAX, |plain| {
            black_box(plain.bytes.len())
        })
        .expect("unpacks");
    });
}

/// A body as clients pack it, zlib's format at its usual level and at its fastest, by each decoder
/// in turns.
fn unpack(name: &str, plain: &[u8]) {
    for level in [6, 1] {
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        packer.write_all(plain).expect("packs");
        let packed = packer.finish().expect("packs");
        let (mut libdeflate, mut room) = (Decompressor::new(), vec![0; plain.len()]);
        let title =
            format!("gunzip {level}, {name}: {} bytes, packed {}", plain.len(), packed.len());
        compare(
            &title,
            plain.len(),
            &mut [
                ("as receivers do", &mut || {
                    let look = |plain: compress::Unpacked<'_>| plain.bytes.len();
                    black_box(
                        compress::with_decompressed(Encoding::Gzip, &packed, usize::MAX, look)
                            .expect("unpacks"),
                    );
                }),
                ("libdeflate alone", &mut || {
                    black_box(libdeflate.gzip_decompress(&packed, &mut room).expect("unpacks"));
                }),
                ("zlib-rs, streaming", &mut || {
                    let mut bytes = Vec::with_capacity(plain.len() + 1);
                    flate2::read::GzDecoder::new(&packed[..])
                        .read_to_end(&mut bytes)
                        .expect("unpacks");
                    black_box(bytes);
                }),
            ],
        );
    }
}

/// A small body in a frame of blocks of up to 4 MiB, as Go's library writes it, and a large one.
fn unpack_lz4() {
    for plain in [&spans()[..2000], &spans()] {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB).content_checksum(true);
        let mut packer = FrameEncoder::with_frame_info(info, Vec::new());
        packer.write_all(plain).expect("packs");
        let packed = packer.finish().expect("packs");
        compare(
            &format!("unlz4: {} bytes, packed {}", plain.len(), packed.len()),
            plain.len(),
            &mut [
                ("as receivers do", &mut || {
                    black_box(
                        compress::decompress(compress::Packing::Lz4, &packed, usize::MAX)
                            .expect("unpacks"),
                    );
                }),
                ("lz4_flex's frame reader", &mut || {
                    let mut bytes = Vec::with_capacity(plain.len() + 1);
                    FrameDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("unpacks");
                    black_box(bytes);
                }),
            ],
        );
    }
}

/// Runs the contenders in turns, so that other work of the machine meets all of them. Prints the
/// lowest decile of their times, which it disturbs least, and its ratio to that of the first.
fn compare(title: &str, length: usize, ways: &mut [(&str, &mut dyn FnMut())]) {
    const ROUNDS: usize = 151;
    let times_a_round = (2_000_000 / length).clamp(5, 200);
    let mut seconds = vec![Vec::new(); ways.len()];
    for _ in 0..ROUNDS {
        for ((_, work), seconds) in ways.iter_mut().zip(&mut seconds) {
            let start = Instant::now();
            (0..times_a_round).for_each(|_| work());
            seconds.push(start.elapsed().as_secs_f64() / times_a_round as f64);
        }
    }
    seconds.iter_mut().for_each(|seconds| seconds.sort_by(f64::total_cmp));
    println!("{title}");
    for ((name, _), seconds_sorted) in ways.iter().zip(&seconds) {
        let (lowest, first) = (seconds_sorted[ROUNDS / 10], seconds[0][ROUNDS / 10]);
        let rate = length as f64 / lowest / 1e6;
        println!("  {name:42} {:7.0} µs {rate:7.0} MB/s {:6.2} x", lowest * 1e6, lowest / first);
    }
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

/// Numbers that vary, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 16
    }
}

/// A length-delimited protobuf field.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = content.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(content);
    out
}

fn fixed64(number: u8, value: u64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// A third of them the same in every item, a third of few values, a third of many.
fn attributes(number: u8, many: u64, numbers: &mut Numbers) -> Vec<u8> {
    let attribute = |index: u64| {
        let value = match index % 3 {
            0 => format!("service-{index}.production"),
            1 => format!("GET /api/v1/{}", numbers.next() % 16),
            _ => format!("{:x}", numbers.next()),
        };
        field(
            number,
            &[
                field(1, format!("app.key.{index}").as_bytes()),
                field(2, &field(1, value.as_bytes())),
            ]
            .concat(),
        )
    };
    (0..many).flat_map(attribute).collect()
}

const START_NANOS: u64 = 1_700_000_000_000_000_000;

/// An export request of about [`LENGTH`] bytes.
fn request(mut item: impl FnMut(&mut Numbers) -> Vec<u8>) -> Vec<u8> {
    let (mut numbers, mut items) = (Numbers(1), Vec::new());
    while items.len() < LENGTH {
        items.extend(field(2, &item(&mut numbers)));
    }
    let resource = field(1, &attributes(1, 6, &mut numbers));
    field(1, &[resource, field(2, &[field(1, &field(1, b"scope")), items].concat())].concat())
}

fn spans() -> Vec<u8> {
    request(|numbers| {
        let ids = [numbers.next(), numbers.next(), numbers.next()].map(u64::to_be_bytes).concat();
        let start = START_NANOS + numbers.next() % 1_000_000_000;
        let times = [fixed64(7, start), fixed64(8, start + numbers.next() % 50_000_000)].concat();
        [
            field(1, &ids[..16]),
            field(2, &ids[16..]),
            field(5, b"GET /checkout"),
            times,
            attributes(9, 40, numbers),
        ]
        .concat()
    })
}

fn points() -> Vec<u8> {
    request(|numbers| {
        let value = fixed64(4, (numbers.next() as f64 / 1e6).to_bits());
        let point = [
            attributes(7, 10, numbers),
            fixed64(2, START_NANOS),
            fixed64(3, START_NANOS + 1_000_000_000),
            value,
        ];
        [field(1, b"http.server.request.duration"), field(5, &field(1, &point.concat()))].concat()
    })
}

fn records() -> Vec<u8> {
    request(|numbers| {
        let body = format!(
            "request {:x} served from cache in {} ms, status 200",
            numbers.next(),
            numbers.next() % 900
        );
        let time = fixed64(1, START_NANOS + numbers.next() % 1_000_000_000);
        [time, field(3, b"INFO"), field(5, &field(1, body.as_bytes())), attributes(6, 10, numbers)]
            .concat()
    })
}

fn telemetry_like() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut state = 1_u64;
    while bytes.len() < LENGTH {
        for key in 0..40 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            write!(
                bytes,
                "\x0a\x1ck8s.attribute.number.{key:02}\x12\x12some text {:08x}",
                state >> 32
            )
            .expect("a vector");
        }
    }
    bytes
}

/// Lines of words, with a number now and then.
fn lines() -> Vec<u8> {
    const WORDS: &str = "request served from cache upstream latency user session order created \
                         status retry timeout closed 503 GET";
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut bytes = Vec::new();
    let mut state = 1_u64;
    while bytes.len() < LENGTH {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match state >> 60 {
            0..3 => write!(bytes, "{:08x} ", state >> 16 & 0xffff_ffff),
            _ => write!(bytes, "{} ", words[(state >> 40) as usize % words.len()]),
        }
        .expect("a vector");
    }
    bytes
}
