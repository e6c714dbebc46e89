//! What a slave refuses, because only its master may do it.

use remoting::{RequestCode, Response, ResponseCode};

/// The answer of a slave to a request that its master should have got; `None` for a request that it answers itself.
/// `is_read` says whether consumers may pull from it.
///
/// Source: `spec/protocol.md` 6.1, 6.4, 7.1, 12.1, `spec/replication.md` 1.4.
pub(crate) fn refuse(code: RequestCode, is_read: bool) -> Option<Response> {
    let (code, remark) = match code {
        // Clients try another broker, or later again.
        RequestCode::SendMessage
        | RequestCode::SendMessageV2
        | RequestCode::SendBatchMessage
        | RequestCode::ConsumerSendMsgBack => {
            (ResponseCode::SYSTEM_BUSY, "[REJECTREQUEST] a slave takes no messages, its master does")
        }
        RequestCode::PullMessage | RequestCode::LitePullMessage if !is_read => {
            (ResponseCode::SYSTEM_BUSY, "[REJECTREQUEST] this slave is not to be read (slaveReadEnable=false)")
        }
        RequestCode::EndTransaction | RequestCode::RecallMessage => {
            (ResponseCode::SLAVE_NOT_AVAILABLE, "a slave ends no transactions, its master does")
        }
        RequestCode::UpdateAndCreateTopic
        | RequestCode::UpdateAndCreateTopicList
        | RequestCode::DeleteTopicInBroker
        | RequestCode::UpdateAndCreateSubscriptionGroup
        | RequestCode::UpdateAndCreateSubscriptionGroupList
        | RequestCode::DeleteSubscriptionGroup => {
            (ResponseCode::SYSTEM_ERROR, "a slave has the topics and groups of its master: change them there")
        }
        _ => return None,
    };
    Some(Response::failure(code, remark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_a_group_is_refused_with_the_codes_of_the_reference() {
        let refused = |code| refuse(code, true).map(|response| response.code);
        assert_eq!(refused(RequestCode::SendMessageV2), Some(ResponseCode::SYSTEM_BUSY));
        assert_eq!(refused(RequestCode::ConsumerSendMsgBack), Some(ResponseCode::SYSTEM_BUSY));
        assert_eq!(refused(RequestCode::EndTransaction), Some(ResponseCode::SLAVE_NOT_AVAILABLE));
        assert_eq!(refused(RequestCode::UpdateAndCreateTopic), Some(ResponseCode::SYSTEM_ERROR));
        assert_eq!(refused(RequestCode::PullMessage), None);
        assert_eq!(refused(RequestCode::UpdateConsumerOffset), None);
        let unread = refuse(RequestCode::PullMessage, false).unwrap();
        assert_eq!(unread.code, ResponseCode::SYSTEM_BUSY);
        assert!(unread.remark.unwrap().starts_with("[REJECTREQUEST]"));
    }
}
