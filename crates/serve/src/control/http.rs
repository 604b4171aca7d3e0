//! HTTP/1.1 on the control and metrics sockets: one thread for the sockets, a few for calls that wait.
//!
//! Everything is bounded. There are timeouts for the handshake, the head, the body and the response; a connection
//! carries one call. Connections have places ([`Slots`]) in a pool for their kind of caller, and calls have threads
//! for that kind: callers over TCP cannot lock out the Unix socket, and callers who may only read cannot lock out
//! those who may make changes. `rate` limits how often a caller may call.
//!
//! A call with an `Origin`, or one that a browser marks as coming from another site, is from a web page and is
//! refused. Over TCP, the `Host` must be an address, `localhost` or a name of the server, so that no page gets in
//! under a name of its own that resolves to this host.

use std::convert::Infallible;
use std::fs;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use iofair_config::contracts::{Control, Metrics};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::app::{Answer, App, Call};
use super::gate::{Author, Caller, Key, Role};
use super::problem::Problem;
use super::rate::Buckets;
use super::slots::Slots;
use super::{limits, limits::Class};
use crate::accounts;
use crate::error::ServeError;
use crate::front::tls;
use crate::socket::{self, Allowed};
use crate::supervisor;
use crate::trial::Mode;

/// What a caller without a place is told, if it listens.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\
    Retry-After: 1\r\nConnection: close\r\nContent-Length: 100\r\n\r\n\
    {\"error\":{\"kind\":\"busy\",\"message\":\"too many connections\",\"text\":\"too many connections; come again\"}}";

/// The sockets and their thread.
#[derive(Debug)]
pub(super) struct Http {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    /// Paths of sockets that are our own.
    bound: Vec<PathBuf>,
    control: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

/// Where to listen.
pub(super) struct Places {
    pub(super) control: Control,
    pub(super) metrics: Metrics,
    /// Who may connect to the Unix sockets.
    pub(super) allowed: [Allowed; 2],
    /// Sockets that a service manager passed.
    pub(super) passed: [Vec<supervisor::Socket>; 2],
    /// Whether this is only a check.
    pub(super) mode: Mode,
}

/// What a listener is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scope {
    Control,
    Metrics,
}

/// A listening socket.
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn adopt(socket: supervisor::Socket) -> io::Result<Self> {
        if socket.is_unix() {
            let listener = std::os::unix::net::UnixListener::from(socket.file);
            listener.set_nonblocking(true)?;
            return UnixListener::from_std(listener).map(Self::Unix);
        }
        let listener = std::net::TcpListener::from(socket.file);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self::Tcp)
    }
}

