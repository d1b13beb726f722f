//! What is simulated: machines, mains, ways of holding side work back, and for how long.

use tidegate_sim::workloads::{Curve, Pattern};
use tidegate_sim::{Contention, MachineConfig, Topology};

use crate::LabError;
use crate::beds::sim::control::Control;
use crate::beds::sim::{MS, S, server};

/// Mean work of a request.
pub const REQUEST_NS: u64 = MS;
/// Harm that is accepted: the agent's default.
pub const HARM_AIM_PPM: u32 = 50_000;
/// The agent keeps whole cores from here on, where CPUs share them.
const WHOLE_CORES_CPUS: u32 = 32;
/// The agent begins at the tolerance and gives slowly, on large machines most of all.
const LARGE_CPUS: u32 = 64;
/// A main that changes has this much less, and this much more, than its mean: 10 and 40 % of the machine by default.
const CHANGES: (u64, u64) = (400_000, 1_600_000);

/// What a busy CPU takes from its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Nothing: waiting is all that side work can do to main.
    Nothing,
    /// One thread a core: caches and the machine are shared.
    Caches,
    /// Two threads a core, as on most servers.
    Cores,
}

impl Shared {
    /// In the tables' order.
    pub const ALL: [Shared; 3] = [Shared::Nothing, Shared::Caches, Shared::Cores];

    /// In JSON and CSV, and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Shared::Nothing => "nothing",
            Shared::Caches => "caches",
            Shared::Cores => "cores",
        }
    }
}

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Its size.
    pub cpus: u32,
    /// What its CPUs share.
    pub shared: Shared,
}

impl Bench {
    /// In tables.
    pub fn label(self) -> String {
        format!("{} CPUs, {} shared", self.cpus, self.shared.name())
    }

    /// The machine.
    pub fn config(self, seed: u64) -> Result<MachineConfig, LabError> {
        let mut config = server(self.cpus, seed)?;
        if self.shared != Shared::Cores {
            let llc = config.topology.cpus_per_llc();
            config.topology = Topology::new(self.cpus, 1, llc);
        }
        if self.shared == Shared::Nothing {
            config.contention = Contention::NONE;
        }
        // Hundreds of millions of events; the tests check.
        config.check = false;
        Ok(config)
    }
}

/// How main comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Main {
    /// Its mean, percent of the machine.
    pub pct: f64,
    /// It changes between less and more than that.
    pub changes: bool,
}

impl Main {
    /// In tables.
    pub fn label(self) -> String {
        match self.changes {
            false => format!("{:.0} %", self.pct),
            true => {
                let part = |ppm: u64| self.pct * ppm as f64 / 1e6;
                format!(
                    "{:.0} and {:.0} % in turns",
                    part(CHANGES.0),
                    part(CHANGES.1)
                )
            }
        }
    }

    /// Its arrivals; one that changes has each of its levels for `stair_ns`.
    pub fn pattern(self, cpus: u32, stair_ns: u64) -> Pattern {
        let gap_ns = |pct: f64| (REQUEST_NS as f64 * 100.0 / (f64::from(cpus) * pct)) as u64;
        if !self.changes {
            return Pattern::Poisson {
                gap_ns: gap_ns(self.pct),
            };
        }
        let low_ppm = CHANGES.0 * 1_000_000 / CHANGES.1;
        Pattern::Curve {
            gap_ns: gap_ns(self.pct * CHANGES.1 as f64 / 1e6),
            curve: Curve::new(
                vec![
                    (0, low_ppm),
                    (stair_ns, low_ppm),
                    (stair_ns + MS, 1_000_000),
                    (2 * stair_ns - MS, 1_000_000),
                ],
                Some(2 * stair_ns),
            ),
        }
    }
}

/// Who holds side work back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// There is no side work.
    Alone,
    /// A group of its own at default weight.
    AsStarted,
    /// cpu.idle and nothing else.
    CpuIdle,
    /// Tidegate with this headroom, percent.
    Fixed(u32),
    /// A published law.
    Law(Control),
    /// Tidegate finds the headroom.
    Auto,
}

impl Contender {
    /// Others' laws.
    pub const LAWS: [Contender; 5] = [
        Contender::Law(Control::Sideloader),
        Contender::Law(Control::Koordlet),
        Contender::Law(Control::Katalyst),
        Contender::Law(Control::PerfIso),
        Contender::Law(Control::SmartHarvest),
    ];

    /// In tables.
    pub fn label(self) -> String {
        match self {
            Contender::Alone => "no side work".into(),
            Contender::AsStarted => "as people start it".into(),
            Contender::CpuIdle => "cpu.idle".into(),
            Contender::Fixed(pct) => format!("headroom {pct} %"),
            Contender::Law(law) => law.label().into(),
            Contender::Auto => "headroom auto".into(),
        }
    }

    /// In JSON and CSV.
    pub fn key(self) -> String {
        match self {
            Contender::Fixed(pct) => format!("headroom_{pct}"),
            Contender::Auto => "auto".into(),
            Contender::AsStarted => "as_started".into(),
            other => other.control(false).key().into(),
        }
    }

