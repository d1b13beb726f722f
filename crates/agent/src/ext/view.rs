//! What is shown of the scheduler.

use tidegate_api::ExtView;
use tidegate_ext::CapStat;
use tidegate_knobs::bandwidth::Bandwidth;
use tidegate_knobs::group::{CpuStat, GroupPath, GroupResult};
use tidegate_law::{HeadroomDecision, Reason};

use super::backoff::ENDS_MAX;
use super::counts::quota_counts;
use crate::agent::Agent;
use crate::control_thread::lock;

/// So much of the kernel's dump is shown; the log has all of it.
const DUMP_MAX: usize = 4_000;
/// Counts of quotas and caps are read again after this long: ten looks a second may ask (`burst = auto`), and each reads all.
const FRESH_NS: u64 = 50_000_000;

impl Agent {
    /// Which engine enforces the terms at this moment.
    pub(crate) fn engine(&self) -> &'static str {
        if self.ext.holds() { "ext" } else { "knobs" }
    }

    /// The scheduler, where one was asked for.
    pub(crate) fn ext_view(&self, now_ns: u64) -> Option<ExtView> {
        if !self.ext.is_wanted() {
            return None;
        }
        let on = self.ext.holds();
        let inner = lock(&self.ext.inner);
        let history = &inner.history;
        let seconds = |ns: u64| ns as f64 / 1e9;
        let mut view = ExtView {
            on,
            loads: history.loads,
            ends: history.ends,
            on_seconds: history
                .since_ns
                .filter(|_| on)
                .map(|since_ns| seconds(now_ns.saturating_sub(since_ns))),
            trouble: history.trouble.clone(),
            ..ExtView::default()
        };
        if let Some((ended, at_ns)) = &history.last {
            view.last_kind = Some(ended.kind);
            view.last_reason = Some(ended.reason.clone());
            view.last_message = Some(ended.message.clone());
            view.last_dump = Some(ended.dump.chars().take(DUMP_MAX).collect());
            view.last_ago_seconds = Some(seconds(now_ns.saturating_sub(*at_ns)));
        }
        if on {
            return Some(view);
        }
        let why = match (&inner.loaded, &history.why) {
            (Some(_), _) => "it has just ended".to_owned(),
            (None, Some(why)) => why.clone(),
            (None, None) => "it was not loaded so far".to_owned(),
        };
        view.why = Some(why.clone());
        view.reload_in_seconds = inner
            .next_ns
            .map(|at_ns| seconds(at_ns.saturating_sub(now_ns)));
        view.off = Some(match view.reload_in_seconds {
            None => format!(
                "ext off: {why}; not loaded again after {ENDS_MAX} ends within an hour; restart the agent, or take engine = knobs"
            ),
            Some(in_s) if in_s > 0.0 => format!("ext off: {why}; reload in {:.0} s", in_s.ceil()),
            Some(_) => format!("ext off: {why}; it is being loaded"),
        });
        Some(view)
    }

    /// The scheduler's own decision on side work, while it is in force and there is any.
    pub(crate) fn ext_decision(&self) -> Option<HeadroomDecision> {
        if !self.ext.holds() {
            return None;
        }
        let tide = lock(&self.ext.inner).loaded.as_ref()?.tide()?;
        let reason = (0..8)
            .map(Reason::from_number)
            .find(|reason| reason.as_str() == tide.reason);
        Some(HeadroomDecision {
            allowance_ucpu: tide.allowance_ucpu,
            floor_ucpu: tide.floor_ucpu,
            capacity_ucpu: tide.capacity_ucpu,
            asked_ucpu: tide.asked_ucpu,
            main_est_ucpu: tide.main_ucpu,
            main_now_ucpu: tide.main_ucpu,
            side_ucpu: tide.side_ucpu,
            idle_ucpu: tide.idle_ucpu,
            trim_ucpu: tide.trim_ucpu,
            alarms: tide.alarms,
            reason: reason.unwrap_or(Reason::Stale),
            ..HeadroomDecision::default()
        })
    }

    /// What became of a group's quota: the kernel's counts, which stand still while a scheduler is in force, and all schedulers'.
    pub(crate) fn limit_stat(&self, group: &GroupPath) -> GroupResult<CpuStat> {
        let counted = self.groups.cpu_stat(group)?;
        Ok(match self.ext_stat(group) {
            Some(stat) => counted.plus(stat),
            None => counted,
        })
    }

    fn ext_stat(&self, group: &GroupPath) -> Option<CpuStat> {
        if !self.ext.is_wanted() {
            return None;
        }
        let id = self.groups.id(group).ok()?;
        let now_ns = self.clock.now_ns();
        let mut inner = lock(&self.ext.inner);
        let earlier = inner.earlier.limit(id);
        let Some(loaded) = &inner.loaded else {
            return Some(earlier);
        };
        // All gates ask one after the other.
        if now_ns.saturating_sub(inner.limits.0) >= FRESH_NS {
            let limits = loaded.limits().into_iter();
            let by_id = limits.map(|limit| (limit.cgroup_id, limit)).collect();
            inner.limits = (now_ns, by_id);
        }
        let now = inner.limits.1.get(&id).map(quota_counts);
        Some(earlier.plus(now.unwrap_or_default()))
    }

    /// What became of a group's cap; none while the scheduler is not in force, or was told of none.
    pub(crate) fn ext_cap(&self, group: &GroupPath) -> Option<CapStat> {
        if !self.ext.holds() {
            return None;
        }
        let id = self.groups.id(group).ok()?;
        let now_ns = self.clock.now_ns();
        let mut inner = lock(&self.ext.inner);
        inner.gates.get(&id)?.cap?;
        if now_ns.saturating_sub(inner.caps.0) >= FRESH_NS {
            let caps = inner.loaded.as_ref()?.caps();
            let by_id = caps.into_iter().map(|cap| (cap.cgroup_id, cap));
            inner.caps = (now_ns, by_id.collect());
        }
        inner.caps.1.get(&id).copied()
    }

    /// Side work's floor as it stands in the kernel file, while the scheduler is in force: the loop has not written it.
    pub(crate) fn copied_floor(&self) -> Option<Bandwidth> {
        if !self.ext.holds() {
            return None;
        }
        self.groups.bandwidth(&self.side_root()).ok()
    }

    /// What the scheduler cannot do for a gate.
    pub(crate) fn ext_notes(&self, gate: &str) -> Vec<String> {
        let inner = lock(&self.ext.inner);
        inner.notes.get(gate).cloned().unwrap_or_default()
    }

    /// What a person should know of the scheduler's floors: side tasks so many that they need more than the tolerance.
    pub(crate) fn ext_alerts(
        &self,
        decision: &HeadroomDecision,
        tolerance_pct: f64,
    ) -> Option<String> {
        let asked_ucpu = (decision.capacity_ucpu as f64 * tolerance_pct / 100.0) as u64;
        // A thousandth of a CPU does not matter.
        (decision.floor_ucpu > asked_ucpu + 1_000).then(|| {
            format!(
                "engine ext: side work has {:.3} CPUs at least and not {:.3}, the tolerance: the kernel's watchdog wants 1 ms in 15 s for \
                 each of its tasks",
                decision.floor_ucpu as f64 / 1e6,
                asked_ucpu as f64 / 1e6
            )
        })
    }
}
