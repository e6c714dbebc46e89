//! The stand: a simulated machine, and whole clusters on it under faults.

pub mod disk;
