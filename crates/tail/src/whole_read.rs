//! Reads that go on until nothing more comes.

use std::io;

/// Why no more was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// There may be more.
    More,
    End,
    /// The end is within compressed data.
    Cut,
}

/// Reads until nothing more comes or the buffer is full. Returns the length. Fewer bytes than
/// `least` before an error are none, unless the content itself is damaged there.
pub(crate) fn read_full(
    into: &mut [u8],
    least: usize,
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<(usize, Stop)> {
    let mut done = 0;
    while done < into.len() {
        match read(&mut into[done..], done as u64) {
            Ok(0) => return Ok((done, Stop::End)),
            Ok(length) => done += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A file that is still being compressed.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok((done, Stop::Cut));
            }
            // The bytes before the error are good, and it will come again.
            Err(error) if done > 0 && (done >= least || is_damage(&error)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok((done, Stop::More))
}

/// The compressed content is damaged: it fails in the same way until it changes.
pub(crate) fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: what is read before an error of the disk counts only if it is enough to tell the
    /// content, and what comes before damage always does.
    #[test]
    fn bytes_before_an_error_count_if_they_are_enough() {
        let read = |least: usize, kind: io::ErrorKind| {
            let until_300 =
                |into: &mut [u8], done: u64| match 300_usize.saturating_sub(done as usize) {
                    0 => Err(io::Error::from(kind)),
                    left => Ok(left.min(into.len())),
                };
            let read = read_full(&mut [0; 1000], least, until_300);
            read.map(|(length, _)| length).map_err(|error| error.kind())
        };
        let other = io::ErrorKind::Other;
        assert_eq!(read(256, other), Ok(300));
        assert_eq!(read(301, other), Err(other));
        assert_eq!(read(301, io::ErrorKind::InvalidData), Ok(300));
    }
}
