//! `tidegate lab peers`: ordinary work, without a gate, under the kernel's own scheduler, under the ext engine and under other
//! schedulers of sched_ext, one after another in each round of one boot. The work is done by programs that others wrote.

pub mod crates;
pub mod host;
mod loads;
mod process;
mod report;
mod server;

use loads::LOADS;

use crate::LabError;
use crate::options::LabOptions;
use tidegate_vm::tool;

/// Another scheduler of sched_ext, published on crates.io.
#[derive(Debug, PartialEq, Eq)]
pub struct Peer {
    /// The crate, and the program in it.
    pub name: &'static str,
    /// The version that is built.
    pub version: &'static str,
    /// How it is started.
    pub args: &'static [&'static str],
}

/// All of them, with the options that their authors made the defaults.
pub const PEERS: [Peer; 4] = [
    Peer::new("scx_lavd", "1.1.4", &[]),
    Peer::new("scx_bpfland", "1.1.4", &[]),
    // It has no default layers, but an example of its own.
    Peer::new("scx_layered", "1.1.4", &["--run-example"]),
    Peer::new("scx_cosmos", "1.1.7", &[]),
];

impl Peer {
    const fn new(name: &'static str, version: &'static str, args: &'static [&'static str]) -> Peer {
        Peer {
            name,
            version,
            args,
        }
    }

    /// As the kernel names it.
    fn ops(&self) -> &'static str {
        self.name.trim_start_matches("scx_")
    }
}

/// Who schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    /// The kernel's own.
    Eevdf,
    /// Ours.
    Ext,
    /// Another.
    Peer(&'static Peer),
}

impl Contender {
    /// In the tables' order.
    fn all() -> impl Iterator<Item = Contender> {
        [Contender::Eevdf, Contender::Ext]
            .into_iter()
            .chain(PEERS.iter().map(Contender::Peer))
    }

    /// In tables, JSON and CSV.
    fn name(self) -> &'static str {
        match self {
            Contender::Eevdf => "eevdf",
            Contender::Ext => "tidegate",
            Contender::Peer(peer) => peer.ops(),
        }
    }
}

/// What a guest needs besides Tidegate, and what is not to be had.
#[derive(Default)]
pub struct Programs {
    /// The place in the guest, and the file here.
    pub binaries: Vec<(String, std::path::PathBuf)>,
    /// A sentence each.
    pub absent: Vec<String>,
}

impl Programs {
    /// Finds the programs that work, and builds the schedulers that are not in the cache yet.
    pub fn gather(options: &LabOptions) -> Result<Programs, LabError> {
        if let Some(path) = options.schbench.as_ref().filter(|path| !path.is_file()) {
            return Err(LabError::Asked {
                what: format!("--schbench {}", path.display()),
                why: "there is no such file".into(),
                mend: "give the program that is built from Chris Mason's schbench, or leave it out"
                    .into(),
            });
        }
        let mut all = Programs::default();
        let mut names: Vec<&str> = LOADS.iter().map(|load| load.program).collect();
        names.dedup();
        for name in names {
            let found = match (&options.schbench, name) {
                (Some(path), "schbench") => Ok(path.clone()),
                (_, "sh") => continue,
                _ => tool(name).map_err(|e| e.to_string()),
            };
            all.add(name, found);
        }
        for peer in PEERS.iter().filter(|_| !options.without_peers) {
            all.add(peer.name, crates::built(peer, options.quiet));
        }
        Ok(all)
    }

    fn add(&mut self, name: &str, found: Result<std::path::PathBuf, String>) {
        match found {
            Ok(file) => self.binaries.push((format!("/bin/{name}"), file)),
            Err(why) => self.absent.push(format!("{name} is absent: {why}.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_arm_has_a_name_of_its_own() {
        let names: Vec<&str> = Contender::all().map(Contender::name).collect();
        assert_eq!(
            names,
            ["eevdf", "tidegate", "lavd", "bpfland", "layered", "cosmos"]
        );
    }

    #[test]
    fn a_schbench_that_is_not_there_is_named() {
        let mut options = LabOptions::new(crate::options::Experiment::Peers);
        options.schbench = Some("/no/schbench".into());
        let refused = Programs::gather(&options).err().map(|e| e.to_string());
        assert_eq!(
            refused.as_deref(),
            Some(
                "--schbench /no/schbench: there is no such file; give the program that is built from Chris Mason's schbench, or leave it out"
            )
        );
    }
}
