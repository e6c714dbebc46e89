//! Frames that are encoded once and sent often: only `opaque` differs from one to the next.

use bytes::BytesMut;
use remoting::{
    RemotingCommand, Request, RequestCode, Response, SendMessageRequestHeader, SendMessageResponseHeader, SerializeType,
};

use super::BoxError;

/// How headers are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// A JSON object, as Apache's clients send it by default.
    Json,
    /// The binary form.
    Binary,
}

impl std::fmt::Display for Form {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Form::Json => "json",
            Form::Binary => "binary",
        })
    }
}

/// The `opaque` of the first slot. Ten digits, so that all of them take the same room in JSON.
const FIRST_OPAQUE: i32 = 1_000_000_000;

/// A whole frame, and where its `opaque` stands.
#[derive(Debug, Clone)]
pub struct Template {
    bytes: Vec<u8>,
    opaque_at: usize,
    opaque_bytes: usize,
}

impl Template {
    /// A send of `body_bytes` bytes to one queue, as Apache's client would put it.
    pub fn send(form: Form, queue: i32, body_bytes: usize) -> Result<Template, BoxError> {
        let header = SendMessageRequestHeader {
            producer_group: "bench".to_owned(),
            topic: "bench".to_owned(),
            default_topic: "TBW102".to_owned(),
            default_topic_queue_nums: 8,
            queue_id: queue,
            sys_flag: 0,
            born_timestamp: 1_795_974_022_525,
            flag: 0,
            properties: Some("UNIQ_KEY\u{1}7F000001000002143230946E0993FCDD7D0000\u{2}WAIT\u{1}true\u{2}".to_owned()),
            reconsume_times: Some(0),
            unit_mode: Some(false),
            max_reconsume_times: None,
            batch: Some(false),
            broker_name: Some("broker-a".to_owned()),
        };
        let fields = Request::SendMessageV2(header).into_fields();
        let code = RequestCode::SendMessageV2.number();
        let mut command = RemotingCommand::request(code, FIRST_OPAQUE, fields, vec![b'x'; body_bytes].into());
        command.serialize_type = form.serialize_type();
        Template::of(form, &command)
    }

    /// The answer of a broker that stored a message.
    pub fn sent(form: Form) -> Result<Template, BoxError> {
        let header = SendMessageResponseHeader {
            msg_id: "7F00000100002A9F0000000000000000".to_owned(),
            queue_id: 0,
            queue_offset: 1_000_000,
            transaction_id: Some("7F000001000002143230946E0993FCDD7D0000".to_owned()),
            batch_uniq_id: None,
            recall_handle: None,
            msg_region: Some("DefaultRegion".to_owned()),
            trace_on: Some(true),
        };
        let response = Response::success().with_header(&header);
        Template::of(form, &RemotingCommand::response(response, FIRST_OPAQUE, form.serialize_type()))
    }

    fn of(form: Form, command: &RemotingCommand) -> Result<Template, BoxError> {
        let mut frame = BytesMut::new();
        command.encode(&mut frame)?;
        let opaque = form.opaque(0);
        let opaque_at = frame
            .windows(opaque.len())
            .position(|window| window == opaque)
            .ok_or("an encoded frame holds its own opaque")?;
        Ok(Template { bytes: frame.to_vec(), opaque_at, opaque_bytes: opaque.len() })
    }

    /// Where `opaque` stands in each of these frames.
    pub fn opaque(&self) -> std::ops::Range<usize> {
        self.opaque_at..self.opaque_at + self.opaque_bytes
    }

    /// Appends this frame with another `opaque`, which has the form and length of this one's.
    pub fn append(&self, opaque: &[u8], output: &mut Vec<u8>) {
        let start = output.len();
        output.extend_from_slice(&self.bytes);
        output[start..][self.opaque()].copy_from_slice(opaque);
    }
}

impl Form {
    /// The bytes of the `opaque` of a slot.
    pub fn opaque(self, slot: usize) -> Vec<u8> {
        let opaque = FIRST_OPAQUE + i32::try_from(slot).expect("there are at most 4096 slots");
        match self {
            Form::Json => opaque.to_string().into_bytes(),
            Form::Binary => opaque.to_be_bytes().to_vec(),
        }
    }

    fn serialize_type(self) -> SerializeType {
        match self {
            Form::Json => SerializeType::Json,
            Form::Binary => SerializeType::Binary,
        }
    }

    /// The slot that an `opaque` belongs to, if it is one that was sent.
    fn slot(opaque: i32) -> Option<usize> {
        usize::try_from(opaque.checked_sub(FIRST_OPAQUE)?).ok()
    }
}

/// Reads answers as cheaply as can be: the code and the slot, found where they stood in the answer before.
#[derive(Debug)]
pub struct Answers {
    form: Form,
    code_at: usize,
    opaque_at: usize,
}

impl Answers {
    pub const fn new(form: Form) -> Answers {
        Answers { form, code_at: 0, opaque_at: 0 }
    }

    /// The slot that a whole frame answers with success.
    pub fn slot(&mut self, frame: &[u8]) -> Result<usize, BoxError> {
        let (code, opaque) = match (self.form, frame.get(4)) {
            (Form::Binary, Some(1)) => binary_code_and_opaque(frame),
            (Form::Json, Some(0)) => self.json_code_and_opaque(frame),
            (_, kind) => return Err(format!("an answer of another header encoding: {kind:?}").into()),
        }
        .ok_or("an answer without code or opaque")?;
        if code != 0 {
            return Err(format!("a send was refused: {}", String::from_utf8_lossy(frame)).into());
        }
        Form::slot(opaque).ok_or_else(|| format!("an answer to nothing: opaque {opaque}").into())
    }

    fn json_code_and_opaque(&mut self, frame: &[u8]) -> Option<(i32, i32)> {
        let code = number_after(frame, b"\"code\":", &mut self.code_at)?;
        let opaque = number_after(frame, b"\"opaque\":", &mut self.opaque_at)?;
        Some((code, opaque))
    }
}

fn binary_code_and_opaque(frame: &[u8]) -> Option<(i32, i32)> {
    let code = i16::from_be_bytes(frame.get(8..10)?.try_into().ok()?);
    let opaque = i32::from_be_bytes(frame.get(13..17)?.try_into().ok()?);
    Some((code.into(), opaque))
}

/// The number behind `name`, which is looked for at `hint` first; `hint` becomes where it was found.
fn number_after(frame: &[u8], name: &[u8], hint: &mut usize) -> Option<i32> {
    if !frame.get(*hint..).is_some_and(|rest| rest.starts_with(name)) {
        *hint = frame.windows(name.len()).position(|window| window == name)?;
    }
    let digits = &frame[*hint + name.len()..];
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    std::str::from_utf8(&digits[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_slot_that_its_request_had() {
        for form in [Form::Json, Form::Binary] {
            let (request, answer) = (Template::send(form, 0, 128).unwrap(), Template::sent(form).unwrap());
            let mut answers = Answers::new(form);
            for slot in [0, 7, 63] {
                let (mut sent, mut answered) = (Vec::new(), Vec::new());
                request.append(&form.opaque(slot), &mut sent);
                answer.append(&sent[request.opaque()], &mut answered);
                assert_eq!(answers.slot(&answered).unwrap(), slot, "{form}");
            }
        }
    }

    #[test]
    fn a_refusal_is_not_taken_for_a_success() {
        let refusal = br#"....\0...{"code":14,"opaque":1000000000}"#;
        let mut frame = refusal.to_vec();
        frame[4] = 0;
        assert!(Answers::new(Form::Json).slot(&frame).is_err());
    }
}
