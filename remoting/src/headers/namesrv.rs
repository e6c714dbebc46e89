//! Headers of requests to a name server. Source: `spec/protocol.md` 10 and 11.2.

use crate::header::headers;

headers! {
    /// Asks for the route of a topic.
    GetRouteInfoRequestHeader {
        topic: String = "topic",
        /// The caller reads standard JSON, whatever its version.
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
        zone_name: Option<String> = "__ZONE_NAME",
        /// Whether only brokers of the caller's zone are wanted.
        zone_mode: Option<bool> = "__ZONE_MODE",
    }

    /// A broker announces itself and its topics.
    RegisterBrokerRequestHeader {
        broker_name: String = "brokerName",
        /// `host:port`.
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        /// `host:port` of the replication port.
        ha_server_addr: String = "haServerAddr",
        /// 0 is the master.
        broker_id: i64 = "brokerId",
        /// How long the broker counts as alive; absent is 120,000.
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMillis",
        /// Absent: a broker of 4.x.
        enable_acting_master: Option<bool> = "enableActingMaster",
        /// Unreliable: look at the first byte of the body.
        compressed: Option<bool> = "compressed",
        /// CRC-32 of the body without its top bit; 0 or absent is unchecked.
        body_crc32: Option<i32> = "bodyCrc32",
    }

    /// What a slave needs to know about its master.
    RegisterBrokerResponseHeader {
        ha_server_addr: Option<String> = "haServerAddr",
        master_addr: Option<String> = "masterAddr",
    }

    /// A broker leaves.
    UnregisterBrokerRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        broker_id: i64 = "brokerId",
    }

    /// A broker asks whether it must register again.
    QueryDataVersionRequestHeader {
        broker_name: String = "brokerName",
        broker_addr: String = "brokerAddr",
        cluster_name: String = "clusterName",
        broker_id: i64 = "brokerId",
    }

    /// Whether the name server knows another version of the topics.
    QueryDataVersionResponseHeader {
        changed: bool = "changed",
    }

    /// A broker is alive.
    BrokerHeartbeatRequestHeader {
        cluster_name: String = "clusterName",
        broker_addr: String = "brokerAddr",
        broker_name: String = "brokerName",
        broker_id: Option<i64> = "brokerId",
        epoch: Option<i32> = "epoch",
        max_offset: Option<i64> = "maxOffset",
        confirm_offset: Option<i64> = "confirmOffset",
        /// The spelling is the reference's.
        heartbeat_timeout_mills: Option<i64> = "heartbeatTimeoutMills",
        election_priority: Option<i32> = "electionPriority",
    }

    /// Names one group of brokers.
    GetBrokerMemberGroupRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
    }

    /// Stores a value of the name server's configuration table.
    PutKvConfigRequestHeader {
        namespace: String = "namespace",
        key: String = "key",
        value: Option<String> = "value",
    }

    /// Names one value of the name server's configuration table.
    KvConfigRequestHeader {
        namespace: String = "namespace",
        key: String = "key",
    }

    /// One value of the name server's configuration table.
    GetKvConfigResponseHeader {
        value: Option<String> = "value",
    }

    /// Names one namespace of the name server's configuration table.
    GetKvListByNamespaceRequestHeader {
        namespace: String = "namespace",
    }

    /// Names one cluster.
    GetTopicsByClusterRequestHeader {
        cluster: String = "cluster",
    }

    /// Names one group of brokers.
    BrokerNameRequestHeader {
        broker_name: String = "brokerName",
    }

    /// How many topics lost their write permission.
    WipeWritePermOfBrokerResponseHeader {
        wipe_topic_count: i32 = "wipeTopicCount",
    }

    /// How many topics got their write permission.
    AddWritePermOfBrokerResponseHeader {
        add_topic_count: i32 = "addTopicCount",
    }

    /// Forgets a topic.
    DeleteTopicFromNamesrvRequestHeader {
        topic: String = "topic",
        /// Only at the brokers of this cluster; absent is everywhere.
        cluster_name: Option<String> = "clusterName",
    }

    /// Announces the queues of a topic.
    RegisterTopicRequestHeader {
        topic: String = "topic",
    }

    /// The smallest id that is alive in a group of brokers changed.
    NotifyMinBrokerIdChangeRequestHeader {
        min_broker_id: Option<i64> = "minBrokerId",
        broker_name: Option<String> = "brokerName",
        min_broker_addr: Option<String> = "minBrokerAddr",
        offline_broker_addr: Option<String> = "offlineBrokerAddr",
        ha_broker_addr: Option<String> = "haBrokerAddr",
    }
}
