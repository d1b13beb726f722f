//! Real commands as main or side.
//!
//! **Side** is `--side-cmd`, else `ffmpeg` encoding a generated picture when it is installed, else
//! the built-in burner. Its work is counted in frames where it prints ffmpeg's `frame=N` progress,
//! in loops for the burner, and in CPU seconds for anything else.
//!
//! **Main** is `--main-cmd`, else the built-in open-loop server. A main command is one measurement:
//! it starts what it needs, loads it, prints latencies, and ends. `{seconds}` in it becomes the
//! length of the window, `{load}` the level (1.0), `{percent}` the share of the machine (25), as in
//!
//! ```text
//! tidegate-lab headroom --loads 1 --main-cmd 'nginx -c $PWD/n.conf & sleep 0.2;
//!     wrk -t1 -c8 -d{seconds} --latency http://127.0.0.1:8080/; kill %1'
//! ```
//!
//! Its latencies are read from what it prints ([`parse_latency`]): `wrk --latency`, or lines like
//! `avg=1.5ms p99: 12ms`. A command that prints none is measured by its wall time.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex, PoisonError};

use super::proc::Guarded;
use crate::clock;
use crate::scene::Latency;

/// The words of side work: what `--side-cmd` asks for, or ffmpeg if it is installed.
pub fn side_words(side_cmd: Option<&str>) -> Option<Vec<String>> {
    if let Some(text) = side_cmd {
        return Some(shell(text));
    }
    let words = "ffmpeg -nostdin -hide_banner -nostats -v error -progress pipe:1 \
                 -stats_period 0.1 -f lavfi -i testsrc2=size=640x360:rate=30 -c:v libx264 \
                 -preset medium -f null -";
    let words = words.split_whitespace().map(str::to_string);
    super::is_installed("ffmpeg").then(|| words.collect())
}

/// A command line of a user, through the shell, so that it may be a loop or a pipeline.
pub fn shell(text: &str) -> Vec<String> {
    ["sh", "-c", text].into_iter().map(String::from).collect()
}

/// Fills `{seconds}`, `{load}` and `{percent}`.
pub fn fill(text: &str, seconds: f64, load: f64, percent: f64) -> String {
    text.replace("{seconds}", &format!("{:.0}", seconds.ceil()))
        .replace("{load}", &format!("{load:.1}"))
        .replace("{percent}", &format!("{percent:.0}"))
}

#[derive(Clone, Default)]
pub struct Frames {
    seen: Arc<Mutex<Vec<(u64, f64)>>>,
}

impl Frames {
    /// Reads the command's output until it ends, in a thread that ends with it.
    pub fn watch(guard: &mut Guarded) -> Frames {
        let frames = Frames::default();
        if let Some(out) = guard.take_stdout() {
            let seen = Arc::clone(&frames.seen);
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if let Some(n) = line
                        .strip_prefix("frame=")
                        .and_then(|n| n.trim().parse().ok())
                    {
                        let now = clock::monotonic_ns();
                        seen.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push((now, n));
                    }
                }
            });
        }
        frames
    }

    /// Frames at a moment, between the reports around it; `None` when nothing was reported.
    pub fn at(&self, at_ns: u64) -> Option<f64> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let i = seen.partition_point(|(t, _)| *t < at_ns);
        match (i.checked_sub(1).map(|b| seen[b]), seen.get(i)) {
            (Some((t0, n0)), Some(&(t1, n1))) => {
                Some(n0 + (n1 - n0) * (at_ns - t0) as f64 / (t1 - t0).max(1) as f64)
            }
            (Some((_, n)), None) => Some(n),
            (None, Some(_)) => Some(0.0),
            (None, None) => None,
        }
    }
}

/// Average, median, p90, p99, p99.9 and maximum as far as `text` tells them.
///
/// Understood: `wrk`'s `Latency  1.21ms  860us ...` row and its percentile rows (` 99%  5.00ms`),
/// and anywhere `NAME=VALUE` or `NAME: VALUE` with a name of avg, mean, average, p50, median, p90,
/// p99, p99.9, p999 or max and a unit of ns, us, µs, ms or s (ms when there is none).
pub fn parse_latency(text: &str) -> Option<Latency> {
    let mut found = Latency::default();
    for line in text.lines() {
        let words: Vec<&str> = line
            .split(|c: char| c.is_whitespace() || "=:,;".contains(c))
            .filter(|w| !w.is_empty())
            .collect();
        for pair in words.windows(2) {
            let slot = match pair[0].to_ascii_lowercase().as_str() {
                "latency" | "avg" | "mean" | "average" => &mut found.avg_us,
                "50%" | "p50" | "median" | "50.000%" => &mut found.p50_us,
                "90%" | "p90" | "90.000%" => &mut found.p90_us,
                "99%" | "p99" | "99.000%" => &mut found.p99_us,
                "99.9%" | "p99.9" | "p999" | "99.900%" => &mut found.p999_us,
                "max" => &mut found.max_us,
                _ => continue,
            };
            if let Some(us) = microseconds(pair[1])
                && *slot == 0.0
            {
                *slot = us;
            }
        }
    }
    found.completed = 1;
    (found.avg_us > 0.0 || found.p99_us > 0.0).then_some(found)
}

fn microseconds(text: &str) -> Option<f64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let scale = match &text[digits..] {
        "ns" => 0.001,
        "us" | "µs" => 1.0,
        "ms" | "" => 1000.0,
        "s" => 1e6,
        _ => return None,
    };
    Some(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_is_understood() {
        let text = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.21ms  860.00us  19.02ms   90.10%
    Req/Sec     6.91k     1.02k    8.60k    75.00%
  Latency Distribution
     50%  950.00us
     75%    1.40ms
     90%    2.10ms
     99%    5.00ms
";
        let l = parse_latency(text).expect("latencies");
        assert_eq!(
            (l.avg_us, l.p50_us, l.p90_us, l.p99_us),
            (1210.0, 950.0, 2100.0, 5000.0)
        );
    }

    #[test]
    fn names_and_units_are_understood() {
        let l = parse_latency("avg=1.5ms, p99: 12 ms\nmax 0.2s").expect("latencies");
        assert_eq!((l.avg_us, l.p99_us, l.max_us), (1500.0, 12000.0, 200_000.0));
        assert!(parse_latency("nothing here: 5 apples").is_none());
        assert!(parse_latency("avg speed").is_none());
    }

    #[test]
    fn placeholders_are_filled() {
        assert_eq!(
            fill("w -d{seconds} -r{percent} {load}", 1.2, 1.4, 35.0),
            "w -d2 -r35 1.4"
        );
    }

    #[test]
    fn frames_are_interpolated() {
        let frames = Frames::default();
        assert_eq!(frames.at(5), None);
        *frames.seen.lock().expect("no panic") = vec![(100, 10.0), (200, 30.0)];
        assert_eq!(frames.at(150), Some(20.0));
        assert_eq!(frames.at(300), Some(30.0));
        assert_eq!(frames.at(50), Some(0.0));
    }
}
