//! What goes wrong: other writers of the same status, and an API server that refuses.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::task::JoinSet;

use super::fleet::node_name;
use crate::bed::Bed;

/// So many nodes have so many other writers.
const NODES: usize = 10;
const WRITERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(50);

/// Other writers read and replace the statuses of some nodes, as fast as they can.
pub async fn storm(admin: Client, length: Duration) -> String {
    let until = Instant::now() + length;
    let mut writers = JoinSet::new();
    for at in 0..NODES * WRITERS {
        let nodes: Api<Node> = Api::all(admin.clone());
        writers.spawn(async move { write(&nodes, &node_name(at % NODES), until).await });
    }
    let (mut writes, mut conflicts) = (0, 0);
    while let Some(Ok((written, refused))) = writers.join_next().await {
        writes += written;
        conflicts += refused;
    }
    format!("{writes} writes, {conflicts} conflicts")
}

async fn write(nodes: &Api<Node>, name: &str, until: Instant) -> (u32, u32) {
    let (mut writes, mut conflicts) = (0, 0);
    while Instant::now() < until {
        tokio::time::sleep(PAUSE).await;
        let Ok(mut node) = nodes.get(name).await else {
            continue;
        };
        let status = node.status.get_or_insert_default();
        let conditions = status.conditions.get_or_insert_default();
        conditions.retain(|one| one.type_ != "Storm");
        conditions.push(NodeCondition {
            type_: "Storm".into(),
            status: "True".into(),
            message: Some(format!("{:?}", Instant::now())),
            ..NodeCondition::default()
        });
        match nodes
            .replace_status(name, &PostParams::default(), &node)
            .await
        {
            Ok(_) => writes += 1,
            Err(Error::Api(status)) if status.code == 409 => conflicts += 1,
            Err(error) => panic!("node {name}: {error}"),
        }
    }
    (writes, conflicts)
}

/// The API server serves none of our calls for a while.
const LIMIT: &str = "
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: scale}
spec:
  type: Limited
  limited: {nominalConcurrencyShares: 0, lendablePercent: 0, borrowingLimitPercent: 0, limitResponse: {type: Reject}}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: scale}
spec:
  priorityLevelConfiguration: {name: scale}
  matchingPrecedence: 100
  rules:
    - subjects: [{kind: ServiceAccount, serviceAccount: {name: tidegate-kube, namespace: tidegate}}]
      resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: ['*'], clusterScope: true, namespaces: ['*']}]
";

/// Every call of ours is too many, for a while.
pub fn limit(bed: &Bed, length: Duration) {
    bed.apply(LIMIT);
    std::thread::sleep(length);
    bed.kubectl("delete flowschema scale");
    bed.kubectl("delete prioritylevelconfiguration scale");
}
