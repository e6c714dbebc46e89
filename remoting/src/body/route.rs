//! Where topics and brokers are.

use std::collections::BTreeMap;

use super::bodies;

bodies! {
    /// Where the queues of a topic are.
    TopicRouteData {
        broker_datas: Vec<BrokerData> = "brokerDatas",
        /// Always empty.
        filter_server_table: BTreeMap<String, Vec<String>> = "filterServerTable",
        /// `broker-a:4;broker-b:4`.
        order_topic_conf: Option<String> = "orderTopicConf",
        queue_datas: Vec<QueueData> = "queueDatas",
        topic_queue_mapping_by_broker: Option<BTreeMap<String, TopicQueueMappingInfo>> = "topicQueueMappingByBroker",
    }

    /// The addresses of one broker group.
    BrokerData {
        /// `host:port` by broker id; 0 is the master.
        broker_addrs: BTreeMap<i64, String> = "brokerAddrs",
        broker_name: String = "brokerName",
        cluster: String = "cluster",
        enable_acting_master: bool = "enableActingMaster",
        zone_name: Option<String> = "zoneName",
    }

    /// The queues of a topic at one broker group.
    QueueData {
        broker_name: String = "brokerName",
        perm: i32 = "perm",
        read_queue_nums: i32 = "readQueueNums",
        topic_sys_flag: i32 = "topicSysFlag" alias "topicSynFlag",
        write_queue_nums: i32 = "writeQueueNums",
    }

    /// Which logical queues of a static topic a broker holds.
    TopicQueueMappingInfo {
        bname: String = "bname",
        /// Physical queue by logical queue.
        curr_id_map: BTreeMap<i32, i32> = "currIdMap",
        dirty: bool = "dirty",
        epoch: i64 = "epoch",
        scope: Option<String> = "scope",
        topic: String = "topic",
        total_queues: i32 = "totalQueues",
    }

    /// The broker groups of all clusters.
    ClusterInfo {
        /// By broker name.
        broker_addr_table: BTreeMap<String, BrokerData> = "brokerAddrTable",
        /// Broker names by cluster.
        cluster_addr_table: BTreeMap<String, Vec<String>> = "clusterAddrTable",
    }

    /// The answer to `GET_BROKER_MEMBER_GROUP`.
    GetBrokerMemberGroupResponse {
        broker_member_group: BrokerMemberGroup = "brokerMemberGroup",
    }

    /// The members of one broker group.
    BrokerMemberGroup {
        /// `host:port` by broker id; 0 is the master.
        broker_addrs: BTreeMap<i64, String> = "brokerAddrs",
        broker_name: String = "brokerName",
        cluster: String = "cluster",
    }

    /// Names of topics.
    TopicList {
        broker_addr: Option<String> = "brokerAddr",
        topic_list: Vec<String> = "topicList",
    }

    /// Texts by name.
    KvTable {
        table: BTreeMap<String, String> = "table",
    }
}
