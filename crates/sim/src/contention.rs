//! How neighbours slow each other: one stated function from who is busy
//! around a CPU to the speed at which it works.

/// The coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contention {
    /// What is lost when every other hardware thread of the core is busy.
    pub sibling_ppm: u32,
    /// What is lost when every other CPU of the last-level cache is busy.
    pub llc_ppm: u32,
    /// What is lost when every other CPU of the machine is busy.
    pub machine_ppm: u32,
}

impl Contention {
    /// Neighbours do not matter.
    pub const NONE: Contention = Contention {
        sibling_ppm: 0,
        llc_ppm: 0,
        machine_ppm: 0,
    };
}

/// Who is busy around a CPU, itself left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Neighbours {
    /// Busy threads of the core, and how many there are.
    pub siblings: (u32, u32),
    /// Busy CPUs of the cache, and how many there are.
    pub llc: (u32, u32),
    /// Busy CPUs of the machine, and how many there are.
    pub machine: (u32, u32),
}

/// The speed of a CPU, in millionths of its speed alone: each level takes its
/// coefficient in proportion to how many neighbours are busy.
pub fn speed_ppm(contention: &Contention, neighbours: &Neighbours) -> u32 {
    let keep = |speed: u64, loss_ppm: u32, (busy, of): (u32, u32)| match of {
        0 => speed,
        of => {
            let loss = u64::from(loss_ppm) * u64::from(busy) / u64::from(of);
            speed * (1_000_000 - loss.min(999_999)) / 1_000_000
        }
    };
    let speed = keep(1_000_000, contention.sibling_ppm, neighbours.siblings);
    let speed = keep(speed, contention.llc_ppm, neighbours.llc);
    // At least a millionth, so that all work ends.
    keep(speed, contention.machine_ppm, neighbours.machine).max(1) as u32
}
