//! From ratios to coefficients, and the file that says how each came about.

use std::fmt::Write as _;
use std::time::Duration;

use crate::workers::Kind;

/// One worker beside one neighbour: its speed there over its speed beside an idle CPU.
pub struct Pair {
    /// The measured worker.
    pub own: Kind,
    /// What the neighbour ran.
    pub neighbour: Kind,
    /// One ratio a round, in millionths; sorted before it is read.
    pub ratios_ppm: Vec<u32>,
}

/// Each worker beside each, nothing measured yet.
pub fn empty_pairs() -> Vec<Pair> {
    let beside = |own| {
        Kind::ALL.map(|neighbour| Pair {
            own,
            neighbour,
            ratios_ppm: Vec::new(),
        })
    };
    Kind::ALL.into_iter().flat_map(beside).collect()
}

/// Below this many undisturbed rounds the median of a pair says too little.
const ROUNDS_MIN: usize = 10;

/// Two CPUs that cost each other this much in registers alone share a core's execution units.
const SAME_CORE_PPM: u32 = 100_000;

/// Linux up to 4.18 took two busy threads of a core for 1178/1024 of one (kernel/sched/topology.c,
/// `smt_gain`, "~15%"), so each for half of that.
const KERNEL_SMT_THREAD_PPM: u32 = (1178 * 1_000_000 / 2 / 1024) as u32;
/// What two threads of a core give at worst (no more than one) and at best (1.4 times one), each.
const SMT_THREAD_LOW_PPM: u32 = 500_000;
const SMT_THREAD_HIGH_PPM: u32 = 700_000;

/// The CPUs that share a cache on the processors of the measurement: 7 neighbours, taken as 7 times one.
const CACHE_NEIGHBOURS: u32 = 7;

/// The cpu.headroom patches (2019): main's average latency at load 1.0 with ffmpeg on all idle CPUs, over
/// alone; and the share of the machine that main takes in the example of their cover letter.
const HEADROOM_SLOWDOWN: f64 = 1.82;
const HEADROOM_LOAD_PPM: u32 = 400_000;

struct Coefficients {
    sibling_ppm: u32,
    llc_ppm: u32,
    machine_ppm: u32,
}

/// The median and the interval that holds the true one in 95 of 100 repetitions.
fn median_ppm(sorted: &[u32]) -> Option<(u32, u32, u32)> {
    if sorted.len() < ROUNDS_MIN {
        return None;
    }
    let count = sorted.len() as f64;
    // The count of values below the true median is binomial(n, 1/2); 1.96 of its deviations each side.
    let reach = 0.98 * count.sqrt();
    let below = (count / 2.0 - reach).floor() as usize;
    let above = ((count / 2.0 + reach).ceil() as usize).min(sorted.len() - 1);
    Some((sorted[sorted.len() / 2], sorted[below], sorted[above]))
}

/// The machine-wide term that is left of the headroom patches' slowdown after the nearer terms.
fn machine_ppm(sibling_ppm: u32, llc_ppm: u32) -> u32 {
    let share = |ppm: u32| f64::from(ppm) / 1e6;
    let alone = 1.0 - share(llc_ppm) * share(HEADROOM_LOAD_PPM);
    let beside = (1.0 - share(sibling_ppm)) * (1.0 - share(llc_ppm));
    ((1.0 - alone / (HEADROOM_SLOWDOWN * beside)).max(0.0) * 1e6).round() as u32
}

fn coefficients(loss_ppm: impl Fn(Kind, Kind) -> u32) -> (Coefficients, bool) {
    let same_core = loss_ppm(Kind::Arithmetic, Kind::Arithmetic) >= SAME_CORE_PPM;
    let pairs = Kind::ALL.map(|own| Kind::ALL.map(|neighbour| loss_ppm(own, neighbour)));
    let sibling_ppm = if same_core {
        pairs.as_flattened().iter().sum::<u32>() / 4
    } else {
        1_000_000 - KERNEL_SMT_THREAD_PPM
    };
    let excess =
        loss_ppm(Kind::Cache, Kind::Cache).saturating_sub(loss_ppm(Kind::Cache, Kind::Arithmetic));
    let llc_ppm = if same_core {
        excess
    } else {
        excess * CACHE_NEIGHBOURS
    };
    (
        Coefficients {
            sibling_ppm,
            llc_ppm,
            machine_ppm: machine_ppm(sibling_ppm, llc_ppm),
        },
        same_core,
    )
}

