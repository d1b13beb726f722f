//! What may be given without privilege: terms that take CPU from no other work.

use crate::table::Term;

impl Term {
    /// Whether this value only restricts the work that gets it.
    pub fn is_restriction(self, text: &str) -> bool {
        let text = text.trim();
        match self {
            Term::Class => text == "side",
            Term::Weight => text == "idle" || text.parse::<u32>().is_ok_and(|weight| weight <= 100),
            Term::Latency => text.parse::<i8>().is_ok_and(|hint| hint >= 0),
            // With a burst, work runs above its own quota for a moment, which the class side bounds
            // anyway.
            Term::Quota
            | Term::Period
            | Term::Burst
            | Term::CapHard
            | Term::CapSoft
            | Term::CapScope
            | Term::LatencyInherit
            | Term::Jobserver
            | Term::MemoryHigh => true,
            Term::Headroom | Term::Tolerance | Term::Objective | Term::Fallback => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restriction_takes_from_none() {
        let restricts =
            |name: &str, text: &str| Term::from_name(name).expect("a term").is_restriction(text);
        for (name, text) in [
            ("class", "side"),
            ("weight", "100"),
            ("weight", "idle"),
            ("latency", "0"),
            ("latency", "19"),
            ("cap-hard", "64cpu"),
        ] {
            assert!(restricts(name, text), "{name} {text}");
        }
        for (name, text) in [
            ("class", "main"),
            ("class", "neutral"),
            ("weight", "101"),
            ("weight", "-1"),
            ("latency", "-1"),
            ("headroom", "0%"),
            ("tolerance", "100%"),
            ("objective", "p99<5ms"),
            ("fallback", "restore"),
        ] {
            assert!(!restricts(name, text), "{name} {text}");
        }
    }
}
