//! Standard output and standard error, when they are full, closed, or a pipe that nobody reads any more.
//!
//! `println!` panics when a write fails. Here a failed write is an error like any other: a command ends with it, and a
//! server goes on without its line.

use std::{
    fmt,
    io::{self, Write as _},
};

/// Standard output took no more.
#[derive(Debug)]
pub struct Unwritten(io::Error);

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write standard output: {}", self.0)
    }
}

impl std::error::Error for Unwritten {}

/// Writes a text to standard output as it is. A pipe whose reader has gone, as `head` does when it has seen enough, is no
/// error: the command comes to its end, and to its exit code, all the same.
pub fn print(text: impl fmt::Display) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Unwritten(error)),
        _ => Ok(()),
    }
}

/// Writes one line to standard output.
pub fn line(text: impl fmt::Display) -> Result<(), Unwritten> {
    print(format_args!("{text}\n"))
}

/// Writes a text to standard error as it is. If that cannot be written either, there is nobody left to tell.
pub fn complain(text: impl fmt::Display) {
    let _ = write!(io::stderr().lock(), "{text}");
}

/// Writes one line to standard output, formatted as by `println!`.
macro_rules! say {
    ($($arguments:tt)*) => {
        $crate::output::line(format_args!($($arguments)*))
    };
}

/// Writes one line to standard error, formatted as by `eprintln!`, with the name of the program before it.
macro_rules! warn_line {
    ($($arguments:tt)*) => {
        $crate::output::complain(format_args!("staticfire: {}\n", format_args!($($arguments)*)))
    };
}

pub(crate) use {say, warn_line};
