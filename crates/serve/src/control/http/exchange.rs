//! One HTTP/1.1 call on an accepted connection: the request is read and checked, the response is sent.
//!
//! A call with an `Origin`, or one that a browser marks as coming from another site, is from a web page and is
//! refused. Over TCP, the `Host` must be an address, `localhost` or a name of the server, so that a page cannot call
//! the server under a domain of its author that resolves to this host (DNS rebinding). The live page is the exception: it
//! reads its own files and events.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::service::{BUSY, Scope, Service, Visit, unless_cut};
use crate::control::audit::Asked;
use crate::control::call::Call;
use crate::control::events::{self, Events};
use crate::control::gate::{Author, Caller, Role};
use crate::control::limits::{self, Class};
use crate::control::monitor;
use crate::control::problem::Problem;
use crate::control::response::ApiResponse;
use crate::control::slots::Slot;
use crate::reactor::refusals::Refusal;
use crate::socket;

/// What is sent: a whole response, or events as long as the caller takes them.
type Sent = Either<Full<Bytes>, Events>;

/// What a call gets.
enum Outcome {
    Whole(ApiResponse),
    Events(Events),
}

/// Carries out the call of a connection. If that is not encrypted, `plain` is its descriptor.
pub(super) async fn converse<S>(
    stream: S,
    plain: Option<RawFd>,
    visit: Visit,
    slot: Slot,
    service: Arc<Service>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (visit, slot) = (Arc::new(visit), Arc::new(slot));
    let (own, app) = (slot.clone(), service.app.clone());
    let respond = move |request| {
        let (service, visit, slot) = (service.clone(), visit.clone(), own.clone());
        async move {
            let response = respond(request, &visit, &slot, &service).await;
            slot.begin();
            // Events of a live page have places of their own.
            if matches!(response.body(), Either::Left(_)) {
                slot.end();
            }
            response
        }
    };
    let mut call = pin!(one_call(stream, respond));
    let is_late = unless_cut(&slot, call.as_mut()).await;
    let is_cut = is_late.is_none();
    if is_late.unwrap_or(true) && !slot.has_begun() {
        app.refuse(Refusal::Unfinished);
    }
    if let Some(socket) = plain.filter(|_| is_cut && !slot.has_begun()) {
        // The call has it, and closes it only now.
        socket::try_send(socket, BUSY);
    }
}

