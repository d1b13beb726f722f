//! What the guest says on its second serial port, line by line, and what that means for the tests.
//!
//! A frame is `@@tg SECONDS WORD ...`, with the guest's uptime first: `ready`, `begin TEST`,
//! `measure TEST NAME VALUE UNIT`, `end TEST ok|fail|skip REASON...`, `done`. Any other line is the
//! running test's own output.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub enum Frame {
    Ready,
    Begin {
        test: String,
    },
    Measure {
        test: String,
        name: String,
        value: String,
        unit: String,
    },
    End {
        test: String,
        outcome: Outcome,
    },
    Done,
    Output(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    /// This machine cannot show it; why.
    Skipped(String),
}

/// A test that ran.
pub struct Finished {
    pub test: String,
    pub outcome: Outcome,
    pub guest_s: f64,
    pub wall: Duration,
    /// The emulator's CPU time.
    pub cpu: Duration,
    pub measures: Vec<(String, String, String)>,
    /// What to show beside a failure.
    pub tail: Vec<String>,
}

impl Finished {
    /// One of which nothing but its outcome is known.
    pub fn unseen(test: &str, outcome: Outcome) -> Finished {
        Finished {
            test: test.into(),
            outcome,
            guest_s: 0.0,
            wall: Duration::ZERO,
            cpu: Duration::ZERO,
            measures: Vec::new(),
            tail: Vec::new(),
        }
    }
}

/// The guest's uptime in seconds (none on a test's own output) and the frame.
pub fn parse(line: &str) -> (Option<f64>, Frame) {
    let line = line.trim_end_matches(['\r', '\n']);
    let output = || (None, Frame::Output(line.to_string()));
    // A test may have left an unfinished line before the frame.
    let Some(start) = line.find("@@tg ") else {
        return output();
    };
    let mut words = line[start + 5..].split_whitespace();
    let Some(uptime_s) = words.next().and_then(|w| w.parse::<f64>().ok()) else {
        return output();
    };
    let rest: Vec<&str> = words.collect();
    let frame = match rest[..] {
        ["ready"] => Frame::Ready,
        ["done"] => Frame::Done,
        ["begin", test] => Frame::Begin { test: test.into() },
        ["measure", test, name, value, unit] => Frame::Measure {
            test: test.into(),
            name: name.into(),
            value: value.into(),
            unit: unit.into(),
        },
        ["end", test, word, ..] => match outcome(word, &rest[3..]) {
            Some(outcome) => Frame::End {
                test: test.into(),
                outcome,
            },
            None => return output(),
        },
        _ => return output(),
    };
    (Some(uptime_s), frame)
}

fn outcome(word: &str, reason: &[&str]) -> Option<Outcome> {
    let reason = reason.join(" ");
    match word {
        "ok" => Some(Outcome::Passed),
        "fail" => Some(Outcome::Failed(reason)),
        "skip" => Some(Outcome::Skipped(reason)),
        _ => None,
    }
}

/// What a line of the kernel's console says about the kernel's own health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Worth showing; the run goes on.
    Suspect,
    /// Nothing measured after this counts.
    Dead,
}

/// Judges one console line.
pub fn health(line: &str, emulated_time: bool) -> Health {
    const DEAD: [&str; 8] = [
        "Kernel panic",
        "Oops:",
        "Oops ",
        "BUG:",
        "general protection fault",
        "kernel BUG at",
        "blocked for more than",
        "Unable to mount root fs",
    ];
    const SUSPECT: [&str; 3] = ["WARNING: ", "rcu: INFO: rcu_", "soft lockup"];
    // On real time a host that stops the emulator for seconds looks like a lockup inside; virtual
    // time stops too.
    if !emulated_time && line.contains("soft lockup") {
        return Health::Suspect;
    }
    if DEAD.iter().any(|word| line.contains(word)) {
        Health::Dead
    } else if SUSPECT.iter().any(|word| line.contains(word)) {
        Health::Suspect
    } else {
        Health::Fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_even_after_an_unfinished_line() {
        assert_eq!(parse("@@tg 3.01 ready\r\n"), (Some(3.01), Frame::Ready));
        assert_eq!(
            parse("half a line@@tg 4 begin shares"),
            (
                Some(4.0),
                Frame::Begin {
                    test: "shares".into()
                }
            )
        );
        let failed = Frame::End {
            test: "a".into(),
            outcome: Outcome::Failed("side 12 %".into()),
        };
        assert_eq!(parse("@@tg 5 end a fail side 12 %"), (Some(5.0), failed));
        let measured = Frame::Measure {
            test: "a".into(),
            name: "idle".into(),
            value: "30.1".into(),
            unit: "%".into(),
        };
        assert_eq!(parse("@@tg 5 measure a idle 30.1 %").1, measured);
    }

    #[test]
    fn what_is_not_a_frame_is_output() {
        for line in [
            "hello",
            "@@tg x ready",
            "@@tg 1 end a perhaps",
            "@@tg 1 begin",
            "@@tg 1 ready now",
            "",
        ] {
            assert_eq!(parse(line), (None, Frame::Output(line.into())), "{line}");
        }
    }

    #[test]
    fn a_kernel_in_trouble_is_noticed() {
        assert_eq!(
            health("[    1.0] Oops: int3: 0000 [#1]", true),
            Health::Dead
        );
        assert_eq!(
            health(
                "[  200.1] INFO: task sh:12 blocked for more than 122 seconds.",
                true
            ),
            Health::Dead
        );
        assert_eq!(
            health(
                "[   26.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
                true
            ),
            Health::Dead
        );
        assert_eq!(
            health(
                "[   26.0] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
                false
            ),
            Health::Suspect
        );
        assert_eq!(
            health("[    2.0] WARNING: CPU: 0 PID: 1 at kernel/x.c:1", true),
            Health::Suspect
        );
        assert_eq!(
            health(
                "[    0.5] clocksource: Switched to clocksource tsc-early",
                true
            ),
            Health::Fine
        );
    }
}
