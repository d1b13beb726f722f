//! Apply: the intended value goes to the journal, then to the kernel file.
//!
//! | file | idea |
//! |---|---|
//! | `journal` | opening the journal, putting back, forgetting; what holds without an agent |
//! | `record` | what is about to be written, recorded first |
//! | `entries` | what the journal knows of groups and gates, by its entries |
//! | `own_quota` | a group's own quota, and whether it is lifted |
//! | `quota_tree` | quotas below quotas: v1's order and its EINVAL |
//! | `idle_class` | into the idle class and out of it |
//! | `writer` | the control loop's writes |

mod burst;
mod entries;
mod idle_class;
mod journal;
mod quota_tree;
mod record;
mod writer;

pub use burst::BurstWrite;
pub use entries::HintPlace;
pub use idle_class::{enter_idle_class, leave_idle_class};
pub use journal::{Journal, JournalError, JournalResult, fallback_of};
pub use quota_tree::limited_above;
pub use writer::QuotaWriter;