/// Serves a connection with one call, and cuts it when the caller takes too long for any part of the call. Returns whether its head did
/// not come in time.
async fn one_call<S, R>(stream: S, respond: impl Fn(Request<Incoming>) -> R) -> bool
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    R: Future<Output = Response<Sent>>,
{
    let called = Arc::new(Notify::new());
    let notify = called.clone();
    let call = service_fn(move |request| {
        let (response, notify) = (respond(request), notify.clone());
        async move {
            let response = response.await;
            match response.body() {
                Either::Left(_) => notify.notify_one(),
                Either::Right(events) => events.notify_at_end(notify),
            }
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits::HEAD);
    http.max_buf_size(limits::HEAD_BYTES).max_headers(limits::HEADERS);
    // One call per connection, so that each part of it has its own timeout.
    http.keep_alive(false);
    // A caller may close its sending side and still read the response.
    http.half_close(true);
    let late = async {
        called.notified().await;
        sleep(limits::RESPONSE).await;
    };
    // Errors are ignored: for a caller that disconnects, sends garbage or does not read there is nothing left to do.
    let (mut served, mut late) =
        (pin!(http.serve_connection(TokioIo::new(stream), call)), pin!(late));
    poll_fn(|cx| match served.as_mut().poll(cx) {
        Poll::Ready(ended) => Poll::Ready(ended.is_err_and(|error| error.is_timeout())),
        Poll::Pending => late.as_mut().poll(cx).map(|()| false),
    })
    .await
}

async fn respond(
    request: Request<Incoming>,
    visit: &Visit,
    slot: &Slot,
    service: &Arc<Service>,
) -> Response<Sent> {
    let outcome = carry_out(request, visit, slot, service).await;
    let outcome = match outcome {
        Ok(Outcome::Events(events)) => return events::response(events).map(Either::Right),
        Ok(Outcome::Whole(outcome)) => outcome,
        Err(problem) => {
            problem.refusal().into_iter().for_each(|refusal| service.app.refuse(refusal));
            ApiResponse::problem(&problem)
        }
    };
    let mut response = Response::new(Either::Left(Full::new(outcome.body)));
    *response.status_mut() =
        outcome.status.try_into().expect("status codes of this crate are valid");
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        headers.insert(name, value.parse().expect("header values of this crate are printable"));
    };
    set(header::CONTENT_TYPE, outcome.kind);
    set(header::CACHE_CONTROL, "no-store");
    // No other response is a web page, whatever its body looks like.
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if outcome.kind == monitor::HTML {
        set(header::CONTENT_SECURITY_POLICY, monitor::POLICY);
        set(header::REFERRER_POLICY, "no-referrer");
    }
    if let Some(revision) = &outcome.revision {
        set(header::ETAG, &format!("\"{revision}\""));
    }
    if let Some(allow) = outcome.allow {
        set(header::ALLOW, allow);
    }
    if matches!(outcome.status, 429 | 503) {
        set(header::RETRY_AFTER, "1");
    }
    response
}

/// Checks a call and passes it to the application. Until all of it has been received, its connection gives way to new ones.
async fn carry_out(
    request: Request<Incoming>,
    visit: &Visit,
    slot: &Slot,
    service: &Arc<Service>,
) -> Result<Outcome, Problem> {
    let (head, body) = request.into_parts();
    let gate = service.app.gate();
    let of_page = gate.metrics.page && monitor::PATHS.contains(&head.uri.path());
    no_web_page(&head, of_page && head.method == Method::GET)?;
    if !matches!(visit.caller, Caller::Unix(_)) {
        let is_metrics = visit.scope == Scope::Metrics;
        let names = if is_metrics { &gate.metrics.hosts } else { &gate.hosts };
        known_host(&head, names)?;
    }
    let changes = head.method != Method::GET;
    if visit.scope == Scope::Metrics {
        only_metrics(&head, of_page)?;
    } else {
        let role = gate.role(&visit.caller);
        if role.is_none() || (changes && role != Some(Role::Operator)) {
            return Err(refuse(&head, visit, service, role));
        }
    }
    let is_json = word(&head.headers, header::CONTENT_TYPE).is_some_and(|kind| {
        kind.split(';').next().unwrap_or_default().trim() == "application/json"
    });
    if changes && !is_json {
        return Err(Problem::new(
            415,
            "not-json",
            "a change needs this header, also without a body",
        )
        .allowed("Content-Type: application/json"));
    }
    let body = receive(body).await?;
    slot.begin();
    let buckets = match (changes, visit.scope) {
        (true, _) => &service.changes,
        (false, Scope::Control) => &service.looks,
        (false, Scope::Metrics) => &service.scrapes,
    };
    match buckets.take(service.app.now(), &visit.caller.key()) {
        Ok(wait) => sleep(Duration::from_nanos(wait.0)).await,
        Err(wait) => {
            let message = format!("too many calls: the next one may come in {wait}");
            return Err(Problem::new(429, "too-many", message));
        }
    }
    if of_page && head.uri.path() == monitor::EVENTS {
        return events(visit, service).map(Outcome::Events);
    }
    let call = call(&head, &body, visit);
    // A health check must not wait behind pages of metrics.
    let class = if call.path == "/healthz" { Class::Health } else { service.class(visit) };
    let is_change = changes && class.change_threads() > 0;
    let threads = match is_change {
        true if call.method == "DELETE" => &service.removal_threads,
        true => &service.change_threads,
        false => &service.threads,
    };
    let thread =
        timeout(limits::THREAD_WAIT, threads[class as usize].clone().acquire_owned()).await;
    let Ok(thread) = thread else {
        return Err(Problem::new(503, "busy", "too many calls are in progress"));
    };
    let app = service.app.clone();
    let called = tokio::task::spawn_blocking(move || {
        // The call may outlast its connection.
        let _thread = thread;
        app.respond(&call)
    });
    Ok(Outcome::Whole(outcome(called, is_change).await?))
}

/// The response to a call; to a change that takes too long, that it does.
async fn outcome(called: JoinHandle<ApiResponse>, is_change: bool) -> Result<ApiResponse, Problem> {
    let limit = if is_change { limits::CHANGE } else { Duration::MAX };
    let Ok(called) = timeout(limit, called).await else {
        let message = format!(
            "this change has waited for storage or for clients for {limit:?}, and may still be made: see the audit log"
        );
        return Err(Problem::new(503, "busy", message));
    };
    called.map_err(|_| Problem::new(500, "bug", "this call met a bug; see the server's log"))
}

/// Events for a live page, if not too many pages are open.
fn events(visit: &Visit, service: &Service) -> Result<Events, Problem> {
    let Some(slot) = service.live_pages.try_take(visit.caller.key()) else {
        return Err(Problem::new(503, "busy", "too many live pages are open").allowed(format!(
            "{} pages, {} of one caller",
            limits::LIVE_PAGES,
            limits::LIVE_PAGES_OF_ONE
        )));
    };
    // An open page does not give way.
    slot.begin();
    let (first, latest) = service.app.monitor.watch();
    Ok(Events::new(first, latest, slot))
}

/// The refusal of a call that the caller's role does not allow. Refusals go to the audit log, at a limited rate.
fn refuse(head: &Parts, visit: &Visit, service: &Service, role: Option<Role>) -> Problem {
    let message = match (role, &visit.caller) {
        (Some(_), Caller::Unix(caller)) => {
            format!("uid {} may read and not make changes", caller.uid)
        }
        (Some(_), _) => "this certificate may read and not make changes".to_string(),
        (None, _) => "this certificate has no access".to_string(),
    };
    let allowed = match &visit.caller {
        Caller::Unix(_) => "administrators: admins in [control]",
        _ => "names of certificates: viewers and operators in [control.tls]",
    };
    if service.refusals.take(service.app.now(), &visit.caller.key()).is_ok() {
        let query = head.uri.query().unwrap_or_default();
        let author = Author::from_caller(&visit.caller);
        let asked = Asked::new(head.method.as_str(), head.uri.path(), query, None);
        service.log_refusal(author, asked, message.clone());
    }
    Problem::new(403, "forbidden", message).allowed(allowed)
}

/// The metrics listener serves metrics, health checks and the live page, and nothing else.
fn only_metrics(head: &Parts, of_page: bool) -> Result<(), Problem> {
    if !of_page && !["/metrics", "/healthz"].contains(&head.uri.path()) {
        let message = format!("there is nothing at {}", head.uri.path());
        return Err(Problem::missing(message)
            .allowed("/metrics, /healthz; with `page = true` in [metrics], /"));
    }
    if head.method != Method::GET {
        return Err(Problem::new(405, "method", "this listener is read-only").allowed("GET"));
    }
    Ok(())
}

/// Refuses web pages, including their reads, for which browsers send no `Origin`. `of_page`: the live page may read this.
fn no_web_page(head: &Parts, of_page: bool) -> Result<(), Problem> {
    let site = head.headers.get("sec-fetch-site");
    let from_page = site.is_some_and(|site| site != "none" && !(of_page && site == "same-origin"));
    if head.headers.contains_key(header::ORIGIN) || from_page {
        return Err(Problem::new(403, "origin", "calls from web pages are refused"));
    }
    Ok(())
}

/// Checks that the `Host` is an address, `localhost` or one of these names.
fn known_host(head: &Parts, names: &[String]) -> Result<(), Problem> {
    let mut written = head.headers.get_all(header::HOST).iter();
    let (first, second) = (written.next(), written.next());
    let host = first.and_then(|host| host.to_str().ok()).filter(|_| second.is_none());
    let called = [host, head.uri.authority().map(|authority| authority.as_str())];
    let known = |text: &str| {
        let name = match text.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => text.split(':').next().unwrap_or_default(),
        };
        let name = name.to_ascii_lowercase();
        name.parse::<IpAddr>().is_ok() || name == "localhost" || names.contains(&name)
    };
    if host.is_none() || !called.into_iter().flatten().all(known) {
        let message = "this server does not have the name in the Host header";
        return Err(Problem::new(403, "host", message).allowed(
            "an address, localhost, a name in `hosts` of [metrics] or in the certificate",
        ));
    }
    Ok(())
}

