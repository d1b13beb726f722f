//! Every state that small machines can reach, by every order of runs, idling, timers and ticks. In
//! each transition the ledger must balance; from each state the most that any continuation can use
//! in one to three periods must keep the bound; and no CPU who is throttled may stay so. Two CPUs,
//! one or two levels; a machine is made small by counting in single nanoseconds, of which an idle
//! silo keeps one.

use std::collections::HashMap;
use tidegate_law::bandwidth::{Pool, Silo, Terms, may_run, run_up};

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
    pools: Vec<Pool>,
    silos: Vec<Vec<Silo>>,
    /// The next turnover by the walk's own clock.
    due: Vec<u64>,
}

/// What tells states apart, a byte each: statistics and absolute time do not act on what comes.
type Key = u128;

#[derive(Clone, Copy)]
enum Move {
    Tick,
    Run { cpu: usize, group: usize, ns: u64 },
    Idle { cpu: usize, group: usize },
    Timer { group: usize, first: usize },
}

struct Walk {
    parents: Vec<u32>,
    terms: Vec<Terms>,
    moves: Vec<Move>,
    states: Vec<State>,
    /// By state: where each move leads, what it used, and whether it was a tick.
    edges: Vec<Vec<(u32, u64, bool)>>,
}

impl State {
    fn key(&self, terms: &[Terms]) -> Key {
        let mut key: Key = 0;
        let mut add = |value: i64| {
            let byte = i8::try_from(value).unwrap();
            assert!(key >> 120 == 0, "too many values for a key");
            key = key << 8 | Key::from(byte.cast_unsigned());
        };
        // A byte that is not zero first, so that no value is lost at the top.
        add(1);
        for (group, pool) in self.pools.iter().enumerate().skip(1) {
            // Two periods that were not looked at fill the pool as well as any more do.
            let mut left =
                i64::try_from(pool.turnover_ns()).unwrap() - i64::try_from(self.now).unwrap();
            let period = i64::try_from(terms[group].period_ns).unwrap();
            while left <= -2 * period {
                left += period;
            }
            add(i64::try_from(pool.runtime_ns()).unwrap());
            add(left);
            for silos in &self.silos {
                // Both in one: what is throttled has nothing.
                let stopped = if silos[group].is_throttled() { 64 } else { 0 };
                add(silos[group].remaining_ns() + stopped);
            }
        }
        key
    }

    fn total(&self, group: usize) -> i64 {
        let silos: i64 = self
            .silos
            .iter()
            .map(|silos| silos[group].remaining_ns())
            .sum();
        i64::try_from(self.pools[group].runtime_ns()).unwrap() + silos
    }

    /// What may be used from here on without another refill, once the ones that are due are in.
    fn held(&self, group: usize) -> u64 {
        let mut pool = self.pools[group];
        pool.turnover(self.now);
        let silos = self
            .silos
            .iter()
            .map(|silos| silos[group].remaining_ns().max(0).unsigned_abs());
        pool.runtime_ns() + silos.sum::<u64>()
    }

    fn debt(&self, group: usize) -> u64 {
        let silos = self
            .silos
            .iter()
            .map(|silos| silos[group].remaining_ns().min(0).unsigned_abs());
        silos.sum()
    }

    fn distribute(&mut self, group: usize, first: usize) {
        let now = self.now;
        self.pools[group].turnover(now);
        for cpu in [first, 1 - first] {
            if self.silos[cpu][group].is_throttled() {
                self.pools[group].distribute(&mut self.silos[cpu][group], now);
            }
        }
        let stopped = self.silos.iter().any(|silos| silos[group].is_throttled());
        assert!(
            !stopped || self.pools[group].runtime_ns() == 0,
            "throttled beside runtime that was not taken"
        );
    }
}

