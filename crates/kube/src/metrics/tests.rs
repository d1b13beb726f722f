use kube::client::Body;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::*;

/// How many reviews the API server had, and whether it answers.
#[derive(Default)]
struct ApiServer {
    reviews: Mutex<Vec<Value>>,
    is_away: std::sync::atomic::AtomicBool,
}

impl ApiServer {
    /// It knows the tokens `scraper` and `tenant`.
    fn answer(&self, path: &str, asked: Value) -> Response<Body> {
        let status = match path.ends_with("tokenreviews") {
            true => match asked["spec"]["token"].as_str() {
                Some(name @ ("scraper" | "tenant")) => json!({
                    "authenticated": true,
                    "user": {"username": name, "groups": ["g"], "extra": {"k": ["v"]}},
                }),
                _ => json!({"authenticated": false, "error": "no such token"}),
            },
            false => json!({"allowed": asked["spec"]["user"] == "scraper"}),
        };
        let mut answer = asked.clone();
        answer["status"] = status;
        self.reviews.lock().unwrap().push(asked);
        let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
        if self.is_away.load(std::sync::atomic::Ordering::Relaxed) {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        response
    }

    fn count(&self) -> usize {
        self.reviews.lock().unwrap().len()
    }
}

async fn start(tls: Option<Tls>) -> (Arc<ApiServer>, SocketAddr) {
    let server = Arc::<ApiServer>::default();
    let shared = Arc::clone(&server);
    let service = tower::service_fn(move |request: Request<Body>| {
        let shared = Arc::clone(&shared);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let asked = serde_json::from_slice(&body).unwrap();
            Ok::<_, Infallible>(shared.answer(&path, asked))
        }
    });
    let metrics = Metrics {
        client: Client::new(service, "default"),
        agent: Agent::at("/nonexistent/tidegate.sock".into()),
        health: Health::default(),
        tls,
        callers: Callers::default(),
    };
    let address = metrics.serve(([127, 0, 0, 1], 0).into()).await.unwrap();
    (server, address)
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = Vec::new();
    // A server may close without a farewell.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

async fn get(address: SocketAddr, path: &str, header: &str) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    exchange(stream, &get_text(path, header)).await
}

async fn tls_get(address: SocketAddr, header: &str) -> String {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(certificates().join("tls.crt")).unwrap();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let name = "tidegate.test".try_into().unwrap();
    let stream = connector.connect(name, stream).await.unwrap();
    exchange(stream, &get_text("/metrics", header)).await
}

/// The certificate is these tests' own, for the name tidegate.test, until 2126.
fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/metrics")
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn get_text(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: pod\r\n{header}\r\n")
}

