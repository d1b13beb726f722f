//! Sensing by a BPF program at every context switch (`bpf/sense.bpf.c`).
//!
//! Needs root (CAP_BPF and CAP_PERFMON), a kernel from 5.11 with BTF, and nothing mounted: typed
//! tracepoints are attached by a system call. The programs live as long as the sensor; when the
//! process dies the kernel detaches them. (A child forked while the sensor is open holds it too:
//! fork the guardian first, or exec in it, which closes the descriptors.)
//!
//! # Exactness, and what it does not see
//!
//! - A CPU's four times add up to its online time exactly: one clock reading closes one stretch
//!   and begins the next.
//! - A task that changes its group while it runs counts for the old group until its CPU switches
//!   or is *looked at*: the sensor sends a short interrupt to busy CPUs at the first sample after
//!   a move (10 ms apart at least), after a change of the roots, and to a CPU that has run the
//!   same task for 100 ms (moves that no tracepoint tells: `cgroup.subtree_control`). So one
//!   moved task is off by at most a sample period, or 100 ms for the last kind.
//! - A kernel may not tell all switches (see `ran_class` in the program). It is noticed by the next
//!   one that is told, and the time goes to the task that was really there. While that happens, a
//!   CPU whose task is in no gate is looked at after 1 ms instead of 100 (an idle one after 4, if
//!   it hid one), and what was wrong is made up for later ([`settled`](super::settled)).
//! - Interrupt and softirq time counts for whatever it interrupted, idle included. Where that is
//!   much of the load (a busy network card without threaded NAPI) idle reads high by it.
//! - On v2 a group counts by its nearest ancestor with the cpu controller enabled.
//! - A task of the root group under `autogroup` has no cgroup to speak of and is neutral.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use libbpf_rs::{Link, MapCore, MapFlags, libbpf_sys};

use super::object::{SenseSkel, failed, load};
use super::online::Online;
use super::settled::Withheld;
use super::slots::{CLASSES, Control, IDLE, MAIN, Mapped, NEUTRAL, Reading, SIDE, Slot, Turns};
use super::steal::StealMeter;
use super::waits::{WAIT_BUCKETS, WaitHistogram, Waits};
use super::{Counters, Group, SenseConfig, SenseError, Sensor};
use crate::clock::monotonic_ns;

/// `max_entries` of the map `roots`.
const ROOTS_MAX: usize = 8192;

/// The law needs a few samples in the time of main's step: half of the 10 ms that are aimed at.
const MIN_WINDOW_NS: u64 = 5_000_000;

/// What a CPU's clock, a switch being written and the reading of it add up to.
const GRANULARITY_NS: u64 = 1_000;

/// Moves are answered this often at most, so that a storm of them is no storm of interrupts.
const MOVE_INTERVAL_NS: u64 = 10_000_000;

/// A CPU that runs the same task for so long is looked at again.
const LOOK_AFTER_NS: u64 = 100_000_000;

/// The same where the kernel was caught hiding a switch in the last [`HIDDEN_MEMORY_NS`], by class.
/// What was hidden so far is the end of visits of tasks that are in no gate (neutral): elsewhere
/// each look would interrupt work for nothing.
const LOOK_AFTER_HIDDEN_NS: [u64; CLASSES] = [1_000_000, LOOK_AFTER_NS, LOOK_AFTER_NS, 4_000_000];
/// Without that, by class: an idle CPU is left alone.
const LOOK_AFTER_USUAL_NS: [u64; CLASSES] = [LOOK_AFTER_NS, LOOK_AFTER_NS, LOOK_AFTER_NS, u64::MAX];

/// For so long a hidden switch makes us look more often. (A thread that is not its process's
/// first and calls exec changes its id, which looks like one: then this costs a little for 10 s.)
const HIDDEN_MEMORY_NS: u64 = 10_000_000_000;

pub struct BpfSensor {
    slots: Mapped<Slot>,
    control: Mapped<Control>,
    roots_now: Vec<(u64, u32)>,
    look: RawFd,
    online: Online,
    steal: StealMeter,
    /// By CPU; None: offline at the last sample.
    last: Vec<Option<Reading>>,
    withheld: Vec<Withheld>,
    moves_seen: u64,
    moves_ns: u64,
    /// The last sample failed half way: the next one's difference is not to be used.
    broken: bool,
    /// Switches away from any task, and away from the idle task, that were found hidden so far.
    hidden: [u64; 2],
    /// After how long a CPU is looked at again, by the class that runs there.
    look_after_ns: [u64; CLASSES],
    /// When a switch away from a busy task, and away from the idle task, was last found hidden.
    hidden_ns: [u64; 2],
    /// The kernel can end turns of side work.
    ends_turns: bool,
    total: Counters,
    // The order matters on drop: programs are detached before the skeleton that owns them goes.
    _links: Vec<Link>,
    skel: SenseSkel<'static>,
}

