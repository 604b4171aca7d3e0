//! A call, and what it says in its path, its query and its body.

use iofair_config::contracts::edit::{Keys, Kind};
use serde_json::Value as Json;

use super::gate::{Author, Key};
use super::page::Page;
use super::problem::{Problem, Result};
use crate::consent::Consent;

/// After the question mark of a change that shall only be tried.
const DRY_RUN: &str = "dry_run=true";

/// A request of a client.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Call {
    pub(super) method: String,
    /// With its percent signs.
    pub(super) path: String,
    /// What followed the question mark.
    pub(super) query: String,
    /// The revision that the client knows, if it says so.
    pub(super) if_match: Option<String>,
    /// `If-None-Match: *`: only if it is new.
    pub(super) only_new: bool,
    /// A body, JSON by its own word.
    pub(super) body: Option<Vec<u8>>,
    /// Who makes a change.
    pub(super) author: Author,
    /// The caller, by which calls are counted.
    pub(super) caller: Option<Key>,
}

impl Call {
    /// Whether this is a dry run. A drain has none.
    pub(super) fn is_dry_run(&self) -> bool {
        let parts: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        let changes = match parts.as_slice() {
            ["v1", "stack"] => self.query == DRY_RUN,
            ["v1", "reload"] | ["v1", "groups" | "volumes", ..] => {
                self.query.split('&').any(|word| word == DRY_RUN)
            }
            _ => false,
        };
        changes && self.method != "GET"
    }

    /// What a caller agrees to, as it stands behind the question mark.
    pub(super) fn consent(&self, kind: Kind, name: &str) -> Result<Consent> {
        let mut consent = Consent::default();
        for word in self.query.split('&').filter(|word| !word.is_empty()) {
            let list = match (kind, self.method.as_str(), word) {
                (_, "DELETE", "data=keep") | (_, _, DRY_RUN) => continue,
                (Kind::Volume, "DELETE", "data=delete") => &mut consent.delete,
                (Kind::Volume, "PUT" | "PATCH", "shrink=true") => &mut consent.shrink,
                (Kind::Volume, "PUT" | "PATCH", "take_over=true") => &mut consent.take_over,
                _ => {
                    return Err(Problem::bad_request(format!("\"{word}\" after the name")).allowed(
                        "dry_run=true; for a volume: DELETE with ?data=keep or ?data=delete, PUT and PATCH with ?shrink=true \
                         or ?take_over=true",
                    ));
                }
            };
            list.push(name.to_string());
        }
        Ok(consent)
    }

    /// What the caller of a reload agrees to.
    pub(super) fn consent_to_reload(&self) -> Result<Consent> {
        let mut consent = Consent::default();
        for word in self.query.split('&').filter(|word| !word.is_empty() && *word != DRY_RUN) {
            let (list, name) = match word.split_once('=') {
                Some(("shrink", name)) => (&mut consent.shrink, name),
                Some(("take_over", name)) => (&mut consent.take_over, name),
                Some(("delete", name)) => (&mut consent.delete, name),
                _ => {
                    let allowed = "dry_run=true, shrink=VOLUME, take_over=VOLUME, delete=VOLUME";
                    let message = format!("\"{word}\" after the question mark");
                    return Err(Problem::bad_request(message).allowed(allowed));
                }
            };
            list.push(unescape(&[name])?);
        }
        Ok(consent)
    }

    /// The part of a list that a call wants.
    pub(super) fn page(&self) -> Result<Page> {
        Page::parse(&self.query, |name| unescape(&[name]))
    }

    /// The object in a call's body.
    pub(super) fn keys(&self) -> Result<Keys> {
        let Some(body) = &self.body else { return Ok(Keys::new()) };
        match serde_json::from_slice(body) {
            Ok(Json::Object(keys)) => Ok(keys),
            Ok(_) => Err(Problem::bad_request("the body is no object")),
            Err(error) => Err(Problem::bad_request(format!("the body is no JSON: {error}"))),
        }
    }
}

/// A name out of a path: its slashes may be escaped or not.
pub(super) fn unescape(parts: &[&str]) -> Result<String> {
    let bad = || Problem::bad_request("a percent sign in the path is followed by two hex digits");
    let mut bytes = Vec::new();
    let whole = parts.join("/");
    let mut rest = whole.bytes();
    while let Some(byte) = rest.next() {
        let escaped = |rest: &mut std::str::Bytes<'_>| {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            Some((digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8)
        };
        bytes.push(if byte == b'%' { escaped(&mut rest).ok_or_else(bad)? } else { byte });
    }
    String::from_utf8(bytes).map_err(|_| Problem::bad_request("the path is no UTF-8"))
}
