//! Why a pod runs as it does: which annotation, which policy, and against whom.

use std::fmt::Write;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::resource::{SIDE_CPU, request_milli};
use crate::terms::PodTerms;

/// The page. `group` is the pod's cgroup, and `agent` what the agent says of its gate.
pub fn page(pod: &Pod, terms: &PodTerms, group: Option<&str>, agent: Option<&str>) -> String {
    let mut text = format!(
        "pod {}/{}\n",
        pod.namespace().unwrap_or_default(),
        pod.name_any()
    );
    let mut line = |label: &str, value: &str| {
        // Writing into a String cannot fail.
        let _ = writeln!(text, "  {label:10} {value}");
    };
    let milli = request_milli(pod);
    if milli > 0 {
        line("requests", &format!("{milli} of {SIDE_CPU} (millicores)"));
    }
    line(
        "group",
        group.unwrap_or("none on this node yet: its containers have not started"),
    );
    if terms.terms.is_empty() {
        line(
            "terms",
            "none: no annotation and no policy names one for it",
        );
    }
    for (name, given) in &terms.terms {
        line(name, &format!("{}  ({})", given.value, given.from));
    }
    if terms
        .terms
        .get("class")
        .is_some_and(|given| given.value == "side")
    {
        line("idle class", against_whom(group));
    }
    for problem in &terms.problems {
        line("problem", problem);
    }
    if let Some(agent) = agent {
        line("agent", agent.trim_end());
    }
    text
}

/// cpu.idle acts among the children of one directory. Against everything else a side pod is held by
/// its quota.
fn against_whom(group: Option<&str>) -> &'static str {
    let group = group.unwrap_or_default();
    if group.contains("besteffort") {
        "it yields to other best-effort pods; against all others the quota protects"
    } else if group.contains("burstable") {
        "it yields to other burstable pods; against all others the quota protects"
    } else {
        "it yields to guaranteed pods and to the QoS classes as wholes; the quota protects as well"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::Labels;
    use crate::terms::of_pod;

    #[test]
    fn the_page_says_where_each_term_is_from_and_against_whom_it_acts() {
        let pod = json!({
            "metadata": {"namespace": "batch", "name": "encode-1", "annotations": {"tidegate.dev/weight": "idle"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {SIDE_CPU: "1500"}}}]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let group = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        let page = page(&pod, &of_pod(&pod, &[], &Labels::new()), Some(group), None);
        let want = "\
pod batch/encode-1
  requests   1500 of tidegate.dev/side-cpu (millicores)
  group      /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice
  class      side  (resource tidegate.dev/side-cpu)
  weight     idle  (annotation tidegate.dev/weight)
  idle class it yields to other burstable pods; against all others the quota protects
";
        assert_eq!(page, want);
    }
}
