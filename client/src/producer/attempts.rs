//! When a send is tried again, and how long each attempt may take.
//!
//! A state machine without a clock or a socket of its own: the producer tells it how an attempt ended and does what it
//! answers. Source: `spec/client.md` 2.6.

use std::{sync::Arc, time::Duration};

use host::time::Mono;

use super::SendReceipt;
use crate::error::{ClientError, SendError};

/// How often and how long a send is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryRules {
    /// Attempts at most, from 1.
    pub attempts: u32,
    /// Time for all of them together.
    pub budget: Duration,
    /// Time for one of them, as long as another is possible. `None`: an equal share of the budget.
    pub per_attempt: Option<Duration>,
    /// Whether a message that was stored, but not as safely as its broker promises, is sent again.
    pub retry_not_ok: bool,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send it to a broker, if possible not to `avoid`, and give up after `timeout`.
    Try { avoid: Option<Arc<str>>, timeout: Duration },
    /// The call is over.
    Done(Result<SendReceipt, SendError>),
}

/// One call of `send` in progress.
#[derive(Debug)]
pub(crate) struct Attempts {
    rules: RetryRules,
    deadline: Mono,
    made: u32,
    maybe_stored: bool,
    /// The first result that was stored but not `SEND_OK`.
    not_ok: Option<SendReceipt>,
    last_error: Option<ClientError>,
}

impl Attempts {
    /// A call that began at `now`.
    pub(crate) fn begin(rules: RetryRules, now: Mono) -> Attempts {
        assert!(rules.attempts > 0, "a send without an attempt");
        let deadline = now + rules.budget;
        Attempts { rules, deadline, made: 0, maybe_stored: false, not_ok: None, last_error: None }
    }

    /// The first step.
    pub(crate) fn first(&mut self, now: Mono) -> Step {
        self.next(None, now)
    }

    /// An attempt at `broker` ended.
    pub(crate) fn on_ended(&mut self, broker: Arc<str>, result: Result<SendReceipt, ClientError>, now: Mono) -> Step {
        match result {
            Ok(receipt) if receipt.status.is_ok() || !self.rules.retry_not_ok => {
                Step::Done(Ok(SendReceipt { attempts: self.made, ..receipt }))
            }
            Ok(receipt) => {
                self.not_ok.get_or_insert(receipt);
                self.next(Some(broker), now)
            }
            Err(error) => {
                self.maybe_stored |= error.may_have_been_stored();
                let again = error.is_retryable();
                self.last_error = Some(error);
                if again { self.next(Some(broker), now) } else { self.finish() }
            }
        }
    }

    fn next(&mut self, avoid: Option<Arc<str>>, now: Mono) -> Step {
        let left = self.deadline.since(now);
        if self.made == self.rules.attempts || left.is_zero() {
            return self.finish();
        }
        self.made += 1;
        let share = self.rules.per_attempt.unwrap_or(self.rules.budget / self.rules.attempts);
        let timeout = if self.made < self.rules.attempts { left.min(share) } else { left };
        Step::Try { avoid, timeout }
    }

