//! Requests that must be refused, each with what its refusal says.

use super::{MIB, post, request, run, set};

/// Its bytes, the status of the refusal, and what that names.
pub type Refused = (Vec<u8>, u16, &'static str);

fn long(bytes: usize) -> String {
    "a".repeat(bytes)
}

fn get(path: &str) -> Vec<u8> {
    request(&format!("GET /{path}"), "", b"")
}

pub fn requests() -> Vec<Refused> {
    [heads(), lengths(), bodies(), runs(), targets(), calls()].concat()
}

/// Heads that are no request.
fn heads() -> Vec<Refused> {
    let noise: Vec<u8> = (0..8 * MIB)
        .map(|nth| (nth * nth / 7) as u8 | 128)
        .collect();
    let endless = format!("GET / HTTP/1.1\r\nx: {}", long(MIB));
    let lines = "x: y\r\n".repeat(1000);
    vec![
        (noise, 400, "request: "),
        (request(&endless, "", b""), 400, "too large"),
        (request("GET /", &lines, b""), 400, "too large"),
        (get(&long(70_000)), 400, "URI too long"),
        (get(&long(60_000)), 404, "no call GET /aaa"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), 400, "request: "),
        (b"GET / HTTP/9.9\r\n\r\n".into(), 400, "version"),
    ]
}

/// Bodies that are not as long as their headers say.
fn lengths() -> Vec<Refused> {
    const CHUNKED: &str = "transfer-encoding: chunked";
    const BODY: &[u8] = br#"{"target": "gate:main", "terms": {"class": "side"}}"#;
    let with = |headers: &str, body: &[u8], names: &'static str| {
        let bytes = request("POST /v1/set", &format!("{headers}\r\n"), body);
        (bytes, 400, names)
    };
    let two = "content-length: 5\r\ncontent-length: 51";
    vec![
        with("content-length: 1000", BODY, "body"),
        with("content-length: 5", BODY, "EOF"),
        with("content-length: -5", BODY, "content-length"),
        with(two, BODY, "content-length"),
        with("content-length: 18446744073709551615", BODY, "too large"),
        (post("/v1/set", long(8 * MIB)), 400, "length limit"),
        with(CHUNKED, b"ffffffffffffffff\r\nx", "body"),
        with(CHUNKED, b"100000000000000000\r\nx", "body"),
        with(CHUNKED, b"zz\r\nx", "body"),
    ]
}

/// Bodies that are no request, or have too much in them.
fn bodies() -> Vec<Refused> {
    let brackets = "[".repeat(100_000);
    let nested = format!(r#"{{"target":"x","terms":{}"#, r#"{"a":"#.repeat(30_000));
    let nul = "{\"target\": \"ma\0in\", \"terms\": {}}";
    let no_text = b"{\"target\": \"\xff\", \"terms\": {}}";
    let field = format!(r#"{{"{}": 1}}"#, long(200_000));
    let gate = format!(r#"{{"target":"{}","terms":[]}}"#, long(200_000));
    let unknown = r#"{"target":"a","terms":{},"more":1}"#;
    let twice = r#"{"target":"a","target":"b","terms":{}}"#;
    vec![
        (post("/v1/set", brackets), 400, "column 1"),
        (post("/v1/set", nested), 400, "invalid type"),
        (post("/v1/set", nul), 400, "control character"),
        (post("/v1/set", no_text), 400, "unicode"),
        (post("/v1/set", field), 400, "unknown field"),
        (post("/v1/unset", gate), 404, "no such gate"),
        (post("/v1/set", unknown), 400, "`more`"),
        (post("/v1/set", twice), 400, "duplicate field `target`"),
        (post("/v1/set", "7"), 400, "invalid type"),
        (post("/v1/set", ""), 400, "EOF"),
    ]
}

/// Processes that there are not or that are others', and a name that is too long.
fn runs() -> Vec<Refused> {
    let of = |pid: &str, status: u16, names: &'static str| {
        let fields = format!(r#""pid": {pid}, "name": null"#);
        (run(&fields), status, names)
    };
    let name = format!(r#""pid": 0, "name": "{}""#, long(MIB));
    vec![
        of("1e999", 400, "number out of range"),
        of("99999999999", 400, "99999999999"),
        of("-1", 404, "process -1"),
        of("-2147483648", 404, "-2147483648"),
        of("1", 403, "process 1"),
        (run(&name), 400, "length limit"),
    ]
}

fn targets() -> Vec<Refused> {
    vec![
        (set("ma\0in"), 400, r"ma\0in"),
        (set(&long(200_000)), 400, "gate name"),
        (set("cgroup:/../.."), 400, "/../.."),
        (set("cgroup:/"), 400, "root group"),
        (set("pid:0"), 400, "pid:0"),
        (set("pid:-1"), 400, "pid:-1"),
        (set("pid:99999999999"), 400, "pid:99999999999"),
        (set("pid:1"), 403, "uid 0"),
        (set("gate:../x"), 400, "../x"),
        (set("unit:../x"), 400, "../x"),
        (set("gate:main"), 403, "uid 0"),
    ]
}

/// Calls that there are not, or that are others'.
fn calls() -> Vec<Refused> {
    let delete = request("DELETE /v1/set", "", b"");
    let brew = request("BREW /v1/status", "", b"");
    let latency = r#"{"target":"main","latency":"9s"}"#;
    vec![
        (delete, 404, "DELETE /v1/set"),
        (brew, 404, "BREW /v1/status"),
        (get("../../etc/shadow"), 404, "/../../etc/shadow"),
        (get("v1/explain?target=%ff"), 400, "not UTF-8"),
        (get("v1/explain?target=%00%0d%0a"), 404, "no such gate"),
        (post("/v1/report", latency), 403, "not yours"),
        (post("/v1/stop", ""), 403, "stop"),
    ]
}
