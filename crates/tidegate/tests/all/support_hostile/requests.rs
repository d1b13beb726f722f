//! Requests that must be refused, each with what its refusal says.

use super::{MIB, post, request, run, set, set_with};

/// What it is, its bytes, the status of the refusal, and what that names.
pub type Refused = (&'static str, Vec<u8>, u16, &'static str);

const CHUNKED: &str = "transfer-encoding: chunked\r\n";
const BODY: &[u8] = br#"{"target": "gate:main", "terms": {"class": "side"}}"#;

fn long(bytes: usize) -> String {
    "a".repeat(bytes)
}

fn get(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), "", b"")
}

pub fn requests() -> Vec<Refused> {
    [
        heads(),
        lengths(),
        bodies(),
        processes(),
        targets(),
        calls(),
    ]
    .concat()
}

/// Heads that are no request.
fn heads() -> Vec<Refused> {
    let noise: Vec<u8> = (0..8 * MIB)
        .map(|nth| (nth * nth / 7) as u8 | 128)
        .collect();
    vec![
        ("8 MiB of garbage", noise, 400, "request: "),
        (
            "a header line without end",
            request(&format!("GET / HTTP/1.1\r\nx: {}", long(MIB)), "", b""),
            400,
            "too large",
        ),
        (
            "1,000 header lines",
            request("GET /", &"x: y\r\n".repeat(1000), b""),
            400,
            "too large",
        ),
        (
            "a path of 70 KB",
            get(&format!("/{}", long(70_000))),
            400,
            "URI too long",
        ),
        (
            "a path of 60 KB",
            get(&format!("/{}", long(60_000))),
            404,
            "no call GET /aaa",
        ),
        (
            "HTTP/2",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            400,
            "request: ",
        ),
        (
            "HTTP/9.9",
            b"GET / HTTP/9.9\r\n\r\n".to_vec(),
            400,
            "version",
        ),
    ]
}

fn lengths() -> Vec<Refused> {
    vec![
        (
            "a length that is too long",
            set_with("content-length: 1000\r\n", BODY),
            400,
            "body",
        ),
        (
            "a length that is too short",
            set_with("content-length: 5\r\n", BODY),
            400,
            "EOF",
        ),
        (
            "a negative length",
            set_with("content-length: -5\r\n", BODY),
            400,
            "content-length",
        ),
        (
            "two lengths",
            set_with("content-length: 5\r\ncontent-length: 51\r\n", BODY),
            400,
            "content-length",
        ),
        (
            "a length of 2^64 - 1",
            set_with("content-length: 18446744073709551615\r\n", BODY),
            400,
            "too large",
        ),
        (
            "a body of 8 MiB",
            post("/v1/set", long(8 * MIB)),
            400,
            "length limit",
        ),
        (
            "a chunk of 2^64 - 1",
            set_with(CHUNKED, b"ffffffffffffffff\r\nx"),
            400,
            "body",
        ),
        (
            "a chunk of 2^68",
            set_with(CHUNKED, b"100000000000000000\r\nx"),
            400,
            "body",
        ),
        (
            "chunks of no number",
            set_with(CHUNKED, b"zz\r\nx"),
            400,
            "body",
        ),
    ]
}

/// Bodies that are no request.
fn bodies() -> Vec<Refused> {
    vec![
        (
            "100,000 brackets",
            post("/v1/set", "[".repeat(100_000)),
            400,
            "column 1",
        ),
        (
            "nested terms",
            post(
                "/v1/set",
                format!(r#"{{"target":"x","terms":{}"#, r#"{"a":"#.repeat(30_000)),
            ),
            400,
            "invalid type",
        ),
        (
            "1e999",
            run(r#""pid": 1e999, "name": null"#),
            400,
            "number out of range",
        ),
    ]
}

/// Processes, and text with something in it.
fn processes() -> Vec<Refused> {
    vec![
        (
            "process 99999999999",
            run(r#""pid": 99999999999, "name": null"#),
            400,
            "99999999999",
        ),
        (
            "process -1",
            run(r#""pid": -1, "name": null"#),
            404,
            "process -1",
        ),
        (
            "process -2^31",
            run(r#""pid": -2147483648, "name": null"#),
            404,
            "-2147483648",
        ),
        (
            "another's process",
            run(r#""pid": 1, "name": null"#),
            403,
            "process 1",
        ),
        ("an escaped NUL", set("gate:ma\0in"), 400, r"ma\0in"),
        (
            "a NUL",
            post("/v1/set", "{\"target\": \"ma\0in\", \"terms\": {}}"),
            400,
            "control character",
        ),
        (
            "no UTF-8",
            post("/v1/set", b"{\"target\": \"\xff\", \"terms\": {}}"),
            400,
            "unicode",
        ),
        (
            "a name of 1 MiB",
            run(&format!(r#""pid": 0, "name": "{}""#, long(MIB))),
            400,
            "length limit",
        ),
        ("a target of 200 KB", set(&long(200_000)), 400, "gate name"),
        (
            "a field of 200 KB",
            post("/v1/set", format!(r#"{{"{}": 1}}"#, long(200_000))),
            400,
            "unknown field",
        ),
        (
            "a gate of 200 KB",
            post(
                "/v1/unset",
                format!(r#"{{"target":"{}","terms":[]}}"#, long(200_000)),
            ),
            404,
            "no such gate",
        ),
    ]
}

fn targets() -> Vec<Refused> {
    vec![
        ("a group above", set("cgroup:/../.."), 400, "/../.."),
        ("the root group", set("cgroup:/"), 400, "root group"),
        ("process 0", set("pid:0"), 400, "pid:0"),
        ("process -1 as a target", set("pid:-1"), 400, "pid:-1"),
        (
            "process 99999999999 as a target",
            set("pid:99999999999"),
            400,
            "pid:99999999999",
        ),
        ("another's process as a target", set("pid:1"), 403, "uid 0"),
        ("a gate above", set("gate:../x"), 400, "../x"),
        ("a unit above", set("unit:../x"), 400, "../x"),
        ("main's gate", set("gate:main"), 403, "uid 0"),
    ]
}

/// Fields and calls that there are not.
fn calls() -> Vec<Refused> {
    vec![
        (
            "an unknown field",
            post("/v1/set", r#"{"target":"a","terms":{},"more":1}"#),
            400,
            "`more`",
        ),
        (
            "a field twice",
            post("/v1/set", r#"{"target":"a","target":"b","terms":{}}"#),
            400,
            "duplicate field `target`",
        ),
        (
            "a body that is no object",
            post("/v1/set", "7"),
            400,
            "invalid type",
        ),
        ("no body", post("/v1/set", ""), 400, "EOF"),
        (
            "a wrong method",
            request("DELETE /v1/set", "", b""),
            404,
            "DELETE /v1/set",
        ),
        (
            "a method of its own",
            request("BREW /v1/status", "", b""),
            404,
            "BREW /v1/status",
        ),
        (
            "a path above",
            get("/../../etc/shadow"),
            404,
            "/../../etc/shadow",
        ),
        (
            "a target of no UTF-8",
            get("/v1/explain?target=%ff"),
            400,
            "not UTF-8",
        ),
        (
            "a target of controls",
            get("/v1/explain?target=%00%0d%0a"),
            404,
            "no such gate",
        ),
        (
            "another's latency",
            post("/v1/report", r#"{"target":"main","latency":"9s"}"#),
            403,
            "not yours",
        ),
        ("stop", post("/v1/stop", ""), 403, "stop"),
    ]
}
