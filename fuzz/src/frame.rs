//! A frame with its header: garbage is an error, never a panic and never an endless wait; what was read is written
//! back as a frame with the same meaning, in the same header encoding; and a typed header is read or refused.

use bytes::BytesMut;
use remoting::{FRAME_BYTES_MAX, RemotingCommand, Request, RequestCode};

/// Checks one input.
pub fn check(data: &[u8]) {
    let mut input = BytesMut::from(data);
    match RemotingCommand::decode(&mut input) {
        Ok(None) => {
            let length = data.first_chunk().map(|length| u32::from_be_bytes(*length) as usize);
            let waits = length.is_none_or(|length| length + 4 > data.len() && length + 4 <= FRAME_BYTES_MAX);
            assert!(waits, "waits for more of a frame that is complete or can never be");
        }
        Ok(Some(command)) => {
            let mut output = BytesMut::new();
            command.encode(&mut output).expect("a frame that came in can go out");
            let again = RemotingCommand::decode(&mut output).expect("our own frame").expect("all of it");
            assert!(output.is_empty(), "{} bytes behind our own frame", output.len());
            assert_eq!(again, command);
            if let Some(code) = RequestCode::from_number(command.code) {
                // Whether the header is the one of this code is for the decoder to say.
                Request::decode(code, &command.fields).ok();
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
