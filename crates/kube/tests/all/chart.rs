//! The chart, as Helm renders it.

use std::process::Command;

use crate::bed::Printed;

fn helm(arguments: &[&str]) -> Printed {
    let chart = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/kubernetes/chart"
    );
    let of_make = ["--kube-version", "1.36.0", "--namespace", "tidegate"];
    let output = Command::new("helm")
        .args(["template", "tidegate", chart])
        .args(of_make)
        .args(arguments)
        .output()
        .expect("helm is installed");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Of a chart that it renders, Helm reports there which files are links.
    if !output.status.success() {
        text += &String::from_utf8_lossy(&output.stderr);
    }
    Printed {
        is_ok: output.status.success(),
        text,
    }
}

#[test]
#[ignore = "needs helm: make kube"]
fn the_plain_files_are_the_charts() {
    let plain = helm(&[
        "--set",
        "createNamespace=true",
        "--include-crds",
        "--no-hooks",
    ]);
    let committed = include_str!("../../../../packaging/kubernetes/tidegate.yaml");
    assert!(plain.text == committed, "make chart");
    let in_version = |version: &str| {
        let api = format!("admissionregistration.k8s.io/{version}/MutatingAdmissionPolicy");
        let only = ["--show-only", "templates/mutating.yaml"];
        helm(&[&["--api-versions", &api], &only[..]].concat())
    };
    let committed = include_str!("../../../../packaging/kubernetes/side-cpu.yaml");
    assert!(in_version("v1").text == committed, "make chart");
    let beta = committed.replace("k8s.io/v1\n", "k8s.io/v1beta1\n");
    assert_eq!(in_version("v1beta1").text, beta);
    assert!(!in_version("v1alpha1").is_ok, "there is nothing to show");
}

/// The agent has the capabilities of its service.
#[test]
#[ignore = "needs helm: make kube"]
fn no_container_has_more_than_it_needs() {
    let text = helm(&[]).text;
    let unit = include_str!("../../../../packaging/tidegate.service");
    let of_unit = unit
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let of_unit = of_unit.expect("the unit has a set").replace("CAP_", "");
    let added = of_unit.replace(' ', ", ");
    for (line, count) in [
        (format!("add: [{added}]"), 1),
        ("add: [".to_owned(), 2),
        ("drop: [ALL]".to_owned(), 6),
        ("type: RuntimeDefault".to_owned(), 6),
        ("readOnlyRootFilesystem: true".to_owned(), 6),
        ("allowPrivilegeEscalation: false".to_owned(), 6),
        ("privileged: true".to_owned(), 0),
    ] {
        assert_eq!(text.matches(&line).count(), count, "{line}");
    }
}

#[test]
#[ignore = "needs helm: make kube"]
fn an_uninstall_begins_with_the_withdrawal() {
    let hook = helm(&["--show-only", "templates/control.yaml"]).text;
    let hook = hook.split("---").find(|one| one.contains("kind: Job"));
    let hook = hook.expect("there is a job");
    assert!(hook.contains("helm.sh/hook: pre-delete"), "{hook}");
    assert!(hook.contains("command: [/tidegate-kube, remove]"), "{hook}");
}

#[test]
#[ignore = "needs helm: make kube"]
fn the_operators_objects_have_the_rules_and_the_dashboard() {
    let only = ["--show-only", "templates/monitoring.yaml"];
    let api = ["--api-versions", "monitoring.coreos.com/v1"];
    assert!(!helm(&only).is_ok, "a cluster without the operator");
    let plain = helm(&[&only[..], &api].concat()).text;
    let rules = include_str!("../../../../packaging/prometheus/tidegate.rules.yml");
    let dashboard = include_str!("../../../../packaging/grafana/tidegate.json");
    for line in rules.lines().chain(dashboard.lines()) {
        assert!(plain.contains(line), "{line}");
    }
    assert!(!plain.contains("https") && !plain.contains("NetworkPolicy"));
    let closed = [
        "--set",
        "metrics.tlsSecret=cert,metrics.from[0].podSelector.matchLabels.app=prometheus",
    ];
    let closed = helm(&[&api[..], &closed].concat()).text;
    for line in [
        "--metrics-tls, /tls",
        "secretName: cert",
        "serverName: tidegate.tidegate.svc",
        "kind: NetworkPolicy",
        "app: prometheus",
    ] {
        assert!(closed.contains(line), "{line}");
    }
    let labelled = ["--set", "metrics.labels.release=prometheus"];
    let labelled = helm(&[&only[..], &api, &labelled].concat()).text;
    let labels = r#"  labels: {"release":"prometheus"}"#;
    assert_eq!(labelled.matches(labels).count(), 2, "{labelled}");
    let off = helm(&[&api[..], &["--set", "metrics.enabled=false"]].concat()).text;
    for word in ["9471", "tokenreviews", "PodMonitor"] {
        assert!(plain.contains(word) || closed.contains(word), "{word}");
        assert!(!off.contains(word), "{word}");
    }
}

#[test]
#[ignore = "needs helm: make kube"]
fn all_pods_tolerate_the_startup_taint_whatever_else_they_tolerate() {
    let narrowed = [
        "--set",
        "tolerations=null",
        "--set-string",
        "startupTaint=1",
    ];
    let text = helm(&narrowed).text;
    let of_daemonset = "tolerations:\n        - key: \"1\"\n          operator: Exists\n";
    assert!(text.contains(of_daemonset), "{text}");
    // The controller, the hook and the check.
    let others = text.matches(r#"- {key: "1", operator: Exists}"#).count();
    assert_eq!(others, 3, "{text}");
}

#[test]
#[ignore = "needs helm: make kube"]
fn values_that_mean_nothing_are_refused() {
    for (value, says) in [
        ("evict=Enable", "must be one of 'DryRun', 'Enabled'"),
        ("startupTaint=a key", "startupTaint"),
        ("imag.tag=1", "'imag' not allowed"),
        ("image.pullSecrets={registry}", "pullSecrets"),
        ("seLinuxOptions.typ=spc_t", "'typ' not allowed"),
        ("metrics.labels.release=1", "want string"),
        (
            "rollingUpdate.maxSurge=0",
            "one of maxSurge and maxUnavailable",
        ),
        (
            "rollingUpdate.maxUnavailable=10%",
            "one of maxSurge and maxUnavailable",
        ),
    ] {
        helm(&["--set", value]).must_refuse(says, value);
    }
    let values = "evict=Enabled,image.pullSecrets[0].name=registry,seLinuxOptions.type=spc_t";
    let enabled = helm(&["--set", values]).text;
    for line in [
        "--evict, \"enabled\"",
        "pods/eviction",
        r#"imagePullSecrets: [{"name":"registry"}]"#,
        r#"      securityContext: {seLinuxOptions: {"type":"spc_t"}}"#,
    ] {
        assert!(enabled.contains(line), "{line}");
    }
    let without_surge = "rollingUpdate.maxSurge=0,rollingUpdate.maxUnavailable=1";
    assert!(helm(&["--set", without_surge]).is_ok);
    let untouched = helm(&["--set", "startupTaint="]).text;
    for word in ["startup-taint", "resources: [nodes]"] {
        assert!(enabled.contains(word), "{word}");
        assert!(!untouched.contains(word), "{word}");
    }
}
