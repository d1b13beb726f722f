//! Each mechanism of the design against the facts: what this version enforces here, by which
//! engine, how exactly, and what to change. One file an idea.

mod bandwidth;
mod caps;
mod hints;
mod side;

use super::obstacle::Obstacle;
use super::{Facts, Mechanism, Now};

pub fn all(facts: &Facts, obstacle: Option<&Obstacle>) -> Vec<Mechanism> {
    let machine = facts.machine.as_ref().ok();
    let mut rows = vec![
        side::headroom(facts, machine),
        side::objective(facts),
        side::tolerance(machine),
        side::weight(),
        side::idle(facts, machine),
        side::lease(facts),
        bandwidth::quota(machine),
        bandwidth::burst(machine),
        caps::hard(machine),
        caps::soft(facts, machine),
        hints::latency(facts),
    ];
    for row in &mut rows {
        match obstacle {
            Some(obstacle) => {
                row.now = Now::No;
                row.engine = "";
                row.change = Some(obstacle.remedy.clone());
            }
            None if !facts.admin => for_user(row),
            None => {}
        }
    }
    rows.push(bandwidth::slice(facts));
    rows
}

/// What is left of a mechanism for a caller who may only tighten, and only what is theirs
/// (`tidegate_agent::peer`).
fn for_user(row: &mut Mechanism) {
    let may = match row.name {
        "headroom" => "your own work can be side work; main and headroom are not yours to name",
        "weight" => "up to 100",
        "latency hints" => "from 0 to 19, on your own processes",
        "quota, period" | "burst" | "hard caps" | "soft caps" => "on your own side work",
        "objective" | "tolerance" => {
            row.now = Now::No;
            row.engine = "";
            row.how = "it takes CPU from others".to_owned();
            row.change = Some("ask root or a member of the group `tidegate`".to_owned());
            return;
        }
        _ => return,
    };
    if row.now == Now::Yes {
        row.now = Now::Partly;
    }
    row.how = format!("{may}; {}", row.how);
}

#[cfg(test)]
mod tests {
    use tidegate_cgroup::discover::Machine;
    use tidegate_engine::sense::KernelTypes;
    use tidegate_terms::Engine;

    use super::*;

    fn facts(machine: Result<Machine, String>) -> Facts {
        Facts {
            root: false,
            admin: false,
            machine,
            slices: Err("not tried".to_owned()),
            bpf: Err("no".to_owned()),
            usage: Ok(()),
            types: KernelTypes {
                has_workqueues: true,
                has_one_queue: false,
            },
            agent: Ok(None),
            main_cpus: Vec::new(),
            scheduler: crate::doctor::scheduler::Scheduler::default(),
            server: crate::doctor::server::ServerSettings::default(),
            core_cookies: 1,
            has_sis_util: true,
            systemd: Ok("257".to_owned()),
            config: Ok((Engine::Auto, "default".to_owned())),
            bandwidth_slice_us: Some(5000),
            run_dir: "/run/tidegate".to_owned(),
            run_dir_writable: false,
        }
    }

    #[test]
    fn without_a_tree_nothing_is_promised_and_the_reason_is_said() {
        let report = super::super::report(&facts(Err("no cgroup mount".to_owned())));
        assert!(
            !report.enforceable && report.verdict.contains("no cgroup mount"),
            "{}",
            report.verdict
        );
        assert!(
            report
                .mechanisms
                .iter()
                .all(|row| row.now != Now::Yes && row.now != Now::Partly)
        );
    }

    #[test]
    fn an_agent_that_answers_is_enough() {
        let mut facts = facts(Err("hidden in this container".to_owned()));
        facts.agent = Ok(Some("runs".to_owned()));
        let report = super::super::report(&facts);
        assert!(report.enforceable);
        let several = "NO_SIS_UTIL";
        assert!(report.notes.iter().any(|note| note.contains(several)));
        let cookie = "1 process has a cookie of core scheduling";
        assert!(report.notes.iter().any(|note| note.starts_with(cookie)));
    }

    #[test]
    fn the_page_fits_a_terminal() {
        let report = super::super::report(&facts(Err("x".repeat(300))));
        let page = super::super::page::of(&report);
        let page = anstream::adapter::strip_str(&page).to_string();
        assert!(
            page.lines()
                .all(|line| line.chars().count() <= crate::render::WIDTH),
            "{page}"
        );
        assert!(
            page.contains("No: headroom cannot be enforced now"),
            "{page}"
        );
    }

    #[test]
    fn every_mechanism_has_a_row() {
        let report = super::super::report(&facts(Err(String::new())));
        let names: Vec<_> = report.mechanisms.iter().map(|row| row.name).collect();
        assert_eq!(
            names,
            [
                "headroom",
                "objective",
                "tolerance",
                "weight",
                "idle class",
                "lease",
                "quota, period",
                "burst",
                "hard caps",
                "soft caps",
                "latency hints",
                "slice",
            ]
        );
    }
}