impl BpfSensor {
    /// Loads and attaches the programs, and begins every online CPU's slot.
    pub fn open(config: &SenseConfig, side: &[Group], main: &[Group]) -> Result<Self, SenseError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            let why = "/sys/kernel/btf/vmlinux does not exist".to_owned();
            let remedy = "use a kernel built with CONFIG_DEBUG_INFO_BTF";
            return Err(SenseError::Bpf {
                step: "look for BTF",
                why,
                remedy,
            });
        }
        let (skel, cpus, ends_turns) = load().map_err(|why| failed("load", &why))?;
        let mut sensor = Self::around(skel, cpus, config)?;
        sensor.ends_turns = ends_turns;
        sensor.set_groups(side, main)?;
        let programs = &sensor.skel.progs;
        let on_switch = match sensor.ends_turns {
            true => &programs.on_switch_end_turns,
            false => &programs.on_switch,
        };
        for program in [on_switch, &programs.on_move] {
            let link = program
                .attach_trace()
                .map_err(|why| failed("attach", &why))?;
            sensor._links.push(link);
        }
        let now_ns = monotonic_ns();
        sensor.total.now_ns = now_ns;
        sensor.total.online_cpus = sensor.online.count();
        for index in 0..sensor.online.cpus().len() {
            let cpu = sensor.online.cpus()[index];
            sensor.look_at(cpu)?;
            sensor.last[cpu] = sensor.slots.all()[cpu].read(now_ns);
        }
        Ok(sensor)
    }

    fn around(
        skel: SenseSkel<'static>,
        cpus: usize,
        config: &SenseConfig,
    ) -> Result<Self, SenseError> {
        let errno = |why: std::io::Error| SenseError::Bpf {
            step: "map the slots",
            why: why.to_string(),
            remedy: "see `tidegate doctor`",
        };
        let slots = Mapped::new(skel.maps.slots.as_fd(), cpus).map_err(errno)?;
        let control = Mapped::<Control>::new(skel.maps.control.as_fd(), 1).map_err(errno)?;
        // No objective yet: no wait is late.
        control.all()[0]
            .late_after_ns
            .store(u64::MAX, Ordering::Relaxed);
        let look = skel.progs.look.as_fd().as_raw_fd();
        let online = Online::open(&config.cpu_dir)?;
        let steal = StealMeter::open(&config.proc_dir, monotonic_ns())?;
        Ok(Self {
            slots,
            control,
            roots_now: Vec::new(),
            look,
            online,
            steal,
            last: vec![None; cpus],
            withheld: vec![Withheld::default(); cpus],
            moves_seen: 0,
            moves_ns: 0,
            broken: false,
            hidden: [0; 2],
            look_after_ns: LOOK_AFTER_USUAL_NS,
            hidden_ns: [0; 2],
            ends_turns: false,
            total: Counters::default(),
            _links: Vec::new(),
            skel,
        })
    }

    /// Has `cpu` look at what it runs, by an interrupt. A CPU that just went offline is no error:
    /// the next reading of the online set tells.
    fn look_at(&self, cpu: usize) -> Result<(), SenseError> {
        const BPF_F_TEST_RUN_ON_CPU: u32 = 1;
        let mut opts = libbpf_sys::bpf_test_run_opts {
            sz: size_of::<libbpf_sys::bpf_test_run_opts>() as u64,
            cpu: cpu as u32,
            flags: BPF_F_TEST_RUN_ON_CPU,
            ..Default::default()
        };
        // SAFETY: the descriptor belongs to a program of `skel`, which lives as long as self;
        // `opts` has its own size in it and no pointers.
        let result = unsafe { libbpf_sys::bpf_prog_test_run_opts(self.look, &mut opts) };
        if result == 0 || result == -libc::ENXIO {
            return Ok(());
        }
        Err(SenseError::Bpf {
            step: "run a program on a CPU",
            why: std::io::Error::from_raw_os_error(-result).to_string(),
            remedy: "use a kernel from 5.11, or usage sensing",
        })
    }

    fn look_at_busy(&self, now_ns: u64) -> Result<(), SenseError> {
        for cpu in self.online.cpus() {
            let reading = self
                .slots
                .all()
                .get(*cpu)
                .and_then(|slot| slot.read(now_ns));
            if reading.is_none_or(|reading| reading.class != IDLE) {
                self.look_at(*cpu)?;
            }
        }
        Ok(())
    }

    /// Looks at the CPUs on which something may have changed unseen.
    fn look_where_due(&self, now_ns: u64) -> Result<(), SenseError> {
        for &cpu in self.online.cpus() {
            let Some(slot) = self.slots.all().get(cpu) else {
                continue;
            };
            let is_due = slot.read(now_ns).is_none_or(|reading| {
                now_ns.saturating_sub(reading.since_ns) >= self.look_after_ns[reading.class]
            });
            if is_due {
                self.look_at(cpu)?;
            }
        }
        Ok(())
    }

    /// Adapts how soon CPUs are looked at again to whether the kernel hides switches.
    fn watch_hidden(&mut self, now_ns: u64) {
        let mut hidden = [0; 2];
        for slot in self.slots.all() {
            for (sum, count) in hidden.iter_mut().zip(slot.hidden()) {
                *sum += count;
            }
        }
        let before = std::mem::replace(&mut self.hidden, hidden);
        for class in 0..CLASSES {
            let kind = usize::from(class == IDLE);
            if hidden[kind] > before[kind] {
                self.hidden_ns[kind] = now_ns;
                self.look_after_ns[class] = LOOK_AFTER_HIDDEN_NS[class];
            } else if now_ns.saturating_sub(self.hidden_ns[kind]) > HIDDEN_MEMORY_NS {
                self.look_after_ns[class] = LOOK_AFTER_USUAL_NS[class];
            }
        }
    }

    fn answer_moves(&mut self, now_ns: u64) -> Result<(), SenseError> {
        let moves = self.control.all()[0].moves.load(Ordering::Acquire);
        if moves == self.moves_seen || now_ns.saturating_sub(self.moves_ns) < MOVE_INTERVAL_NS {
            return Ok(());
        }
        (self.moves_seen, self.moves_ns) = (moves, now_ns);
        self.look_at_busy(now_ns)
    }
}