impl Walk {
    fn new(parents: &[u32], terms: &[Terms]) -> Self {
        let mut pools = vec![Pool::new().keeping(KEEP); parents.len()];
        for (pool, terms) in pools.iter_mut().zip(terms).skip(1) {
            pool.set(terms, 0);
        }
        let start = State {
            now: 0,
            pools,
            silos: vec![vec![Silo::default(); parents.len()]; CPUS],
            due: terms.iter().map(|terms| terms.period_ns).collect(),
        };
        let mut moves = vec![Move::Tick];
        for group in 1..parents.len() {
            for cpu in 0..CPUS {
                moves.extend([1, GRANULARITY].map(|ns| Move::Run { cpu, group, ns }));
                moves.push(Move::Idle { cpu, group });
                moves.push(Move::Timer { group, first: cpu });
            }
        }
        let mut walk = Self {
            parents: parents.to_vec(),
            terms: terms.to_vec(),
            moves,
            states: vec![start],
            edges: Vec::new(),
        };
        walk.explore();
        walk
    }

    fn explore(&mut self) {
        let mut seen: HashMap<Key, u32> = HashMap::new();
        seen.insert(self.states[0].key(&self.terms), 0);
        let mut at = 0;
        while at < self.states.len() {
            self.check_state(&self.states[at]);
            let mut edges = Vec::with_capacity(self.moves.len());
            for index in 0..self.moves.len() {
                let mut next = self.states[at].clone();
                let used = self.go(&mut next, self.moves[index]);
                self.check_ledger(&self.states[at], &mut next, &used);
                let number = u32::try_from(self.states.len()).unwrap();
                let id = *seen.entry(next.key(&self.terms)).or_insert(number);
                if id == number {
                    self.states.push(next);
                }
                // Below, what ran in the highest group is what counts: all of it.
                edges.push((id, used[1], matches!(self.moves[index], Move::Tick)));
            }
            self.edges.push(edges);
            at += 1;
            assert!(at < STATES_MAX, "no end of states");
        }
    }

    /// Makes the move; what was used, by group.
    fn go(&self, state: &mut State, step: Move) -> Vec<u64> {
        let mut used = vec![0; self.parents.len()];
        match step {
            Move::Tick => state.now += 1,
            Move::Idle { cpu, group } => {
                state.pools[group].give_back(&mut state.silos[cpu][group]);
                assert!(state.silos[cpu][group].remaining_ns() <= i64::from(KEEP));
            }
            Move::Timer { group, first } => state.distribute(group, first),
            Move::Run { cpu, group, ns } => self.run(state, cpu, group, ns, &mut used),
        }
        used
    }

    fn run(&self, state: &mut State, cpu: usize, group: usize, ns: u64, used: &mut [u64]) {
        let number = u32::try_from(group).unwrap();
        for ran in [0, ns] {
            if !may_run(&state.silos[cpu], &self.parents, number) {
                return;
            }
            let now = state.now;
            let out = run_up(
                &mut state.pools,
                &mut state.silos[cpu],
                &self.parents,
                number,
                ran,
                now,
            );
            let mut level = group;
            while level != 0 {
                used[level] += ran;
                level = self.parents[level] as usize;
            }
            if let Some(out) = out {
                let out = out as usize;
                assert!(state.pools[out].throttle(&mut state.silos[cpu][out], now));
                assert_eq!(state.pools[out].runtime_ns(), 0, "throttled beside runtime");
                return;
            }
            level = group;
            while level != 0 {
                assert!(
                    state.silos[cpu][level].remaining_ns() > 0,
                    "runs with nothing"
                );
                level = self.parents[level] as usize;
            }
        }
    }

    /// Runtime moves, is used, or comes from a turnover: at most a quota for each one that was due,
    /// by a clock of our own.
    fn check_ledger(&self, before: &State, after: &mut State, used: &[u64]) {
        for (group, used) in used.iter().enumerate().skip(1) {
            let (quota, period) = (self.terms[group].quota_ns, self.terms[group].period_ns);
            let gained = after.total(group) - before.total(group) + i64::try_from(*used).unwrap();
            let mut due = 0;
            while after.due[group] < after.pools[group].turnover_ns() {
                assert!(after.due[group] <= after.now, "a turnover before its time");
                after.due[group] += period;
                due += 1;
            }
            assert_eq!(
                after.due[group],
                after.pools[group].turnover_ns(),
                "off the grid"
            );
            assert!(
                gained <= i64::try_from(due * quota).unwrap(),
                "{gained} gained in {due} turnovers"
            );
            // Nothing is lost either, but what a full pool cannot hold.
            let full = after.pools[group].terms().burst_ns + quota;
            let cut = before.pools[group].runtime_ns() + due * quota > full && due > 0;
            assert!(
                cut || gained == i64::try_from(due * quota).unwrap(),
                "{gained} in {due} turnovers"
            );
        }
    }

