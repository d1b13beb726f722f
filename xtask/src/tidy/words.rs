//! Words that the house replaced by the field's own nouns, where they can be told from ordinary use.

use std::path::Path;

/// File stems that name a metaphor; the second word is the term instead.
const STEMS: &[(&str, &str)] = &[
    ("owner", "agent"),
    ("house", "housekeeping"),
    ("rota", "round_robin"),
    ("books", "ledger"),
    ("looper", "control_thread"),
    ("lighten", "idle_class"),
    ("darken", "idle_class"),
    ("holders", "lock_boost"),
    ("purse", "budget"),
    ("nesting", "quota_tree"),
    ("elsewhere", "enforced_by_ext"),
    ("tighten", "privilege"),
    ("escape", "confinement"),
    ("presence", "liveness"),
    ("again", "retry"),
    ("story", "stats"),
    ("softs", "soft_caps"),
    ("line", "runqueue"),
    ("door", "enqueue"),
    ("tide", "headroom_ctl"),
    ("seats", "side_cpus"),
    ("alarm", "slice_timer"),
    ("park", "throttle"),
    ("hold", "cap_throttle"),
    ("patience", "starvation"),
    ("visit", "min_runtime"),
    ("grace", "in_kernel"),
    ("lost", "timer_guard"),
    ("known", "cgroups"),
    ("slot", "buckets"),
    ("spread", "smt_spread"),
    ("board", "shared_page"),
    ("readers", "samplers"),
    ("scene", "setup"),
    ("rehearsal", "simulated"),
    ("whole", "serialisation"),
    ("leftovers", "cleanup"),
    ("trouble", "error"),
];

/// Words that no page needs: the subject of a sentence is a task, a process or a user.
const PERSONS: &[&str] = &["whoever", "somebody", "nobody", "anew"];

/// The term that a file's stem should be.
pub fn instead_of(path: &Path) -> Option<&'static str> {
    // `line.bpf.c` is named like `line.h`.
    let stem = path.file_name()?.to_str()?.split('.').next()?;
    let found = STEMS.iter().find(|(word, _)| *word == stem);
    found.map(|(_, instead)| *instead)
}

/// How often a page says one of them.
pub fn persons(text: &str) -> usize {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| {
            PERSONS
                .iter()
                .any(|person| word.eq_ignore_ascii_case(person))
        })
        .count()
}

/// Whether a line of a comment or a page refers to an issue by its number.
pub fn names_an_issue(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.match_indices("issue ").any(|(at, word)| {
        let rest = lower[at + word.len()..].trim_start_matches('#');
        rest.starts_with(|c: char| c.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_words_are_told_from_others() {
        let instead = |path: &str| instead_of(Path::new(path));
        assert_eq!(instead("crates/x/src/story.rs"), Some("stats"));
        assert_eq!(instead("crates/x/bpf/door.h"), Some("enqueue"));
        assert_eq!(instead("crates/x/src/history.rs"), None);
        assert_eq!(persons("Nobody waits; somebody's quota, anew."), 3);
        assert_eq!(persons("renewed, anybody"), 0);
    }

    #[test]
    fn issue_numbers_are_told_from_the_verb() {
        let number = 5;
        assert!(names_an_issue(&format!("// as issue {number} says")));
        assert!(names_an_issue(&format!("see Issue #{number}.")));
        assert!(!names_an_issue("issue a write; the issue is open"));
    }
}
