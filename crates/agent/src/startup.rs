//! Becoming the agent: one at a time, away from any gate, with what an earlier agent left taken up.

mod error;
mod take_over;

use std::fmt::Display;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tidegate_cgroup::discover::{CgroupVersion, discover, tick_hz};
use tidegate_cgroup::group::{GroupPath, Groups};
use tidegate_cgroup::target::GateName;
use tidegate_cgroup::topology::Topology;
use tidegate_cgroup::{KernelFs, RealFs};
use tidegate_engine::clock::SystemClock;
use tidegate_engine::control::{Control, SHARED_CORES_PPM};
use tidegate_engine::sense::{self, KernelTypes, SenseConfig};
use tidegate_terms::{Engine, LoopPeriod, Sense, Settings};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use crate::agent::Agent;
use crate::control_loop::ControlLoop;
use crate::errors::MachineError;
use crate::events::Events;
use crate::gates::{Gates, demand};
use crate::kept_policy;
use crate::kernel::Kernel;
use crate::lifecycle::housekeeping::Housekeeping;
use crate::lifecycle::take_up;
use crate::paths::{RunDir, open_lock};
use crate::process::agent_lock::{LOCK_PATIENCE, LOCK_POLL};
use crate::process::begin::{begin, forget_starter};
use crate::process::lease::{Lease, monotonic_ns};
use crate::process::liveness::agent_lives;
use crate::process::program::start_guardian;
use crate::process::{Life, notify};
use crate::recorder_state::RecorderState;
use crate::runtime::cpuset_controller::CpusetController;
use crate::runtime::{Runtime, control_thread};
use crate::sched_ext::SchedExtSupervisor;
use crate::sched_ext::kernel::{self, RealKernel};
use crate::server;
use crate::systemd::{bus, own_unit};
use crate::threads;
use crate::view::SharedStatus;

pub use crate::process::Mode;
pub use error::StartError;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub mode: Mode,
    pub sense: Option<Sense>,
    pub engine: Option<Engine>,
    /// Wait for the agent that runs to end, instead of failing.
    pub take_over: bool,
}

const PERIOD_EXACT_NS: u64 = 5_000_000;
const SCOPE: &str = "Tidegate, started on demand";

/// Runs an agent to its end.
///
/// # Errors
/// What, where, why; and the remedy. In on-demand mode it has also gone to standard output, where
/// the command that started this waits for it.
pub fn main(run_dir: &RunDir, options: &Options) -> Result<(), StartError> {
    if options.mode == Mode::OnDemand {
        detach()?;
    }
    begin();
    if options.mode == Mode::OnDemand {
        forget_starter();
        enter_own_manager();
    }
    let result = live(run_dir, options);
    if let Err(why) = &result
        && options.mode == Mode::OnDemand
    {
        // The starter may be dead, and its end of the pipe closed.
        let _ = writeln!(io::stdout(), "{why}");
    }
    result
}

fn live(run_dir: &RunDir, options: &Options) -> Result<(), StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::of("tokio"))?;
    let mut signals = None;
    let _lock = if options.take_over {
        let signals = signals.insert(Signals::follow(&runtime).map_err(StartError::of("signals"))?);
        match take_over::wait(run_dir, &runtime, signals)? {
            Some(file) => file,
            None => return Ok(()),
        }
    } else {
        take_lock(run_dir)?
    };
    serve(run_dir, options, &runtime, signals)
}

/// Leaves the caller's session and parentage: the starter may exec another program, whose child we
/// must not be.
fn detach() -> Result<(), StartError> {
    // SAFETY: this process has one thread so far (main calls this first), so the child is a whole
    // copy.
    match unsafe { libc::fork() } {
        -1 => Err(StartError::of("fork")(io::Error::last_os_error())),
        0 => match rustix::process::setsid() {
            Ok(_) => Ok(()),
            Err(error) => Err(StartError::of("setsid")(error.into())),
        },
        _ => std::process::exit(0),
    }
}

/// The agent, its socket, and its guardian's process.
type Started = (Arc<Agent>, UnixListener, Option<Child>);

