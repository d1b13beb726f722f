//! Names of things inside one machine: small numbers, handed out in order.

/// The largest machine the simulator takes: CPUs are numbered below this.
pub const CPUS_MAX: u32 = 1024;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The number as an index into the machine's tables.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A task (a thread); never reused, also after its exit.
    TaskId
);
id!(
    /// A group of tasks (a cgroup of the cpu controller).
    GroupId
);
id!(CpuId);
id!(
    /// A pipe: a bounded queue of messages.
    PipeId
);
id!(
    /// A series of recorded values (a histogram).
    SeriesId
);

impl GroupId {
    /// The root group: everything is below it; it has no limits.
    pub const ROOT: GroupId = GroupId(0);
}
