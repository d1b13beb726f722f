//! Which CPUs a headroom is kept on, and by what: the pure step from what gates ask for to what the control step and the planner
//! of CPUs follow.
//!
//! A main gate whose cpuset is smaller than the machine is its CPUs' concern only: its *domain*. Side work elsewhere costs it nothing.
//!
//! - Where side work has no CPU outside the domain, the law runs on the domain and a quota says what it allows ([`Keeps::Quota`]).
//! - Where it has, one quota over both would be spent evenly on all of them, and the domain's part of it is undefined. There side
//!   work gets whole CPUs of the domain, as many as the law allows, by its cpuset ([`Keeps::Cpuset`]), and no quota on their account.
//! - What neither can do (use by CPU is unknown; side work that stays in its place and has CPUs on both sides) is kept
//!   machine-wide, as every headroom was before, and a note says so.
//!
//! Domains may overlap: each has a law of its own, and side work gets of each CPU what all of them allow.

use tidegate_terms::combine;

use tidegate_cgroup::cpu_list::format_list;

/// More distinct cpusets of main gates than this are taken for one: each costs a law and a sum at every step.
pub const DOMAINS_MAX: usize = 8;

/// A headroom that a gate asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The CPUs that its main work may use, ascending; `None` for all.
    pub cpus: Option<Vec<u32>>,
    /// Idle to keep, of those.
    pub headroom_ppm: u32,
    /// Who asks.
    pub from: String,
}

/// What keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The moving quota.
    Quota,
    /// Whole CPUs, by side work's cpuset.
    Cpuset,
}

/// CPUs on which a headroom is kept apart from the rest of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Them, ascending, fewer than the machine has.
    pub cpus: Vec<u32>,
    /// Idle to keep, of those.
    pub headroom_ppm: u32,
    /// Who asked for it.
    pub from: String,
    /// By what.
    pub keeps: Keeps,
}

/// What there is to keep it with.
#[derive(Clone, Debug, Default)]
pub struct DomainInputs {
    /// CPUs online, ascending.
    pub online: Vec<u32>,
    /// CPUs that the group of all side work of `run` may have as others leave it, ascending; `None` where it is empty.
    pub root: Option<Vec<u32>>,
    /// Side work that stays in its place: its group and its CPUs.
    pub in_place: Vec<(String, Vec<u32>)>,
    /// The sensor tells use by CPU; why not.
    pub by_cpu: Option<String>,
    /// Side work can be confined to CPUs; why not.
    pub refused: Option<String>,
}

/// What is followed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Machine-wide headroom; `None` where no gate asks for one.
    pub whole: Option<(u32, String)>,
    /// And on parts of it.
    pub domains: Vec<Domain>,
    /// CPUs of side work that are in no domain kept by the cpuset.
    pub outside: u32,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Sorts out what is asked.
pub fn resolve(asked: &[Asked], inputs: &DomainInputs) -> Resolved {
    let mut resolved = Resolved::default();
    let mut parts: Vec<Asked> = Vec::new();
    for one in asked {
        match part_of(one, inputs) {
            // A gate that wants no idle at all asks nothing of its CPUs either.
            Some(cpus) if one.headroom_ppm > 0 => add(&mut parts, one, cpus),
            _ => widen(&mut resolved.whole, one),
        }
    }
    if let Some(why) = inputs.by_cpu.as_ref().filter(|_| !parts.is_empty()) {
        for part in parts.drain(..) {
            resolved.notes.push(format!(
                "headroom of {} is kept machine-wide, not on its CPUs {}: {why}",
                part.from,
                list(&part)
            ));
            widen(&mut resolved.whole, &part);
        }
    }
    if parts.len() > DOMAINS_MAX {
        let all = one_of_all(&parts);
        resolved.notes.push(format!(
            "{} main gates have cpusets of their own, {DOMAINS_MAX} can be kept apart: taken for one of CPUs {}",
            parts.len(),
            list(&all)
        ));
        parts.clear();
        match part_of(&all, inputs) {
            Some(_) => parts.push(all),
            None => widen(&mut resolved.whole, &all),
        }
    }
    for part in parts {
        let cpus = part.cpus.clone().unwrap_or_default();
        match keeps(&cpus, inputs) {
            Ok(Some(keeps)) => resolved.domains.push(Domain {
                cpus,
                headroom_ppm: part.headroom_ppm,
                from: part.from,
                keeps,
            }),
            Ok(None) => resolved.notes.push(format!(
                "side work has no CPU of {}'s {}: nothing to keep there",
                part.from,
                list(&part)
            )),
            Err(why) => {
                resolved.notes.push(format!(
                    "headroom of {} is kept machine-wide, not on its CPUs {}: {why}",
                    part.from,
                    list(&part)
                ));
                widen(&mut resolved.whole, &part);
            }
        }
    }
    // 0 % of the machine says nothing beside a headroom of a part.
    if !resolved.domains.is_empty() && resolved.whole.as_ref().is_some_and(|whole| whole.0 == 0) {
        resolved.whole = None;
    }
    resolved.outside = outside(&resolved.domains, inputs);
    resolved
}

