//! Recorded demand through the simulator under other terms, beside what was.

pub mod view;

pub use view::ReplayView;
