use std::convert::Infallible;
use std::sync::Mutex;

use http::{Method, Request, Response, StatusCode};
use kube::client::Body;

use super::*;

const NAME: &str = "node-0";
const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Cluster {
    version: u64,
    capacity_milli: Option<u64>,
    allocatable_milli: Option<u64>,
    bound_milli: Vec<u64>,
    is_raced: bool,
    refused: u32,
    /// The API server takes so long to list pods.
    delay: Duration,
}

impl Cluster {
    fn node(&self) -> Value {
        let list = |milli: Option<u64>| match milli {
            Some(milli) => json!({resource::SIDE_CPU: milli.to_string()}),
            None => json!({}),
        };
        json!({
            "metadata": {"name": NAME, "resourceVersion": self.version.to_string()},
            "status": {"capacity": list(self.capacity_milli), "allocatable": list(self.allocatable_milli)},
        })
    }

    fn pods(&self) -> Value {
        let pod = |milli: &u64| {
            let requests = json!({resource::SIDE_CPU: milli.to_string()});
            json!({"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
        };
        let items: Vec<Value> = self.bound_milli.iter().map(pod).collect();
        json!({"metadata": {}, "items": items})
    }

    fn patch(&mut self, patch: &Value) -> Result<Value, Value> {
        let asked = patch["metadata"]["resourceVersion"].as_str();
        self.version += u64::from(asked.is_some() && std::mem::take(&mut self.is_raced));
        if asked.is_some_and(|asked| asked != self.version.to_string()) {
            self.refused += 1;
            return Err(
                json!({"status": "Failure", "message": "changed", "reason": "Conflict", "code": 409}),
            );
        }
        if let Some(amount) = patch["status"]["capacity"].get(resource::SIDE_CPU) {
            self.version += 1;
            self.capacity_milli = amount.as_str().map(|text| text.parse().expect("a number"));
        }
        Ok(self.node())
    }

    fn answer(&mut self, request: &Request<()>, body: &[u8]) -> Response<Body> {
        let path = request.uri().path();
        let answer = match (request.method(), path.rsplit('/').next()) {
            (&Method::PATCH, _) => {
                self.patch(&serde_json::from_slice(body).expect("a patch is JSON"))
            }
            (_, Some("pods")) => Ok(self.pods()),
            _ => Ok(self.node()),
        };
        let (status, value) = match answer {
            Ok(value) => (StatusCode::OK, value),
            Err(value) => (StatusCode::CONFLICT, value),
        };
        let mut response = Response::new(Body::from(value.to_string().into_bytes()));
        *response.status_mut() = status;
        response
    }
}

/// The cluster, and a publisher whose watch of the node is right and whose watch of pods stands
/// still.
struct Bed {
    cluster: Arc<Mutex<Cluster>>,
    publisher: Publisher,
    failures: Failures,
}

impl Bed {
    fn start() -> Self {
        let cluster = Arc::<Mutex<Cluster>>::default();
        let shared = Arc::clone(&cluster);
        let service = tower::service_fn(move |request: Request<Body>| {
            let shared = Arc::clone(&shared);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.expect("a body");
                let head = Request::from_parts(head, ());
                if head.uri().path().ends_with("pods") {
                    let delay = shared.lock().expect("no test panics with it").delay;
                    tokio::time::sleep(delay).await;
                }
                let mut cluster = shared.lock().expect("no test panics with it");
                Ok::<_, Infallible>(cluster.answer(&head, &body))
            }
        });
        let client = Client::new(service, "default");
        let numbers = [
            "warm_up_s=2",
            "mean_s=2",
            "window_s=4",
            "short_gap_s=100000",
        ];
        let numbers = numbers.map(|number| number.parse().expect("a number"));
        let failures = Failures::default();
        Bed {
            cluster,
            publisher: Publisher::new(
                client,
                NAME.into(),
                Constants::with(&numbers),
                failures.clone(),
            ),
            failures,
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut Cluster) -> R) -> R {
        act(&mut self.cluster.lock().expect("no test panics with it"))
    }

    /// One second; time passes when no task has anything to do.
    async fn second(&mut self, surplus_milli: u64) {
        tokio::time::sleep(SECOND / 2).await;
        let node = self.with(|cluster| cluster.node());
        let node: Node = serde_json::from_value(node).expect("a node");
        let sample = Sample {
            surplus_milli,
            is_starved: false,
        };
        self.publisher.step(&node, &[], Some(sample)).await;
        tokio::time::sleep(SECOND / 2).await;
    }

    fn capacity_milli(&self) -> Option<u64> {
        self.with(|cluster| cluster.capacity_milli)
    }

    /// Until the capacity is so, with a kubelet that takes it over at once; how many seconds it
    /// took.
    async fn until(&mut self, surplus_milli: u64, is_so: impl Fn(Option<u64>) -> bool) -> u32 {
        for second in 0..600 {
            if is_so(self.capacity_milli()) {
                return second;
            }
            self.second(surplus_milli).await;
            self.with(|cluster| cluster.allocatable_milli = cluster.capacity_milli);
        }
        panic!("it never was: {:?}", self.capacity_milli());
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_at_any_second_of_a_lowering_is_counted_though_the_watch_stands_still() {
    for comes_s in 0..60 {
        let mut bed = Bed::start();
        bed.until(6_000, |milli| milli == Some(6_000)).await;
        bed.until(2_000, |milli| milli.is_none()).await;
        for _ in 0..comes_s {
            bed.second(2_000).await;
        }
        assert_eq!(bed.capacity_milli(), None, "not before every pod has come");
        bed.with(|cluster| cluster.bound_milli.push(4_000));
        bed.until(2_000, |milli| milli.is_some()).await;
        assert_eq!(bed.capacity_milli(), Some(4_000), "after {comes_s} s");
    }
}

#[tokio::test(start_paused = true)]
async fn no_lower_amount_is_written_while_the_scheduler_places_by_what_kubelet_has_not_taken_over()
{
    let mut bed = Bed::start();
    bed.until(6_000, |milli| milli == Some(6_000)).await;
    bed.until(2_000, |milli| milli.is_none()).await;
    bed.with(|cluster| cluster.allocatable_milli = Some(6_000));
    for _ in 0..300 {
        bed.second(2_000).await;
        assert_eq!(bed.capacity_milli(), None);
    }
    bed.with(|cluster| cluster.bound_milli.push(5_500));
    bed.until(2_000, |milli| milli.is_some()).await;
    assert_eq!(bed.capacity_milli(), Some(5_500));
}

#[tokio::test(start_paused = true)]
async fn an_amount_is_not_written_onto_a_node_that_has_changed_since_it_was_read() {
    let mut bed = Bed::start();
    bed.with(|cluster| cluster.is_raced = true);
    bed.until(6_000, |milli| milli == Some(6_000)).await;
    assert_eq!(bed.with(|cluster| cluster.refused), 1);
    assert!(!bed.failures.take(), "the API server is well");
}

#[tokio::test(start_paused = true)]
async fn writes_are_thirty_seconds_apart_at_the_api_server_though_one_takes_long() {
    let mut bed = Bed::start();
    bed.with(|cluster| cluster.delay = 8 * SECOND);
    bed.until(6_000, |milli| milli == Some(6_000)).await;
    let seconds = bed.until(2_000, |milli| milli.is_none()).await;
    assert!(seconds >= 29, "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_after_the_publisher() {
    for leaves in [false, true] {
        let mut bed = Bed::start();
        bed.with(|cluster| cluster.delay = 8 * SECOND);
        for _ in 0..92 {
            bed.second(6_000).await;
        }
        assert!(!bed.publisher.writing.is_empty(), "an amount is on its way");
        if leaves {
            bed.publisher.leave().await;
        } else {
            drop(bed.publisher);
        }
        tokio::time::sleep(60 * SECOND).await;
        let cluster = bed.cluster.lock().expect("no test panics with it");
        assert_eq!(cluster.capacity_milli, None, "leaves: {leaves}");
    }
}
