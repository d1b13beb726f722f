//! What happened on the node and when, seen from outside of Tidegate: events that the test tells,
//! the amount that the API server has, and each two seconds the CPU time that the guest's kernel
//! counts. It is printed, and lies in target/kube-node as run.csv.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::bed::Bed;
use crate::machine::{FOLDER, Machine, NAME};

/// Counts idle time of the machine and CPU time of the groups in /tmp/side and /tmp/main, in ticks
/// and microseconds.
const SAMPLER: &str = r#"
touch /tmp/side /tmp/main
usage() {
    sum=0
    for group in $(cat /tmp/$1); do
        used=0
        read -r _ used 2>/dev/null <$group/cpu.stat
        sum=$((sum + used))
    done
    echo $sum
}
sample() {
    read -r up _ </proc/uptime
    read -r _ _ _ _ idle wait _ </proc/stat
    echo "$up $((idle + wait)) $(usage side) $(usage main)"
}
"#;

/// Of the machine, in a stretch of time.
pub struct Shares {
    pub idle_pct: f64,
    pub side_pct: f64,
    pub main_pct: f64,
}

impl Shares {
    /// Of kubelet, containerd, systemd and Tidegate.
    pub fn rest_pct(&self) -> f64 {
        100.0 - self.idle_pct - self.side_pct - self.main_pct
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shares {
            idle_pct,
            side_pct,
            main_pct,
        } = self;
        write!(
            f,
            "{idle_pct:.1} % idle, side {side_pct:.1} %, main pod {main_pct:.1} %"
        )
    }
}

/// Time since boot, s; idle ticks; microseconds of side work and of main.
#[derive(Clone, Copy)]
struct Counts([f64; 4]);

impl Counts {
    fn read(line: &str) -> Option<Counts> {
        let mut words = line.split_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Counts([next()?, next()?, next()?, next()?]))
    }

    /// Of two CPUs, whose ticks are hundredths of a second.
    fn shares(self, before: Counts) -> Shares {
        let [seconds, idle, side, main] = std::array::from_fn(|i| self.0[i] - before.0[i]);
        // A group that is gone takes its time along.
        let of_machine = |spent_s: f64| (100.0 * spent_s / seconds / 2.0).max(0.0);
        Shares {
            idle_pct: of_machine(idle / 100.0),
            side_pct: of_machine(side / 1e6),
            main_pct: of_machine(main / 1e6),
        }
    }
}

pub struct Diary<'a> {
    bed: &'a Bed,
    machine: &'a Machine,
    started: Instant,
    /// What `/proc/uptime` of the guest said then.
    booted_s: f64,
    lines: Mutex<Vec<(f64, String)>>,
    has_ended: AtomicBool,
}

impl<'a> Diary<'a> {
    /// Runs `story` and writes down what happens meanwhile.
    pub fn of(bed: &'a Bed, machine: &'a Machine, story: impl FnOnce(&Self)) {
        machine.shell(&format!("cat >/tmp/sampler <<'END'\n{SAMPLER}\nEND\n"));
        machine.shell(
            ". /tmp/sampler; (while :; do sample >>/tmp/samples; sleep 2; done) >/dev/null 2>&1 </dev/null &",
        );
        let uptime = machine.shell("cut -d' ' -f1 /proc/uptime");
        let diary = Diary {
            bed,
            machine,
            started: Instant::now(),
            booted_s: uptime.trim().parse().expect("a number"),
            lines: Mutex::default(),
            has_ended: AtomicBool::new(false),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| diary.follow());
            // The follower ends also where the story fails.
            let _end = Ends(&diary.has_ended);
            story(&diary);
            diary.write();
        });
    }

    fn follow(&self) {
        let mut last = String::new();
        while !self.has_ended.load(Relaxed) {
            let published = self.bed.published(NAME);
            if published != last {
                let milli = if published.is_empty() {
                    "none"
                } else {
                    &published
                };
                self.line(format!("published,{milli}"));
                last = published;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn line(&self, text: String) {
        let at_s = self.started.elapsed().as_secs_f64();
        println!("{at_s:6.1} s  {text}");
        self.lines
            .lock()
            .expect("no holder panics")
            .push((at_s, text));
    }

    pub fn says(&self, event: &str) {
        self.line(format!("event,{event}"));
    }

    /// A pod's group counts as `what`, side or main, from now on.
    pub fn watches(&self, what: &str, group: &str) {
        self.machine.shell(&format!("echo {group} >>/tmp/{what}"));
    }

    /// What ran in the next stretch of time.
    pub fn shares(&self, stretch: Duration) -> Shares {
        let counts = || {
            let line = self.machine.shell(". /tmp/sampler; sample");
            Counts::read(&line).expect("four numbers")
        };
        let before = counts();
        std::thread::sleep(stretch);
        counts().shares(before)
    }

    fn write(&self) {
        let samples = self.machine.shell("cat /tmp/samples");
        let counts: Vec<Counts> = samples.lines().filter_map(Counts::read).collect();
        let mut lines = self.lines.lock().expect("no holder panics").clone();
        for pair in counts.windows(2) {
            let Shares {
                idle_pct,
                side_pct,
                main_pct,
            } = pair[1].shares(pair[0]);
            let text = format!("shares,{idle_pct:.1},{side_pct:.1},{main_pct:.1}");
            lines.push((pair[1].0[0] - self.booted_s, text));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let folder: PathBuf = std::env::var_os(FOLDER).expect("the machine has it").into();
        let mut file = std::fs::File::create(folder.join("run.csv")).expect("a file");
        for (at_s, text) in lines {
            writeln!(file, "{at_s:.1},{text}").expect("it can be written");
        }
    }
}

/// Says so when it is dropped.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
