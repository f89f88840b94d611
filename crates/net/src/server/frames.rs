//! A look at what a peer sends, before h2 decodes it: which frames, and what h2 keeps of them
//! beside headers and the content of bodies.
//!
//! h2 keeps each frame of data until its request's body is read, as a slice of the buffer that it
//! came in with whatever came before and behind it. So a body with long frames of other kinds
//! between its own holds many times its length while its request waits.

use super::header_blocks::{HeaderBlocks, Malformed, TRAILERS_BYTES};

/// The client's first bytes, if it speaks HTTP/2 (RFC 9113, 3.4).
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME_HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;
const STREAM_MASK: u32 = u32::MAX >> 1;

/// So many bytes around data are in the price of a connection.
const AROUND_DATA_LEAST_BYTES: usize = 32 << 10;
/// Whatever is kept is charged in steps, so that few reads of a connection change the charge.
const CHARGE_STEP_BYTES: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Frames {
    state: State,
    blocks: HeaderBlocks,
    /// The latest stream that the peer opened. Further headers of it and of earlier ones are
    /// trailers.
    last_stream: u32,
    /// Trailers that came since no request was in flight.
    trailers: usize,
    header_bytes: usize,
    /// Frames of data that came, and that bodies have read.
    data_frames: u64,
    read_frames: u64,
    /// Since none waited: bytes that came, and what of these is data or headers, which are charged
    /// to their requests.
    came_bytes: usize,
    content_bytes: usize,
    /// Requests that had begun when none was last in flight.
    begun: u64,
}

#[derive(Debug)]
enum State {
    /// Bytes of the preface that came.
    Preface(usize),
    /// HTTP/1 has no frames.
    Http1,
    FrameHeader([u8; FRAME_HEADER_BYTES], usize),
    /// The rest of a payload without headers.
    Payload {
        left: usize,
        is_data: bool,
    },
    Headers(Headers),
}

const NEXT_FRAME: State = State::FrameHeader([0; FRAME_HEADER_BYTES], 0);

impl Default for State {
    fn default() -> Self {
        State::Preface(0)
    }
}

/// The rest of the payload of a frame with headers.
#[derive(Clone, Copy, Debug)]
struct Headers {
    left: usize,
    has_padding_length: bool,
    /// Before the headers.
    skipped: usize,
    /// At its end.
    padding: usize,
    ends_block: bool,
}

impl Frames {
    /// Before a read: of the connection's requests `begun` have begun and `in_flight` have no
    /// answer yet, and bodies have read `read_frames` frames of data.
    pub(super) fn note_requests(&mut self, begun: u64, in_flight: usize, read_frames: u64) {
        self.read_frames = read_frames;
        // Once for each request: those of which frames have just come may not have begun.
        let is_idle = in_flight == 0 && begun != self.begun;
        if is_idle {
            (self.begun, self.trailers) = (begun, 0);
        }
        if is_idle || read_frames >= self.data_frames {
            // Frames of streams that were reset are read by no body.
            self.data_frames = read_frames;
            (self.came_bytes, self.content_bytes) = (0, 0);
        }
    }

