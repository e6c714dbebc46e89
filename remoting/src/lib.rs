//! The wire: frames, commands, bodies, connections.

pub mod settings;
