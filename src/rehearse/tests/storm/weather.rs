//! What requests and watches meet on their way to the API server and back: each request of a controller, and of what runs
//! on a node, is given a fate by the dice.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use http::{Method, Request, Response, Uri};
use http_body::{Body as HttpBody, Frame};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{BoxError, Service};

use super::dice::Dice;
use crate::rehearse::server::{Answer, Transport};
use crate::rehearse::{Cluster, Kind};

/// How often each kind of fault was met.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// The weather of one cluster.
#[derive(Clone)]
pub(super) struct Weather(Arc<Mutex<Sky>>);

struct Sky {
    dice: Dice,
    /// How often a request or a watch meets something, in percent.
    faults: u64,
    tally: Tally,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Fine,
    /// It is on its way for so long.
    Late(Duration),
    /// Its answer is.
    LateAnswer(Duration),
    /// It is refused, and nothing is written.
    Refused(u16),
    /// It is carried out, and the answer says otherwise.
    RefusedAfter(u16),
    LostBefore,
    /// It is carried out, and no answer comes.
    LostAfter,
    /// Somebody else writes the object first.
    Overtaken,
    /// Who asks dies before it has left.
    DiesBefore,
    /// Who asks dies once it is carried out.
    DiesAfter,
}

impl Weather {
    pub(super) fn new(seed: u64, faults: u64) -> Self {
        Self(Arc::new(Mutex::new(Sky {
            dice: Dice::new(seed ^ 0x5707),
            faults,
            tally: Tally::new(),
        })))
    }

    /// All is well from now on.
    pub(super) fn clears_up(&self) {
        self.0.lock().unwrap().faults = 0;
    }

    pub(super) fn tally(&self) -> Tally {
        self.0.lock().unwrap().tally.clone()
    }

    pub(super) fn count(&self, kind: &'static str) {
        *self.0.lock().unwrap().tally.entry(kind).or_default() += 1;
    }

    fn fate(&self, method: &Method, mortal: bool) -> Fate {
        let mut sky = self.0.lock().unwrap();
        let faults = sky.faults;
        let dice = &mut sky.dice;
        if !dice.chance(faults) {
            return Fate::Fine;
        }
        let writes = *method != Method::GET;
        let (fate, kind) = match dice.roll(if writes { 22 } else { 9 }) {
            0 | 1 => (Fate::Late(Duration::from_millis(dice.roll(4_000))), "late"),
            2 => (
                Fate::LateAnswer(Duration::from_millis(dice.roll(4_000))),
                "late answer",
            ),
            3 | 4 => (Fate::Refused(429), "429"),
            5 => (Fate::Refused(500), "500"),
            6 => (Fate::LostBefore, "timeout before"),
            7 => (Fate::LostAfter, "timeout after"),
            8 => (Fate::RefusedAfter(500), "500 after"),
            9..14 => (Fate::Overtaken, "409"),
            14 | 15 => (Fate::LostAfter, "timeout after a write"),
            16 => (Fate::RefusedAfter(504), "504 after a write"),
            17 => (Fate::RefusedAfter(500), "500 after a write"),
            18 | 19 if mortal => (Fate::DiesBefore, "death before a write"),
            _ if mortal => (Fate::DiesAfter, "death after a write"),
            _ => (Fate::LostAfter, "timeout after a write"),
        };
        *sky.tally.entry(kind).or_default() += 1;
        fate
    }

    /// How a watch goes: how long until it breaks off, and whether the server has forgotten what was before.
    fn of_watch(&self) -> (Option<Duration>, bool) {
        let mut sky = self.0.lock().unwrap();
        let faults = sky.faults;
        let breaks = sky.dice.chance(faults * 4);
        let forgets = sky.dice.chance(faults);
        let after = Duration::from_millis(500 + sky.dice.roll(90_000));
        if breaks {
            *sky.tally.entry("watch broken off").or_default() += 1;
        }
        if forgets {
            *sky.tally.entry("410").or_default() += 1;
        }
        (breaks.then_some(after), forgets)
    }

