//! Figures by name, as `tests/check/bed.c` prints them, and what they say about the machine that they were taken on.

use std::collections::BTreeMap;
use tidegate_sim::{Costs, EevdfConfig, ExtConfig, MachineConfig, Scheduler, Topology};

/// A value with its unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    pub unit: String,
}

/// Figures of one run, by `scenario.what.whom`.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// What they were taken on: the first line, after its `# `.
    pub title: String,
    by_name: BTreeMap<String, Figure>,
}

impl Figures {
    pub fn parse(text: &str) -> Result<Figures, String> {
        let mut figures = Figures::default();
        for (index, line) in text.lines().enumerate() {
            if let Some(title) = line.strip_prefix("# ") {
                figures.title = title.to_owned();
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, value, unit] = words[..] else {
                return Err(format!("line {}: not NAME VALUE UNIT", index + 1));
            };
            let value = value
                .parse()
                .map_err(|_| format!("line {}: not a number: {value}", index + 1))?;
            figures.put(name, value, unit);
        }
        Ok(figures)
    }

    pub fn put(&mut self, name: &str, value: f64, unit: &str) {
        let unit = unit.to_owned();
        self.by_name.insert(name.to_owned(), Figure { value, unit });
    }

    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.by_name.get(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// A figure that describes the machine, as a whole number.
    fn whole(&self, name: &str) -> Result<u64, String> {
        let figure = self.get(name).ok_or_else(|| format!("no figure {name}"))?;
        // Below 2^53, and no cost is less than nothing whatever a loud host measured.
        Ok(figure.value.max(0.0).round() as u64)
    }

    /// The machine that these were taken on, as the simulator describes one.
    pub fn machine(&self) -> Result<Description, String> {
        Ok(Description {
            cpus: u32::try_from(self.whole("machine.cpus")?).map_err(|e| e.to_string())?,
            tick_ns: self.whole("machine.tick")?,
            base_slice_ns: self.whole("machine.base_slice")?,
            timer_ns: self.whole("costs.timer")?,
            tide_ns: self.whole("costs.tide").unwrap_or(0),
            own_count: self.whole("machine.own_count").unwrap_or(0) > 0,
            costs: Costs {
                switch_ns: self.whole("costs.switch")?,
                wakeup_ns: self.whole("costs.wakeup")?,
                op_ns: self
                    .whole("costs.send")?
                    .midpoint(self.whole("costs.receive")?),
                idle_exit_ns: self.whole("costs.idle_exit")?,
                migrate_ns: 0,
                tick_ns: self.whole("costs.tick")?,
            },
        })
    }
}

/// Whose decisions are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The kernel's fair class.
    Fair,
    /// The ext engine.
    Ext,
}

/// A machine that a kernel ran on.
#[derive(Clone, Debug)]
pub struct Description {
    pub cpus: u32,
    pub tick_ns: u64,
    pub base_slice_ns: u64,
    /// From a timer's moment to the woken task's first instruction, less the switch.
    pub timer_ns: u64,
    /// What a look of the ext engine's ledger takes.
    pub tide_ns: u64,
    /// Shares there are of what the tasks say they burnt: without the kernel's own time.
    pub own_count: bool,
    pub costs: Costs,
}

impl Description {
    pub fn config(&self, silo_slice_us: u64, scheduler: Of) -> MachineConfig {
        MachineConfig {
            topology: Topology::new(self.cpus, 1, self.cpus),
            scheduler: match scheduler {
                Of::Fair => Scheduler::Eevdf(EevdfConfig {
                    base_slice_ns: self.base_slice_ns,
                    ..EevdfConfig::for_cpus(self.cpus)
                }),
                Of::Ext => Scheduler::Ext(ExtConfig {
                    look_ns: self.tide_ns,
                    ..ExtConfig::for_cpus(self.cpus)
                }),
            },
            tick_ns: self.tick_ns,
            bandwidth_slice_us: silo_slice_us,
            costs: self.costs,
            check: true,
            ..MachineConfig::new(self.cpus)
        }
    }
}
