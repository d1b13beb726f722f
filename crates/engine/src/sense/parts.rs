//! Sets of CPUs that are counted apart from the rest of the machine.

use super::Counters;
use super::slots::{CLASSES, IDLE, MAIN, SIDE};

/// One set.
#[derive(Debug, Default)]
struct Part {
    /// By the number of the CPU.
    member: Vec<bool>,
    cpus: u32,
    /// Times by class since the last close.
    open_ns: [u64; CLASSES],
    total: Counters,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Parts {
    all: Vec<Part>,
}

impl Parts {
    /// Counts these from now on, each from 0.
    pub fn set(&mut self, parts: &[Vec<u32>]) {
        self.all = parts.iter().map(|cpus| Part::of(cpus)).collect();
    }

    /// A CPU's times by class in this sample's window.
    pub fn count(&mut self, cpu: usize, ran_ns: &[u64; CLASSES]) {
        for part in &mut self.all {
            if part.member.get(cpu) != Some(&true) {
                continue;
            }
            for (open_ns, ran_ns) in part.open_ns.iter_mut().zip(ran_ns) {
                *open_ns += ran_ns;
            }
        }
    }

    /// The sample is complete: `stolen_ns` of the machine's `busy_ns` was steal, which each part bears as it was busy.
    pub fn close(&mut self, stolen_ns: u64, busy_ns: u64) {
        for part in &mut self.all {
            let ran_ns = std::mem::take(&mut part.open_ns);
            let all_ns: u64 = ran_ns.iter().sum();
            let part_busy_ns = all_ns - ran_ns[IDLE];
            let less = |of_ns: u64| {
                let share = u128::from(of_ns) * u128::from(stolen_ns) / u128::from(busy_ns.max(1));
                of_ns.saturating_sub(share as u64)
            };
            let steal_ns = part_busy_ns - less(part_busy_ns);
            let total = &mut part.total;
            total.capacity_ns += all_ns.saturating_sub(steal_ns);
            total.busy_ns += less(part_busy_ns);
            total.side_ns += less(ran_ns[SIDE]);
            total.main_ns += less(ran_ns[MAIN]);
            total.steal_ns += steal_ns;
        }
    }

    /// What was counted, at the time of the machine's own sample.
    pub fn counters(&self, nth: usize, machine: &Counters) -> Option<Counters> {
        let part = self.all.get(nth)?;
        Some(Counters {
            now_ns: machine.now_ns,
            online_cpus: part.cpus,
            valid: machine.valid,
            ..part.total
        })
    }
}

impl Part {
    fn of(cpus: &[u32]) -> Self {
        let mut member = vec![false; cpus.iter().max().map_or(0, |most| *most as usize + 1)];
        for &cpu in cpus {
            member[cpu as usize] = true;
        }
        Self {
            member,
            cpus: cpus.len() as u32,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_cpus_and_its_share_of_steal() {
        let mut parts = Parts::default();
        parts.set(&[vec![0, 2], vec![2]]);
        // Neutral, side, main, idle.
        parts.count(0, &[10, 20, 30, 40]);
        parts.count(1, &[900, 0, 0, 0]);
        parts.count(2, &[0, 60, 0, 40]);
        // A tenth of what was busy was stolen.
        parts.close(102, 1020);
        let machine = Counters {
            now_ns: 7,
            valid: true,
            ..Counters::default()
        };
        let both = parts.counters(0, &machine).unwrap();
        assert_eq!((both.capacity_ns, both.busy_ns), (188, 108));
        assert_eq!((both.side_ns, both.main_ns, both.steal_ns), (72, 27, 12));
        assert_eq!((both.now_ns, both.online_cpus, both.valid), (7, 2, true));
        let one = parts.counters(1, &machine).unwrap();
        assert_eq!((one.capacity_ns, one.busy_ns, one.side_ns), (94, 54, 54));
        assert_eq!(parts.counters(2, &machine), None);
    }
}
