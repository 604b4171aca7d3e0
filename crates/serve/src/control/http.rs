//! HTTP/1.1 on the control sockets: one thread for the sockets, a few for calls that wait.
//!
//! Bounded: so many connections at once, so much of a body, so long for a head and a body. A call with an
//! `Origin` is a web page's, and no web page has a business here.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::{Request, Response, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use iofair_config::contracts::Control as Place;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, Semaphore};

use super::app::{Answer, App, Call};
use super::problem::Problem;
use crate::error::ServeError;
use crate::socket::{Allowed, listen_unix};
use crate::supervisor;

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// Calls that are carried out at once; each may wait for the reactor or the disk.
const CALLS_MAX: usize = 8;
/// Bytes of a body.
const BODY_MAX: usize = 1 << 20;
/// Bytes of a head; also what is buffered of a connection.
const HEAD_MAX: usize = 16 << 10;
/// A head and a body may each take so long; so may an idle connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// The sockets and their thread.
#[derive(Debug)]
pub(super) struct Http {
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
    unix: Option<PathBuf>,
    tcp: Option<SocketAddr>,
}

/// A listening socket.
enum Door {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Door {
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
    /// Listens where `place` says; without a place there is nothing to do.
    pub(super) fn start(
        place: &Place,
        allowed: Allowed,
        passed: Vec<supervisor::Socket>,
        app: &Arc<App>,
    ) -> Result<Self, ServeError> {
        let stop = Arc::new(Notify::new());
        let mut this = Self { stop, thread: None, unix: None, tcp: None };
        if place.unix.is_none() && place.tcp.is_none() && passed.is_empty() {
            return Ok(this);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(CALLS_MAX)
            .thread_name("control-call")
            .build()
            .map_err(ServeError::system("a runtime"))?;
        let doors = runtime.block_on(async { this.listen(place, allowed, passed) })?;
        let (app, stop) = (app.clone(), this.stop.clone());
        let run = move || serve(runtime, doors, &app, &stop);
        let thread = std::thread::Builder::new().name("control".into()).spawn(run);
        this.thread = Some(thread.map_err(ServeError::system("a thread"))?);
        Ok(this)
    }
    /// Listens where `place` says, on a socket that was passed if it is bound there, and on all others that
    /// were passed. To be called inside the runtime.
    fn listen(
        &mut self,
        place: &Place,
        allowed: Allowed,
        mut passed: Vec<supervisor::Socket>,
    ) -> Result<Vec<Door>, ServeError> {
        let mut doors = Vec::new();
        let mut given = Vec::new();
        if let Some(path) = &place.unix {
            match supervisor::take_unix(&mut passed, path) {
                Some(socket) => given.push(socket),
                None => {
                    let door = bind(path, allowed)
                        .map_err(ServeError::system(path.display().to_string()))?;
                    doors.push(Door::Unix(door));
                    self.unix = Some(path.clone());
                }
            }
        }
        if let Some(address) = place.tcp {
            match supervisor::take_tcp(&mut passed, address) {
                Some(socket) => given.push(socket),
                None => {
                    let door =
                        bind_tcp(address).map_err(ServeError::system(address.to_string()))?;
                    self.tcp = door.local_addr().ok();
                    doors.push(Door::Tcp(door));
                }
            }
        }
        for socket in given.into_iter().chain(passed) {
            self.tcp = self.tcp.or(socket.tcp());
            let door = Door::adopt(socket);
            doors.push(door.map_err(ServeError::system("a control socket that was passed"))?);
        }
        Ok(doors)
    }
    pub(super) fn tcp(&self) -> Option<SocketAddr> {
        self.tcp
    }
    /// Accepts nobody any more and removes the socket. Calls under way are answered.
    pub(super) fn stop(mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            if let Some(path) = &self.unix {
                // Gone already is as good.
                let _ = fs::remove_file(path);
            }
            thread.join().expect("a panic of the control thread is a bug");
        }
    }
}

/// A socket in place of one that nobody listens to any more.
fn bind(path: &Path, allowed: Allowed) -> io::Result<UnixListener> {
    let is_socket = fs::metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = std::os::unix::net::UnixListener::from(listen_unix(path, allowed)?);
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn serve(runtime: Runtime, doors: Vec<Door>, app: &Arc<App>, stop: &Notify) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    runtime.block_on(async {
        for door in doors {
            runtime.spawn(accept(door, app.clone(), room.clone()));
        }
        stop.notified().await;
    });
    // Calls that are being carried out end; connections are cut.
    runtime.shutdown_timeout(PATIENCE);
}

async fn accept(door: Door, app: Arc<App>, room: Arc<Semaphore>) {
    loop {
        let permit = room.clone().acquire_owned().await.expect("it is never closed");
        let app = app.clone();
        match &door {
            Door::Unix(listener) => match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(async move {
                    converse(stream, app).await;
                    drop(permit);
                })),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Door::Tcp(listener) => match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(async move {
                    converse(stream, app).await;
                    drop(permit);
                })),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
        }
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, app: Arc<App>) {
    let service = service_fn(move |request| {
        let app = app.clone();
        async move { Ok::<_, Infallible>(reply(request, app).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD_MAX);
    // Who has said everything may still listen.
    http.half_close(true);
    // A client that goes or sends nonsense has been answered as well as can be.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn reply(request: Request<Incoming>, app: Arc<App>) -> Response<Full<Bytes>> {
    let answer = match call(request).await {
        Ok(call) => {
            let called = tokio::task::spawn_blocking(move || app.answer(&call)).await;
            called.unwrap_or_else(|_| {
                Answer::problem(&Problem::new(
                    500,
                    "bug",
                    "this call met a bug; see the server's log",
                ))
            })
        }
        Err(problem) => Answer::problem(&problem),
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status.try_into().expect("our own numbers are in range");
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value: &str| {
        headers.insert(name, value.parse().expect("our own words are printable"));
    };
    set(header::CONTENT_TYPE, answer.kind);
    set(header::CACHE_CONTROL, "no-store");
    if let Some(revision) = &answer.revision {
        set(header::ETAG, &format!("\"{revision}\""));
    }
    if let Some(allow) = answer.allow {
        set(header::ALLOW, allow);
    }
    response
}

/// A header's value, without the quotes that a revision has.
fn word(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let text = headers.get(name)?.to_str().ok()?;
    Some(text.trim().trim_matches('"').to_string())
}

async fn call(request: Request<Incoming>) -> Result<Call, Problem> {
    let (head, body) = request.into_parts();
    if head.headers.contains_key(header::ORIGIN) {
        return Err(Problem::new(403, "origin", "web pages are not answered"));
    }
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, BODY_MAX).collect()).await;
    let body = body
        .map_err(|_| Problem::new(408, "too-slow", format!("the body took over {PATIENCE:?}")))?
        .map_err(|error| match error.is::<http_body_util::LengthLimitError>() {
            true => Problem::new(413, "too-large", format!("a body has at most {BODY_MAX} bytes")),
            false => Problem::bad_request(error.to_string()),
        })?
        .to_bytes();
    let json = word(&head.headers, header::CONTENT_TYPE).unwrap_or_default();
    if !body.is_empty() && !json.starts_with("application/json") {
        return Err(Problem::new(415, "not-json", "the body is JSON and says so")
            .allowed("Content-Type: application/json"));
    }
    Ok(Call {
        method: head.method.as_str().to_string(),
        path: head.uri.path().to_string(),
        query: head.uri.query().unwrap_or_default().to_string(),
        if_match: word(&head.headers, header::IF_MATCH).filter(|word| word != "*"),
        only_new: word(&head.headers, header::IF_NONE_MATCH).is_some_and(|word| word == "*"),
        body: (!body.is_empty()).then(|| body.to_vec()),
    })
}
