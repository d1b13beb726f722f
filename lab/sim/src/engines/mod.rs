//! Tidegate's engine on kernel files at work on a simulated machine: the agent's own control step
//! against the machine's files. The engine sched_ext is not simulated.

pub mod cgroup;
