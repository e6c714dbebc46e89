//! Bytes on their way out of a connection.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use crate::{command::RemotingCommand, frame::FrameError};

/// Pieces of bodies shorter than this are copied behind their header: that costs less than a piece of its own.
const COPY_BELOW_BYTES: usize = 4 * 1024;
/// Pieces that one call of the socket takes.
const PIECES_PER_WRITE: usize = 64;
/// An empty buffer larger than this is given back.
const KEEP_BYTES: usize = 256 * 1024;

/// Frames that were encoded and not yet written, first in, first out.
#[derive(Default)]
pub(crate) struct Outbox {
    /// Complete pieces, written before `tail`.
    pieces: VecDeque<Bytes>,
    /// Where frames are encoded.
    tail: BytesMut,
    /// Of all of it.
    bytes: usize,
}

impl Outbox {
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// It is too long; nothing is added then.
    pub fn push(&mut self, command: &RemotingCommand) -> Result<(), FrameError> {
        let before = self.tail.len();
        command.encode_head(&mut self.tail)?;
        self.bytes += self.tail.len() - before;
        for piece in command.body.pieces() {
            self.bytes += piece.len();
            if piece.len() < COPY_BELOW_BYTES {
                self.tail.extend_from_slice(piece);
            } else {
                self.seal();
                self.pieces.push_back(piece.clone());
            }
        }
        Ok(())
    }

    /// Takes everything that `other` holds and leaves it empty.
    pub fn take(&mut self, other: &mut Outbox) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else if !other.is_empty() {
            self.seal();
            other.seal();
            self.pieces.append(&mut other.pieces);
            self.bytes += std::mem::take(&mut other.bytes);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Outbox::default();
    }

    /// Writes until the socket takes no more or nothing is left; ready with the number of bytes, if it is not 0.
    pub fn poll_write<W: AsyncWrite + Unpin>(&mut self, to: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut total = 0;
        while !self.is_empty() {
            match self.poll_write_once(to, cx) {
                Poll::Ready(Ok(written)) => total += written,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => break,
            }
        }
        if total > 0 { Poll::Ready(Ok(total)) } else { Poll::Pending }
    }

    fn poll_write_once<W: AsyncWrite + Unpin>(&mut self, to: &mut W, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let written = if self.pieces.is_empty() {
            ready!(Pin::new(to).poll_write(cx, &self.tail))?
        } else {
            let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
            let all = self.pieces.iter().map(|piece| &**piece).chain([&*self.tail]);
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(all.filter(|piece| !piece.is_empty())) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            ready!(Pin::new(to).poll_write_vectored(cx, &slices[..count]))?
        };
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(written);
        Poll::Ready(Ok(written))
    }

    /// Makes a piece of what was encoded so far.
    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }

    fn advance(&mut self, written: usize) {
        self.bytes -= written;
        let mut rest = written;
        while let Some(piece) = self.pieces.front_mut() {
            if rest < piece.len() {
                piece.advance(rest);
                return;
            }
            rest -= piece.len();
            self.pieces.pop_front();
        }
        self.tail.advance(rest);
        if self.tail.is_empty() {
            if self.tail.capacity() > KEEP_BYTES {
                self.tail = BytesMut::new();
            }
            self.tail.clear();
        }
    }
}
