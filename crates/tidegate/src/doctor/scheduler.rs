//! Whether this kernel takes a scheduler of ours (the engine sched_ext): what it has, what it
//! lacks, what a kernel that has it would add.

use tidegate_sched_ext::{NAME, Support};
use tidegate_terms::Engine;

const SINCE: (u32, u32) = (6, 12);

#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    pub release: String,
    /// What `CONFIG_SCHED_CLASS_EXT` is in the kernel's configuration in /boot; `None` where that
    /// cannot be read.
    pub configured: Option<bool>,
    pub support: Option<Result<Support, String>>,
    /// It tells schedulers of quotas (6.17).
    pub tells_quotas: bool,
}

impl Scheduler {
    pub fn gather() -> Scheduler {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim().to_owned();
        let config = std::fs::read_to_string(format!("/boot/config-{release}")).ok();
        let support = tidegate_sched_ext::support().map_err(|error| error.to_string());
        Scheduler {
            configured: config.map(|text| text.contains("CONFIG_SCHED_CLASS_EXT=y")),
            tells_quotas: support.is_ok() && tidegate_sched_ext::kernel_tells_quotas(),
            support: Some(support),
            release,
        }
    }

    pub fn is_supported(&self) -> bool {
        matches!(&self.support, Some(Ok(_)))
    }

    pub fn line(&self) -> String {
        let would = "a headroom that is kept to the millisecond, caps to the thousandth, hints that move deadlines \
                     (tidegate agent run --engine sched_ext)";
        match &self.support {
            None => "not looked at".to_owned(),
            Some(Ok(support)) => {
                let loaded = match support.loaded.as_deref() {
                    None => format!("none is loaded ({})", support.state),
                    Some(NAME) => "Tidegate's is in force".to_owned(),
                    Some(other) => {
                        format!(
                            "{other} is loaded, and the engine sched_ext waits until it is stopped"
                        )
                    }
                };
                let quotas = match self.tells_quotas {
                    true => "",
                    false => {
                        "; this kernel does not tell it of quotas that others write (6.17 does)"
                    }
                };
                format!("sched_ext is there, for {would}; {loaded}{quotas}")
            }
            Some(Err(why)) => {
                let lacks = match (self.is_new_enough(), self.configured) {
                    (false, _) => format!("it is older than {}.{}", SINCE.0, SINCE.1),
                    (true, Some(false)) => "CONFIG_SCHED_CLASS_EXT is not set".to_owned(),
                    // With it, BTF is what is left to be missing; the kernel's own word says so.
                    (true, _) => {
                        "new enough, but built without CONFIG_SCHED_CLASS_EXT or BTF".to_owned()
                    }
                };
                let why = why.trim_start_matches("sched_ext: ");
                format!(
                    "engine sched_ext is unavailable: {why} ({lacks}); such a kernel would add {would}"
                )
            }
        }
    }

    /// Which engine an agent that starts now takes, one line for people.
    pub fn configured_line(&self, engine: Engine, source: &str) -> String {
        let asked = format!("engine = {engine}, {source}");
        match engine {
            Engine::Auto => format!("cgroup ({asked})"),
            Engine::Cgroup => asked,
            Engine::SchedExt if self.refuses().is_some() => {
                format!(
                    "{asked}, which this kernel cannot have: no agent starts; take engine = cgroup"
                )
            }
            Engine::SchedExt => match self.another() {
                None => {
                    format!("{asked}: an agent puts Tidegate's scheduler in force when it starts")
                }
                Some(other) => format!(
                    "{asked}: {other}, another sched_ext scheduler, is loaded and stays: until it is gone an agent keeps the terms \
                     with cgroup; stop the service or program that loaded {other}, and Tidegate's is in force within half a minute; \
                     or take engine = cgroup"
                ),
            },
        }
    }

    fn another(&self) -> Option<&str> {
        let support = self.support.as_ref()?.as_ref().ok()?;
        support.loaded.as_deref().filter(|name| *name != NAME)
    }

