//! A record as one JSON object, keys in the order of `spec/simulation.md` 6.1: `i t n inc k m q o x f v`; what a record
//! does not have is left out. Written by hand, because a run writes a line for everything that happens in it.

use std::fmt::{self, Display, Write as _};

use super::{Event, History, QueueRef, Record};

/// Appends the line of a record, without a newline.
pub(super) fn encode(history: &History, index: u64, record: &Record, out: &mut Vec<u8>) {
    let mut line = Line { out };
    line.number(r#"{"i":"#, index);
    line.number(r#","t":"#, record.at);
    if let Some((node, incarnation)) = record.node {
        line.text(r#","n":""#, history.node(node));
        line.number(r#","inc":"#, incarnation);
    }
    line.text(r#","k":""#, record.event.kind());
    line.event(history, &record.event);
    line.out.push(b'}');
}

/// A line that is being written.
struct Line<'a> {
    out: &'a mut Vec<u8>,
}

impl Line<'_> {
    /// What is particular to the kind of event, from key `m` on.
    fn event(&mut self, history: &History, event: &Event) {
        if let Some(message) = event.message() {
            self.shown(r#","m":""#, message);
        }
        match event {
            Event::NodeUp | Event::Promoted | Event::Converged => {}
            Event::Phase(name) | Event::Reached(name) | Event::Broken(name) => self.v(name),
            Event::NodeDown(how, why) if why.is_empty() => self.v(how.name()),
            Event::NodeDown(how, why) => self.v(format_args!("{}: {why}", how.name())),
            Event::DiskCrash { dirty, lost, torn } => self.v(format_args!("dirty {dirty} lost {lost} torn {torn}")),
            Event::FaultBegin(id, kind) => {
                self.text(r#","f":""#, id);
                self.v(kind);
            }
            Event::FaultHit(id, kind, count) => {
                self.text(r#","f":""#, id);
                self.v(format_args!("{kind} {count}"));
            }
            Event::FaultEnd(id) => self.text(r#","f":""#, id),
            Event::DiskError(kind, path) => self.v(format_args!("{kind} {path}")),
            Event::SendInvoke(_, look) => self.v(look),
            Event::SendOk(_, queue, offset, x) => {
                self.place(history, *queue, Some(*offset));
                if let Some(x) = x {
                    self.number(r#","x":"#, *x);
                }
            }
            Event::SendTries(_, tries) => self.v(tries),
            Event::SendFail(_, why) | Event::SendInfo(_, why) => self.v(why),
            Event::Deliver { queue, offset, look, times, .. } => {
                self.place(history, *queue, Some(*offset));
                match times {
                    0 => self.v(look),
                    times => self.v(format_args!("{look} again {times}")),
                }
            }
            Event::Ack(_, queue, offset) | Event::Nack(_, queue, offset) => {
                self.place(history, *queue, Some(*offset));
            }
            Event::Commit { group, queue, offset } => {
                self.place(history, *queue, *offset);
                self.v(group);
            }
            Event::Assign(queue) | Event::Revoke(queue) => self.place(history, *queue, None),
            Event::Poll(queue, offset) => self.place(history, *queue, Some(*offset)),
            Event::Due { phy, level } => {
                self.number(r#","x":"#, *phy);
                self.v(format_args!("level {level}"));
            }
            Event::Route { name_server, topic, brokers } => {
                self.v(format_args!("{name_server} {topic}: {}", brokers.join(" ")));
            }
            Event::Append(x) | Event::Flush(x) | Event::Recover(x) | Event::Truncate(x) | Event::Delete(x) => {
                self.number(r#","x":"#, *x);
            }
            Event::Point(name, value) => {
                self.number(r#","o":"#, *value);
                self.v(name);
            }
            Event::Panic(task, message) => self.v(format_args!("{task}: {message}")),
            Event::Pending(what) | Event::Grown(what) => self.v(what),
            Event::Audited { .. }
            | Event::DeadLetter { .. }
            | Event::Compared(_)
            | Event::Differs(..)
            | Event::Unsound(..) => self.finding(event),
        }
    }

    /// What the audit tells.
    fn finding(&mut self, event: &Event) {
        match event {
            Event::Audited { records, entries } => self.v(format_args!("records {records} entries {entries}")),
            Event::DeadLetter { group, offset, .. } => {
                self.number(r#","o":"#, *offset);
                self.v(group);
            }
            Event::Compared(bytes) => self.number(r#","x":"#, *bytes),
            Event::Differs(from, what) => {
                self.number(r#","x":"#, *from);
                self.v(what);
            }
            Event::Unsound(path, Some(at), what) => self.v(format_args!("{path} at {at}: {what}")),
            Event::Unsound(path, None, what) => self.v(format_args!("{path}: {what}")),
            _ => {}
        }
    }

    /// A queue, and an offset in it, left out if there is none or none that a log can reach.
    fn place(&mut self, history: &History, queue: QueueRef, offset: Option<u64>) {
        self.shown(r#","q":""#, history.queue(queue));
        if let Some(offset) = offset.and_then(|offset| i64::try_from(offset).ok()) {
            self.number(r#","o":"#, offset);
        }
    }

    fn v(&mut self, value: impl Display) {
        self.shown(r#","v":""#, value);
    }

    /// A number behind its key, which is given as it is written, with what stands before it.
    #[inline]
    fn number(&mut self, key: &'static str, value: impl itoa::Integer) {
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    /// A text behind its key, which includes the quotation mark.
    #[inline]
    fn text(&mut self, key: &'static str, text: &str) {
        self.out.extend_from_slice(key.as_bytes());
        escape(self.out, text);
        self.out.push(b'"');
    }

    /// What `Display` shows, as a text.
    fn shown(&mut self, key: &'static str, value: impl Display) {
        self.out.extend_from_slice(key.as_bytes());
        write!(Escaping(self.out), "{value}").expect("writing into memory cannot fail");
        self.out.push(b'"');
    }
}

/// Appends what is written to it as a part of a JSON text.
struct Escaping<'a>(&'a mut Vec<u8>);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        escape(self.0, part);
        Ok(())
    }
}

/// Hardly any text needs an escape; which one each character has is known to `serde_json`.
fn escape(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.extend_from_slice(text.as_bytes());
    } else {
        let quoted = serde_json::to_string(text).expect("any text can be written");
        out.extend_from_slice(&quoted.as_bytes()[1..quoted.len() - 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Down, Look, MessageId, Queue, Recorder};

    #[test]
    fn a_line_reads_back_whatever_stands_in_its_texts() {
        let odd = "a \"b\" \\ c\n\t\u{1}\u{7f} é→";
        let recorder = Recorder::new(None);
        let look = Look { topic: odd.into(), body_bytes: 1, crc: 2, tag: odd.into() };
        let shown = format!("{look} again 2");
        recorder.record(u64::MAX, Some((odd, 1)), |history| Event::Deliver {
            message: Some(MessageId { producer: 0, n: 12_345 }),
            queue: history.intern_queue(Queue { topic: odd.into(), broker: odd.into(), id: 0 }),
            offset: u64::MAX,
            look,
            times: 2,
        });
        recorder.record(0, None, |_| Event::NodeDown(Down::Exit, odd.into()));
        recorder.record(0, None, |_| Event::FaultHit(odd.into(), "cuts", 3));
        let (history, _) = recorder.finish().unwrap();
        let read = |index| serde_json::from_str::<serde_json::Value>(&history.line(index)).unwrap();
        let queue = format!("{odd}/{odd}/0");
        let delivered = serde_json::json!({
            "i": 0, "t": u64::MAX, "n": odd, "inc": 1, "k": "deliver", "m": "p0-12345", "q": queue, "v": shown,
        });
        assert_eq!(read(0), delivered, "an offset beyond 63 bits is left out");
        assert_eq!(read(1)["v"], format!("exit: {odd}"));
        assert_eq!(read(2), serde_json::json!({"i": 2, "t": 0, "k": "fault.hit", "f": odd, "v": "cuts 3"}));
    }
}
