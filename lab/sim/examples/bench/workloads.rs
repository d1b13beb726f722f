//! The machines that the benchmark runs.

use tidegate_sim::{
    Ctx, GroupId, Machine, MachineConfig, Op, PipeId, Program, Scheduler, TaskSpec, Topology,
};

/// Runs for about 200 µs, sleeps for about 600 µs.
struct Sleeper {
    ran: bool,
}

impl Program for Sleeper {
    fn next(&mut self, ctx: &mut Ctx<'_>) -> Op {
        self.ran = !self.ran;
        if self.ran {
            Op::Run {
                work_ns: ctx.rng.exp_ns(200_000),
            }
        } else {
            Op::Sleep {
                for_ns: ctx.rng.exp_ns(600_000),
            }
        }
    }
}

/// Sends when spoken to, after 10 µs of work.
struct Talker {
    from: PipeId,
    to: PipeId,
    step: u32,
}

impl Program for Talker {
    fn next(&mut self, _ctx: &mut Ctx<'_>) -> Op {
        self.step = (self.step + 1) % 3;
        match self.step {
            1 => Op::Send { pipe: self.to },
            2 => Op::Recv { pipe: self.from },
            _ => Op::Run { work_ns: 10_000 },
        }
    }
}

/// Never stops.
struct Hog;

impl Program for Hog {
    fn next(&mut self, _ctx: &mut Ctx<'_>) -> Op {
        Op::Run {
            work_ns: 1_000_000_000,
        }
    }
}

fn spawn(machine: &mut Machine, name: String, program: Box<dyn Program>) -> Result<(), String> {
    let spec = TaskSpec::new(&name, GroupId::ROOT, program);
    machine
        .spawn(spec)
        .map(|_| ())
        .map_err(|why| why.to_string())
}

/// A machine of this many CPUs, each with its share of sleepers and talkers.
pub fn machine_of(cpus: u32) -> Result<Machine, String> {
    let mut config = MachineConfig::new(cpus);
    config.topology = Topology::new(cpus, 2, cpus.min(16));
    let mut machine = Machine::new(config).map_err(|why| why.to_string())?;
    for cpu in 0..cpus {
        for n in 0..3 {
            spawn(
                &mut machine,
                format!("sleeper-{cpu}-{n}"),
                Box::new(Sleeper { ran: false }),
            )?;
        }
        if cpu % 2 == 0 {
            let (a, b) = (machine.add_pipe(4), machine.add_pipe(4));
            spawn(
                &mut machine,
                format!("talker-{cpu}-a"),
                Box::new(Talker {
                    from: a,
                    to: b,
                    step: 0,
                }),
            )?;
            spawn(
                &mut machine,
                format!("talker-{cpu}-b"),
                Box::new(Talker {
                    from: b,
                    to: a,
                    step: 0,
                }),
            )?;
        }
    }
    Ok(machine)
}

/// Eight CPUs and this many tasks that never stop.
pub fn crowd_of(tasks: u32) -> Result<Machine, String> {
    let mut config = MachineConfig::new(8);
    config.topology = Topology::new(8, 2, 8);
    // A tick of 0.1 ms and slices as short: every tick chooses again.
    config.tick_ns = 100_000;
    if let Scheduler::Eevdf(eevdf) = &mut config.scheduler {
        eevdf.base_slice_ns = 100_000;
    }
    let mut machine = Machine::new(config).map_err(|why| why.to_string())?;
    for n in 0..tasks {
        spawn(&mut machine, format!("hog-{n}"), Box::new(Hog))?;
    }
    Ok(machine)
}
