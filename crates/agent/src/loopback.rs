//! What is served over TCP is for programs of this machine.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::{HeaderMap, HeaderValue};
use tidegate_api::{ApiError, ApiResult, ErrorKind};

/// Whether a request names this machine as its host, and comes from no other site's page: a page in
/// a browser may send it to a loopback address, also under a name of its own.
pub fn check_host(headers: &HeaderMap) -> ApiResult<()> {
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        let error = ApiError::new(ErrorKind::Denied, "tcp: another site's page asks");
        return Err(error.with_remedy("type the address"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_default();
    let with_port = host.parse::<SocketAddr>().map(|address| address.ip());
    let address = with_port.or_else(|_| host.trim_matches(['[', ']']).parse());
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    match address {
        Ok(address) => check_local(address, host),
        Err(_) if name == "localhost" => Ok(()),
        Err(_) => Err(wrong_host(host)),
    }
}

fn check_local(address: IpAddr, host: &str) -> ApiResult<()> {
    match address.is_loopback() {
        true => Ok(()),
        false => Err(wrong_host(host)),
    }
}

fn wrong_host(host: &str) -> ApiError {
    let detail = format!("tcp: host \"{host}\" is not this machine");
    ApiError::new(ErrorKind::Denied, detail).with_remedy("ask 127.0.0.1, [::1] or localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_browser_may_be_led_by_are_refused() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            check_host(&headers)
        };
        for host in [
            "127.0.0.1:9469",
            "127.0.0.1",
            "localhost:9469",
            "localhost",
            "[::1]:9469",
            "[::1]",
        ] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        for host in [
            "evil.example:9469",
            "10.0.0.1:9469",
            "127.0.0.1.evil.example",
            "",
        ] {
            assert_eq!(check(host).unwrap_err().kind, ErrorKind::Denied, "{host}");
        }
        assert!(check_host(&HeaderMap::new()).is_err());
        let from = |site: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("localhost"));
            headers.insert("sec-fetch-site", HeaderValue::from_static(site));
            check_host(&headers)
        };
        assert_eq!((from("none"), from("same-origin")), (Ok(()), Ok(())));
        assert!(from("cross-site").is_err() && from("same-site").is_err());
    }
}
