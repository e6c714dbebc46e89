//! The least that a server can do for a send: a blocking thread for each connection reads frames by their length,
//! copies `opaque` and answers with bytes that were made beforehand. Nothing else is decoded, nothing is kept.
//!
//! There are two of it. The plain one answers each frame by itself, as a thread that serves one request after the
//! other does. The batching one collects the answers to all frames that came with one read, which no protocol of
//! requests and answers promises; it shows how much the system calls cost.

use std::io::{Read, Write};

use super::BoxError;
use super::load::first_frame;
use super::template::{Form, Template};

/// Bytes that a connection reads at once. A longer frame ends the connection.
const READ_BYTES: usize = 256 * 1024;

/// When answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Answering {
    /// Each by itself.
    Each,
    /// All at once that belong to one read.
    Batched,
}

impl std::fmt::Display for Answering {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Answering::Each => "each",
            Answering::Batched => "batched",
        })
    }
}

/// Opens a port of its own choice on loopback, prints it, and serves until the process is killed.
pub fn serve(form: Form, answering: Answering) -> Result<(), BoxError> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    crate::output::line(listener.local_addr()?.port())?;
    // The body does not move `opaque`, which stands in the header.
    let (request, answer) = (Template::send(form, 0, 1)?, Template::sent(form)?);
    for stream in listener.incoming() {
        let (stream, request, answer) = (stream?, request.clone(), answer.clone());
        std::thread::spawn(move || {
            // A load that ends closes its connections, which is no failure of the floor.
            answer_all(stream, &request, &answer, answering).ok();
        });
    }
    Ok(())
}

/// Answers every frame of one connection.
fn answer_all(
    mut stream: std::net::TcpStream,
    request: &Template,
    answer: &Template,
    answering: Answering,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; READ_BYTES];
    let mut output = Vec::with_capacity(READ_BYTES);
    let mut filled = 0;
    loop {
        match stream.read(&mut input[filled..])? {
            0 => return Ok(()),
            read => filled += read,
        }
        let mut start = 0;
        while let Some(frame) = first_frame(&input[start..filled]) {
            start += frame.len();
            let Some(opaque) = frame.get(request.opaque()) else { return Ok(()) };
            answer.append(opaque, &mut output);
            if answering == Answering::Each {
                stream.write_all(&output)?;
                output.clear();
            }
        }
        stream.write_all(&output)?;
        output.clear();
        input.copy_within(start..filled, 0);
        filled -= start;
    }
}
