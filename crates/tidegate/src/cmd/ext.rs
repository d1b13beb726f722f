//! `tidegate ext`: the scheduler in the foreground.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use tidegate_ext::{CpuStats, Ended, Ext, ExtError, LimitStat, Stats, TideStats};

use crate::exit::{Exit, Failure};
use crate::ext_options::{self, Gate};
use crate::render;

const NOTES: &str = "\
Puts every ordinary task of this machine under Tidegate's own scheduler, until
Ctrl-C, SIGTERM or the end of --seconds; then, and also if this process is
killed or the scheduler fails, the kernel's own scheduler takes them back. It
honours cpu.weight, cpu.idle and cpu.max of all groups, nice levels, and the
gates' terms. Needs root and a kernel from 6.12 (for cpu.max 6.17)
with sched_ext (tidegate doctor tells).

  sudo tidegate ext
  sudo tidegate ext --gate 'cgroup:/web latency=-10' --gate 'cgroup:/batch class=side'";

/// Run the machine's tasks under Tidegate's own scheduler, in the foreground
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Args {
    /// What the scheduler takes over: all ordinary tasks
    #[arg(long, value_name = "MODE", default_value = "full", value_parser = ["full"])]
    mode: String,
    /// Ask something of a group and all below it; repeat for more
    #[arg(long, value_name = "cgroup:/PATH TERMS", value_parser = Gate::parse)]
    gate: Vec<Gate>,
    /// End after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// For tests: deal the CPUs out to so many last-level caches
    #[arg(long, value_name = "N", hide = true)]
    caches: Option<u32>,
    /// Print statistics as JSON, one object a second
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Line<'a> {
    uptime_s: f64,
    mode: &'a str,
    state: &'static str,
    ended: Option<&'a Ended>,
    #[serde(flatten)]
    stats: &'a Stats,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    let signals = Signals::block();
    let gates = args
        .gate
        .iter()
        .map(|gate| Ok((gate.cgroup_id()?, gate.terms)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut ext = Ext::load(&ext_options::options(args.caches)?)?;
    for (id, terms) in &gates {
        ext.set_gate(*id, terms)?;
    }
    let started = Instant::now();
    let mut shown = Shown::new(args);
    shown.begin(ext.stats()?)?;
    let until = args
        .seconds
        .map(|seconds| started + Duration::from_secs(seconds));
    loop {
        let second = Instant::now() + Duration::from_secs(1);
        let next = until.map_or(second, |until| until.min(second));
        let asked = signals.wait_until(next) || until.is_some_and(|until| Instant::now() >= until);
        if let Some(ended) = ext.ended()? {
            shown.line(started, &ext.stats()?, Some(&ended))?;
            return Err(ejected(&ended));
        }
        shown.line(started, &ext.stats()?, None)?;
        if asked {
            break;
        }
    }
    let ended = ext.unload()?;
    shown.end(started, ended.as_ref())
}

/// The kernel's report of an ejection goes to standard error, the cause into the message.
fn ejected(ended: &Ended) -> Failure {
    if !ended.dump.is_empty() {
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr(), "{}", ended.dump);
    }
    let exit = if ended.is_failure() {
        Exit::Failure
    } else {
        Exit::Refused
    };
    Failure::new(
        exit,
        format!("ext: the scheduler was ejected: {ended}; the kernel's own runs, see docs/ext.md"),
    )
}

impl From<ExtError> for Failure {
    fn from(error: ExtError) -> Failure {
        let exit = match error {
            ExtError::Unsupported { .. } | ExtError::Taken { .. } | ExtError::NotRoot => {
                Exit::Refused
            }
            _ => Exit::Failure,
        };
        Failure::new(exit, format!("ext: {error}"))
    }
}

/// Statistics as they are shown: a line that is written over on a terminal, JSON, or the beginning and the end.
struct Shown<'a> {
    args: &'a Args,
    live: bool,
    before: CpuStats,
    quotas: String,
    at: Instant,
}

/// All limited groups in a few words; nothing where there are none.
fn quotas(stats: &Stats) -> String {
    let groups = stats.limits.iter().filter(|limit| limit.quota_us.is_some());
    let sum = |of: fn(&LimitStat) -> u64| stats.limits.iter().map(of).sum::<u64>();
    let refused = match stats.limits_refused {
        0 => String::new(),
        refused => format!(", {refused} quotas not enforced for want of room"),
    };
    if stats.limits.is_empty() && refused.is_empty() {
        return String::new();
    }
    format!(
        ", {} quotas: {} of {} periods throttled, {} bursts, {} visits{refused}",
        groups.count(),
        sum(|limit| limit.nr_throttled),
        sum(|limit| limit.nr_periods),
        sum(|limit| limit.nr_bursts),
        sum(|limit| limit.visits),
    )
}

