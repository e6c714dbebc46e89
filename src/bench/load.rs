//! A closed loop of sends: each connection keeps a fixed number of requests in flight, and sends the next one when an
//! answer has come.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::BoxError;
use super::template::{Answers, Form, Template};

/// How many connections, and how many requests in flight on each.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub connections: usize,
    pub in_flight: usize,
}

/// What one load found out about one server.
#[derive(Debug, Clone, Copy)]
pub struct Outcome {
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

/// Longest silence of a server before the measurement is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// Bytes that a connection reads at once.
const READ_BYTES: usize = 256 * 1024;

/// Loads a server for `time`, after a warm-up of a quarter of it.
///
/// # Errors
/// The server is not there, goes away, is silent, or answers anything but success.
pub fn run(
    server: SocketAddr,
    form: Form,
    body_bytes: usize,
    shape: Shape,
    time: Duration,
) -> Result<Outcome, BoxError> {
    let begin = Instant::now() + time / 4;
    let end = begin + time;
    let connections = (0..shape.connections).map(|number| {
        let template = Template::send(form, i32::try_from(number % 8)?, body_bytes)?;
        Connection::open(server, form, template, shape.in_flight)
    });
    let connections = connections.collect::<Result<Vec<_>, _>>()?;
    let threads: Vec<_> =
        connections.into_iter().map(|connection| std::thread::spawn(move || connection.run(begin, end))).collect();
    let mut nanos = Vec::new();
    for thread in threads {
        nanos.extend(thread.join().map_err(|_| "a connection of the load panicked")??);
    }
    if nanos.is_empty() {
        return Err("no send was answered in time".into());
    }
    nanos.sort_unstable();
    let at = |part: f64| Duration::from_nanos(nanos[((nanos.len() - 1) as f64 * part) as usize].into());
    Ok(Outcome { per_second: nanos.len() as f64 / time.as_secs_f64(), p50: at(0.5), p99: at(0.99) })
}

/// One connection with its requests in flight, one for each slot.
struct Connection {
    stream: std::net::TcpStream,
    template: Template,
    answers: Answers,
    /// The `opaque` of each slot, encoded.
    opaques: Vec<Vec<u8>>,
    /// When the request of each slot was sent; `None` while it has none.
    sent: Vec<Option<Instant>>,
    output: Vec<u8>,
}

impl Connection {
    fn open(server: SocketAddr, form: Form, template: Template, in_flight: usize) -> Result<Connection, BoxError> {
        let stream = std::net::TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        let opaques = (0..in_flight).map(|slot| form.opaque(slot)).collect();
        let answers = Answers::new(form);
        Ok(Connection { stream, template, answers, opaques, sent: vec![None; in_flight], output: Vec::new() })
    }

    /// Sends until `end`, waits for what is still open, and gives the latencies of answers between `begin` and `end`.
    fn run(mut self, begin: Instant, end: Instant) -> Result<Vec<u32>, BoxError> {
        let mut nanos = Vec::with_capacity(1 << 20);
        let mut input = vec![0; READ_BYTES];
        let mut filled = 0;
        let mut answered: Vec<usize> = (0..self.sent.len()).collect();
        let mut open = 0;
        loop {
            let now = Instant::now();
            if now < end {
                open += answered.len();
                self.send(&answered, now)?;
            }
            answered.clear();
            if open == 0 {
                return Ok(nanos);
            }
            let read = self.stream.read(&mut input[filled..])?;
            if read == 0 {
                return Err("the server closed a connection of the load".into());
            }
            filled += read;
            let now = Instant::now();
            let mut start = 0;
            while let Some(frame) = first_frame(&input[start..filled]) {
                start += frame.len();
                let slot = self.answers.slot(frame)?;
                let sent = self.sent.get_mut(slot).and_then(Option::take).ok_or("a second answer to one send")?;
                open -= 1;
                answered.push(slot);
                if now >= begin && now < end {
                    nanos.push(u32::try_from((now - sent).as_nanos()).unwrap_or(u32::MAX));
                }
            }
            input.copy_within(start..filled, 0);
            filled -= start;
        }
    }

    /// Sends one request for each of these slots, in one write.
    fn send(&mut self, slots: &[usize], now: Instant) -> Result<(), BoxError> {
        self.output.clear();
        for &slot in slots {
            self.template.append(&self.opaques[slot], &mut self.output);
            self.sent[slot] = Some(now);
        }
        Ok(self.stream.write_all(&self.output)?)
    }
}

/// The first frame of the input with its length field, if all of it is there.
pub fn first_frame(input: &[u8]) -> Option<&[u8]> {
    let length = u32::from_be_bytes(*input.first_chunk()?);
    input.get(..4 + usize::try_from(length).ok()?)
}
