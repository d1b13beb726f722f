//! What others do about the CPU of processes, written anew from what they publish: the arms that an experiment on this
//! machine has beside Tidegate's.

pub mod cpulimit;
