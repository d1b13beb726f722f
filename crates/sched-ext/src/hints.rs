//! What slices of tasks stand for as hints, as tables for the programs: the law's own words
//! (law/latency.h) in a shape that the kernel's verifier reads at once.

use tidegate_law::latency::{HINT_FIRST, HINT_LAST, SLICE_MAX_NS, hint_of, slice_ns};

use crate::intf::HINTS;

const _: () = assert!(HINTS as i32 == HINT_LAST - HINT_FIRST + 1);

/// The slice that stands for each hint, and the least slice that stands for it or one after it;
/// beside a fair class whose own slice is `base_ns`. Nothing at all where that is 0.
pub(crate) fn tables(base_ns: u64) -> ([u32; HINTS], [u32; HINTS]) {
    let (mut slices, mut from) = ([0; HINTS], [0; HINTS]);
    if base_ns == 0 {
        return (slices, from);
    }
    for ((hint, slice), from) in (HINT_FIRST..).zip(&mut slices).zip(&mut from) {
        *slice = slice_ns(hint, base_ns) as u32;
        *from = least(hint, base_ns);
    }
    (slices, from)
}

/// Hints grow with slices. `u32::MAX` for a hint that no slice stands for.
fn least(hint: i32, base_ns: u64) -> u32 {
    let (mut low, mut high) = (0, SLICE_MAX_NS + 1);
    while low < high {
        let middle = (low + high) / 2;
        if hint_of(middle, base_ns) >= hint {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if low > SLICE_MAX_NS {
        u32::MAX
    } else {
        low as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(from: &[u32; HINTS], slice_ns: u64) -> i32 {
        let reached = from.iter().rposition(|least| slice_ns >= u64::from(*least));
        HINT_FIRST + reached.unwrap_or(0) as i32
    }

    #[test]
    fn the_tables_are_the_law() {
        for base_ns in [100_000, 700_000, 2_800_000, 3_000_000, 100_000_000] {
            let (slices, from) = tables(base_ns);
            for (hint, slice) in (HINT_FIRST..).zip(slices) {
                assert_eq!(u64::from(slice), slice_ns(hint, base_ns));
            }
            let mut slice = 100_000;
            while slice <= SLICE_MAX_NS {
                for near in [slice - 1, slice, slice + 1] {
                    assert_eq!(
                        read(&from, near),
                        hint_of(near, base_ns),
                        "{near} of {base_ns}"
                    );
                }
                slice += slice / 500;
            }
        }
    }

    #[test]
    fn without_slices_there_is_nothing_to_read() {
        assert_eq!(tables(0), ([0; HINTS], [0; HINTS]));
    }
}