/// The CPUs that are online, where they are not all.
fn part_of(one: &Asked, inputs: &DomainInputs) -> Option<Vec<u32>> {
    let cpus = one.cpus.as_ref()?;
    let here: Vec<u32> = both(cpus, &inputs.online);
    (!here.is_empty() && here != inputs.online).then_some(here)
}

/// Headrooms for the same CPUs are one part.
fn add(parts: &mut Vec<Asked>, one: &Asked, cpus: Vec<u32>) {
    let cpus = Some(cpus);
    let new = Asked {
        cpus,
        ..one.clone()
    };
    let Some(part) = parts.iter_mut().find(|part| part.cpus == new.cpus) else {
        return parts.push(new);
    };
    if let Some(counts) = combine::headroom([&*part, &new], |one| one.headroom_ppm).cloned() {
        *part = counts;
    }
}

fn widen(whole: &mut Option<(u32, String)>, one: &Asked) {
    let own = (one.headroom_ppm, one.from.clone());
    *whole = combine::headroom(whole.take().into_iter().chain([own]), |(ppm, _)| *ppm);
}

fn one_of_all(parts: &[Asked]) -> Asked {
    let mut cpus: Vec<u32> = parts
        .iter()
        .flat_map(|part| part.cpus.iter().flatten().copied())
        .collect();
    cpus.sort_unstable();
    cpus.dedup();
    let largest = combine::headroom(parts, |part| part.headroom_ppm);
    Asked {
        cpus: Some(cpus),
        headroom_ppm: largest.map_or(0, |part| part.headroom_ppm),
        from: format!("{} main gates", parts.len()),
    }
}

/// By what a headroom on `cpus` can be kept; `None` where side work cannot run there.
fn keeps(cpus: &[u32], inputs: &DomainInputs) -> Result<Option<Keeps>, String> {
    let root = inputs.root.iter().map(|root| (None, root));
    let in_place = inputs.in_place.iter();
    let mut groups = root.chain(in_place.map(|(name, cpus)| (Some(name), cpus)));
    let inside = |side: &[u32]| both(side, cpus).len();
    if groups.clone().all(|(_, side)| inside(side) == 0) {
        return Ok(None);
    }
    if groups.clone().all(|(_, side)| inside(side) == side.len()) {
        return Ok(Some(Keeps::Quota));
    }
    if let Some(why) = &inputs.refused {
        return Err(why.clone());
    }
    let stays = groups.find_map(|(name, side)| name.filter(|_| inside(side) > 0));
    if let Some(name) = stays {
        return Err(format!(
            "side work in {name} stays in its place and may run there, while other side work has CPUs elsewhere"
        ));
    }
    Ok(Some(Keeps::Cpuset))
}

fn outside(domains: &[Domain], inputs: &DomainInputs) -> u32 {
    let in_place = inputs.in_place.iter().map(|(_, cpus)| cpus);
    let mut side: Vec<u32> = inputs
        .root
        .iter()
        .chain(in_place)
        .flatten()
        .copied()
        .collect();
    side.sort_unstable();
    side.dedup();
    for domain in domains.iter().filter(|one| one.keeps == Keeps::Cpuset) {
        side.retain(|cpu| domain.cpus.binary_search(cpu).is_err());
    }
    side.len() as u32
}

/// What is in both; each ascending.
pub fn both(a: &[u32], b: &[u32]) -> Vec<u32> {
    let is_in = |cpu: &&u32| b.binary_search(cpu).is_ok();
    a.iter().filter(is_in).copied().collect()
}

fn list(one: &Asked) -> String {
    format_list(one.cpus.as_deref().unwrap_or_default())
}
