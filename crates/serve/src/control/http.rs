//! The control and metrics sockets: one thread for the sockets, a few for calls that block.
//!
//! This file listens and admits connections; `service` is what they share, and `exchange` reads the HTTP request of a
//! connection and sends the response.
//!
//! Everything is bounded. There are timeouts for the handshake, the head, the body and the response; a connection
//! carries one call, and one that waits for its caller gives way to a new one. Each class of callers
//! ([`Class`](limits::Class)) has a number of connections ([`Slots`](super::slots::Slots)) and of threads: callers
//! over TCP cannot lock out the Unix socket, and callers who may only read cannot lock out those who may make changes.
//! `rate` limits how often a caller may call.

mod exchange;
mod service;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use iofair_config::contracts::{Control, Metrics};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::gate::{Caller, Key};
use super::limits;
use crate::accounts;
use crate::error::ServeError;
use crate::front::tls;
use crate::reactor::refusals::Refusal;
use crate::socket::{self, Allowed, SocketFile, SocketPlace};
use crate::supervisor;
use crate::trial::Mode;
use service::{BUSY, Scope, Service, Visit, unless_cut};

/// The sockets and their thread.
#[derive(Debug)]
pub(super) struct Http {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    /// Files of the Unix sockets, removed on stop. Those of sockets from a service manager are not among them.
    bound: Vec<SocketFile>,
    control: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
}

/// Where to listen.
pub(super) struct Places {
    pub(super) control: Control,
    pub(super) metrics: Metrics,
    /// Users and groups that may connect to the Unix sockets.
    pub(super) allowed: [Allowed; 2],
    /// Sockets that a service manager passed.
    pub(super) passed: [Vec<supervisor::Socket>; 2],
    /// Whether this is only a check.
    pub(super) mode: Mode,
}

/// Interval of samples.
const SAMPLE: Duration = Duration::from_secs(1);

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

/// Where callers of one scope connect.
struct Endpoint<'a> {
    unix: Option<&'a Path>,
    tcp: Option<SocketAddr>,
    allowed: Allowed,
    passed: Vec<supervisor::Socket>,
}