impl Http {
    /// Listens where `places` say; without any there is nothing to do.
    pub(super) fn start(places: Places, app: &Arc<App>) -> Result<Self, ServeError> {
        let (mut this, runtime) = Self::new()?;
        let listeners = runtime.block_on(async { this.listen(places) })?;
        if listeners.is_empty() {
            return Ok(this);
        }
        let service = Arc::new(Service::new(app.clone()));
        let stop = this.stop.clone();
        let run = move || serve(runtime, listeners, &service, &stop);
        let thread = std::thread::Builder::new().name("control".into()).spawn(run);
        this.thread = Some(thread.map_err(ServeError::system("a thread"))?);
        Ok(this)
    }
    /// Whether it could listen there.
    pub(super) fn check(places: Places) -> Result<(), ServeError> {
        let (mut this, runtime) = Self::new()?;
        runtime.block_on(async { this.listen(places) }).map(drop)
    }
    fn new() -> Result<(Self, Runtime), ServeError> {
        let stop = Arc::new(Notify::new());
        let (bound, control, metrics) = (Vec::new(), None, None);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::THREADS)
            .thread_name("control-call")
            .build()
            .map_err(ServeError::system("a runtime"))?;
        Ok((Self { stop, thread: None, bound, control, metrics }, runtime))
    }
    /// To be called inside the runtime.
    fn listen(&mut self, places: Places) -> Result<Vec<(Scope, Listener)>, ServeError> {
        let Places { control, metrics, allowed, passed, mode } = places;
        let [control_passed, metrics_passed] = passed;
        let plain = |socket: &supervisor::Socket| !socket.is_unix();
        if control.tls.is_none() && control_passed.iter().any(plain) {
            let message = "a TCP socket for control needs [control.tls] in the contract file";
            let what = "a control socket that was passed";
            return Err(ServeError::system(what)(io::Error::other(message)));
        }
        let at = (control.unix.as_deref(), control.tcp);
        let (mut all, tcp) = self.bind(at, allowed[0], control_passed, &mode)?;
        self.control = tcp;
        let mut listeners: Vec<_> = all.drain(..).map(|one| (Scope::Control, one)).collect();
        let at = (metrics.unix.as_deref(), metrics.tcp);
        let (all, tcp) = self.bind(at, allowed[1], metrics_passed, &mode)?;
        self.metrics = tcp;
        listeners.extend(all.into_iter().map(|one| (Scope::Metrics, one)));
        Ok(listeners)
    }
    /// Listens at a path and an address, on a socket that was passed if it is bound there, and on all others that were
    /// passed.
    fn bind(
        &mut self,
        (unix, tcp): (Option<&Path>, Option<SocketAddr>),
        allowed: Allowed,
        mut passed: Vec<supervisor::Socket>,
        mode: &Mode,
    ) -> Result<(Vec<Listener>, Option<SocketAddr>), ServeError> {
        let (mut listeners, mut given, mut at) = (Vec::new(), Vec::new(), None);
        if let Some(path) = unix {
            match supervisor::take_unix(&mut passed, path) {
                Some(socket) => given.push(socket),
                None => {
                    let what = ServeError::system(path.display().to_string());
                    if let Some(listener) = bind_unix(path, allowed, mode).map_err(what)? {
                        listeners.push(Listener::Unix(listener));
                        self.bound.push(path.to_path_buf());
                    }
                }
            }
        }
        if let Some(address) = tcp {
            match supervisor::take_tcp(&mut passed, address) {
                Some(socket) => given.push(socket),
                None => {
                    let what = ServeError::system(address.to_string());
                    let listener = bind_tcp(address, mode).map_err(what)?;
                    at = listener.local_addr().ok();
                    listeners.push(Listener::Tcp(listener));
                }
            }
        }
        for socket in given.into_iter().chain(passed) {
            at = at.or(socket.tcp());
            let what = ServeError::system("a socket that was passed");
            listeners.push(Listener::adopt(socket).map_err(what)?);
        }
        Ok((listeners, at))
    }
    /// The TCP address for control.
    pub(super) fn control(&self) -> Option<SocketAddr> {
        self.control
    }
    /// The TCP address for metrics.
    pub(super) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
    /// Accepts nobody any more and removes the sockets. Calls in flight are completed.
    pub(super) fn stop(mut self) {
        self.stop.notify_one();
        for path in &self.bound {
            // Gone already is as good.
            let _ = fs::remove_file(path);
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic of the control thread is a bug");
        }
    }
}

/// A socket in place of one that nobody listens to any more.
/// None is made for a check.
fn bind_unix(path: &Path, allowed: Allowed, mode: &Mode) -> io::Result<Option<UnixListener>> {
    let left = |path: &Path| StdUnixStream::connect(path).is_err();
    let bound = socket::bind_unix(path, allowed, mode, left)?;
    if mode.is_check() {
        return Ok(None);
    }
    let listener = std::os::unix::net::UnixListener::from(bound);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener).map(Some)
}

