//! Flow-control windows: how much peers may send unasked.
//! `docs/decisions/036-windows-are-the-same-for-all.md` has the reasons.

/// HTTP/2 begins every connection, and every stream, with a window of 65,535 bytes (RFC 9113,
/// 6.9.2), and a connection's can only be enlarged.
const WINDOW_LEAST_BYTES: usize = 64 << 10;
/// Bytes that a peer may send unread of one body, and of all bodies of a connection, while there is
/// plenty of memory.
const STREAM_MAX_BYTES: u32 = 512 << 10;
const CONNECTION_MAX_BYTES: usize = 2 << 20;
/// The memory for requests that wait, divided by this, is one connection's part beyond the least.
/// Small windows are dear under load: a request that comes in many pieces waits for each.
const PART_OF_WAITING: usize = 64;

/// Bytes that one HTTP/2 connection may send unasked. They are the same for all connections: bytes
/// of requests that wait are charged to these requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WindowSizes {
    pub connection_bytes: u32,
    pub stream_bytes: u32,
}

impl WindowSizes {
    /// `waiting_bytes`: the memory for bytes of requests that wait.
    pub(super) fn of(waiting_bytes: usize) -> Self {
        let more_bytes = waiting_bytes / PART_OF_WAITING;
        let connection_bytes =
            more_bytes.saturating_add(WINDOW_LEAST_BYTES).min(CONNECTION_MAX_BYTES) as u32;
        WindowSizes { connection_bytes, stream_bytes: connection_bytes.min(STREAM_MAX_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_bounded_by_a_part_of_the_memory_and_however_much_there_is() {
        let sizes = [0, 16 << 20, usize::MAX].map(WindowSizes::of);
        let of = |connection_bytes: usize, stream_bytes| WindowSizes {
            connection_bytes: connection_bytes as u32,
            stream_bytes,
        };
        assert_eq!(sizes[0], of(WINDOW_LEAST_BYTES, 64 << 10));
        assert_eq!(sizes[1], of((256 + 64) << 10, (256 + 64) << 10));
        assert_eq!(sizes[2], of(CONNECTION_MAX_BYTES, STREAM_MAX_BYTES));
    }
}
