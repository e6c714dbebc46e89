//! Monotonic time.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use host::Host;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub async fn sleeps_end_in_the_order_of_their_deadlines(host: Host, _dir: PathBuf) {
    let ended = Arc::new(Mutex::new(Vec::new()));
    let start = host.now();
    let tasks: Vec<_> = [60, 20, 40, 0]
        .into_iter()
        .map(|delay| {
            let (ended, inner) = (Arc::clone(&ended), host.clone());
            host.spawn("sleeper", async move {
                inner.sleep_until(start + ms(delay)).await;
                assert!(inner.now() >= start + ms(delay), "never early");
                ended.lock().unwrap().push(delay);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*ended.lock().unwrap(), [0, 20, 40, 60]);
    assert!(host.now() - start >= ms(60));
}

pub async fn a_deadline_in_the_past_ends_at_once(host: Host, _dir: PathBuf) {
    host.sleep(ms(5)).await;
    let now = host.now();
    host.sleep(Duration::ZERO).await;
    host.sleep_until(host::time::Mono::from_nanos(0)).await;
    host.sleep_until(now).await;
    assert!(host.now() - now < Duration::from_secs(5));
    let far = host.sleep(Duration::MAX);
    assert_eq!(far.deadline(), host::time::Mono::from_nanos(u64::MAX), "the end of time, not an overflow");
    assert!(host.timeout(ms(1), far).await.is_err());
}

pub async fn a_dropped_sleep_wakes_nobody(host: Host, _dir: PathBuf) {
    let mut polls = 0;
    let mut dropped = Some(Box::pin(host.sleep(ms(10))));
    let mut kept = Box::pin(host.sleep(ms(60)));
    std::future::poll_fn(|cx| {
        polls += 1;
        if let Some(mut sleep) = dropped.take() {
            assert!(sleep.as_mut().poll(cx).is_pending());
        }
        kept.as_mut().poll(cx)
    })
    .await;
    assert_eq!(polls, 2, "once to begin, once for the sleep that was kept");
}

pub async fn a_sleep_can_be_moved_earlier_later_and_again(host: Host, _dir: PathBuf) {
    let start = host.now();
    let mut sleep = std::pin::pin!(host.sleep(Duration::from_secs(3600)));
    assert!(host.timeout(ms(5), sleep.as_mut()).await.is_err());
    sleep.as_mut().reset(start + ms(20));
    sleep.as_mut().await;
    assert!(host.now() - start >= ms(20));
    sleep.as_mut().reset(start + ms(40));
    sleep.as_mut().await;
    assert!(host.now() - start >= ms(40), "also after it has fired");
    sleep.as_mut().reset(start + ms(50));
    sleep.as_mut().reset(start + ms(100));
    assert_eq!(sleep.deadline(), start + ms(100));
    sleep.as_mut().await;
    assert!(host.now() - start >= ms(100));
}

pub async fn a_timeout_ends_what_takes_too_long(host: Host, _dir: PathBuf) {
    let start = host.now();
    assert!(host.timeout(ms(20), std::future::pending::<()>()).await.is_err());
    assert!(host.now() - start >= ms(20));
    let quick = async {
        host.sleep(ms(1)).await;
        7
    };
    assert_eq!(host.timeout(Duration::from_secs(60), quick).await, Ok(7));
}

pub async fn a_ready_future_wins_against_its_timeout(host: Host, _dir: PathBuf) {
    assert_eq!(host.timeout(Duration::ZERO, async { 7 }).await, Ok(7));
}
