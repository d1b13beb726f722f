//! What the exhaustive walks share, and the tests of the headroom law.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

use tidegate_law::{HeadroomSample, HeadroomTerms};

/// Half a gigabyte; a machine that has more states is not small.
const STATES_MAX: usize = 2_000_000;

/// Visits every state that can be reached from `start` and gives back how many there are. `next`
/// pushes the successors of a state, or says what is wrong with it; then the shortest way there is
/// printed and the walk panics.
pub fn walk<S, F>(name: &str, start: S, mut next: F) -> usize
where
    S: Clone + Debug + Eq + Hash,
    F: FnMut(&S, &mut Vec<S>) -> Result<(), String>,
{
    // Each state once, by its number, and the number of the one it was first reached from.
    let mut number: HashMap<S, usize> = HashMap::from([(start.clone(), 0)]);
    let mut states = vec![(start, 0)];
    let mut found = Vec::new();
    let mut at = 0;
    while at < states.len() {
        let state = states[at].0.clone();
        if let Err(why) = next(&state, &mut found) {
            let mut way = vec![at];
            while at != 0 {
                at = states[at].1;
                way.push(at);
            }
            for step in way.iter().rev() {
                println!("{:?}", states[*step].0);
            }
            panic!("{name}: after {} states: {why}", states.len());
        }
        for successor in found.drain(..) {
            if !number.contains_key(&successor) {
                number.insert(successor.clone(), states.len());
                states.push((successor, at));
            }
        }
        assert!(
            states.len() < STATES_MAX,
            "{name}: more states than a test may take"
        );
        at += 1;
    }
    states.len()
}

pub const TERMS: HeadroomTerms = HeadroomTerms {
    headroom_ppm: 300_000,
    tolerance_ppm: 10_000,
};

/// One window in which main uses `main_ppm` of `cpus` and side work what it was given.
pub fn window(cpus: u64, dt_ms: u64, main_ppm: u64, side_ucpu: u64) -> HeadroomSample {
    let dt_ns = dt_ms * 1_000_000;
    let side_ns = side_ucpu * dt_ms;
    HeadroomSample {
        dt_ns,
        capacity_ns: cpus * dt_ns,
        busy_ns: cpus * dt_ns / 1_000_000 * main_ppm + side_ns,
        side_ns,
        granularity_ns: 0,
        valid: true,
    }
}