fn start(run_dir: &RunDir, options: &Options) -> Result<Started, StartError> {
    let (policy, config, files_refused) = kept_policy::at_start(run_dir)?;
    let settings = config.settings();
    let machine = discover(&RealFs::new(), None).map_err(MachineError::from)?;
    if let Some(why) = machine.refusal() {
        return Err(StartError::NoGates(why));
    }
    let fs = tidegate_cgroup::machine(machine.roots()).map_err(MachineError::from)?;
    let engine = options.engine.unwrap_or(settings.engine.value);
    let sched_ext = supervisor(engine, &fs)?;
    leave_gates(&Groups::new(Arc::clone(&fs), &machine), run_dir);
    let opened = Kernel::open(fs, machine, run_dir.clone(), Arc::new(SystemClock));
    let (mut kernel, report) = opened.map_err(MachineError::from)?;
    // A scheduler of our own reads slices in another way.
    kernel.has_short_turns = engine != Engine::SchedExt && KernelTypes::read().has_one_queue;
    report.alerts.iter().for_each(|alert| warn!("{alert}"));
    let sense = options.sense.unwrap_or(settings.sense.value);
    let (sensor, sensing_note) = sense::open(&SenseConfig::detect(), &[], &[], sense)?;
    info!("{sensing_note}");
    let period_ns = period(&settings, sensor.min_window_ns());
    let lease = Lease::open(&run_dir.lease()).map_err(StartError::at(&run_dir.lease()))?;
    lease.take(std::process::id() as i32, settings.lease.value.ns());
    let topology = Topology::read(&RealFs::new()).unwrap_or_default();
    let shares_cores = topology.shares_cores();
    let cpuset = CpusetController::new(settings.cpuset.value, topology, &kernel.groups);
    info!("{}", cpuset.sentence());
    let settings = cpuset.settings(settings);
    let mut control = Control::new(sensor, demand([].into_iter(), &settings));
    if shares_cores {
        control.set_contention(SHARED_CORES_PPM);
    }
    for root in [kernel.side_root(), kernel.main_root()] {
        kernel.own_root(&root).map_err(StartError::TreeTaken)?;
    }
    let tick_ns = 1_000_000_000 / u64::from(tick_hz().unwrap_or(250).max(1));
    let control_loop = ControlLoop {
        sensing_note,
        ..ControlLoop::new(control, lease, tick_ns, period_ns)
    };
    let agent = Arc::new(Agent {
        gates: Gates::new(config),
        policy,
        runtime: Runtime {
            events: Events::of(options.mode),
            recorder: RecorderState::open(run_dir, options.mode, settings.recording.value.bytes()),
            alerts: Mutex::new(report.alerts.into_iter().collect()),
            ..Runtime::new(kernel, control_loop, sched_ext, cpuset, settings)
        },
        life: Life::new(options.mode, monotonic_ns()),
        shared_status: SharedStatus::default(),
    });
    take_up(&agent.gates, &agent.runtime).map_err(StartError::Records)?;
    crate::policy::apply::begin(&agent, files_refused.as_deref());
    let guardian = start_guardian(run_dir, options.mode, options.engine)
        .inspect_err(|error| warn!("guardian: {error}; tried again every second"))
        .ok();
    let listener = listen(run_dir)?;
    Ok((agent, listener, guardian))
}

/// The scheduler, where it is to be one and this kernel can have it: who asks for it by name is
/// told at once when it cannot.
fn supervisor(engine: Engine, fs: &Arc<dyn KernelFs>) -> Result<SchedExtSupervisor, StartError> {
    let kernel: Option<Arc<dyn kernel::Kernel>> = match engine {
        // Which one auto is, is told with its reason in docs/decisions/sched-ext-opt-in.md.
        Engine::Auto | Engine::Cgroup => None,
        Engine::SchedExt => Some(Arc::new(RealKernel::new(Arc::clone(fs)))),
    };
    if let Some(kernel) = &kernel {
        kernel.can_load().map_err(StartError::SchedExt)?;
    }
    Ok(SchedExtSupervisor::new(kernel))
}

/// The run directory, and the file of its agent's lock, which is not taken yet.
fn open_agent_lock(run_dir: &RunDir) -> Result<File, StartError> {
    GateName::parse(run_dir.prefix()).map_err(StartError::Prefix)?;
    let dir = run_dir.dir();
    let wrong = |path: &Path| {
        let path = path.to_owned();
        move |error| StartError::Denied { path, error }
    };
    run_dir.make().map_err(StartError::RunDir)?;
    // The socket's own check decides who may do what; the directory only has to let them reach it,
    // and nobody else has business with a user's own agent.
    let is_machines = rustix::process::geteuid().is_root();
    let mode = if is_machines { 0o755 } else { 0o700 };
    std::fs::set_permissions(dir, Permissions::from_mode(mode)).map_err(wrong(dir))?;
    let path = run_dir.agent_lock();
    open_lock(&path).map_err(wrong(&path))
}

fn take_lock(run_dir: &RunDir) -> Result<File, StartError> {
    let path = run_dir.agent_lock();
    let file = open_agent_lock(run_dir)?;
    let began = Instant::now();
    while file.try_lock().is_err() {
        // An agent that leaves no longer answers but is still tidying up; one that starts does not
        // answer yet. Repair and a guardian that writes the fallback hold the lock for moments,
        // too.
        if agent_lives(run_dir) || began.elapsed() >= LOCK_PATIENCE {
            return Err(StartError::Running { path });
        }
        std::thread::sleep(LOCK_POLL);
    }
    Ok(file)
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
    // v1: the base has room for processes beside groups. v2: only the real root has; else a group
    // of our own.
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

fn listen(run_dir: &RunDir) -> Result<UnixListener, StartError> {
    let path = run_dir.socket();
    // We hold the agent's lock, so a socket that is there is a dead agent's.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(StartError::at(&path)(error));
        }
        _ => {}
    }
    let bind = || {
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    };
    bind().map_err(StartError::at(&path))
}

