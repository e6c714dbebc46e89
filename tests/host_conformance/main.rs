//! One suite for `host`, on both machines (`spec/simulation.md` 10.2).
//!
//! A body is an `async fn(Host, PathBuf)`: it gets a host and an empty directory, and must not be able to tell which
//! machine it runs on. Where the machines may differ, the body says so. What only a stand can do (kill, power loss,
//! pause, other nodes) is in `stand.rs`.
//!
//! A process that simulates may not use the real machine any more, and a run of its own process is the rule for stands
//! anyway; so a test on the stand runs itself again in a child process.
#![allow(clippy::disallowed_methods, reason = "tests read files and run children by themselves")]

mod chance;
mod current;
mod directories;
mod files;
mod locks;
mod machines;
mod mappings;
mod sockets;
#[cfg(feature = "sim")]
mod stand;
mod tasks;
mod timers;

/// Makes a test in `on_the_real_machine` and one in `on_the_stand` of each body.
macro_rules! on_both_machines {
    ($($module:ident { $($body:ident,)+ })+) => {
        mod on_the_real_machine {
            $($(
                #[test]
                fn $body() {
                    crate::machines::on_the_real_machine(crate::$module::$body);
                }
            )+)+
        }

        #[cfg(feature = "sim")]
        mod on_the_stand {
            $($(
                #[test]
                fn $body() {
                    crate::machines::on_the_stand(concat!("on_the_stand::", stringify!($body)), crate::$module::$body);
                }
            )+)+
        }
    };
}

on_both_machines! {
    files {
        a_file_opens_in_the_mode_asked_for,
        bytes_are_read_as_they_were_written,
        a_file_is_read_and_written_whole_at_any_place,
        all_handles_of_a_file_see_the_same_bytes,
        a_handle_for_reading_refuses_changes,
        a_length_can_be_set_and_reserved,
        what_was_never_written_is_told_from_data,
        metadata_tell_kind_length_and_time,
        flushing_succeeds,
        a_removed_file_lives_until_its_last_handle,
        a_hard_link_is_a_second_name,
    }
    directories {
        a_directory_comes_with_its_parents,
        a_listing_is_sorted_and_tells_directories,
        only_an_empty_directory_can_be_removed,
        a_path_through_a_file_is_an_error,
        a_rename_moves_and_replaces,
        a_rename_that_makes_no_sense_is_refused,
        a_directory_can_be_flushed,
        space_is_told_for_what_exists,
    }
    locks {
        a_second_opener_is_refused_the_lock,
        a_lock_is_freed_with_the_last_clone,
    }
    mappings {
        only_what_exists_can_be_mapped,
        a_mapping_and_its_file_share_bytes,
        a_mapping_outlives_handle_and_name,
        stores_outside_or_below_handed_out_bytes_panic,
        bytes_held_across_a_rewind_and_a_removal_stay,
        a_rewound_file_holds_what_was_kept_and_zeros,
        a_range_can_be_flushed,
        what_makes_a_mapping_fast_changes_no_byte,
    }
    sockets {
        a_connection_carries_bytes_both_ways,
        both_ends_know_both_addresses,
        a_closed_end_is_read_as_the_end,
        half_a_connection_can_be_closed,
        dropping_the_write_half_closes_it,
        nobody_listening_refuses,
        closing_with_unread_bytes_resets,
        a_connection_given_up_is_reset,
        a_reader_that_is_slow_holds_up_the_writer,
        a_port_can_be_taken_once_and_is_freed,
        a_foreign_address_cannot_be_taken,
        a_dropped_accept_loses_no_connection,
        an_address_is_resolved_or_refused,
    }
    timers {
        sleeps_end_in_the_order_of_their_deadlines,
        a_deadline_in_the_past_ends_at_once,
        a_dropped_sleep_wakes_nobody,
        a_sleep_can_be_moved_earlier_later_and_again,
        a_timeout_ends_what_takes_too_long,
        a_ready_future_wins_against_its_timeout,
    }
    tasks {
        a_task_hands_over_its_result,
        an_aborted_task_is_dropped_and_reports_it,
        a_task_goes_on_without_its_handle,
        a_group_waits_for_all_its_tasks_to_be_gone,
        a_dropped_group_aborts_its_tasks,
        a_closed_group_starts_nothing,
    }
    chance {
        a_stream_repeats_itself_and_differs_from_others,
        a_bounded_number_stays_below_its_bound,
    }
    current {
        a_task_and_its_children_find_their_host,
        a_future_is_dropped_inside_its_host,
        a_scope_is_left_again,
    }
}
