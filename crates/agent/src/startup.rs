//! Becoming the agent: one at a time, away from any gate, with what an earlier agent left taken up.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_knobs::clock::SystemClock;
use tidegate_knobs::control::{Control, SHARED_CORES_PPM};
use tidegate_knobs::discover::{CgroupVersion, discover, tick_hz};
use tidegate_knobs::group::{GroupPath, Groups};
use tidegate_knobs::kfs::{self, RealFs};
use tidegate_knobs::sense::{self, Prefer, SenseConfig};
use tidegate_knobs::target::GateName;
use tidegate_knobs::topology::Topology;
use tidegate_terms::{Config, Engine, LoopPeriod, Roots, Sense, Settings};
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::agent::{Agent, Mode};
use crate::control_thread::{self, ControlThread};
use crate::cpuset_controller::{self, CpusetController};
use crate::ext::kernel::{Kernel, RealKernel};
use crate::ext::{self, ExtSupervisor};
use crate::gate::demand;
use crate::housekeeping::Housekeeping;
use crate::journal::Journal;
use crate::lease::{Lease, monotonic_ns};
use crate::liveness::agent_lives;
use crate::lock_boost;
use crate::mechanisms::units;
use crate::notify;
use crate::paths::{RunDir, open_lock};
use crate::program::own_program;
use crate::rate::RateLimit;
use crate::server;

/// How an agent is asked to start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// By whom it is started.
    pub mode: Mode,
    /// Which sensing; the settings' when absent.
    pub sense: Option<Prefer>,
    /// Which engine; the settings' when absent.
    pub engine: Option<Engine>,
}

/// Period of the loop with exact sensing.
const PERIOD_EXACT_NS: u64 = 5_000_000;

/// An agent that does not answer is waited for this long: housekeeping sees within a second that it is to leave.
pub(crate) const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// So often.
pub(crate) const LOCK_LOOK: Duration = Duration::from_millis(10);

/// Runs an agent to its end.
///
/// # Errors
/// One sentence: what, where, why; and the mend. In on-demand mode it has also gone to standard output, where whoever
/// started this waits for it.
pub fn main(run_dir: &RunDir, options: &Options) -> Result<(), String> {
    if options.mode == Mode::OnDemand {
        detach()?;
    }
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("TIDEGATE_LOG")
                .unwrap_or_else(|_| "info".into()),
        )
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let result = start(run_dir, options).and_then(serve);
    if let Err(why) = &result
        && options.mode == Mode::OnDemand
    {
        // The starter may be dead, and its end of the pipe closed.
        let _ = writeln!(std::io::stdout(), "{why}");
    }
    result
}

/// Leaves the caller's session and parentage: the starter may exec another program, whose child we must not be.
fn detach() -> Result<(), String> {
    // SAFETY: this process has one thread so far (main calls this first), so the child is a whole copy.
    match unsafe { libc::fork() } {
        -1 => Err(format!("agent: fork: {}", std::io::Error::last_os_error())),
        0 => {
            rustix::process::setsid().map_err(|error| format!("agent: setsid: {error}"))?;
            Ok(())
        }
        _ => std::process::exit(0),
    }
}

struct Started {
    agent: Arc<Agent>,
    listener: std::os::unix::net::UnixListener,
    housekeeping: Housekeeping,
    /// Held for as long as this agent lives.
    _lock: std::fs::File,
}