fn serve(
    run_dir: &RunDir,
    options: &Options,
    runtime: &tokio::runtime::Runtime,
    signals: Option<Signals>,
) -> Result<(), StartError> {
    let (agent, listener, guardian) = start(run_dir, options)?;
    let guardian_pid = guardian.as_ref().map(Child::id);
    let housekeeping = Housekeeping::new(guardian).with_engine(options.engine);
    let threads = threads::start(&agent, housekeeping).map_err(StartError::of("thread"))?;
    control_thread::pin_memory();
    let socket = run_dir.socket();
    let served = runtime.block_on(async {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let signals = signals.map_or_else(Signals::new, Ok)?;
        leave_on(signals, Arc::clone(&agent));
        say_ready(agent.life.mode)?;
        leave_session(agent.life.mode, guardian_pid);
        server::serve(listener, Arc::clone(&agent)).await
    });
    if served.is_err() {
        agent.leave();
    }
    let _ = std::fs::remove_file(&socket);
    for thread in threads {
        let _ = thread.join();
    }
    // The next agent has a whole lease from here.
    agent.runtime.control_loop.lease.beat(monotonic_ns());
    served.map_err(StartError::of(&socket.display().to_string()))
}

fn leave_on(mut signals: Signals, agent: Arc<Agent>) {
    tokio::spawn(async move {
        signals.recv().await;
        // Before the gates are locked: systemd may take its time.
        match has_next_agent(&agent.runtime.kernel.run_dir, agent.life.mode) {
            true => {
                info!("asked to leave for the next agent");
                agent.hand_over();
            }
            false => {
                info!("asked to leave");
                agent.leave();
            }
        }
    });
}

/// A user can make groups below their own manager only. Where there is none, discovery says what
/// else can be written.
fn enter_own_manager() {
    if !rustix::process::geteuid().is_root()
        && let Err(error) = own_unit::own_scope(&[std::process::id()], SCOPE)
    {
        info!("no scope of the user's own systemd: {error}");
    }
}

/// Agent and guardian on demand would end with the session of the command that started them, where
/// systemd ends all of a session at its logout (`KillUserProcesses=`).
fn leave_session(mode: Mode, guardian_pid: Option<u32>) {
    let is_done = !rustix::process::geteuid().is_root();
    if mode == Mode::Service || !bus::is_booted() || is_done {
        return;
    }
    // Nothing waits for it: systemd may take its time.
    let stays = |why: &dyn Display| {
        warn!("agent: it stays in the session that started it and may end with that: {why}");
    };
    let leave = move || {
        let pids: Vec<u32> = [std::process::id()]
            .into_iter()
            .chain(guardian_pid)
            .collect();
        if let Err(error) = own_unit::own_scope(&pids, SCOPE) {
            stays(&error);
        }
    };
    if let Err(error) = std::thread::Builder::new().spawn(leave) {
        stays(&error);
    }
}

/// Whether another agent takes this one's place as soon as it has ended.
fn has_next_agent(run_dir: &RunDir, mode: Mode) -> bool {
    take_over::is_awaited(run_dir) || is_restarted(mode)
}

/// Whether this is a service that systemd starts again as soon as it has ended. Where systemd does
/// not answer, its ExecStopPost asks once more, and puts everything back if it was an end.
fn is_restarted(mode: Mode) -> bool {
    mode == Mode::Service
        && bus::is_booted()
        && own_unit::is_restarting().unwrap_or_else(|error| {
            info!("whether this is a restart is not known: {error}");
            true
        })
}

/// Tells the starter, which waits on our standard output, and lets go of it.
fn say_ready(mode: Mode) -> io::Result<()> {
    if mode == Mode::Service {
        notify::send_ready();
        return Ok(());
    }
    let mut out = io::stdout();
    let said = writeln!(out, "ready").and_then(|()| out.flush());
    if let Err(error) = said {
        warn!("the command that started this agent has ended: {error}");
    }
    rustix::stdio::dup2_stdout(io::stderr())
        .map_err(|error| io::Error::other(format!("agent: standard output: {error}")))
}

/// A service manager ends us with SIGTERM, a person with Ctrl-C.
struct Signals {
    term: Signal,
    int: Signal,
    is_told: bool,
}

impl Signals {
    /// From here on, a signal no longer ends the process by itself.
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            is_told: false,
        })
    }

    /// The same before the runtime has begun.
    fn follow(runtime: &tokio::runtime::Runtime) -> io::Result<Self> {
        let _entered = runtime.enter();
        Self::new()
    }

    /// Waits for a signal to end. After the first signal, every call returns at once.
    async fn recv(&mut self) {
        if !self.is_told {
            tokio::select! {
                _ = self.term.recv() => {}
                _ = self.int.recv() => {}
            }
            self.is_told = true;
        }
    }
}
