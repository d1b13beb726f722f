//! A model of the kernel's bandwidth control with a hog on every CPU and a main that always wins.
//!
//! One silo per CPU, filled from the group's pool in slices of 5 ms; runtime is charged, and
//! throttling happens, only where the kernel looks: at the tick and when main takes the CPU. The
//! period's timer refills the pool and pays debts first. A write refills, forgives, unthrottles.
//! `facts.rs` compares it with what was measured on a real kernel.

/// Length of one step of the model.
pub const STEP_NS: i64 = 50_000;
const SLICE_NS: i64 = 5_000_000;

#[derive(Clone, Default)]
struct Cpu {
    remaining_ns: i64,
    throttled: bool,
    /// Side's run time since the kernel last looked.
    side_unseen_ns: i64,
    main_unseen_ns: i64,
    main_had_it: bool,
}

/// Whether side work wants a CPU at a time in ns.
pub type Appetite = fn(now_ns: i64, cpu: usize) -> bool;

/// The side group's bandwidth state and everybody's CPU time.
pub struct Kernel {
    cpus: Vec<Cpu>,
    pool_ns: i64,
    quota_ns: Option<i64>,
    period_ns: i64,
    next_refill_ns: i64,
    tick_ns: i64,
    next_in_line: usize,
    /// What side work as a whole still wants; hogs have no end of it.
    pub side_wants: Appetite,
    pub now_ns: i64,
    pub side_ns: i64,
    pub main_ns: i64,
    pub writes: Vec<i64>,
}

/// Cumulated run times as a sensor reads them.
#[derive(Clone, Copy, Default)]
pub struct Reading {
    pub main_ns: i64,
    pub side_ns: i64,
}

impl Kernel {
    pub fn new(cpus: usize, tick_ns: i64) -> Self {
        Self {
            cpus: vec![Cpu::default(); cpus],
            pool_ns: 0,
            quota_ns: None,
            period_ns: 100_000_000,
            next_refill_ns: 0,
            tick_ns,
            next_in_line: 0,
            side_wants: |_, _| true,
            now_ns: 0,
            side_ns: 0,
            main_ns: 0,
            writes: Vec::new(),
        }
    }

    /// What `tg_set_cfs_bandwidth` does. The running period's timer is not moved.
    pub fn write(&mut self, quota_us: u64, period_us: u64) {
        let quota_ns = i64::try_from(quota_us).unwrap() * 1_000;
        if self.quota_ns.is_none() {
            self.next_refill_ns = self.now_ns + i64::try_from(period_us).unwrap() * 1_000;
        }
        self.quota_ns = Some(quota_ns);
        self.period_ns = i64::try_from(period_us).unwrap() * 1_000;
        self.pool_ns = quota_ns;
        for cpu in &mut self.cpus {
            cpu.remaining_ns = 0;
            cpu.throttled = false;
        }
        self.writes.push(self.now_ns);
    }

    /// Exact run times, as BPF sees them.
    pub fn exact(&self) -> Reading {
        Reading {
            main_ns: self.main_ns,
            side_ns: self.side_ns,
        }
    }

    /// Run times as group usage shows them: what was accounted at ticks and switches.
    pub fn accounted(&self) -> Reading {
        let unseen = |pick: fn(&Cpu) -> i64| self.cpus.iter().map(pick).sum::<i64>();
        Reading {
            main_ns: self.main_ns - unseen(|cpu| cpu.main_unseen_ns),
            side_ns: self.side_ns - unseen(|cpu| cpu.side_unseen_ns),
        }
    }

    /// One step; `main_on[i]` says whether main runs on CPU i in it.
    pub fn step(&mut self, main_on: &[bool]) {
        if self.quota_ns.is_some() && self.now_ns >= self.next_refill_ns {
            self.refill();
        }
        let tick = self.now_ns % self.tick_ns == 0;
        for (index, &main_runs) in main_on.iter().enumerate() {
            let takes_over = main_runs && !self.cpus[index].main_had_it;
            if tick || takes_over {
                self.account(index);
            }
            if tick || !main_runs {
                self.cpus[index].main_unseen_ns = 0;
            }
            self.cpus[index].main_had_it = main_runs;
            if main_runs {
                self.main_ns += STEP_NS;
                self.cpus[index].main_unseen_ns += STEP_NS;
            } else if !self.cpus[index].throttled && (self.side_wants)(self.now_ns, index) {
                self.side_ns += STEP_NS;
                self.cpus[index].side_unseen_ns += STEP_NS;
            }
        }
        self.now_ns += STEP_NS;
    }

    fn account(&mut self, index: usize) {
        let cpu = &mut self.cpus[index];
        let ran_ns = std::mem::take(&mut cpu.side_unseen_ns);
        if self.quota_ns.is_none() || ran_ns == 0 {
            return;
        }
        cpu.remaining_ns -= ran_ns;
        if cpu.remaining_ns <= 0 {
            let got_ns = self.pool_ns.min(SLICE_NS - cpu.remaining_ns);
            self.pool_ns -= got_ns;
            cpu.remaining_ns += got_ns;
            cpu.throttled = cpu.remaining_ns <= 0;
        }
    }

    fn refill(&mut self) {
        self.pool_ns = self.quota_ns.unwrap();
        while self.next_refill_ns <= self.now_ns {
            self.next_refill_ns += self.period_ns;
        }
        // Debts are paid first, one CPU after the other, each to 1 ns above zero.
        for turn in 0..self.cpus.len() {
            let index = (self.next_in_line + turn) % self.cpus.len();
            let cpu = &mut self.cpus[index];
            if cpu.throttled {
                let paid_ns = self.pool_ns.min(1 - cpu.remaining_ns);
                self.pool_ns -= paid_ns;
                cpu.remaining_ns += paid_ns;
                cpu.throttled = cpu.remaining_ns <= 0;
                if self.pool_ns == 0 {
                    self.next_in_line = index;
                    break;
                }
            }
        }
    }
}
