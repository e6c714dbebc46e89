//! Which response code stands for which failure of the store. The one place where that is decided.

use remoting::{Response, ResponseCode};
use store::{Flushed, PutError, WriteBlock};

use crate::{replication::Copied, table_file::SaveError};

/// The answer to a message that was not stored. Source: `spec/store.md` 2.6, `spec/protocol.md` 6.1.
pub(crate) fn put(error: &PutError) -> Response {
    let code = match error {
        PutError::Blocked(WriteBlock::Stopped | WriteBlock::DiskFull { .. }) => ResponseCode::SERVICE_NOT_AVAILABLE,
        PutError::Blocked(WriteBlock::QueuesFailing | WriteBlock::Fenced) => ResponseCode::SERVICE_NOT_AVAILABLE,
        PutError::Blocked(WriteBlock::IsCopy) => ResponseCode::SERVICE_NOT_AVAILABLE,
        PutError::FileNotReady | PutError::NoBuffer | PutError::PageCacheBusy { .. } => ResponseCode::SYSTEM_BUSY,
        PutError::Illegal { .. } | PutError::PropertiesTooLong { .. } => ResponseCode::MESSAGE_ILLEGAL,
        // The next log file cannot be made, or something that later versions of the store add.
        PutError::CreateFile | _ => ResponseCode::SYSTEM_ERROR,
    };
    Response::failure(code, error.to_string())
}

/// The code for a message that was stored and waited for the disk; `None` if it is there.
pub(crate) fn flushed(flushed: Flushed) -> Option<ResponseCode> {
    match flushed {
        Flushed::Done => None,
        Flushed::TimedOut | Flushed::Failed => Some(ResponseCode::FLUSH_DISK_TIMEOUT),
    }
}

/// The code for a message that was stored and waited for copies; `None` if there are enough. Source:
/// `spec/replication.md` 2.6.
pub(crate) fn copied(copied: Copied) -> Option<ResponseCode> {
    match copied {
        Copied::Done => None,
        Copied::TimedOut => Some(ResponseCode::FLUSH_SLAVE_TIMEOUT),
        Copied::NoSlave => Some(ResponseCode::SLAVE_NOT_AVAILABLE),
    }
}

/// The answer to a request whose change of a table could not be saved.
pub(crate) fn save(error: &SaveError) -> Response {
    let code = match error {
        SaveError::Write(_) => ResponseCode::SYSTEM_ERROR,
        SaveError::Stopped => ResponseCode::SERVICE_NOT_AVAILABLE,
    };
    Response::failure(code, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Source: `spec/store.md` 2.6. Codes that come from other brokers are not given here.
    #[test]
    fn every_end_of_a_put_has_its_code() {
        let illegal = || "why".to_owned();
        let refused = [
            (PutError::Blocked(WriteBlock::Stopped), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Blocked(WriteBlock::DiskFull { used_percent: 91 }), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Blocked(WriteBlock::QueuesFailing), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Blocked(WriteBlock::Fenced), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::Blocked(WriteBlock::IsCopy), ResponseCode::SERVICE_NOT_AVAILABLE),
            (PutError::CreateFile, ResponseCode::SYSTEM_ERROR),
            (PutError::Illegal { reason: illegal() }, ResponseCode::MESSAGE_ILLEGAL),
            (PutError::PropertiesTooLong { bytes: 40_000, limit: 32_767 }, ResponseCode::MESSAGE_ILLEGAL),
            (PutError::PageCacheBusy { waited: Duration::from_secs(2) }, ResponseCode::SYSTEM_BUSY),
            (PutError::NoBuffer, ResponseCode::SYSTEM_BUSY),
            (PutError::FileNotReady, ResponseCode::SYSTEM_BUSY),
        ];
        for (error, code) in refused {
            let answer = put(&error);
            assert_eq!((answer.code, answer.remark), (code, Some(error.to_string())));
        }
        assert_eq!(flushed(Flushed::Done), None);
        assert_eq!(copied(Copied::Done), None);
        assert_eq!(copied(Copied::TimedOut), Some(ResponseCode::FLUSH_SLAVE_TIMEOUT));
        assert_eq!(copied(Copied::NoSlave), Some(ResponseCode::SLAVE_NOT_AVAILABLE));
        for late in [Flushed::TimedOut, Flushed::Failed] {
            assert_eq!(flushed(late), Some(ResponseCode::FLUSH_DISK_TIMEOUT));
        }
    }
}
