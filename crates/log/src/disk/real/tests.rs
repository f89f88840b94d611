use super::*;

#[test]
fn it_takes_what_fits_and_keeps_it_aligned_while_it_grows() {
    let mut buffer = AlignedBuffer::new(200_000);
    let bytes: Vec<u8> = (0..300_000_u32).map(|index| index as u8).collect();
    let mut rest = &bytes[..];
    for step in [1, 4095, 70_000] {
        let (now, later) = rest.split_at(step);
        assert!(buffer.append(now).is_empty());
        rest = later;
        assert_eq!(buffer.bytes(), &bytes[..bytes.len() - rest.len()]);
    }
    let rest = buffer.append(rest);
    assert_eq!(buffer.bytes().len(), 200_704, "the limit, in whole blocks");
    assert_eq!(rest, &bytes[200_704..]);
    assert!(is_aligned(buffer.bytes(), 8192) && !is_aligned(buffer.bytes(), 8191));
    assert_eq!(buffer.append(b"x"), b"x", "it is full");
    buffer.clear();
    assert!(buffer.append(b"abc").is_empty());
    buffer.fill_block();
    assert_eq!((buffer.bytes().len(), &buffer.bytes()[..4]), (4096, &b"abc\0"[..]));
    assert!(buffer.bytes()[3..].iter().all(|byte| *byte == 0), "nothing of what was there before");
    buffer.fill_block();
    assert_eq!(buffer.bytes().len(), 4096);
}

#[test]
fn an_empty_one_takes_no_memory() {
    let mut buffer = AlignedBuffer::new(1 << 20);
    buffer.fill_block();
    assert!(
        buffer.bytes().is_empty() && buffer.memory.is_empty() && !is_aligned(buffer.bytes(), 0)
    );
}
