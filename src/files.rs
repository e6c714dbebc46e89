//! Text files that people name: read up to a bound, and told apart from what is no text.

use std::{fs::File, io::Read as _, path::Path};

/// The whole text of a file of at most `most` bytes. The error is one line that names the file.
pub fn read_text(path: &Path, most: u64) -> Result<String, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too large from one that just fits.
    let read = File::open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {shown}: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("{shown} has more than {} KiB, which is too much for what it should be", most >> 10));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (at, bytes) = (error.utf8_error().valid_up_to(), error.as_bytes());
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        format!("{shown}:{line}: not UTF-8: byte 0x{:02x} at offset {at}", bytes[at])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        std::fs::write(&file, bytes).unwrap();
        read_text(&file, 1024).map_err(|error| error.replace(folder.path().to_str().unwrap(), ""))
    }

    #[test]
    fn a_file_that_just_fits_is_read() {
        assert_eq!(read(&[b'a'; 1024]).map(|text| text.len()), Ok(1024));
        let told = "/x has more than 1 KiB, which is too much for what it should be";
        assert_eq!(read(&[b'a'; 1025]), Err(told.to_owned()));
    }

    #[test]
    fn the_first_byte_that_is_no_text_is_named() {
        assert_eq!(read(b"one\ntwo\xff"), Err("/x:2: not UTF-8: byte 0xff at offset 7".to_owned()));
        assert_eq!(read(b"\xc3"), Err("/x:1: not UTF-8: byte 0xc3 at offset 0".to_owned()));
    }

    #[test]
    fn a_device_without_end_ends_at_the_bound() {
        assert!(
            read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err().starts_with("/dev/zero has more than 1024 KiB")
        );
    }
}