impl<'a> Shown<'a> {
    fn new(args: &'a Args) -> Shown<'a> {
        Shown {
            args,
            live: std::io::stdout().is_terminal() && !args.json,
            before: CpuStats::default(),
            quotas: String::new(),
            at: Instant::now(),
        }
    }

    fn begin(&mut self, stats: Stats) -> Result<(), Failure> {
        self.before = stats.total;
        if !self.args.json {
            let programs = stats.programs.len();
            let insns: u64 = stats
                .programs
                .iter()
                .map(|p| u64::from(p.verified_insns))
                .sum();
            render::print(&format!(
                "sched_ext: enabled, {} mode, {programs} programs, {insns} instructions verified\n",
                self.args.mode
            ))?;
        }
        Ok(())
    }

    fn line(
        &mut self,
        started: Instant,
        stats: &Stats,
        ended: Option<&Ended>,
    ) -> Result<(), Failure> {
        if self.args.json {
            render::json(&Line {
                uptime_s: started.elapsed().as_secs_f64(),
                mode: &self.args.mode,
                state: if ended.is_some() {
                    "ejected"
                } else {
                    "enabled"
                },
                ended,
                stats,
            })?;
        } else if self.live {
            let mut text = self.rates(&stats.total) + &quotas(stats);
            if let Some(tide) = &stats.tide {
                text.push_str(&headroom(tide));
            }
            let mut out = std::io::stdout().lock();
            write!(out, "\r\x1b[K{text}")?;
            out.flush()?;
        }
        self.before = stats.total;
        self.quotas = quotas(stats);
        self.at = Instant::now();
        Ok(())
    }

    fn rates(&self, now: &CpuStats) -> String {
        let span_s = self.at.elapsed().as_secs_f64().max(1e-3);
        let rate = |now: u64, before: u64| (now.saturating_sub(before)) as f64 / span_s;
        format!(
            "main {} side {} CPUs, {:.0} runs/s, {:.0} direct, {:.0} queued, {:.0} preempting, {:.0} kept",
            render::cpus(rate(now.main_ns, self.before.main_ns) / 1e9),
            render::cpus(rate(now.side_ns, self.before.side_ns) / 1e9),
            rate(now.runs, self.before.runs),
            rate(now.direct, self.before.direct),
            rate(now.queued, self.before.queued),
            rate(now.preempted, self.before.preempted),
            rate(now.kept, self.before.kept),
        )
    }

    fn end(&self, started: Instant, ended: Option<&Ended>) -> Result<Exit, Failure> {
        if self.args.json {
            return Ok(Exit::Ok);
        }
        let line = if self.live { "\n" } else { "" };
        let span_s = started.elapsed().as_secs_f64();
        let total = &self.before;
        let how = ended.map_or_else(String::new, |ended| format!(" ({})", ended.reason));
        render::print(&format!(
            "{line}sched_ext: disabled after {}{how}: {} runs, {} direct, {} queued, {} preempting, {} kept{}\n",
            render::span(span_s),
            total.runs,
            total.direct,
            total.queued,
            total.preempted,
            total.kept,
            self.quotas,
        ))
    }
}

/// The headroom's ledger, short.
fn headroom(tide: &TideStats) -> String {
    let percent = |ucpu: u64| 100.0 * ucpu as f64 / tide.capacity_ucpu.max(1) as f64;
    format!(
        "; idle {:.1} % of {:.1} % asked, allowance {:.1} % ({})",
        percent(tide.idle_ucpu),
        percent(tide.asked_ucpu),
        percent(tide.allowance_ucpu),
        tide.reason,
    )
}

/// Signals that ask for the end, held back so that the scheduler is always taken out in order.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Signals {
        // SAFETY: the set is initialised by sigemptyset before it is read, and lives on the stack of this call alone.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals(set)
        }
    }

    /// Waits for one of them; false: the time is over.
    fn wait_until(&self, until: Instant) -> bool {
        let span = until.saturating_duration_since(Instant::now());
        let timeout = libc::timespec {
            tv_sec: span.as_secs() as libc::time_t,
            tv_nsec: span.subsec_nanos() as libc::c_long,
        };
        // SAFETY: both pointers are to values that live for the call; no information is asked for.
        unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) > 0 }
    }
}
