/// The compression of a payload's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    Identity,
    Gzip,
    Zstd,
    Snappy,
}

impl Encoding {
    pub const ALL: [Encoding; 4] =
        [Encoding::Identity, Encoding::Gzip, Encoding::Zstd, Encoding::Snappy];

    /// The token of `grpc-encoding` and `content-encoding`.
    pub const fn as_str(self) -> &'static str {
        ["identity", "gzip", "zstd", "snappy"][self as usize]
    }

    pub fn from_name(name: &str) -> Option<Encoding> {
        Encoding::ALL.into_iter().find(|encoding| encoding.as_str().eq_ignore_ascii_case(name))
    }
}
