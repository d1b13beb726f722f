//! The constants of Tidegate's own scheduler, from `law/tuning.h`, where each is explained.

pub use crate::ffi::{
    TG_CAP_LEND_NS as CAP_LEND_NS, TG_CAP_RESERVE_NS as CAP_RESERVE_NS,
    TG_CAP_RUN_MIN_NS as CAP_RUN_MIN_NS, TG_UNDISTURBED_MAX_NS as UNDISTURBED_MAX_NS,
};