    /// How long a cache is behind from which somebody has taken a list.
    fn of_cache(&self) -> Duration {
        let mut sky = self.0.lock().unwrap();
        *sky.tally.entry("list from a cache that is behind").or_default() += 1;
        Duration::from_millis(sky.dice.roll(8_000))
    }

    /// How long a line of a watch is on its way.
    fn of_line(&self) -> Duration {
        let mut sky = self.0.lock().unwrap();
        let faults = sky.faults;
        if !sky.dice.chance(faults) {
            return Duration::ZERO;
        }
        *sky.tally.entry("event delayed").or_default() += 1;
        Duration::from_millis(sky.dice.roll(8_000))
    }
}

/// A process that asks: it may die, and be cut off for a while.
pub(super) struct Process {
    dead: watch::Sender<bool>,
    cut_until: Mutex<Instant>,
    /// Until when the caches are behind from which it has taken a list, by path.
    behind_until: Mutex<BTreeMap<String, Instant>>,
}

impl Process {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            dead: watch::Sender::new(false),
            cut_until: Mutex::new(Instant::now()),
            behind_until: Mutex::default(),
        })
    }

    pub(super) fn dies(&self) {
        self.dead.send_replace(true);
    }

    pub(super) async fn is_dead(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Nothing comes through from or to it for so long.
    pub(super) fn is_cut_off_for(&self, time: Duration) {
        *self.cut_until.lock().unwrap() = Instant::now() + time;
    }

    fn heard_from(&self) -> Instant {
        *self.cut_until.lock().unwrap()
    }
}

/// The line of a process to the API server.
#[derive(Clone)]
pub(super) struct Line {
    transport: Transport,
    cluster: Cluster,
    weather: Weather,
    /// None is not mortal.
    process: Option<Arc<Process>>,
}

impl Line {
    pub(super) fn new(transport: Transport, weather: &Weather, process: Option<Arc<Process>>) -> Self {
        Self {
            cluster: transport.cluster().clone(),
            transport,
            weather: weather.clone(),
            process,
        }
    }

    async fn arrives(&self) {
        let Some(process) = &self.process else { return };
        if *process.dead.borrow() {
            pending::<()>().await;
        }
        sleep_until(process.heard_from()).await;
    }

    async fn ask<B>(&mut self, request: Request<B>) -> Result<Response<Gust>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let watches = is_watch(request.uri());
        let (breaks, forgets) = if watches {
            self.weather.of_watch()
        } else {
            (None, false)
        };
        if forgets {
            self.cluster.with(|state| state.store.forget());
        }
        let path = request.uri().path().to_owned();
        if !watches
            && takes_any_version(request.uri())
            && let Some(process) = &self.process
        {
            let until = Instant::now() + self.weather.of_cache();
            process.behind_until.lock().unwrap().insert(path.clone(), until);
        }
        let answer = self.transport.call(request).await?;
        let line = watches.then(|| Watched {
            silent_until: self.process.as_ref().and_then(|process| {
                let behind = process.behind_until.lock().unwrap();
                behind.get(&path).copied()
            }),
            weather: self.weather.clone(),
            process: self.process.clone(),
            queue: VecDeque::new(),
            ended: false,
            breaks: breaks.map(|after| Instant::now() + after),
            timer: Box::pin(sleep(Duration::ZERO)),
        });
        Ok(answer.map(|body| Gust {
            body: Box::pin(body),
            watched: line,
        }))
    }
}

