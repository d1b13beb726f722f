//! Every state that small machines can reach, by every order of runs, idling, timers and ticks. In
//! each transition the ledger must balance; from each state the most that any continuation can use
//! in one to three periods must keep the bound; and no CPU that is throttled may stay so. Two CPUs;
//! a machine is made small by counting in single nanoseconds, of which an idle silo keeps one.

use std::collections::HashMap;
use tidegate_law::bandwidth::{Pool, Silo, Terms, Verdict};

const CPUS: usize = 2;
/// A CPU runs on for up to this long after its silo is empty.
const GRANULARITY: u64 = 2;
/// What a silo keeps when its CPU goes idle.
const KEEP: u32 = 1;
/// More states than this are a mistake in the normal form, not a machine.
const STATES_MAX: usize = 400_000;

#[derive(Clone)]
struct State {
    now: u64,
    pool: Pool,
    silos: [Silo; CPUS],
    /// The next turnover by the walk's own clock.
    due: u64,
}

/// What tells states apart: statistics and absolute time do not act on what comes.
type Key = (u64, i64, [(i64, bool); CPUS]);

#[derive(Clone, Copy)]
enum Move {
    Tick,
    Run { cpu: usize, ns: u64 },
    Idle { cpu: usize },
    Timer { first: usize },
}

struct Walk {
    terms: Terms,
    states: Vec<State>,
    /// By state: where each move leads, what it used, and whether it was a tick.
    edges: Vec<Vec<(u32, u64, bool)>>,
}

impl State {
    fn key(&self, terms: &Terms) -> Key {
        // Two periods that were not looked at fill the pool as well as any more do.
        let mut left = self.pool.turnover_ns().cast_signed() - self.now.cast_signed();
        let period = terms.period_ns.cast_signed();
        while left <= -2 * period {
            left += period;
        }
        let silos = self
            .silos
            .map(|silo| (silo.remaining_ns(), silo.is_throttled()));
        (self.pool.runtime_ns(), left, silos)
    }

    fn total(&self) -> i64 {
        let silos: i64 = self.silos.iter().map(Silo::remaining_ns).sum();
        self.pool.runtime_ns().cast_signed() + silos
    }

    /// What may be used from here on without another refill, once the ones that are due are in.
    fn held(&self) -> u64 {
        let mut pool = self.pool;
        pool.turnover(self.now);
        let silos = self.silos.iter().map(|silo| silo.remaining_ns().max(0));
        pool.runtime_ns() + silos.map(i64::unsigned_abs).sum::<u64>()
    }

    fn debt(&self) -> u64 {
        let debts = self.silos.iter().map(|silo| silo.remaining_ns().min(0));
        debts.map(i64::unsigned_abs).sum()
    }

    fn distribute(&mut self, first: usize) {
        self.pool.turnover(self.now);
        for cpu in [first, 1 - first] {
            if self.silos[cpu].is_throttled() {
                self.pool.distribute(&mut self.silos[cpu], self.now);
            }
        }
        let stopped = self.silos.iter().any(Silo::is_throttled);
        assert!(
            !stopped || self.pool.runtime_ns() == 0,
            "throttled beside runtime that was not taken"
        );
    }

    /// Makes the move; what was used.
    fn go(&mut self, step: Move) -> u64 {
        match step {
            Move::Tick => self.now += 1,
            Move::Idle { cpu } => {
                self.pool.give_back(&mut self.silos[cpu]);
                assert!(self.silos[cpu].remaining_ns() <= i64::from(KEEP));
            }
            Move::Timer { first } => self.distribute(first),
            Move::Run { cpu, ns } => return self.run(cpu, ns),
        }
        0
    }

    fn run(&mut self, cpu: usize, ns: u64) -> u64 {
        let (silo, mut used) = (&mut self.silos[cpu], 0);
        for ran in [0, ns] {
            if silo.is_throttled() {
                break;
            }
            used += ran;
            if self.pool.run(silo, ran, self.now) == Verdict::Out {
                assert!(self.pool.throttle(silo, self.now));
                assert_eq!(self.pool.runtime_ns(), 0, "throttled beside runtime");
                break;
            }
            assert!(silo.remaining_ns() > 0, "runs with nothing");
        }
        used
    }
}

impl Walk {
    fn new(terms: Terms) -> Self {
        let mut pool = Pool::new().keeping(KEEP);
        pool.set(&terms, 0);
        let start = State {
            now: 0,
            pool,
            silos: [Silo::default(); CPUS],
            due: terms.period_ns,
        };
        let mut walk = Self {
            terms,
            states: vec![start],
            edges: Vec::new(),
        };
        walk.explore();
        walk
    }

    fn explore(&mut self) {
        let mut moves = vec![Move::Tick];
        for cpu in 0..CPUS {
            moves.extend([1, GRANULARITY].map(|ns| Move::Run { cpu, ns }));
            moves.extend([Move::Idle { cpu }, Move::Timer { first: cpu }]);
        }
        let mut seen: HashMap<Key, u32> = HashMap::new();
        seen.insert(self.states[0].key(&self.terms), 0);
        let mut at = 0;
        while at < self.states.len() {
            self.check_state(&self.states[at]);
            let mut edges = Vec::with_capacity(moves.len());
            for step in &moves {
                let mut next = self.states[at].clone();
                let used = next.go(*step);
                self.check_ledger(&self.states[at], &mut next, used);
                let number = u32::try_from(self.states.len()).unwrap();
                let id = *seen.entry(next.key(&self.terms)).or_insert(number);
                if id == number {
                    self.states.push(next);
                }
                edges.push((id, used, matches!(step, Move::Tick)));
            }
            self.edges.push(edges);
            at += 1;
            assert!(at < STATES_MAX, "no end of states");
        }
    }