impl Sensor for BpfSensor {
    fn sample(&mut self, out: &mut Counters) -> Result<(), SenseError> {
        let broken = std::mem::replace(&mut self.broken, true);
        let began_ns = monotonic_ns();
        let mut valid = !broken && !self.online.update(began_ns)?;
        self.answer_moves(began_ns)?;
        self.steal.update(began_ns)?;
        self.watch_hidden(began_ns);
        self.look_where_due(began_ns)?;
        // After the looks, which a hypervisor can hold up for milliseconds: all CPUs are read at
        // one moment.
        let now_ns = monotonic_ns();
        valid &= now_ns >= self.total.now_ns;
        let mut ran_ns = [0_u64; CLASSES];
        let mut online = self.online.cpus().iter().copied().peekable();
        for cpu in 0..self.last.len() {
            if online.next_if_eq(&cpu).is_none() {
                self.last[cpu] = None;
                continue;
            }
            let reading = self.slots.all()[cpu].read(now_ns);
            // A CPU that is new has no difference yet, one that cannot be read has none either.
            if let (Some(now), Some(before)) = (&reading, &self.last[cpu]) {
                // Less than before where a hidden switch came to light. 2^63 ns: 292 years.
                let since_ns = std::array::from_fn(|class| {
                    now.ran_ns[class].wrapping_sub(before.ran_ns[class]) as i64
                });
                let cpu_ns = self.withheld[cpu].settle(since_ns);
                for (sum_ns, cpu_ns) in ran_ns.iter_mut().zip(cpu_ns) {
                    *sum_ns += cpu_ns;
                }
            }
            valid &= reading.is_some() && self.last[cpu].is_some();
            self.last[cpu] = reading;
        }
        let before_ns = std::mem::replace(&mut self.total.now_ns, now_ns);
        self.total.online_cpus = self.online.count();
        self.total.valid = valid;
        self.total.waits = self.waits();
        self.total.behind_side_ns = self.turns().map_or(0, |turns| turns.ns);
        self.add(now_ns.saturating_sub(before_ns), ran_ns);
        self.broken = false;
        *out = self.total;
        Ok(())
    }