/// The whole file.
pub fn file(pairs: &[Pair], rounds: usize, quantum: Duration) -> Result<String, String> {
    let mut measured = String::new();
    let mut medians = Vec::new();
    for pair in pairs {
        let (own, neighbour, kept) = (
            pair.own.name(),
            pair.neighbour.name(),
            pair.ratios_ppm.len(),
        );
        let (median, low, high) = median_ppm(&pair.ratios_ppm).ok_or_else(|| {
            format!(
                "{own} beside {neighbour}: {kept} of {rounds} rounds were undisturbed, {ROUNDS_MIN} are needed; \
                 run it when the machine is quiet, or with more --rounds"
            )
        })?;
        medians.push((pair.own, pair.neighbour, median));
        let _ = write!(
            measured,
            "\n[[measured.pair]]\nworker = \"{own}\"\nneighbour = \"{neighbour}\"\nspeed_ppm = {median}\n\
             interval_ppm = [{low}, {high}]\nrounds = {kept}\n"
        );
    }
    let loss_ppm = |own, neighbour| {
        let speed = medians
            .iter()
            .find(|pair| pair.0 == own && pair.1 == neighbour)
            .map_or(1_000_000, |pair| pair.2);
        1_000_000u32.saturating_sub(speed)
    };
    let (chosen, same_core) = coefficients(loss_ppm);
    let mut text = explanation(same_core);
    let table = |name: &str, of: &Coefficients| {
        format!(
            "\n[{name}]\nsibling_ppm = {}\nllc_ppm = {}\nmachine_ppm = {}\nmachine_knee_ppm = {HEADROOM_LOAD_PPM}\n",
            of.sibling_ppm, of.llc_ppm, of.machine_ppm
        )
    };
    let low = Coefficients {
        sibling_ppm: chosen.sibling_ppm.min(1_000_000 - SMT_THREAD_HIGH_PPM),
        llc_ppm: 0,
        machine_ppm: 0,
    };
    let high = Coefficients {
        sibling_ppm: chosen.sibling_ppm.max(1_000_000 - SMT_THREAD_LOW_PPM),
        llc_ppm: (chosen.llc_ppm * 4).max(100_000),
        machine_ppm: machine_ppm(low.sibling_ppm, 0).max(chosen.machine_ppm),
    };
    text += &table("coefficients", &chosen);
    text += &table("sweep.low", &low);
    text += &table("sweep.high", &high);
    let _ = write!(
        text,
        "\n[measured]\nmachine = \"{}\"\ndate = \"{}\"\ncommand = \"make contention\"\nrounds = {rounds}\n\
         quantum_ms = {}\none_core = {same_core}\n",
        machine()?,
        date()?,
        quantum.as_millis()
    );
    text += &measured;
    Ok(text)
}

/// Where each number comes from, for readers of the file.
fn explanation(same_core: bool) -> String {
    let (sibling, llc) = if same_core {
        (
            "Measured: the mean over the four pairs below of what a worker loses. The two CPUs are threads of\n\
             # one core: arithmetic costs arithmetic more than a tenth.",
            "Measured: what the cache worker loses beside the cache worker more than beside arithmetic.",
        )
    } else {
        (
            "NOT measured: the two CPUs below do not share a core (arithmetic costs arithmetic next to nothing).\n\
             # Linux up to 4.18 took two busy threads of a core for 1178/1024 of one (kernel/sched/topology.c,\n\
             # smt_gain, \"~15%\"), so each loses 1 - 589/1024.",
            "Measured per neighbour: what the cache worker loses beside the cache worker more than beside\n\
             # arithmetic; times 7, the neighbours in a cache of 8 cores. The multiplication is an assumption.",
        )
    };
    format!(
        "# The coefficients of the shared-resource slowdown: the function is in lab/sim/src/contention.rs.\n\
         # Written by `make contention`; how it measures is in lab/sim/examples/contention-measure.\n\
         #\n\
         # sibling_ppm: {sibling}\n\
         #\n\
         # llc_ppm: {llc}\n\
         #\n\
         # machine_ppm: Calibrated, not measured: two CPUs cannot show it. The cpu.headroom patches (2019) report\n\
         # {HEADROOM_SLOWDOWN} times the average latency at load 1.0 with ffmpeg on all idle CPUs. What the two nearer\n\
         # terms do not explain of that is put here, so the model reproduces that one figure by construction:\n\
         # 1 - (1 - 0.4 llc) / ({HEADROOM_SLOWDOWN} (1 - sibling) (1 - llc)), at least 0. Scheduling delay is part of\n\
         # their figure, so this is the most that the machine-wide term can be.\n\
         #\n\
         # machine_knee_ppm: Assumed: the 40 % that main takes in the example of their cover letter, so that main\n\
         # alone at load 1.0 is the reference.\n\
         #\n\
         # sweep: two threads of a core give between 1.0 and 1.4 times one; a cache costs between nothing and\n\
         # four times the figure above (at least a tenth); the machine between nothing and what the formula\n\
         # above gives beside the least sibling_ppm.\n"
    )
}

/// The processor, its CPUs and the kernel.
fn machine() -> Result<String, String> {
    let read = |path: &str| std::fs::read_to_string(path).map_err(|why| format!("{path}: {why}"));
    let cpuinfo = read("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or(": unnamed");
    let virtual_machine = cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.contains(" hypervisor"));
    let cpus = cpuinfo
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    Ok(format!(
        "{}, {cpus} {}, Linux {}",
        model.trim_start_matches(['\t', ' ', ':']).replace('"', ""),
        if virtual_machine { "vCPUs" } else { "CPUs" },
        read("/proc/sys/kernel/osrelease")?.trim()
    ))
}

fn date() -> Result<String, String> {
    let output = std::process::Command::new("date")
        .args(["-u", "+%F"])
        .output();
    let output = output.map_err(|why| format!("date: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
