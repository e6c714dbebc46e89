//! Headers of requests to and from a controller. Source: `spec/protocol.md` 11.3.

use crate::header::headers;

headers! {
    /// A master changes its set of replicas in sync.
    AlterSyncStateSetRequestHeader {
        broker_name: String = "brokerName",
        master_broker_id: i64 = "masterBrokerId",
        master_epoch: i32 = "masterEpoch",
        /// Milliseconds since 1970.
        invoke_time: Option<i64> = "invokeTime",
    }

    /// The epoch of the new set.
    AlterSyncStateSetResponseHeader {
        new_sync_state_set_epoch: i32 = "newSyncStateSetEpoch",
    }

    /// Asks for a master.
    ElectMasterRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
        /// -1: any.
        broker_id: i64 = "brokerId",
        designate_elect: Option<bool> = "designateElect",
        invoke_time: Option<i64> = "invokeTime",
    }

    /// Who is master.
    ElectMasterResponseHeader {
        master_broker_id: Option<i64> = "masterBrokerId",
        master_address: Option<String> = "masterAddress",
        master_epoch: Option<i32> = "masterEpoch",
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch",
    }

    /// A broker announces itself to the controller.
    ControllerRegisterBrokerRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
        broker_id: i64 = "brokerId",
        broker_address: String = "brokerAddress",
        invoke_time: Option<i64> = "invokeTime",
    }

    /// The state of the group of brokers.
    ControllerRegisterBrokerResponseHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: Option<String> = "brokerName",
        master_broker_id: Option<i64> = "masterBrokerId",
        master_address: Option<String> = "masterAddress",
        master_epoch: Option<i32> = "masterEpoch",
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch",
    }

    /// Who is master of a group.
    GetReplicaInfoResponseHeader {
        master_broker_id: Option<i64> = "masterBrokerId",
        master_address: Option<String> = "masterAddress",
        master_epoch: Option<i32> = "masterEpoch",
    }

    /// Who leads the controllers.
    GetMetadataInfoResponseHeader {
        group: Option<String> = "group",
        controller_leader_id: Option<String> = "controllerLeaderId",
        controller_leader_address: Option<String> = "controllerLeaderAddress",
        is_leader: Option<bool> = "isLeader",
        peers: Option<String> = "peers",
    }

    /// The controller tells a broker its role.
    NotifyBrokerRoleChangedRequestHeader {
        master_address: Option<String> = "masterAddress",
        master_epoch: Option<i32> = "masterEpoch",
        sync_state_set_epoch: Option<i32> = "syncStateSetEpoch",
        master_broker_id: Option<i64> = "masterBrokerId",
    }

    /// Forgets brokers.
    CleanBrokerDataRequestHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: String = "brokerName",
        /// Separated by `;`.
        broker_controller_ids_to_clean: Option<String> = "brokerControllerIdsToClean",
        is_clean_living_broker: Option<bool> = "isCleanLivingBroker",
        invoke_time: Option<i64> = "invokeTime",
    }

    /// Asks for a free id.
    GetNextBrokerIdRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
    }

    /// A free id.
    GetNextBrokerIdResponseHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: Option<String> = "brokerName",
        next_broker_id: i64 = "nextBrokerId",
    }

    /// Takes an id.
    ApplyBrokerIdRequestHeader {
        cluster_name: String = "clusterName",
        broker_name: String = "brokerName",
        applied_broker_id: i64 = "appliedBrokerId",
        register_check_code: String = "registerCheckCode",
    }

    /// Which group the id belongs to.
    ApplyBrokerIdResponseHeader {
        cluster_name: Option<String> = "clusterName",
        broker_name: Option<String> = "brokerName",
    }
}