    fn set_groups(&mut self, side: &[Group], main: &[Group]) -> Result<(), SenseError> {
        let tagged = |groups: &[Group], class: usize| -> Vec<(u64, u32)> {
            groups
                .iter()
                .map(|group| (group.id, class as u32))
                .collect()
        };
        // A group named as both is main: to protect too much is the smaller mistake.
        let mut wanted = [tagged(main, MAIN), tagged(side, SIDE)].concat();
        wanted.sort_by_key(|(id, class)| (*id, std::cmp::Reverse(*class)));
        wanted.dedup_by_key(|(id, _)| *id);
        if wanted.len() > ROOTS_MAX {
            return Err(SenseError::TooManyGroups {
                count: wanted.len(),
                max: ROOTS_MAX,
            });
        }
        if wanted == self.roots_now {
            return Ok(());
        }
        let update = |why: libbpf_rs::Error| failed("write the roots", &why);
        let stays = |id: &u64| wanted.binary_search_by_key(id, |root| root.0).is_ok();
        // Removals first, so that a full map has room.
        for (id, _) in self.roots_now.iter().filter(|root| !stays(&root.0)) {
            match self.skel.maps.roots.delete(&id.to_ne_bytes()) {
                Err(why) if why.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(update(why));
                }
                _ => {}
            }
        }
        for (id, class) in &wanted {
            let (key, value) = (id.to_ne_bytes(), class.to_ne_bytes());
            self.skel
                .maps
                .roots
                .update(&key, &value, MapFlags::ANY)
                .map_err(update)?;
        }
        self.roots_now = wanted;
        // A CPU that sees the new generation must see the new roots.
        fence(Ordering::SeqCst);
        self.control.all()[0]
            .generation
            .fetch_add(1, Ordering::SeqCst);
        self.look_at_busy(monotonic_ns())
    }

    fn kind(&self) -> &'static str {
        "bpf"
    }

    fn min_window_ns(&self) -> u64 {
        MIN_WINDOW_NS
    }

    fn granularity_ns(&self) -> u64 {
        GRANULARITY_NS
    }

    fn online_cpus(&self) -> u32 {
        self.total.online_cpus
    }

    fn tells_waits(&self) -> bool {
        true
    }

    fn turns(&self) -> Option<Turns> {
        let mut turns = Turns::default();
        let slots = self.slots.all().iter();
        slots.for_each(|slot| slot.add_turns(&mut turns));
        self.ends_turns.then_some(turns)
    }

    fn set_ends_turns(&mut self, ends_turns: bool) {
        let word = &self.control.all()[0].ends_turns;
        word.store(ends_turns.into(), Ordering::Relaxed);
    }

    fn set_late_after(&mut self, late_after_ns: u64) {
        let late_after = &self.control.all()[0].late_after_ns;
        late_after.store(late_after_ns, Ordering::Relaxed);
    }

    fn main_by_cpu(&self, out: &mut Vec<u64>) {
        let neutral_too = self.waiting().start == 0;
        let main_ns = |reading: &Option<Reading>| {
            let ran_ns = reading.as_ref().map_or([0; CLASSES], |last| last.ran_ns);
            ran_ns[MAIN] + if neutral_too { ran_ns[NEUTRAL] } else { 0 }
        };
        out.clear();
        out.extend(self.last.iter().map(main_ns));
    }

    fn wait_buckets(&self) -> Option<[u64; WAIT_BUCKETS]> {
        Some(self.slots.wait_buckets(self.waiting()))
    }

    fn waits_by_class(&self) -> Option<[WaitHistogram; 2]> {
        Some([0, 1].map(|which| self.slots.wait_histogram(which)))
    }
}

impl BpfSensor {
    /// Whose waits are main's: those of main groups, or of all but side work where there are none.
    fn waiting(&self) -> std::ops::Range<usize> {
        let main = self
            .roots_now
            .iter()
            .any(|(_, class)| *class as usize == MAIN);
        usize::from(main)..2
    }

    fn waits(&self) -> Waits {
        let mut sum = Waits::default();
        for which in self.waiting() {
            let slots = self.slots.all().iter();
            slots.for_each(|slot| slot.add_waits(which, &mut sum));
        }
        sum
    }

    /// Adds the classes' times in a window of `wall_ns` to the totals, less steal.
    fn add(&mut self, wall_ns: u64, ran_ns: [u64; CLASSES]) {
        let all_ns: u64 = ran_ns.iter().sum();
        let busy_ns = all_ns - ran_ns[IDLE];
        let stolen_ns = self.steal.spread.charge(wall_ns, busy_ns);
        // Each class bears the steal in proportion; none of it where nothing was busy.
        let own_ns = |part_ns: u64| {
            let share = u128::from(part_ns) * u128::from(stolen_ns) / u128::from(busy_ns.max(1));
            part_ns.saturating_sub(share as u64)
        };
        self.total.steal_ns += stolen_ns;
        self.total.capacity_ns += all_ns - stolen_ns;
        self.total.busy_ns += busy_ns - stolen_ns;
        self.total.side_ns += own_ns(ran_ns[SIDE]);
        self.total.main_ns += own_ns(ran_ns[MAIN]);
    }
}