/// A header's value, without the quotes around a revision.
fn word(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim().trim_matches('"').to_string())
}

/// Reads the body of a call.
async fn receive(body: Incoming) -> Result<Bytes, Problem> {
    let body = timeout(limits::BODY, Limited::new(body, limits::BODY_BYTES).collect()).await;
    let body = body
        .map_err(|_| {
            let limit = limits::BODY;
            Problem::new(408, "too-slow", format!("the body took longer than {limit:?}"))
        })?
        .map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => {
                let most = limits::BODY_BYTES;
                Problem::new(413, "too-large", format!("a body may have at most {most} bytes"))
            }
            false => Problem::bad_request(error.to_string()),
        })?;
    Ok(body.to_bytes())
}

fn call(head: &Parts, body: &Bytes, visit: &Visit) -> Call {
    let changes = head.method != Method::GET;
    Call {
        method: head.method.as_str().to_string(),
        path: head.uri.path().to_string(),
        query: head.uri.query().unwrap_or_default().to_string(),
        if_match: word(&head.headers, header::IF_MATCH).filter(|word| word != "*"),
        only_new: word(&head.headers, header::IF_NONE_MATCH).is_some_and(|word| word == "*"),
        body: (!body.is_empty()).then(|| body.to_vec()),
        author: if changes { Author::from_caller(&visit.caller) } else { Author::default() },
        caller: Some(visit.caller.key()),
    }
}

#[cfg(test)]
mod tests;
