//! `tidegate explain`: why a gate runs at its present rate, on one screen.

use crate::connect;
use crate::render::{self, explain};
use tidegate_api::Exit;
use tidegate_api::cli::Failure;

/// Explain why a gate runs at its present rate
#[derive(clap::Args)]
pub struct Args {
    /// pid:N, tid:N, unit:NAME, cgroup:/PATH, pod:NAMESPACE/NAME, or a gate's name
    target: String,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

pub fn main(args: &Args) -> Result<Exit, Failure> {
    if let Some(pod) = args.target.strip_prefix("pod:") {
        return Err(of_pod(pod));
    }
    let target = connect::target(&args.target)?;
    let view = connect::to_agent()?.explain(&target)?;
    render::show(args.json, &view, explain::page)
}

/// Annotations and policies are known to the API server, and to `tidegate-kube` on the pod's node
/// alone.
fn of_pod(pod: &str) -> Failure {
    let is_name = |text: &str| {
        let is_of_name = |one: u8| {
            one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, b'-' | b'.')
        };
        !text.is_empty() && text.bytes().all(is_of_name)
    };
    let name = pod.split_once('/');
    let Some((namespace, name)) =
        name.filter(|(namespace, name)| is_name(namespace) && is_name(name))
    else {
        let what = format!("explain: {:?}: no pod's name", format!("pod:{pod}"));
        return Failure::new(
            Exit::Usage,
            format!("{what}; write it as pod:NAMESPACE/NAME"),
        );
    };
    // On one line, to be copied.
    let node = format!("kubectl -n {namespace} get pod {name} -o jsonpath={{.spec.nodeName}}");
    let kube = format!(
        "kubectl -n tidegate get pods -l app.kubernetes.io/name=tidegate -o name --field-selector spec.nodeName=$({node}) | head -n 1"
    );
    let command =
        format!("kubectl -n tidegate exec $({kube}) -c kube -- /tidegate-kube explain pod:{pod}");
    Failure::new(
        Exit::Usage,
        format!(
            "explain: pod:{pod}: tidegate-kube explains pods, on the pod's node; run {command}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_pod_it_is_said_what_to_run_and_nothing_that_a_shell_would_read_otherwise() {
        let said = of_pod("batch/encode-0").message;
        assert!(
            said.contains("kubectl -n batch get pod encode-0 -o"),
            "{said}"
        );
        assert!(
            said.ends_with("/tidegate-kube explain pod:batch/encode-0"),
            "{said}"
        );
        for wrong in [
            "encode-0",
            "batch/",
            "/encode-0",
            "a/b/c",
            "a/$(reboot)",
            "a/b c",
            "A/b",
        ] {
            let said = of_pod(wrong).message;
            assert!(said.ends_with("write it as pod:NAMESPACE/NAME"), "{said}");
        }
    }
}