impl Http {
    /// Listens on the configured sockets. Starts no thread if there are none.
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
    /// Checks whether it could listen on the configured sockets.
    pub(super) fn check(places: Places) -> Result<(), ServeError> {
        let (mut this, runtime) = Self::new()?;
        runtime.block_on(async { this.listen(places) }).map(drop)
    }
    fn new() -> Result<(Self, Runtime), ServeError> {
        let stop = Arc::new(Notify::new());
        let (bound, control, metrics) = (Vec::new(), None, None);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::THREADS + limits::SAMPLER + limits::NAMER)
            .thread_name("control-call")
            .build()
            .map_err(ServeError::system("a runtime"))?;
        Ok((Self { stop, thread: None, bound, control, metrics }, runtime))
    }
    /// Binds all sockets. Call it inside the runtime.
    fn listen(&mut self, places: Places) -> Result<Vec<(Scope, Listener)>, ServeError> {
        let Places { control, metrics, allowed, passed, mode } = places;
        let [control_passed, metrics_passed] = passed;
        let plain = |socket: &supervisor::Socket| !socket.is_unix();
        if control.tls.is_none() && control_passed.iter().any(plain) {
            let message = "a TCP socket for control needs [control.tls] in the contract file";
            let what = "a control socket that was passed";
            return Err(ServeError::system(what)(io::Error::other(message)));
        }
        let (unix, tcp) = (control.unix.as_deref(), control.tcp);
        let endpoint = Endpoint { unix, tcp, allowed: allowed[0], passed: control_passed };
        let (mut all, tcp) = self.bind(endpoint, &mode)?;
        self.control = tcp;
        let mut listeners: Vec<_> = all.drain(..).map(|one| (Scope::Control, one)).collect();
        let (unix, tcp) = (metrics.unix.as_deref(), metrics.tcp);
        let endpoint = Endpoint { unix, tcp, allowed: allowed[1], passed: metrics_passed };
        let (all, tcp) = self.bind(endpoint, &mode)?;
        self.metrics = tcp;
        listeners.extend(all.into_iter().map(|one| (Scope::Metrics, one)));
        Ok(listeners)
    }
    /// Listens at a path and an address, and on all sockets that a service manager passed. A passed socket that is bound
    /// to the path or the address is used instead of a new one.
    fn bind(
        &mut self,
        endpoint: Endpoint<'_>,
        mode: &Mode,
    ) -> Result<(Vec<Listener>, Option<SocketAddr>), ServeError> {
        let Endpoint { unix, tcp, allowed, mut passed } = endpoint;
        let (mut listeners, mut given, mut at) = (Vec::new(), Vec::new(), None);
        if let Some(path) = unix {
            match supervisor::take_unix(&mut passed, path) {
                Some(socket) => given.push(socket),
                None => {
                    let what = ServeError::system(path.display().to_string());
                    if let Some((listener, file)) = bind_unix(path, allowed, mode).map_err(what)? {
                        listeners.push(Listener::Unix(listener));
                        self.bound.push(file);
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
    /// The Unix sockets that it made.
    pub(super) fn sockets(&self) -> Vec<SocketPlace> {
        self.bound.iter().map(|file| file.place().clone()).collect()
    }
    /// The TCP address for control.
    pub(super) fn control(&self) -> Option<SocketAddr> {
        self.control
    }
    /// The TCP address for metrics.
    pub(super) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
    /// Stops accepting connections and removes the sockets. Calls in progress are completed.
    pub(super) fn stop(mut self) {
        self.stop.notify_one();
        self.bound.clear();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic of the control thread is a bug");
        }
    }
}

/// Binds a Unix socket, and replaces one that no process listens on. A check binds nothing and gets `None`.
fn bind_unix(
    path: &Path,
    allowed: Allowed,
    mode: &Mode,
) -> io::Result<Option<(UnixListener, SocketFile)>> {
    let (bound, file) = socket::bind_unix(path, allowed, mode, socket::is_unused)?;
    let Some(file) = file else { return Ok(None) };
    let listener = std::os::unix::net::UnixListener::from(bound);
    listener.set_nonblocking(true)?;
    Ok(Some((UnixListener::from_std(listener)?, file)))
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
        if service.app.has_page() {
            runtime.spawn(sample_each_second(service.app.clone()));
        }
        stop.notified().await;
    });
    // Calls in progress are completed; connections are cut.
    runtime.shutdown_timeout(limits::END);
}

/// Copies the counters each second, until the runtime ends.
async fn sample_each_second(app: Arc<App>) {
    let mut ticks = interval(SAMPLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let app = app.clone();
        // It fails while the server ends.
        let _ = tokio::task::spawn_blocking(move || app.sample()).await;
    }
}

async fn accept(scope: Scope, listener: Listener, service: Arc<Service>) {
    let mut is_short = false;
    loop {
        let accepted = match &listener {
            Listener::Unix(listener) => {
                listener.accept().await.map(|(stream, _)| service.admit_unix(scope, stream))
            }
            Listener::Tcp(listener) => {
                listener.accept().await.map(|(stream, from)| service.admit_tcp(scope, stream, from))
            }
        };
        let Err(error) = accepted else {
            is_short = false;
            continue;
        };
        // The caller still waits, so it counts once.
        if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
            && !std::mem::replace(&mut is_short, true)
        {
            service.app.refuse(Refusal::Descriptors);
        }
        // Out of descriptors, or the caller has gone already.
        sleep(limits::ACCEPT_PAUSE).await;
    }
}

impl Service {
    /// Says that no connection is free for a caller.
    fn refuse_connection(&self, stream: io::Result<impl Write>) {
        // A failure is ignored: the connection is closed in any case.
        let _ = stream.and_then(|mut stream| stream.write(BUSY));
        self.app.refuse(Refusal::Control);
    }
    fn admit_unix(self: &Arc<Self>, scope: Scope, stream: UnixStream) {
        // The rules need the caller's uid.
        let Ok(credentials) = accounts::credentials(stream.as_raw_fd()) else { return };
        let visit = Visit { caller: Caller::Unix(credentials), scope };
        let class = self.class(&visit);
        let Some(slot) = self.slots[class as usize].try_take(visit.caller.key()) else {
            return self.refuse_connection(stream.into_std());
        };
        let plain = Some(stream.as_raw_fd());
        drop(tokio::spawn(exchange::converse(stream, plain, visit, slot, self.clone())));
    }
    fn admit_tcp(self: &Arc<Self>, scope: Scope, stream: TcpStream, from: SocketAddr) {
        if scope == Scope::Control {
            return self.admit_tls(stream, from);
        }
        let visit = Visit { caller: Caller::Tcp(from), scope };
        let class = self.class(&visit);
        let Some(slot) = self.slots[class as usize].try_take(visit.caller.key()) else {
            return self.refuse_connection(stream.into_std());
        };
        let plain = Some(stream.as_raw_fd());
        drop(tokio::spawn(exchange::converse(stream, plain, visit, slot, self.clone())));
    }
    fn admit_tls(self: &Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let Some(place) = self.handshakes.try_take(Key::host(from)) else {
            return self.app.refuse(Refusal::Control);
        };
        let Some(config) = self.app.gate().tls.clone() else { return };
        let service = self.clone();
        drop(tokio::spawn(async move {
            let shakes = timeout(limits::HANDSHAKE, TlsAcceptor::from(config).accept(stream));
            let stream = match unless_cut(&place, shakes).await {
                Some(Ok(Ok(stream))) => stream,
                Some(Ok(Err(_))) => return service.app.refuse(Refusal::Tls),
                Some(Err(_)) | None => return service.app.refuse(Refusal::Unfinished),
            };
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let names = certificates.first().map(tls::names).unwrap_or_default();
            let visit =
                Visit { caller: Caller::Tls { names, address: from }, scope: Scope::Control };
            let class = service.class(&visit);
            let slot = service.slots[class as usize].try_take(visit.caller.key());
            drop(place);
            match slot {
                Some(slot) => exchange::converse(stream, None, visit, slot, service).await,
                None => service.app.refuse(Refusal::Control),
            }
        }));
    }
}
