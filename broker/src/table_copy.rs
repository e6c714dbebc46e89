//! The tables of a slave: copies of its master's, by requests, beside the copy of the log.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use bytes::Bytes;
use host::Host;
use message::PhyOffset;
use remoting::{
    Client, ClientConfig, GetAllSubscriptionGroupRequestHeader, GetAllTopicConfigRequestHeader, Handler, Inbound,
    NoHeader, Peer, Reply, Request, Response,
    body::{
        Body, ConsumerOffsetTable, DelayOffsetTable, KvTable, MessageRequestModes, SubscriptionGroupWrapper,
        TopicConfigSerializeWrapper,
    },
};
use store::Store;
use tokio::sync::Mutex;
use tracing::{info, warn};

use crate::{
    delayed::DelayedMessages, group_master::GroupMaster, groups::Groups, identity::Identity, offsets::ConsumerOffsets,
    request_modes::RequestModes, topics::Topics,
};

/// Pause between two copies of everything. Source: `spec/replication.md` 3.1.
const INTERVAL: Duration = Duration::from_secs(60);

/// How often the task looks whether a copy is due, and how soon one that failed is tried again.
const TICK: Duration = Duration::from_secs(3);

/// How long the master may take for one table.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Copies topics, groups, consumer offsets, the progress of delayed messages, and modes of consumption from the master:
/// when one is found, every minute, and when the log brings a topic that nobody here knows.
///
/// Each table is exchanged in one step, so that no reader ever finds it empty or half. The savers of the tables write
/// what changed, as they do for a master.
pub(crate) struct TableCopy {
    pub(crate) host: Host,
    pub(crate) own: Arc<Identity>,
    pub(crate) store: Arc<Store>,
    pub(crate) topics: Arc<Topics>,
    pub(crate) groups: Arc<Groups>,
    pub(crate) offsets: Arc<ConsumerOffsets>,
    pub(crate) delayed: Arc<DelayedMessages>,
    pub(crate) modes: Arc<RequestModes>,
    pub(crate) master: Arc<GroupMaster>,
    pub(crate) client: Client,
    /// Progress that waits for the log, which must hold the messages that the master had delivered by then. Only the
    /// copying task holds it.
    pub(crate) waiting: Mutex<Option<(PhyOffset, DelayOffsetTable)>>,
}

/// Answers a master, which has nothing to ask.
pub(crate) struct NothingToAsk;

impl Handler for NothingToAsk {
    fn handle(&self, _: &Peer, inbound: Inbound) -> Reply {
        Response::not_supported(inbound.request.code().number()).into()
    }
}

impl TableCopy {
    /// A client for the requests of copies.
    pub(crate) fn client() -> Client {
        Client::new(ClientConfig::default(), Arc::new(NothingToAsk))
    }

    /// Copies until it is dropped.
    pub(crate) async fn keep(&self) {
        let mut changes = self.master.watch();
        let mut due = self.host.now();
        let mut missed = BTreeSet::new();
        let mut was_good = true;
        loop {
            let master = changes.borrow_and_update().clone();
            let master = master.filter(|master| master.address != self.own.address().to_string());
            let unknown = self.unknown_topics();
            let is_due = self.host.now() >= due || !unknown.is_subset(&missed);
            if let Some(master) = master.filter(|_| is_due) {
                let result = self.copy(&master.address).await;
                match &result {
                    Ok(()) if !was_good => info!(master = master.address, "the tables are copied again"),
                    Err(problem) if was_good => warn!(master = master.address, problem, "cannot copy all tables"),
                    _ => {}
                }
                was_good = result.is_ok();
                due = self.host.now() + if was_good { INTERVAL } else { TICK };
                // The master does not know them either.
                missed = if was_good { self.unknown_topics() } else { missed };
            }
            self.take_progress().await;
            host::select! {
                // The sender lives as long as `self`, so this cannot fail.
                changed = changes.changed() => {
                    drop(changed);
                    due = self.host.now();
                }
                () = self.host.sleep(TICK) => {}
            }
        }
    }