#[tokio::test]
async fn only_a_caller_that_may_get_the_url_reads_the_figures() {
    let (server, address) = start(None).await;
    for (path, header, says) in [
        ("/", "authorization: Bearer scraper\r\n", "404"),
        ("/metrics", "", "401"),
        ("/metrics", "authorization: Basic c2NyYXBlcg==\r\n", "401"),
    ] {
        let answer = get(address, path, header).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {says} ")),
            "{path}: {answer}"
        );
    }
    assert_eq!(server.count(), 0, "none of them costs a review");
    for (token, says) in [("made-up", "401"), ("tenant", "403"), ("scraper", "200")] {
        let answer = get(address, "/metrics", &bearer(token)).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {says} ")),
            "{token}: {answer}"
        );
        let has_figures = answer.contains("\ntidegate_kube_requested_cpus 0\n");
        assert_eq!(has_figures, token == "scraper", "{answer}");
        assert_eq!(answer.contains("\ntidegate_agent_up 0\n"), has_figures);
    }
    let access = server.reviews.lock().unwrap().last().cloned().unwrap();
    assert_eq!(
        access["spec"],
        json!({
            "user": "scraper",
            "groups": ["g"],
            "extra": {"k": ["v"]},
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        })
    );
    let before = server.count();
    let again = get(address, "/metrics", &bearer("scraper")).await;
    assert!(again.contains("200 OK"));
    assert_eq!(server.count(), before, "an allowed one is not asked again");
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_lets_nobody_in() {
    let (server, address) = start(None).await;
    server
        .is_away
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let answer = get(address, "/metrics", &bearer("scraper")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[tokio::test]
async fn made_up_tokens_cost_the_api_server_few_reviews() {
    let (server, address) = start(None).await;
    let began = std::time::Instant::now();
    let mut later = 0;
    for nth in 0..40 {
        let answer = get(address, "/metrics", &bearer(&format!("made-up-{nth}"))).await;
        later += usize::from(answer.starts_with("HTTP/1.1 503 "));
        assert!(later > 0 || answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    let seconds = usize::try_from(began.elapsed().as_secs()).unwrap();
    assert!(later > 0 && server.count() == 40 - later);
    assert!(server.count() <= REVIEW_BURST as usize + seconds + 1);
    let before = server.count();
    let again = get(address, "/metrics", &bearer("made-up-0")).await;
    assert!(again.starts_with("HTTP/1.1 401 "), "{again}");
    assert_eq!(server.count(), before, "a refused one is not asked again");
}

#[tokio::test]
async fn silent_callers_take_every_connection_for_a_moment_at_most() {
    for tls in [None, Some(Tls::of(certificates()))] {
        let is_tls = tls.is_some();
        let (_server, address) = start(tls).await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let began = std::time::Instant::now();
        let answer = match is_tls {
            true => tls_get(address, "").await,
            false => get(address, "/metrics", "").await,
        };
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        let waited = began.elapsed();
        assert!(waited + Duration::from_secs(1) > HEAD_PATIENCE && waited < PATIENCE / 2);
    }
}

#[test]
fn a_token_is_reviewed_again_after_a_while_and_few_are_remembered() {
    let callers = Callers::default();
    let start = Instant::now();
    let remember = |name: &str, verdict, now| callers.remember(digest(name), verdict, now);
    let recall = |name: &str, now| callers.recall(&digest(name), now);
    let allowed = || Recalled::Verdict(Verdict::Allowed);
    remember("scraper", Verdict::Allowed, start);
    assert_eq!(recall("scraper", start), allowed());
    let tenant = Verdict::Forbidden("tenant".to_owned());
    remember("tenant", tenant.clone(), start);
    assert_eq!(recall("tenant", start), Recalled::Verdict(tenant));
    assert_eq!(recall("tenant", start + REFUSED_FOR), Recalled::Review);

    let later = start + ALLOWED_FOR;
    for nth in 0..REVIEW_BURST {
        assert_eq!(recall(&nth.to_string(), later), Recalled::Review);
    }
    assert_eq!(recall("made-up", later), Recalled::Later);
    assert_eq!(recall("scraper", later), Recalled::Review, "it is known");
    assert_eq!(recall("new", later + REVIEW_PERIOD), Recalled::Review);
    assert_eq!(recall("new", later + REVIEW_PERIOD), Recalled::Later);

    for nth in 0..2 * REMEMBERED_MAX {
        remember(&nth.to_string(), Verdict::Allowed, later);
    }
    remember("scraper", Verdict::Unknown, later);
    assert_eq!(
        recall("scraper", later),
        Recalled::Verdict(Verdict::Unknown)
    );
    assert_eq!(
        callers.0.lock().unwrap().verdicts.len(),
        REMEMBERED_MAX,
        "one takes its own place"
    );
    remember("late", Verdict::Allowed, later + KNOWN_FOR);
    assert_eq!(recall("late", later + KNOWN_FOR), allowed());
}

#[tokio::test]
async fn with_a_certificate_the_port_is_tls() {
    let (_server, address) = start(Some(Tls::of(certificates()))).await;
    let answer = tls_get(address, &bearer("scraper")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let plain = get(address, "/metrics", &bearer("scraper")).await;
    assert!(!plain.contains("tidegate_kube"), "{plain}");
}

#[test]
fn a_certificate_is_read_again_once_its_files_are_others() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["tls.crt", "tls.key"] {
        std::fs::copy(certificates().join(name), folder.path().join(name)).unwrap();
    }
    let tls = Tls::of(folder.path().to_owned());
    let first = tls.acceptor().unwrap();
    let is_first = || Arc::ptr_eq(tls.acceptor().unwrap().config(), first.config());
    assert!(is_first());
    let key = std::fs::File::options()
        .write(true)
        .open(folder.path().join("tls.key"))
        .unwrap();
    key.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(!is_first());
}

#[test]
fn a_certificate_that_cannot_be_read_is_told_at_the_start() {
    let tls = Tls::of("/nonexistent".into());
    let error = tls.acceptor().err().unwrap();
    assert!(format!("{error:#}").contains("/nonexistent/tls.crt"));
}