impl<B> Service<Request<B>> for Line
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Gust>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Gust>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut line = self.clone();
        Box::pin(async move {
            line.arrives().await;
            let fate = line.weather.fate(request.method(), line.process.is_some());
            if !matches!(fate, Fate::Fine) {
                let what = format!("{fate:?}: {} {}", request.method(), request.uri());
                line.cluster.with(|state| state.tell(&what));
            }
            match fate {
                Fate::Fine => line.ask(request).await,
                Fate::Late(time) => {
                    sleep(time).await;
                    line.ask(request).await
                }
                Fate::LateAnswer(time) => {
                    let answer = line.ask(request).await;
                    sleep(time).await;
                    answer
                }
                Fate::Refused(code) => refusal(code),
                Fate::RefusedAfter(code) => {
                    let _ = line.ask(request).await?;
                    refusal(code)
                }
                Fate::LostBefore => pending().await,
                Fate::LostAfter => {
                    let _ = line.ask(request).await?;
                    pending().await
                }
                Fate::Overtaken => {
                    overtake(&line.cluster, request.uri());
                    line.ask(request).await
                }
                Fate::DiesBefore => {
                    line.dies();
                    pending().await
                }
                Fate::DiesAfter => {
                    let _ = line.ask(request).await?;
                    line.dies();
                    pending().await
                }
            }
        })
    }
}

impl Line {
    fn dies(&self) {
        if let Some(process) = &self.process {
            process.dies();
        }
    }
}

fn is_watch(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.contains("watch=true") || query.contains("watch=1"))
}

/// Whether a list may be an old one, from the cache of whichever API server answers.
fn takes_any_version(uri: &Uri) -> bool {
    let mut query = uri.query().unwrap_or_default().split('&');
    query.any(|parameter| parameter == "resourceVersion=0")
}

fn refusal(code: u16) -> Result<Response<Gust>, BoxError> {
    let reason = match code {
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("the storm says {code}"),
    });
    let body = Answer::Whole(Some(status.to_string().into()));
    let mut answer = Response::builder().status(code);
    if matches!(code, 429 | 504) {
        // Longer than any pause that the client would roll dice for.
        answer = answer.header(http::header::RETRY_AFTER, "16");
    }
    Ok(answer.body(Gust {
        body: Box::pin(body),
        watched: None,
    })?)
}

/// Somebody writes the object that a request is about.
fn overtake(cluster: &Cluster, uri: &Uri) {
    let path: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let (group, version, rest) = match path.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let ([plural, name] | [plural, name, _]) = rest else {
        return;
    };
    if let Some(kind) = Kind::of_path(group, version, plural) {
        let touched = cluster.clock().now().as_millisecond().to_string();
        let change = json!({ "metadata": { "annotations": { "storm.example.com/touched": touched } } });
        let _ = cluster
            .acting_as("passer-by")
            .patch(kind, namespace, name, &change);
    }
}

/// The body of an answer, as it arrives.
pub(super) struct Gust {
    body: Pin<Box<Answer>>,
    watched: Option<Watched>,
}

struct Watched {
    weather: Weather,
    process: Option<Arc<Process>>,
    queue: VecDeque<(Instant, Frame<Bytes>)>,
    ended: bool,
    /// Nothing comes before: the cache is behind.
    silent_until: Option<Instant>,
    breaks: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl HttpBody for Gust {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Self { body, watched } = self.get_mut();
        let Some(watched) = watched else {
            return body.as_mut().poll_frame(cx);
        };
        while !watched.ended {
            match body.as_mut().poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    let last = watched.queue.back().map(|(due, _)| *due);
                    let due = Instant::now() + watched.weather.of_line();
                    let due = [last, watched.silent_until]
                        .into_iter()
                        .flatten()
                        .fold(due, Instant::max);
                    watched.queue.push_back((due, frame));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => watched.ended = true,
                Poll::Pending => break,
            }
        }
        watched.next(cx)
    }
}

impl Watched {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let now = Instant::now();
        if self.breaks.is_some_and(|at| at <= now) {
            return Poll::Ready(None);
        }
        let heard = self.process.as_ref().map_or(now, |process| process.heard_from());
        let due = self.queue.front().map(|(due, _)| (*due).max(heard));
        match due {
            Some(due) if due <= now => {
                return Poll::Ready(self.queue.pop_front().map(|(_, frame)| Ok(frame)));
            }
            None if self.ended => return Poll::Ready(None),
            _ => {}
        }
        if let Some(wake) = due.into_iter().chain(self.breaks).min() {
            self.timer.as_mut().reset(wake);
            if self.timer.as_mut().poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}
