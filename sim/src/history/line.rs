//! A record as one JSON object, keys in the order of `spec/simulation.md` 6.1.

use serde::Serialize;

use super::{Down, Event, History, QueueRef, Record};

/// The keys of a record, in the order they are written; what a record does not have is left out.
#[derive(Serialize)]
struct Line<'a> {
    i: u64,
    t: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    n: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inc: Option<u32>,
    k: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    m: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    q: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    o: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    x: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    f: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<String>,
}

/// Appends the line of a record, without a newline.
pub(super) fn encode(history: &History, index: u64, record: &Record, out: &mut Vec<u8>) {
    let empty = Line {
        i: index,
        t: record.at,
        n: record.node.map(|(node, _)| history.node(node)),
        inc: record.node.map(|(_, incarnation)| incarnation),
        k: record.event.kind(),
        m: None,
        q: None,
        o: None,
        x: None,
        f: None,
        v: None,
    };
    serde_json::to_writer(out, &fill(history, &record.event, empty)).expect("writing into memory cannot fail");
}

fn fill<'a>(history: &History, event: &'a Event, line: Line<'a>) -> Line<'a> {
    let queue = |queue: QueueRef| Some(history.queue(queue).to_string());
    let offset = |offset: u64| i64::try_from(offset).ok();
    match event {
        Event::NodeUp | Event::Converged => line,
        Event::Phase(name) | Event::Reached(name) | Event::Broken(name) => Line { v: Some((*name).to_owned()), ..line },
        Event::NodeDown(how, why) => Line { v: Some(down(*how, why)), ..line },
        Event::DiskCrash { dirty, lost, torn } => {
            Line { v: Some(format!("dirty {dirty} lost {lost} torn {torn}")), ..line }
        }
        Event::FaultBegin(id, kind) => Line { f: Some(id), v: Some((*kind).to_owned()), ..line },
        Event::FaultHit(id, kind, count) => Line { f: Some(id), v: Some(format!("{kind} {count}")), ..line },
        Event::FaultEnd(id) => Line { f: Some(id), ..line },
        Event::DiskError(kind, path) => Line { v: Some(format!("{kind} {path}")), ..line },
        Event::SendInvoke(message, look) => Line { m: Some(message.to_string()), v: Some(look.to_string()), ..line },
        Event::SendOk(message, at, o, x) => {
            Line { m: Some(message.to_string()), q: queue(*at), o: offset(*o), x: *x, ..line }
        }
        Event::SendFail(message, why) | Event::SendInfo(message, why) => {
            Line { m: Some(message.to_string()), v: Some(why.clone()), ..line }
        }
        Event::Deliver { message, queue: at, offset: o, look } => Line {
            m: message.map(|message| message.to_string()),
            q: queue(*at),
            o: offset(*o),
            v: Some(look.to_string()),
            ..line
        },
        Event::Ack(message, at, o) | Event::Nack(message, at, o) => {
            Line { m: message.map(|message| message.to_string()), q: queue(*at), o: offset(*o), ..line }
        }
        Event::Commit { group, queue: at, offset: o } => {
            Line { q: queue(*at), o: o.and_then(offset), v: Some(group.clone()), ..line }
        }
        Event::Assign(at) | Event::Revoke(at) => Line { q: queue(*at), ..line },
        Event::Append(x) | Event::Flush(x) | Event::Recover(x) | Event::Truncate(x) | Event::Delete(x) => {
            Line { x: Some(*x), ..line }
        }
        Event::Point(name, value) => Line { o: Some(*value), v: Some((*name).to_owned()), ..line },
        Event::Panic(task, message) => Line { v: Some(format!("{task}: {message}")), ..line },
        Event::Pending(what) => Line { v: Some(what.clone()), ..line },
    }
}

fn down(how: Down, why: &str) -> String {
    let name = how.name();
    if why.is_empty() { name.to_owned() } else { format!("{name}: {why}") }
}