    fn check_state(&self, state: &State) {
        for group in 1..self.parents.len() {
            let terms = &self.terms[group];
            let most = terms.quota_ns + terms.burst_ns + CPUS as u64 * terms.slice_ns;
            assert!(state.held(group) <= most, "{} held", state.held(group));
            let mut stopped = 0;
            for silos in &state.silos {
                let silo = &silos[group];
                assert!(silo.remaining_ns() <= i64::try_from(terms.slice_ns).unwrap());
                assert!(
                    silo.remaining_ns() > -i64::try_from(GRANULARITY).unwrap(),
                    "{}",
                    silo.remaining_ns()
                );
                assert!(!silo.is_throttled() || silo.remaining_ns() <= 0);
                stopped += u32::from(silo.is_throttled());
            }
            assert_eq!(state.pools[group].throttled(), stopped);
            // Left alone, all debts, and the ns that each starts again with, are paid in the
            // periods that they are worth.
            let mut later = state.clone();
            for _ in 0..(state.debt(group) + CPUS as u64).div_ceil(terms.quota_ns) {
                later.now = later.now.max(later.pools[group].turnover_ns());
                later.distribute(group, 0);
            }
            assert_eq!(later.pools[group].throttled(), 0, "starves");
        }
    }

    /// The most that any continuation uses in up to `periods` periods of the highest group, from
    /// every state, against the bound: `(most used, its bound)` where they come nearest.
    fn search(&self, periods: u64) -> (u64, u64) {
        let period = self.terms[1].period_ns;
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
            let bound =
                periods * self.terms[1].quota_ns + state.held(1) + CPUS as u64 * GRANULARITY;
            assert!(
                *used <= bound,
                "{used} used in {periods} periods, bound {bound}"
            );
            assert!(
                *used <= bound - state.debt(1),
                "{used} used, debts not paid: {bound}"
            );
            if bound - used < nearest.1 - nearest.0 {
                nearest = (*used, bound);
            }
        }
        nearest
    }
}

fn ns(quota: u64, period: u64, burst: u64, slice: u64) -> Terms {
    Terms::new(quota, period).burst(burst).slice(slice)
}

fn report(what: &str, walks: &[Walk]) {
    let states: usize = walks.iter().map(|walk| walk.states.len()).sum();
    let edges: usize = walks
        .iter()
        .flat_map(|walk| &walk.edges)
        .map(Vec::len)
        .sum();
    let mut nearest = (0, u64::MAX);
    for walk in walks {
        let found = walk.search(3);
        if found.1 - found.0 < nearest.1 - nearest.0 {
            nearest = found;
        }
    }
    let (used, bound) = nearest;
    println!(
        "{what}: {} machines, {states} states, {edges} transitions; most used {used} ns, bound {bound} ns",
        walks.len()
    );
    assert!(states > 1_000, "a walk that went nowhere");
    assert!(
        bound - used <= CPUS as u64,
        "the bound is not tight: the search did not search"
    );
}

#[test]
fn every_state_of_one_level() {
    let mut walks = Vec::new();
    for quota in 1..=3 {
        for period in 1..=3 {
            for burst in 0..=quota {
                for slice in 1..=3 {
                    walks.push(Walk::new(
                        &[0, 0],
                        &[ns(1, 1, 0, 1), ns(quota, period, burst, slice)],
                    ));
                }
            }
        }
    }
    report("one level", &walks);
}

#[test]
fn every_state_of_two_levels() {
    // A child below its parent, as much as it, and beyond it; periods in step and not; burst or
    // none.
    let all = [(1, 1, 0), (1, 2, 1), (2, 2, 0), (2, 1, 0)];
    let mut walks = Vec::new();
    for (number, parent) in all.iter().enumerate() {
        for child in &all {
            let slice = 1 + u64::try_from(number).unwrap() % 2;
            let terms = |(quota, period, burst), slice| ns(quota, period, burst, slice);
            let (parent, child) = (terms(*parent, slice), terms(*child, 3 - slice));
            walks.push(Walk::new(&[0, 0, 1], &[ns(1, 1, 0, 1), parent, child]));
        }
    }
    report("two levels", &walks);
}