    fn finish(&mut self) -> Step {
        if let Some(receipt) = self.not_ok.take() {
            return Step::Done(Ok(SendReceipt { attempts: self.made, ..receipt }));
        }
        let cause = self.last_error.take().unwrap_or(ClientError::Deadline);
        Step::Done(Err(SendError { cause, attempts: self.made, maybe_stored: self.maybe_stored }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{producer::SendStatus, queue::MessageQueue};

    const RULES: RetryRules =
        RetryRules { attempts: 3, budget: Duration::from_secs(3), per_attempt: None, retry_not_ok: false };

    fn at(ms: u64) -> Mono {
        Mono::from_nanos(ms * 1_000_000)
    }

    fn receipt(status: SendStatus) -> SendReceipt {
        SendReceipt {
            status,
            message_id: "id".to_owned(),
            offset_message_id: "offset".to_owned(),
            queue: MessageQueue::new("t", "a", 0),
            queue_offset: message::QueueOffset(7),
            transaction_id: None,
            attempts: 1,
        }
    }

    fn refused(code: i32) -> ClientError {
        ClientError::Broker { code: remoting::ResponseCode(code), remark: String::new(), addr: "a:1".to_owned() }
    }

    fn timeout() -> ClientError {
        ClientError::Timeout { addr: "a:1".to_owned(), waited: Duration::from_secs(1) }
    }

    fn tried(step: Step) -> (Option<Arc<str>>, u128) {
        match step {
            Step::Try { avoid, timeout } => (avoid, timeout.as_millis()),
            Step::Done(result) => panic!("ended with {result:?}"),
        }
    }

    fn done(step: Step) -> Result<SendReceipt, SendError> {
        match step {
            Step::Done(result) => result,
            Step::Try { .. } => panic!("tries again"),
        }
    }

    #[test]
    fn a_black_holed_broker_costs_a_share_of_the_budget() {
        let mut call = Attempts::begin(RULES, at(0));
        assert_eq!(tried(call.first(at(0))), (None, 1000));
        assert_eq!(tried(call.on_ended("a".into(), Err(timeout()), at(1000))), (Some("a".into()), 1000));
        assert_eq!(tried(call.on_ended("b".into(), Err(timeout()), at(2000))), (Some("b".into()), 1000));
        let error = done(call.on_ended("c".into(), Err(timeout()), at(3000))).unwrap_err();
        assert_eq!((error.attempts, error.maybe_stored), (3, true));
    }

    #[test]
    fn the_last_attempt_owns_what_is_left() {
        let mut call = Attempts::begin(RULES, at(0));
        tried(call.first(at(100)));
        tried(call.on_ended("a".into(), Err(refused(1)), at(110)));
        assert_eq!(tried(call.on_ended("b".into(), Err(refused(2)), at(120))), (Some("b".into()), 2880));
    }

    #[test]
    fn nothing_is_tried_when_the_budget_is_gone() {
        let mut call = Attempts::begin(RULES, at(0));
        let error = done(call.first(at(3000))).unwrap_err();
        assert!(matches!(error.cause, ClientError::Deadline));
        assert!(!error.maybe_stored);
    }

    #[test]
    fn exactly_the_retry_codes_are_retried() {
        for code in [1, 2, 14, 16, 17, 204, 205, 1500] {
            let mut call = Attempts::begin(RULES, at(0));
            tried(call.first(at(0)));
            tried(call.on_ended("a".into(), Err(refused(code)), at(1)));
        }
        for code in [3, 13, 26, 29, 215] {
            let mut call = Attempts::begin(RULES, at(0));
            tried(call.first(at(0)));
            let error = done(call.on_ended("a".into(), Err(refused(code)), at(1))).unwrap_err();
            assert_eq!((error.attempts, error.maybe_stored), (1, false));
        }
    }

    #[test]
    fn an_unknown_outcome_is_not_forgotten_when_a_later_attempt_fails_for_certain() {
        let mut call = Attempts::begin(RULES, at(0));
        tried(call.first(at(0)));
        tried(call.on_ended("a".into(), Err(timeout()), at(1000)));
        let error = done(call.on_ended("b".into(), Err(refused(13)), at(1001))).unwrap_err();
        assert!(error.maybe_stored);
    }

    #[test]
    fn a_refused_connection_certainly_stored_nothing() {
        let rules = RetryRules { attempts: 1, ..RULES };
        let mut call = Attempts::begin(rules, at(0));
        assert_eq!(tried(call.first(at(0))), (None, 3000));
        let refused = ClientError::Connect { addr: "a:1".to_owned(), reason: "refused".to_owned() };
        assert!(!done(call.on_ended("a".into(), Err(refused), at(5))).unwrap_err().maybe_stored);
    }

    #[test]
    fn a_stored_message_is_sent_again_only_on_request() {
        let mut call = Attempts::begin(RULES, at(0));
        tried(call.first(at(0)));
        let got = done(call.on_ended("a".into(), Ok(receipt(SendStatus::FlushDiskTimeout)), at(1))).unwrap();
        assert_eq!(got.status, SendStatus::FlushDiskTimeout);

        let mut call = Attempts::begin(RetryRules { retry_not_ok: true, ..RULES }, at(0));
        tried(call.first(at(0)));
        tried(call.on_ended("a".into(), Ok(receipt(SendStatus::FlushDiskTimeout)), at(1)));
        let got = done(call.on_ended("b".into(), Err(refused(13)), at(2))).unwrap();
        assert_eq!(got.status, SendStatus::FlushDiskTimeout);
    }
}