    /// Takes what was read.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        self.came_bytes = self.came_bytes.saturating_add(bytes.len());
        while let Some((&first, rest)) = bytes.split_first() {
            match &mut self.state {
                State::Http1 => return Ok(()),
                State::Preface(came) => {
                    let is_preface = first == PREFACE[*came];
                    *came += 1;
                    if !is_preface {
                        self.state = State::Http1;
                    } else if *came == PREFACE.len() {
                        self.state = NEXT_FRAME;
                    }
                    bytes = rest;
                }
                State::FrameHeader(header, came) => {
                    header[*came] = first;
                    *came += 1;
                    if *came == FRAME_HEADER_BYTES {
                        let header = *header;
                        self.begin_payload(header);
                    }
                    bytes = rest;
                }
                State::Payload { left, is_data } => {
                    let passed = bytes.len().min(*left);
                    *left -= passed;
                    self.content_bytes += if *is_data { passed } else { 0 };
                    if *left == 0 {
                        self.state = NEXT_FRAME;
                    }
                    bytes = &bytes[passed..];
                }
                State::Headers(headers) => {
                    let headers = *headers;
                    let came;
                    (came, bytes) = bytes.split_at(bytes.len().min(headers.left));
                    self.header_bytes += came.len();
                    self.content_bytes += came.len();
                    self.read_headers(headers, came)?;
                }
            }
        }
        Ok(())
    }

    /// What h2 may keep beside the content of bodies and the headers of requests.
    pub(super) fn kept_bytes(&self) -> usize {
        let has_waiting = self.data_frames > self.read_frames;
        // Small frames share a buffer with a little of everything.
        let around_bytes = self.came_bytes.saturating_sub(self.content_bytes / 4 * 5);
        let around_bytes = around_bytes.saturating_sub(AROUND_DATA_LEAST_BYTES);
        let kept_bytes = self.blocks.kept_bytes()
            + self.trailers * TRAILERS_BYTES
            + if has_waiting { around_bytes } else { 0 };
        kept_bytes.next_multiple_of(CHARGE_STEP_BYTES)
    }

    /// The last block of headers goes on.
    pub(super) fn is_amid_headers(&self) -> bool {
        self.blocks.is_unfinished
    }

    /// Bytes of headers since this was last asked.
    pub(super) fn take_header_bytes(&mut self) -> usize {
        std::mem::take(&mut self.header_bytes)
    }

    fn begin_payload(&mut self, header: [u8; FRAME_HEADER_BYTES]) {
        let [high, middle, low, kind, flags, stream @ ..] = header;
        let left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let stream = u32::from_be_bytes(stream) & STREAM_MASK;
        let ends_block = flags & END_HEADERS != 0;
        if kind == HEADERS {
            let are_trailers = stream <= self.last_stream;
            self.trailers += usize::from(are_trailers);
            self.last_stream = self.last_stream.max(stream);
            self.blocks.begin_block(are_trailers);
            self.blocks.is_unfinished = !ends_block;
        }
        let has_headers = matches!(kind, HEADERS | CONTINUATION);
        if has_headers {
            self.blocks.begin_frame();
            self.blocks.is_unfinished &= !(ends_block && left == 0);
        }
        self.data_frames += u64::from(kind == DATA);
        self.state = if left == 0 {
            NEXT_FRAME
        } else if has_headers {
            let is_first = kind == HEADERS;
            State::Headers(Headers {
                left,
                has_padding_length: is_first && flags & PADDED != 0,
                skipped: if is_first && flags & PRIORITY != 0 { PRIORITY_BYTES } else { 0 },
                padding: 0,
                ends_block,
            })
        } else {
            // Padding counts as what is around data, and so does all data beside it.
            State::Payload { left, is_data: kind == DATA && flags & PADDED == 0 }
        };
    }

    fn read_headers(&mut self, mut headers: Headers, mut bytes: &[u8]) -> Result<(), Malformed> {
        headers.left -= bytes.len();
        if headers.has_padding_length
            && let Some(&length) = bytes.first()
        {
            (headers.padding, headers.has_padding_length) = (length.into(), false);
            bytes = &bytes[1..];
        }
        let skipped = headers.skipped.min(bytes.len());
        headers.skipped -= skipped;
        bytes = &bytes[skipped..];
        // Of the rest, padding is what ends the frame.
        let padding = headers.padding.saturating_sub(headers.left).min(bytes.len());
        self.blocks.read(&bytes[..bytes.len() - padding])?;
        self.state = if headers.left > 0 {
            State::Headers(headers)
        } else {
            self.blocks.is_unfinished &= !headers.ends_block;
            NEXT_FRAME
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::connection::FIELD_BYTES;
    use super::*;

    /// POST, and a path that enters the table.
    const PATH: [u8; 4] = [0x83, 0x44, 1, b'/'];

    fn frame_of(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        frame_of(1, kind, flags, payload)
    }

    fn headers_of(stream: u32, block: &[u8]) -> Vec<u8> {
        frame_of(stream, HEADERS, END_HEADERS, block)
    }

    fn read(frames: &[Vec<u8>]) -> (Frames, Result<(), Malformed>) {
        let mut read = Frames::default();
        let result = read.read(&[&PREFACE[..], &frames.concat()].concat());
        (read, result)
    }

    #[test]
    fn padding_and_priority_are_no_headers() {
        let payload = [&[3, 0, 0, 0, 0, 9][..], &PATH, &[0x44, 0x44, 0x44]].concat();
        let padded = |stream| frame_of(stream, HEADERS, END_HEADERS | PADDED | PRIORITY, &payload);
        let plain = |stream| headers_of(stream, &PATH);
        let kept_bytes = |frames: &[Vec<u8>]| read(frames).0.blocks.kept_bytes();
        assert!(kept_bytes(&[plain(1), plain(3)]) > 0);
        assert_eq!(kept_bytes(&[padded(1), padded(3)]), kept_bytes(&[plain(1), plain(3)]));
    }

    /// Guarantee: a block that does not end is charged what h2 holds of it: at least the map's
    /// places of its fields, also if each of them is an index of one byte. At its end that ends.
    #[test]
    fn an_unfinished_block_is_charged_what_decoding_it_may_hold() {
        const FIELDS: usize = 470;
        let mut map = http::HeaderMap::new();
        for index in 0..FIELDS {
            let name = http::HeaderName::try_from(format!("x{index}")).expect("is a name");
            map.append(name, http::HeaderValue::from_static(""));
        }
        let begun = frame(HEADERS, 0, &[0x82; FIELDS]);
        let end = |flags, payload: &[u8]| frame(CONTINUATION, flags, payload);
        let (frames, _) = read(std::slice::from_ref(&begun));
        assert!(frames.kept_bytes() >= map.capacity() * FIELD_BYTES, "{}", frames.kept_bytes());
        let (longer, _) = read(&[begun.clone(), end(0, &[0x82; 100])]);
        assert!(longer.is_amid_headers() && longer.kept_bytes() > frames.kept_bytes());
        for payload in [&[][..], &[0x82]] {
            let (ended, _) = read(&[begun.clone(), end(END_HEADERS, payload)]);
            assert_eq!((ended.is_amid_headers(), ended.kept_bytes()), (false, 0));
        }
        assert_eq!(read(&[headers_of(1, &[0x82; FIELDS])]).0.kept_bytes(), 0);
    }

    /// Guarantee: trailers, which wait unread with their request, are short, and charged until no
    /// request is in flight.
    #[test]
    fn trailers_are_bounded_and_charged() {
        let request = headers_of(1, &PATH);
        let (mut frames, result) = read(&[request.clone(), headers_of(1, &[0x82; 8]).repeat(8)]);
        assert_eq!((frames.kept_bytes(), result), (8 * TRAILERS_BYTES, Ok(())));
        assert_eq!(read(&[request, headers_of(1, &[0x82; 470])]).1, Err(Malformed));
        frames.note_requests(1, 1, 0);
        assert_eq!(frames.kept_bytes(), 8 * TRAILERS_BYTES);
        frames.note_requests(1, 0, 0);
        assert_eq!(frames.kept_bytes(), 0);
    }

    /// Guarantee: what came between frames of data is charged until they are read.
    #[test]
    fn what_is_around_data_that_waits_is_charged() {
        const FILLER: usize = 16 << 10;
        let data = |length| frame(DATA, 0, &vec![0; length]);
        let filler = frame(0xee, 0, &[0; FILLER]);
        let honest = [vec![data(FILLER); 30], vec![data(100); 30]].concat();
        assert_eq!(read(&honest).0.kept_bytes(), 0);

        let (mut parted, _) = read(&vec![[data(256), filler].concat(); 40]);
        assert!(parted.kept_bytes() >= 36 * FILLER, "{}", parted.kept_bytes());
        parted.note_requests(1, 1, 39);
        assert!(parted.kept_bytes() >= 36 * FILLER, "one waits: it may be the first or the last");
        parted.note_requests(1, 1, 40);
        assert_eq!(parted.kept_bytes(), 0);

        let padded = frame(DATA, PADDED, &[[255].as_slice(), &[0; 256]].concat());
        let kept_bytes = read(&vec![padded; 600]).0.kept_bytes();
        assert!(kept_bytes >= 600 * 256 - AROUND_DATA_LEAST_BYTES, "padding is no data");
    }

    /// Guarantee: a peer cannot have what has just come forgotten, whose requests have not begun.
    #[test]
    fn only_requests_that_have_begun_are_forgotten() {
        let (mut frames, _) = read(&[headers_of(1, &PATH), headers_of(1, &[0x82; 8]).repeat(8)]);
        frames.note_requests(0, 0, 0);
        assert!(frames.kept_bytes() > 0);
        frames.note_requests(1, 0, 0);
        assert_eq!(frames.kept_bytes(), 0);
    }

    #[test]
    fn http_1_is_passed_over() {
        let mut frames = Frames::default();
        let request = b"PRI /v1/logs HTTP/1.1\r\n\r\n \x20\x20\x20\x20";
        assert_eq!((frames.read(request), frames.take_header_bytes()), (Ok(()), 0));
        assert_eq!((frames.read(&[0; 1 << 20]), frames.kept_bytes()), (Ok(()), 0));
    }

    #[test]
    fn only_bytes_of_headers_are_counted() {
        let data = frame(DATA, 0, &[0x20; 1000]);
        let (mut frames, result) = read(&[headers_of(1, &PATH), data, headers_of(3, &[0xbe])]);
        assert_eq!((frames.take_header_bytes(), result), (5, Ok(())));
        assert_eq!(frames.take_header_bytes(), 0);
    }

    proptest! {
        /// Guarantee: it does not matter in which pieces the bytes come, and nothing panics.
        #[test]
        fn pieces_do_not_matter(
            payloads in proptest::collection::vec(
                (0..12_u8, any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60)),
                0..20,
            ),
            piece in 1..40_usize,
        ) {
            let frames = payloads.iter().map(|(kind, flags, bytes)| frame(*kind, *flags, bytes));
            let frames: Vec<_> = frames.collect();
            let (mut whole, result) = read(&frames);
            let bytes = [&PREFACE[..], &frames.concat()].concat();
            let mut parts = Frames::default();
            let of_parts = bytes.chunks(piece).try_for_each(|bytes| parts.read(bytes));
            prop_assert_eq!(&of_parts, &result);
            if result.is_ok() {
                prop_assert_eq!(parts.kept_bytes(), whole.kept_bytes());
                prop_assert_eq!(parts.take_header_bytes(), whole.take_header_bytes());
            }
        }
    }
}