    /// Whether the oracle may choose it.
    pub fn is_settable(self) -> bool {
        matches!(
            self,
            Contender::AsStarted | Contender::CpuIdle | Contender::Fixed(_)
        )
    }

    /// What simulates it; `cores`: Tidegate keeps whole cores.
    pub fn control(self, cores: bool) -> Control {
        match self {
            Contender::Alone => Control::NoSide,
            Contender::AsStarted => Control::OwnGroup,
            Contender::CpuIdle => Control::CpuIdle,
            Contender::Law(law) => law,
            Contender::Fixed(_) | Contender::Auto if cores => Control::KnobsCores,
            Contender::Fixed(_) | Contender::Auto => Control::KnobsBpf,
        }
    }
}

/// One simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// The machine.
    pub bench: Bench,
    /// How main comes.
    pub main: Main,
    /// Who holds side work back.
    pub arm: Contender,
    /// From 0.
    pub round: u32,
}

impl Cell {
    /// What simulates its arm.
    pub fn control(&self) -> Control {
        let cores = self.bench.shared == Shared::Cores && self.bench.cpus >= WHOLE_CORES_CPUS;
        self.arm.control(cores)
    }

    /// For messages.
    pub fn label(&self) -> String {
        let (bench, main) = (self.bench.label(), self.main.label());
        format!(
            "{bench}, main {main}, {}, round {}",
            self.arm.label(),
            self.round + 1
        )
    }
}

/// How long a cell runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Before it is measured, where nothing is searched.
    pub warm_ns: u64,
    /// The longest search.
    pub search_ns: u64,
    /// Measured.
    pub window_ns: u64,
    /// A main that changes has each level for this long.
    pub stair_ns: u64,
}

impl Lengths {
    /// Smaller machines run longer, so that each has about as many requests. The window of a search holds some of its probes, which
    /// come once in half a minute. What is not searched has no memory of minutes, so its main may change sooner.
    pub fn of(cell: &Cell, quick: bool) -> Self {
        let is_auto = cell.arm == Contender::Auto;
        let cpus = u64::from(cell.bench.cpus);
        let (least_s, most_s) = if quick { (4, 20) } else { (8, 120) };
        let window_s = (480 / cpus).clamp(least_s, most_s);
        let window_s = if is_auto { window_s.max(30) } else { window_s };
        let stair_s = match (is_auto, quick) {
            (true, false) => 120,
            (true, true) => 30,
            (false, _) => (window_s / 2).max(15),
        };
        let warm_s = if cell.bench.cpus >= LARGE_CPUS { 12 } else { 4 };
        let search_s = if quick {
            120
        } else {
            (38_400 / cpus).clamp(300, 1200)
        };
        let window_s = if cell.main.changes {
            2 * stair_s
        } else {
            window_s
        };
        Lengths {
            warm_ns: warm_s * S,
            search_ns: search_s * S,
            window_ns: window_s * S,
            stair_ns: stair_s * S,
        }
    }

    /// What it takes at most: simulated CPU milliseconds.
    pub fn cost(self, cell: &Cell) -> u64 {
        let before_ns = match cell.arm {
            Contender::Auto => self.search_ns,
            _ => self.warm_ns,
        };
        (before_ns + self.window_ns) / MS * u64::from(cell.bench.cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_changes_has_its_mean() {
        let main = Main {
            pct: 25.0,
            changes: true,
        };
        assert_eq!(main.label(), "10 and 40 % in turns");
        let Pattern::Curve { gap_ns, curve } = main.pattern(16, 30 * S) else {
            panic!("a curve")
        };
        // 40 % of 16 CPUs is 6,400 requests of a millisecond a second.
        assert_eq!((gap_ns, curve.peak()), (156_250, 1_000_000));
        assert_eq!(curve.at(10 * S), 250_000);
        assert_eq!(curve.at(40 * S), 1_000_000);
        assert_eq!(curve.at(70 * S), 250_000);
    }

    #[test]
    fn a_window_of_a_main_that_changes_is_one_round_of_its_changes() {
        for quick in [false, true] {
            for arm in [Contender::CpuIdle, Contender::Auto] {
                let cell = Cell {
                    bench: Bench {
                        cpus: 16,
                        shared: Shared::Cores,
                    },
                    main: Main {
                        pct: 25.0,
                        changes: true,
                    },
                    arm,
                    round: 0,
                };
                let lengths = Lengths::of(&cell, quick);
                assert_eq!(lengths.window_ns, 2 * lengths.stair_ns);
            }
        }
    }

    #[test]
    fn machines_of_both_kinds_can_be() {
        for cpus in [2, 16, 64, 256] {
            for shared in Shared::ALL {
                let config = Bench { cpus, shared }.config(1).expect("coefficients");
                assert_eq!(config.topology.validate(), Ok(()));
                let threads = if shared == Shared::Cores { 2 } else { 1 };
                assert_eq!(config.topology.threads_per_core(), threads);
            }
        }
    }
}