fn bind_tcp(address: SocketAddr, mode: &Mode) -> io::Result<TcpListener> {
    let listener = socket::bind_tcp(address, mode)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn serve(
    runtime: Runtime,
    listeners: Vec<(Scope, Listener)>,
    service: &Arc<Service>,
    stop: &Notify,
) {
    runtime.block_on(async {
        for (scope, listener) in listeners {
            runtime.spawn(accept(scope, listener, service.clone()));
        }
        stop.notified().await;
    });
    // Calls that are being carried out end; connections are cut.
    runtime.shutdown_timeout(limits::END);
}

async fn accept(scope: Scope, listener: Listener, service: Arc<Service>) {
    loop {
        let accepted = match &listener {
            Listener::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| service.admit_unix(scope, stream))
            }
            Listener::Tcp(listener) => {
                listener.accept().await.map(|(stream, from)| service.admit_tcp(scope, stream, from))
            }
        };
        if accepted.is_err() {
            // Out of descriptors, or the caller has gone already.
            sleep(limits::ACCEPT_PAUSE).await;
        }
    }
}

/// What all connections share.
struct Service {
    app: Arc<App>,
    /// Places for connections, and threads for calls, by [`Class`].
    slots: [Arc<Slots>; Class::COUNT],
    handshakes: Arc<Slots>,
    threads: [Semaphore; Class::COUNT],
    changes: Buckets,
    looks: Buckets,
    scrapes: Buckets,
    /// Refused changes that are written into the audit log.
    refusals: Buckets,
}

/// Who calls, and where.
struct Visit {
    caller: Caller,
    scope: Scope,
}