fn start(run_dir: &RunDir, options: &Options) -> Result<Started, String> {
    GateName::parse(run_dir.prefix()).map_err(|error| format!("TIDEGATE_PREFIX: {error}"))?;
    let lock_file = take_lock(run_dir)?;
    let config = Config::load(&Roots::system(run_dir.dir())).map_err(|error| error.to_string())?;
    let settings = config.settings();
    let machine = discover(&RealFs::new(), None).map_err(|error| error.to_string())?;
    if let Some(why) = machine.refusal() {
        return Err(format!("agent: no gates can be made here: {why}"));
    }
    let fs = kfs::machine(machine.roots()).map_err(|error| error.to_string())?;
    let groups = Arc::new(Groups::new(Arc::clone(&fs), &machine));
    let ext = supervisor(options.engine.unwrap_or(settings.engine.value), &fs)?;
    leave_gates(&groups, run_dir);
    let (journal, report) =
        Journal::open(run_dir.dir(), Arc::clone(&groups)).map_err(|error| error.to_string())?;
    for alert in &report.alerts {
        warn!("{alert}");
    }
    let prefer = options
        .sense
        .unwrap_or_else(|| prefer(settings.sense.value));
    let (sensor, sensing_note) =
        sense::open(&SenseConfig::detect(), &[], &[], prefer).map_err(|error| error.to_string())?;
    info!("{sensing_note}");
    let period_ns = period(&settings, sensor.min_window_ns());
    let lease = Arc::new(Lease::open(&run_dir.lease()).map_err(|error| {
        format!(
            "agent: {}: {error}; check the run directory",
            run_dir.lease().display()
        )
    })?);
    lease.take(std::process::id() as i32, settings.lease.value.ns());
    let mut control = Control::new(sensor, demand([].into_iter(), &settings));
    let topology = Topology::read(&RealFs::new()).unwrap_or_default();
    if topology.shares_cores() {
        control.set_contention(SHARED_CORES_PPM);
    }
    let cpuset = CpusetController::new(settings.space.value, topology, &groups);
    info!("{}", cpuset.sentence());
    let agent = Arc::new(Agent {
        run_dir: run_dir.clone(),
        mode: options.mode,
        tick_ns: 1_000_000_000 / u64::from(tick_hz().unwrap_or(250).max(1)),
        machine,
        fs,
        clock: Arc::new(SystemClock),
        groups,
        config,
        settings,
        journal: Arc::new(Mutex::new(journal)),
        gates: Mutex::new(Vec::new()),
        control: Arc::new(Mutex::new(control)),
        meters: Arc::default(),
        units: Mutex::default(),
        ext: Arc::new(ext),
        lock_boost: Mutex::default(),
        cpuset: Mutex::new(cpuset),
        lease,
        period_ns,
        sensing_note,
        started_ns: monotonic_ns(),
        own_cpu_pct: Mutex::new(0.0),
        alerts: Mutex::new(report.alerts.into_iter().collect()),
        rate: Mutex::new(RateLimit::default()),
        leaving: Arc::new(AtomicBool::new(false)),
        left: Notify::new(),
    });
    agent.take_up();
    let guardian = start_guardian(run_dir, options.mode, options.engine)
        .inspect_err(|error| warn!("guardian: {error}; tried again every second"))
        .ok();
    let listener = listen(run_dir)?;
    Ok(Started {
        agent,
        listener,
        housekeeping: Housekeeping::new(guardian).with_engine(options.engine),
        _lock: lock_file,
    })
}

/// The scheduler, where it is to be one and this kernel can have it: who asks for it by name is told at once when it cannot.
fn supervisor(engine: Engine, fs: &Arc<dyn kfs::KernelFs>) -> Result<ExtSupervisor, String> {
    let kernel: Option<Arc<dyn Kernel>> = match engine {
        // Which one auto is, is told with its reason in docs/ARCHITECTURE.md.
        Engine::Auto | Engine::Knobs => None,
        Engine::Ext => Some(Arc::new(RealKernel::new(Arc::clone(fs)))),
    };
    if let Some(kernel) = &kernel {
        kernel
            .can_load()
            .map_err(|why| format!("agent: engine ext: {why}; or take engine = knobs"))?;
    }
    Ok(ExtSupervisor::new(kernel))
}