    pub fn refuses(&self) -> Option<&str> {
        match &self.support {
            Some(Err(why)) => Some(why.trim_start_matches("sched_ext: ")),
            _ => None,
        }
    }

    fn is_new_enough(&self) -> bool {
        let mut numbers = self
            .release
            .split(['.', '-'])
            .map_while(|part| part.parse::<u32>().ok());
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        version >= SINCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(loaded: Option<&str>, tells_quotas: bool) -> String {
        let support = Support {
            state: if loaded.is_some() {
                "enabled"
            } else {
                "disabled"
            }
            .to_owned(),
            loaded: loaded.map(str::to_owned),
        };
        let scheduler = Scheduler {
            release: "6.18.15+deb13-cloud-amd64".to_owned(),
            configured: Some(true),
            support: Some(Ok(support)),
            tells_quotas,
        };
        scheduler.line()
    }

    #[test]
    fn what_there_is_is_said() {
        assert!(found(None, true).contains("none is loaded (disabled)"));
        assert!(found(Some("tidegate"), true).contains("Tidegate's is in force"));
        assert!(found(Some("simple"), true).contains("simple is loaded"));
        assert!(found(None, false).contains("6.17"));
        assert!(!found(None, true).contains("6.17"));
    }

    #[test]
    fn the_configured_engine_is_said_and_whether_it_can_be_had() {
        let can = Scheduler {
            support: Some(Ok(Support {
                state: "disabled".to_owned(),
                loaded: None,
            })),
            ..Scheduler::default()
        };
        let cannot = Scheduler {
            support: Some(Err(
                "sched_ext: kernel X: it has no sched_ext; use Y".to_owned()
            )),
            ..Scheduler::default()
        };
        let file = "/etc/tidegate/tidegate.toml";
        for scheduler in [&can, &cannot] {
            let auto = scheduler.configured_line(Engine::Auto, "default");
            assert_eq!(auto, "cgroup (engine = auto, default)");
            let cgroup = scheduler.configured_line(Engine::Cgroup, file);
            assert_eq!(cgroup, "engine = cgroup, /etc/tidegate/tidegate.toml");
        }
        let sched_ext = can.configured_line(Engine::SchedExt, file);
        assert!(sched_ext.contains("in force when it starts"), "{sched_ext}");
        let beside = |name: &str| {
            let scheduler = Scheduler {
                support: Some(Ok(Support {
                    state: "enabled".to_owned(),
                    loaded: Some(name.to_owned()),
                })),
                ..Scheduler::default()
            };
            scheduler.configured_line(Engine::SchedExt, file)
        };
        let sched_ext = beside("rusty_1.0.8");
        assert!(!sched_ext.contains("when it starts"), "{sched_ext}");
        assert!(
            sched_ext.contains("rusty_1.0.8, another sched_ext scheduler, is loaded"),
            "{sched_ext}"
        );
        assert!(
            sched_ext.contains("stop the service or program that loaded rusty_1.0.8"),
            "{sched_ext}"
        );
        assert!(beside(NAME).contains("when it starts"), "our own");
        let sched_ext = cannot.configured_line(Engine::SchedExt, file);
        assert!(sched_ext.contains("no agent starts"), "{sched_ext}");
    }

    #[test]
    fn what_a_kernel_lacks_and_would_add_is_said() {
        let lacking = |release: &str, configured| {
            let scheduler = Scheduler {
                release: release.to_owned(),
                configured,
                support: Some(Err(
                    "sched_ext: kernel X: it has no sched_ext; use Y".to_owned()
                )),
                tells_quotas: false,
            };
            scheduler.line()
        };
        let old = lacking("6.1.0-31-amd64", Some(false));
        assert!(
            old.contains("older than 6.12") && old.contains("would add"),
            "{old}"
        );
        let off = lacking("6.18.44", Some(false));
        assert!(off.contains("CONFIG_SCHED_CLASS_EXT is not set"), "{off}");
        assert!(lacking("6.18.44", None).contains("new enough"));
    }
}