    /// Runtime moves, is used, or comes from a turnover: at most a quota for each one that was due,
    /// by a clock of our own.
    fn check_ledger(&self, before: &State, after: &mut State, used: u64) {
        let quota = self.terms.quota_ns;
        let gained = after.total() - before.total() + used.cast_signed();
        let mut due = 0;
        while after.due < after.pool.turnover_ns() {
            assert!(after.due <= after.now, "a turnover before its time");
            after.due += self.terms.period_ns;
            due += 1;
        }
        assert_eq!(after.due, after.pool.turnover_ns(), "off the grid");
        let given = (due * quota).cast_signed();
        assert!(gained <= given, "{gained} gained in {due} turnovers");
        // Nothing is lost either, but what a full pool cannot hold.
        let full = after.pool.terms().burst_ns + quota;
        let cut = before.pool.runtime_ns() + due * quota > full && due > 0;
        assert!(cut || gained == given, "{gained} in {due} turnovers");
    }

    fn check_state(&self, state: &State) {
        let terms = &self.terms;
        let most = terms.quota_ns + terms.burst_ns + CPUS as u64 * terms.slice_ns;
        assert!(state.held() <= most, "{} held", state.held());
        for silo in &state.silos {
            let left = silo.remaining_ns();
            assert!(left <= terms.slice_ns.cast_signed());
            assert!(left > -GRANULARITY.cast_signed(), "{left}");
            assert!(!silo.is_throttled() || left <= 0);
        }
        let stopped = state.silos.iter().filter(|silo| silo.is_throttled());
        assert_eq!(state.pool.throttled() as usize, stopped.count());
        // Left alone, all debts, and the ns that each starts again with, are paid in the periods
        // that they are worth.
        let mut later = state.clone();
        for _ in 0..(state.debt() + CPUS as u64).div_ceil(terms.quota_ns) {
            later.now = later.now.max(later.pool.turnover_ns());
            later.distribute(0);
        }
        assert_eq!(later.pool.throttled(), 0, "starves");
    }

    /// The most that any continuation uses in up to `periods` periods, from every state, against
    /// the bound: `(most used, its bound)` where they come nearest.
    fn search(&self, periods: u64) -> (u64, u64) {
        let period = self.terms.period_ns;
        let mut best = vec![0u64; self.states.len()];
        let mut nearest = (0, u64::MAX);
        for tick in 0..=periods * period {
            // First what waiting gives, then moves that take no time, until nothing gains.
            best = match tick {
                0 => best,
                _ => self
                    .edges
                    .iter()
                    .map(|edges| best[edges[0].0 as usize])
                    .collect(),
            };
            while self.gain(&mut best) {}
            if tick % period == 0 {
                let found = self.nearest(tick / period, &best);
                nearest = if found.1 - found.0 < nearest.1 - nearest.0 {
                    found
                } else {
                    nearest
                };
            }
        }
        nearest
    }

    /// Better by one move that takes no time, wherever one is.
    fn gain(&self, best: &mut [u64]) -> bool {
        let mut gains = false;
        for (state, edges) in self.edges.iter().enumerate().rev() {
            let through = edges.iter().filter(|edge| !edge.2);
            let most = through
                .map(|edge| edge.1 + best[edge.0 as usize])
                .max()
                .unwrap_or(0);
            if most > best[state] {
                best[state] = most;
                gains = true;
            }
        }
        gains
    }

    /// Where what can be used in this many periods comes nearest to its bound; and that it is
    /// nowhere beyond.
    fn nearest(&self, periods: u64, best: &[u64]) -> (u64, u64) {
        let mut nearest = (0, u64::MAX);
        for (state, used) in self.states.iter().zip(best) {
            let bound = periods * self.terms.quota_ns + state.held() + CPUS as u64 * GRANULARITY;
            assert!(
                *used <= bound,
                "{used} used in {periods} periods, bound {bound}"
            );
            assert!(
                *used <= bound - state.debt(),
                "{used} used, debts not paid: {bound}"
            );
            if bound - used < nearest.1 - nearest.0 {
                nearest = (*used, bound);
            }
        }
        nearest
    }
}

#[test]
fn every_state_of_a_small_group() {
    let mut walks = Vec::new();
    for (quota, period, slice) in (1..=3).flat_map(|quota| {
        (1..=3).flat_map(move |period| (1..=3).map(move |slice| (quota, period, slice)))
    }) {
        for burst in 0..=quota {
            walks.push(Walk::new(
                Terms::new(quota, period).burst(burst).slice(slice),
            ));
        }
    }
    let states: usize = walks.iter().map(|walk| walk.states.len()).sum();
    let edges: usize = walks
        .iter()
        .flat_map(|walk| &walk.edges)
        .map(Vec::len)
        .sum();
    let nearest = walks.iter().map(|walk| walk.search(3));
    let (used, bound) = nearest.min_by_key(|(used, bound)| bound - used).unwrap();
    println!(
        "{} machines, {states} states, {edges} transitions; most used {used} ns, bound {bound} ns",
        walks.len()
    );
    assert!(states > 1_000, "a walk that went nowhere");
    assert!(
        bound - used <= CPUS as u64,
        "the bound is not tight: the search did not search"
    );
}