fn take_lock(run_dir: &RunDir) -> Result<std::fs::File, String> {
    let dir = run_dir.dir();
    let wrong = |path: &std::path::Path, error: std::io::Error| {
        format!(
            "agent: {}: {error}; run as root, or set TIDEGATE_RUN_DIR",
            path.display()
        )
    };
    run_dir.make().map_err(|why| format!("agent: {why}"))?;
    // The socket's own check decides who may do what; the directory only has to let them reach it.
    let open_to_all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, open_to_all).map_err(|error| wrong(dir, error))?;
    let path = run_dir.agent_lock();
    let file = open_lock(&path).map_err(|error| wrong(&path, error))?;
    let began = Instant::now();
    while file.try_lock().is_err() {
        // An agent that leaves no longer answers but is still tidying up; one that starts does not answer yet. Repair and a
        // guardian that writes the fallback hold the lock for moments, too.
        if agent_lives(run_dir) || began.elapsed() >= LOCK_PATIENCE {
            return Err(format!(
                "agent: {}: another agent runs; see `tidegate status`",
                path.display()
            ));
        }
        std::thread::sleep(LOCK_LOOK);
    }
    Ok(file)
}

fn prefer(sense: Sense) -> Prefer {
    match sense {
        Sense::Auto => Prefer::Auto,
        Sense::Bpf => Prefer::Bpf,
        Sense::Usage => Prefer::Usage,
    }
}

/// The shortest period that sensing bears, or what was asked for, if longer.
fn period(settings: &Settings, min_window_ns: u64) -> u64 {
    match settings.loop_period.value {
        LoopPeriod::Auto => PERIOD_EXACT_NS.max(min_window_ns),
        LoopPeriod::Every(span) => span.ns().max(min_window_ns),
    }
}

/// An agent that a command inside a gate started must not be limited by that gate.
fn leave_gates(groups: &Groups, run_dir: &RunDir) {
    let pid = std::process::id() as i32;
    let inside = |at: &GroupPath| {
        at.as_str()
            .split('/')
            .any(|name| name.starts_with(&format!("{}-", run_dir.prefix())))
    };
    let Ok(Some(at)) = groups.group_of(pid) else {
        return;
    };
    if !inside(&at) && groups.version() == CgroupVersion::V1 {
        return;
    }
    // v1: the base has room for processes beside groups. v2: only the real root has; else a group of our own.
    let home = match groups.version() {
        CgroupVersion::V1 => Ok(groups.base().clone()),
        CgroupVersion::V2 if !inside(&at) => return,
        CgroupVersion::V2 => groups.base().join(&format!("{}-agent", run_dir.prefix())),
    };
    let moved = home.map_err(|error| error.to_string()).and_then(|home| {
        if !home.is_root() {
            groups.create(&home).map_err(|error| error.to_string())?;
        }
        groups.place(&home, pid).map_err(|error| error.to_string())
    });
    if let Err(why) = moved {
        warn!("agent: stays in {at}: {why}; it may be slow there");
    }
}

/// Starts a guardian in a session of its own.
pub fn start_guardian(
    run_dir: &RunDir,
    mode: Mode,
    engine: Option<Engine>,
) -> std::io::Result<std::process::Child> {
    let mut command = own_program()?;
    command.args(["guardian", "--agent", &std::process::id().to_string()]);
    if mode == Mode::OnDemand {
        command.arg("--on-demand");
    }
    // For the agent that it may start.
    if let Some(engine) = engine {
        command.args(["--engine", &engine.to_string()]);
    }
    command
        .envs(run_dir.env())
        .current_dir("/")
        .stdin(Stdio::null());
    // Standard output may still be the pipe on which the starter waits for us: the guardian must not hold it open.
    command.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    // SAFETY: setsid is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
    command.spawn()
}