    /// Ends the connection to the master.
    pub(crate) async fn close(&self) {
        self.client.shutdown().await;
    }

    /// The topics of the log that are in no table.
    fn unknown_topics(&self) -> BTreeSet<String> {
        let topics = self.store.queues().into_iter().map(|(topic, _)| topic);
        topics.filter(|topic| self.topics.shape(topic).is_none()).collect()
    }

    /// Copies every table, the others even if one cannot be had.
    async fn copy(&self, master: &str) -> Result<(), String> {
        let results = [
            self.copy_topics(master).await,
            self.copy_offsets(master).await,
            self.copy_progress(master).await,
            self.copy_groups(master).await,
            self.copy_modes(master).await,
        ];
        let result: Result<Vec<()>, String> = results.into_iter().collect();
        if result.is_ok() {
            host::point!("broker.tables-copied", self.offsets.len());
        }
        result.map(drop)
    }

    async fn copy_topics(&self, master: &str) -> Result<(), String> {
        let header = GetAllTopicConfigRequestHeader { topic_seq: None, data_version: None, max_topic_num: None };
        let copied: TopicConfigSerializeWrapper = self.ask(master, Request::GetAllTopicConfig(header)).await?;
        let topics = copied.topic_config_table.into_iter().collect();
        for problem in self.topics.replace(copied.data_version, topics) {
            warn!(master, problem, "a topic of the master cannot be");
        }
        Ok(())
    }

    async fn copy_groups(&self, master: &str) -> Result<(), String> {
        let header = GetAllSubscriptionGroupRequestHeader { group_seq: None, data_version: None, max_group_num: None };
        let copied: SubscriptionGroupWrapper = self.ask(master, Request::GetAllSubscriptionGroupConfig(header)).await?;
        self.groups.replace(copied).map_err(|problem| format!("a group of the master cannot be: {problem}"))
    }

    async fn copy_offsets(&self, master: &str) -> Result<(), String> {
        let copied: ConsumerOffsetTable = self.ask(master, Request::GetAllConsumerOffset(NoHeader)).await?;
        self.offsets.put_over(copied);
        Ok(())
    }

    async fn copy_modes(&self, master: &str) -> Result<(), String> {
        let copied: MessageRequestModes = self.ask(master, Request::GetAllMessageRequestMode(NoHeader)).await?;
        self.modes.replace(copied);
        Ok(())
    }

    /// Asks for the progress of delayed messages, and then for the end of the master's log: by then all that was
    /// delivered stands before it. Until the copy of the log is there, this broker would lose what the progress counts
    /// as delivered, if it became the master.
    async fn copy_progress(&self, master: &str) -> Result<(), String> {
        let mut waiting = self.waiting.lock().await;
        if waiting.is_some() {
            return Ok(());
        }
        let progress: DelayOffsetTable = self.ask(master, Request::GetAllDelayOffset(NoHeader)).await?;
        let figures: KvTable = self.ask(master, Request::GetBrokerRuntimeInfo(NoHeader)).await?;
        let end = figures.table.get("commitLogMaxOffset").and_then(|end| end.parse().ok());
        let end = end.ok_or("the master does not say where its log ends")?;
        *waiting = Some((PhyOffset(end), progress));
        Ok(())
    }

    /// Takes the progress over once the log is there.
    async fn take_progress(&self) {
        let end = self.store.max_phy();
        let reached = self.waiting.lock().await.take_if(|(from, _)| *from <= end);
        if let Some((_, progress)) = reached {
            self.delayed.replace(&progress);
        }
    }

    async fn ask<T: Body>(&self, master: &str, request: Request) -> Result<T, String> {
        let code = request.code();
        let answer = self.client.invoke(master, request, Bytes::new(), TIMEOUT).await;
        let answer = answer.map_err(|error| format!("{code}: {error}"))?;
        if !answer.code.is_success() {
            let remark = answer.remark.unwrap_or_default();
            return Err(format!("{code}: code {}, {remark}", answer.code.0));
        }
        T::decode(&answer.body_bytes()).map_err(|error| format!("{code}: {error}"))
    }
}
