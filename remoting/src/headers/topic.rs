//! Headers of requests that administer topics and groups. Source: `spec/protocol.md` 12.1 and 12.4.

use crate::header::headers;

headers! {
    /// Creates or replaces a topic.
    CreateTopicRequestHeader {
        topic: String = "topic",
        default_topic: String = "defaultTopic",
        read_queue_nums: i32 = "readQueueNums",
        write_queue_nums: i32 = "writeQueueNums",
        /// 2 write, 4 read, 1 inherit.
        perm: i32 = "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: String = "topicFilterType",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        order: bool = "order",
        /// `+key=value,-key`.
        attributes: Option<String> = "attributes",
        force: Option<bool> = "force",
    }

    /// Names one topic.
    TopicRequestHeader {
        topic: String = "topic",
    }

    /// Names one topic whose settings are wanted.
    GetTopicConfigRequestHeader {
        topic: String = "topic",
        /// Whether the logical view of a static topic is wanted.
        logical: Option<bool> = "lo",
    }

    /// Forgets a group.
    DeleteSubscriptionGroupRequestHeader {
        group_name: String = "groupName",
        clean_offset: Option<bool> = "cleanOffset",
        /// How 4.9 calls `cleanOffset`.
        remove_offset: Option<bool> = "removeOffset",
    }

    /// Copies the offsets of a group.
    CloneGroupOffsetRequestHeader {
        src_group: String = "srcGroup",
        dest_group: String = "destGroup",
        topic: Option<String> = "topic",
        offline: Option<bool> = "offline",
    }

    /// Forbids or allows a group to read a topic.
    UpdateGroupForbiddenRequestHeader {
        group: String = "group",
        topic: String = "topic",
        readable: Option<bool> = "readable",
    }

    /// Resets the check counter of a half message.
    ResumeCheckHalfMessageRequestHeader {
        topic: Option<String> = "topic",
        msg_id: Option<String> = "msgId",
    }
}