fn listen(run_dir: &RunDir) -> Result<std::os::unix::net::UnixListener, String> {
    let path = run_dir.socket();
    let wrong = |error: std::io::Error| {
        format!(
            "agent: {}: {error}; check the run directory",
            path.display()
        )
    };
    // We hold the agent's lock, so a socket that is there is a dead agent's.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(wrong(error)),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&path).map_err(wrong)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).map_err(wrong)?;
    listener.set_nonblocking(true).map_err(wrong)?;
    Ok(listener)
}

/// An agent without its loop would answer and hold the lock, and nothing would be in control: it dies with any thread, and
/// the guardian acts.
struct EndWithThread;

impl Drop for EndWithThread {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn serve(started: Started) -> Result<(), String> {
    let Started {
        agent,
        listener,
        housekeeping,
        _lock,
    } = started;
    let writer = crate::writer::QuotaWriter::new(&agent);
    let control_loop = ControlThread {
        control: Arc::clone(&agent.control),
        meters: Arc::clone(&agent.meters),
        lease: Arc::clone(&agent.lease),
        ext: Arc::clone(&agent.ext),
        period_ns: agent.period_ns,
        leaving: Arc::clone(&agent.leaving),
    };
    let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .stack_size(512 * 1024)
            .spawn(move || {
                let _end = EndWithThread;
                work();
            })
            .map_err(|error| format!("agent: thread {name}: {error}"))
    };
    let looping = spawn(
        "control",
        Box::new(move || control_thread::run(control_loop, Box::new(writer))),
    )?;
    let housed = Arc::clone(&agent);
    let keeping = spawn("housekeeping", Box::new(move || housekeeping.run(&housed)))?;
    let bursty = Arc::clone(&agent);
    let bursting = spawn("bursts", Box::new(move || crate::bursts::run(&bursty)))?;
    let divided = Arc::clone(&agent);
    let dividing = spawn("units", Box::new(move || units::run(&divided)))?;
    let confined = Arc::clone(&agent);
    let confining = spawn(
        "cpuset",
        Box::new(move || cpuset_controller::run(&confined)),
    )?;
    let supervised = Arc::clone(&agent);
    // Not waited for in the end: the kernel may be checking its programs for a while, and nothing comes of that any more.
    spawn("ext", Box::new(move || ext::run(&supervised)))?;
    let boosted = Arc::clone(&agent);
    let boosting = spawn("lock-boost", Box::new(move || lock_boost::run(&boosted)))?;
    control_thread::pin_memory();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("agent: tokio: {error}"))?;
    let socket = agent.run_dir.socket();
    let served = runtime.block_on(async {
        let listener =
            tokio::net::UnixListener::from_std(listener).map_err(|error| error.to_string())?;
        leave_on_signals(Arc::clone(&agent))?;
        say_ready(agent.mode)?;
        server::serve(listener, Arc::clone(&agent))
            .await
            .map_err(|error| error.to_string())
    });
    if served.is_err() {
        agent.leave();
    }
    let _ = std::fs::remove_file(&socket);
    let _ = looping.join();
    let _ = keeping.join();
    let _ = bursting.join();
    let _ = dividing.join();
    let _ = confining.join();
    let _ = boosting.join();
    served.map_err(|why| format!("agent: {}: {why}", socket.display()))
}

/// A service manager ends us with SIGTERM, a person with Ctrl-C.
fn leave_on_signals(agent: Arc<Agent>) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut int = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        info!("asked to leave");
        agent.leave();
    });
    Ok(())
}

/// Tells the starter, which waits on our standard output, and lets go of it.
fn say_ready(mode: Mode) -> Result<(), String> {
    if mode == Mode::Service {
        notify::tell(notify::READY);
        return Ok(());
    }
    let mut out = std::io::stdout();
    let said = writeln!(out, "ready").and_then(|()| out.flush());
    if let Err(error) = said {
        warn!("nobody waits for us any more: {error}");
    }
    rustix::stdio::dup2_stdout(std::io::stderr())
        .map_err(|error| format!("agent: standard output: {error}"))
}
