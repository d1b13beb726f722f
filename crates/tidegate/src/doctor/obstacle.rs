//! What keeps Tidegate from enforcing anything here: the most fundamental obstacle, with its
//! remedy.

use tidegate_terms::Engine;

use super::Facts;

pub struct Obstacle {
    pub why: String,
    pub remedy: String,
}

fn obstacle_of(why: impl Into<String>, remedy: impl Into<String>) -> Option<Obstacle> {
    Some(Obstacle {
        why: why.into(),
        remedy: remedy.into(),
    })
}

pub fn obstacle(facts: &Facts) -> Option<Obstacle> {
    // An agent that answers has all that it needs; what the caller lacks does not matter then.
    if let Ok(Some(_)) = &facts.agent {
        return None;
    }
    let machine = match &facts.machine {
        Ok(machine) => machine,
        Err(why) => return obstacle_of("the cgroup tree could not be understood", why.clone()),
    };
    if machine.features.quota.present == Some(false) {
        return obstacle_of(
            format!(
                "this kernel has no CPU quotas ({})",
                machine.features.quota.how
            ),
            "boot Linux 4.15 or later with CONFIG_CFS_BANDWIDTH",
        );
    }
    if let Some(why) = machine.refusal() {
        let remedy = match facts.root {
            false => "put sudo before tidegate, or have the service started",
            true => {
                "make the cgroup tree writable (in a container: mount it read-write), or run on the host"
            }
        };
        return obstacle_of(why, remedy);
    }
    if !facts.run_dir_writable {
        let remedy = if facts.root {
            "make it writable"
        } else {
            "put sudo before tidegate"
        };
        return obstacle_of(format!("{} cannot be written", facts.run_dir), remedy);
    }
    if let (Ok((Engine::SchedExt, source)), Some(why)) = (&facts.config, facts.scheduler.refuses())
    {
        return obstacle_of(
            format!("the configuration asks for engine = sched_ext ({source}), but {why}"),
            "take engine = cgroup",
        );
    }
    if let (Err(_), Err(why)) = (&facts.bpf, &facts.usage) {
        return obstacle_of("use cannot be measured", why.clone());
    }
    None
}