impl Service {
    fn new(app: Arc<App>) -> Self {
        Self {
            app,
            slots: Class::ALL.map(|class| Slots::new(class.slots(), class.slots_of_one())),
            handshakes: Slots::new(limits::HANDSHAKES, limits::HANDSHAKES_OF_ONE),
            threads: Class::ALL.map(|class| Semaphore::new(class.threads())),
            changes: Buckets::new(limits::CHANGES),
            looks: Buckets::new(limits::LOOKS),
            scrapes: Buckets::new(limits::SCRAPES),
            refusals: Buckets::new(limits::REFUSALS),
        }
    }
    /// What kind of caller this is, by the rules of this moment.
    fn class(&self, visit: &Visit) -> Class {
        let operates = || self.app.gate().role(&visit.caller) == Some(Role::Operator);
        match (visit.scope, &visit.caller) {
            (Scope::Metrics, Caller::Unix(_)) => Class::MetricsUnix,
            (Scope::Metrics, _) => Class::MetricsTcp,
            (Scope::Control, Caller::Unix(_)) if operates() => Class::UnixOperator,
            (Scope::Control, Caller::Unix(_)) => Class::UnixViewer,
            (Scope::Control, _) if operates() => Class::TlsOperator,
            (Scope::Control, _) => Class::TlsViewer,
        }
    }
    fn admit_unix(self: &Arc<Self>, scope: Scope, stream: UnixStream) {
        // Whom the kernel cannot tell gets nothing.
        let Ok(credentials) = accounts::credentials(stream.as_raw_fd()) else { return };
        let visit = Visit { caller: Caller::Unix(credentials), scope };
        let class = self.class(&visit);
        let Some(slot) = self.slots[class as usize].try_take(visit.caller.key()) else {
            // It may not listen, and nobody waits for it.
            let _ = stream.into_std().and_then(|mut stream| stream.write(BUSY));
            return;
        };
        let service = self.clone();
        drop(tokio::spawn(async move {
            converse(stream, visit, service).await;
            drop(slot);
        }));
    }
    fn admit_tcp(self: &Arc<Self>, scope: Scope, stream: TcpStream, from: SocketAddr) {
        if scope == Scope::Control {
            return self.admit_tls(stream, from);
        }
        let visit = Visit { caller: Caller::Tcp(from), scope };
        let class = self.class(&visit);
        let Some(slot) = self.slots[class as usize].try_take(visit.caller.key()) else {
            let _ = stream.into_std().and_then(|mut stream| stream.write(BUSY));
            return;
        };
        let service = self.clone();
        drop(tokio::spawn(async move {
            converse(stream, visit, service).await;
            drop(slot);
        }));
    }
    fn admit_tls(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let Some(place) = self.handshakes.try_take(Key::host(from)) else { return };
        let Some(config) = self.app.gate().tls.clone() else { return };
        let service = self.clone();
        drop(tokio::spawn(async move {
            let shaken = timeout(limits::HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
            let Ok(Ok(stream)) = shaken else { return };
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let names = certificates.first().map(tls::names).unwrap_or_default();
            let visit =
                Visit { caller: Caller::Tls { names, address: from }, scope: Scope::Control };
            let class = service.class(&visit);
            let slot = service.slots[class as usize].try_take(visit.caller.key());
            drop(place);
            if slot.is_some() {
                converse(stream, visit, service).await;
            }
        }));
    }
}

async fn converse<S>(stream: S, visit: Visit, service: Arc<Service>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let visit = Arc::new(visit);
    let answer = move |request| {
        let (service, visit) = (service.clone(), visit.clone());
        async move { reply(request, &visit, &service).await }
    };
    one_call(stream, answer).await;
}

/// A connection with one call; it is cut when the caller takes too long for any part of it.
async fn one_call<S, A>(stream: S, answer: impl Fn(Request<Incoming>) -> A)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Future<Output = Response<Full<Bytes>>>,
{
    let answered = Arc::new(Notify::new());
    let told = answered.clone();
    let call = service_fn(move |request| {
        let (response, told) = (answer(request), told.clone());
        async move {
            let response = response.await;
            told.notify_one();
            Ok::<_, Infallible>(response)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits::HEAD);
    http.max_buf_size(limits::HEAD_BYTES).max_headers(limits::HEADERS);
    // One call a connection, so that every part of it has its own limit of time.
    http.keep_alive(false);
    // Who has said everything may still listen.
    http.half_close(true);
    let late = async {
        answered.notified().await;
        sleep(limits::RESPONSE).await;
    };
    // A client that goes, says nonsense or does not read has been answered as well as can be.
    let (mut served, mut late) =
        (pin!(http.serve_connection(TokioIo::new(stream), call)), pin!(late));
    poll_fn(|cx| {
        let ended = served.as_mut().poll(cx).is_ready() || late.as_mut().poll(cx).is_ready();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn reply(
    request: Request<Incoming>,
    visit: &Visit,
    service: &Arc<Service>,
) -> Response<Full<Bytes>> {
    let answer = answer(request, visit, service).await;
    let answer = answer.unwrap_or_else(|problem| Answer::problem(&problem));
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status.try_into().expect("our own numbers are in range");
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        headers.insert(name, value.parse().expect("our own words are printable"));
    };
    set(header::CONTENT_TYPE, answer.kind);
    set(header::CACHE_CONTROL, "no-store");
    // Nothing here is a page, whatever it looks like.
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    if let Some(revision) = &answer.revision {
        set(header::ETAG, &format!("\"{revision}\""));
    }
    if let Some(allow) = answer.allow {
        set(header::ALLOW, allow);
    }
    if matches!(answer.status, 429 | 503) {
        set(header::RETRY_AFTER, "1");
    }
    response
}

async fn answer(
    request: Request<Incoming>,
    visit: &Visit,
    service: &Arc<Service>,
) -> Result<Answer, Problem> {
    let (head, body) = request.into_parts();
    no_web_page(&head)?;
    let gate = service.app.gate();
    if !matches!(visit.caller, Caller::Unix(_)) {
        let is_metrics = visit.scope == Scope::Metrics;
        let names = if is_metrics { &gate.metrics.hosts } else { &gate.hosts };
        known_host(&head, names)?;
    }
    let changes = head.method != Method::GET;
    if visit.scope == Scope::Metrics {
        only_metrics(&head)?;
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
            "a change is JSON and says so, without a body too",
        )
        .allowed("Content-Type: application/json"));
    }
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
    let call = call(head, body, visit).await?;
    // A health check must not wait behind pages of metrics.
    let class = if call.path == "/healthz" { Class::Health } else { service.class(visit) };
    let thread = timeout(limits::THREAD_WAIT, service.threads[class as usize].acquire()).await;
    let Ok(_thread) = thread else {
        return Err(Problem::new(503, "busy", "too many calls are being carried out"));
    };
    let app = service.app.clone();
    let called = tokio::task::spawn_blocking(move || app.answer(&call)).await;
    called.map_err(|_| Problem::new(500, "bug", "this call met a bug; see the server's log"))
}

/// Somebody may not do this: it is refused, and told to the audit log, now and then if it comes often.
fn refuse(head: &Parts, visit: &Visit, service: &Service, role: Option<Role>) -> Problem {
    let message = match (role, &visit.caller) {
        (Some(_), Caller::Unix(caller)) => {
            format!("uid {} may look and not change", caller.uid)
        }
        (Some(_), _) => "this certificate may look and not change".to_string(),
        (None, _) => "this certificate may do nothing here".to_string(),
    };
    let allowed = match &visit.caller {
        Caller::Unix(_) => "administrators: admins in [control]",
        _ => "names of certificates: viewers and operators in [control.tls]",
    };
    if service.refusals.take(service.app.now(), &visit.caller.key()).is_ok() {
        let query = head.uri.query().unwrap_or_default();
        let author = Author::of(&visit.caller);
        service.app.refused(&author, (head.method.as_str(), head.uri.path(), query), &message);
    }
    Problem::new(403, "forbidden", message).allowed(allowed)
}

/// Nothing of the metrics listener is anything else than metrics and health.
fn only_metrics(head: &Parts) -> Result<(), Problem> {
    if !["/metrics", "/healthz"].contains(&head.uri.path()) {
        let message = format!("there is nothing at {}", head.uri.path());
        return Err(Problem::missing(message).allowed("/metrics, /healthz"));
    }
    if head.method != Method::GET {
        return Err(Problem::new(405, "method", "this listener is read-only").allowed("GET"));
    }
    Ok(())
}

/// Web pages have no business here, also not those that send no `Origin` for what they only look at.
fn no_web_page(head: &Parts) -> Result<(), Problem> {
    let site = head.headers.get("sec-fetch-site");
    let from_page = site.is_some_and(|site| site != "none");
    if head.headers.contains_key(header::ORIGIN) || from_page {
        return Err(Problem::new(403, "origin", "web pages are not answered"));
    }
    Ok(())
}

/// The host that was called is an address, `localhost` or one of these names.
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
        let message = "this server has another name than the one that was called";
        return Err(Problem::new(403, "host", message).allowed(
            "an address, localhost, a name in `hosts` of [metrics] or in the certificate",
        ));
    }
    Ok(())
}

/// A header's value, without the quotes that a revision has.
fn word(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim().trim_matches('"').to_string())
}

async fn call(head: Parts, body: Incoming, visit: &Visit) -> Result<Call, Problem> {
    let body = timeout(limits::BODY, Limited::new(body, limits::BODY_BYTES).collect()).await;
    let body = body
        .map_err(|_| {
            let limit = limits::BODY;
            Problem::new(408, "too-slow", format!("the body took over {limit:?}"))
        })?
        .map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => {
                let most = limits::BODY_BYTES;
                Problem::new(413, "too-large", format!("a body has at most {most} bytes"))
            }
            false => Problem::bad_request(error.to_string()),
        })?
        .to_bytes();
    let changes = head.method != Method::GET;
    Ok(Call {
        method: head.method.as_str().to_string(),
        path: head.uri.path().to_string(),
        query: head.uri.query().unwrap_or_default().to_string(),
        if_match: word(&head.headers, header::IF_MATCH).filter(|word| word != "*"),
        only_new: word(&head.headers, header::IF_NONE_MATCH).is_some_and(|word| word == "*"),
        body: (!body.is_empty()).then(|| body.to_vec()),
        author: if changes { Author::of(&visit.caller) } else { Author::default() },
        caller: Some(visit.caller.key()),
    })
}

#[cfg(test)]
mod tests;
