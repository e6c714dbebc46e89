//! Errors as Linux reports them, so that their kinds and texts are those of a real machine.

use std::io;

pub(super) const NOT_PERMITTED: i32 = 1;
pub(super) const NOT_FOUND: i32 = 2;
pub(super) const IO: i32 = 5;
pub(super) const BAD_HANDLE: i32 = 9;
pub(super) const NO_MEMORY: i32 = 12;
pub(super) const ACCESS: i32 = 13;
pub(super) const EXISTS: i32 = 17;
pub(super) const NOT_A_DIR: i32 = 20;
pub(super) const IS_A_DIR: i32 = 21;
pub(super) const INVALID: i32 = 22;
pub(super) const FILE_TOO_BIG: i32 = 27;
pub(super) const NO_SPACE: i32 = 28;
pub(super) const NAME_TOO_LONG: i32 = 36;
pub(super) const NOT_EMPTY: i32 = 39;

pub(super) fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// The answer to whatever a life asks for after its end.
pub(super) fn life_ended() -> io::Error {
    io::Error::other("this life of the node has ended")
}
