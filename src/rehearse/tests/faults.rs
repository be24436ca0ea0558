//! Faults between clients and the API server: the random numbers of a seed decide the fault of each request and watch,
//! of the controllers and of containers on nodes.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, pending};
use http::{Request, Response, Uri};
use http_body::{Body as HttpBody, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tower::{BoxError, Service};

use super::rng::Rng;
use crate::rehearse::fault::Moment::{After, Before};
use crate::rehearse::fault::{ApiRequest, Effect, Moment, Rule, Rules};
use crate::rehearse::server::{ResponseBody, Transport};
use crate::rehearse::{Cluster, Kind};

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// Number of faults by kind.
pub(super) type Tally = BTreeMap<&'static str, u64>;

/// The faults of one cluster.
#[derive(Clone)]
pub(super) struct FaultInjector(Arc<Mutex<FaultState>>);

struct FaultState {
    rng: Rng,
    /// Probability of a fault for a request or a watch, in percent.
    fault_percent: u64,
    tally: Tally,
    /// Rules for requests of processes that can die; they precede random faults.
    rules: Rules,
    /// Verbs and resources without permission.
    denied: Vec<(String, String)>,
    /// Resources whose watches are held back.
    held: Vec<String>,
    /// Number of broken watches by resource.
    breaks: BTreeMap<String, u32>,
    wakers: Vec<Waker>,
    /// Number of writes that have arrived from processes that can die.
    writes: u64,
}

impl FaultInjector {
    pub(super) fn new(seed: u64, fault_percent: u64) -> Self {
        Self(Arc::new(Mutex::new(FaultState {
            rng: Rng::new(seed ^ 0x5707),
            fault_percent,
            tally: Tally::new(),
            rules: Rules::new(seed),
            denied: Vec::new(),
            held: Vec::new(),
            breaks: BTreeMap::new(),
            wakers: Vec::new(),
            writes: 0,
        })))
    }

    pub(super) fn add(&self, rule: Rule) {
        self.0.lock().unwrap().rules.add(rule);
    }

    /// Removes all rules. True if they have had all their effects.
    pub(super) fn clear_rules(&self) -> bool {
        let rules = &mut self.0.lock().unwrap().rules;
        let is_pending = rules.is_pending();
        rules.clear();
        !is_pending
    }

    /// Number of writes that have arrived from processes that can die.
    pub(super) fn writes(&self) -> u64 {
        self.0.lock().unwrap().writes
    }

    /// Grants or revokes a permission, such as `create` `jobs`.
    pub(super) fn allow(&self, verb: &str, resource: &str, allowed: bool) {
        let denied = &mut self.0.lock().unwrap().denied;
        denied.retain(|one| *one != (verb.to_owned(), resource.to_owned()));
        if !allowed {
            denied.push((verb.to_owned(), resource.to_owned()));
        }
    }

    fn is_denied(&self, verb: &str, resource: &str) -> bool {
        let state = self.0.lock().unwrap();
        state.denied.iter().any(|(v, r)| v == verb && r == resource)
    }

    /// Holds back the watch of a resource, or delivers all its events.
    pub(super) fn hold_watch(&self, resource: &str, holds: bool) {
        let mut state = self.0.lock().unwrap();
        state.held.retain(|one| one != resource);
        if holds {
            state.held.push(resource.to_owned());
        }
        state.wakers.drain(..).for_each(Waker::wake);
    }

    /// Breaks the open watches of a resource.
    pub(super) fn cut_watches(&self, resource: &str) {
        let mut state = self.0.lock().unwrap();
        *state.breaks.entry(resource.to_owned()).or_default() += 1;
        state.wakers.drain(..).for_each(Waker::wake);
    }

    fn breaks(&self, resource: &str) -> u32 {
        self.0
            .lock()
            .unwrap()
            .breaks
            .get(resource)
            .copied()
            .unwrap_or_default()
    }

    fn poll_held(&self, resource: &str, waker: &Waker) -> bool {
        let mut state = self.0.lock().unwrap();
        if !state.wakers.iter().any(|one| one.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        state.held.iter().any(|one| one == resource)
    }

    /// Ends all faults.
    pub(super) fn stop_faults(&self) {
        self.0.lock().unwrap().fault_percent = 0;
    }

    pub(super) fn tally(&self) -> Tally {
        self.0.lock().unwrap().tally.clone()
    }

    pub(super) fn count(&self, kind: &'static str) {
        *self.0.lock().unwrap().tally.entry(kind).or_default() += 1;
    }

    fn apply(&self, request: &ApiRequest, mortal: bool) -> Option<Effect> {
        let mut state = self.0.lock().unwrap();
        state.writes += u64::from(mortal && request.is_write_or_event());
        if mortal && let Some(effect) = state.rules.apply(request) {
            return Some(effect);
        }
        let fault_percent = state.fault_percent;
        let rng = &mut state.rng;
        if !rng.chance(fault_percent) {
            return None;
        }
        let writes = !matches!(request.verb.as_str(), "get" | "list" | "watch");
        let (effect, kind) = match rng.below(if writes { 22 } else { 9 }) {
            0 | 1 => (
                Effect::Delay(Before, Duration::from_millis(rng.below(4_000))),
                "late",
            ),
            2 => (
                Effect::Delay(After, Duration::from_millis(rng.below(4_000))),
                "late answer",
            ),
            3 | 4 => (Effect::Answer(Before, 429), "429"),
            5 => (Effect::Answer(Before, 500), "500"),
            6 => (Effect::Hang(Before), "timeout before"),
            7 => (Effect::Hang(After), "timeout after"),
            8 => (Effect::Answer(After, 500), "500 after"),
            9..14 => (Effect::Overtake, "409"),
            14 | 15 => (Effect::Hang(After), "timeout after a write"),
            16 => (Effect::Answer(After, 504), "504 after a write"),
            17 => (Effect::Answer(After, 500), "500 after a write"),
            18 | 19 if mortal => (Effect::Kill(Before), "death before a write"),
            _ if mortal => (Effect::Kill(After), "death after a write"),
            _ => (Effect::Hang(After), "timeout after a write"),
        };
        *state.tally.entry(kind).or_default() += 1;
        Some(effect)
    }

    /// The fault of a watch: the time until it breaks, and whether the server has dropped its history.
    fn watch_fault(&self) -> (Option<Duration>, bool) {
        let mut state = self.0.lock().unwrap();
        let fault_percent = state.fault_percent;
        let breaks = state.rng.chance(fault_percent * 4);
        let forgets = state.rng.chance(fault_percent);
        let after = Duration::from_millis(500 + state.rng.below(90_000));
        if breaks {
            *state.tally.entry("watch broken off").or_default() += 1;
        }
        if forgets {
            *state.tally.entry("410").or_default() += 1;
        }
        (breaks.then_some(after), forgets)
    }

    /// The lag of a cache from which a list was served.
    fn cache_lag(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        *state.tally.entry("list from a cache that is behind").or_default() += 1;
        Duration::from_millis(state.rng.below(8_000))
    }

    /// The delay of a watch event.
    fn event_delay(&self) -> Duration {
        let mut state = self.0.lock().unwrap();
        let fault_percent = state.fault_percent;
        if !state.rng.chance(fault_percent) {
            return Duration::ZERO;
        }
        *state.tally.entry("event delayed").or_default() += 1;
        Duration::from_millis(state.rng.below(8_000))
    }
}

/// A client process, which may die or be disconnected.
pub(super) struct Process {
    dead: watch::Sender<bool>,
    cut_until: Mutex<Instant>,
    /// Until when the caches lag from which it has read a list, by path.
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

    pub(super) fn kill(&self) {
        self.dead.send_replace(true);
    }

    pub(super) async fn died(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Disconnects the process for a time.
    pub(super) fn cut_off(&self, time: Duration) {
        *self.cut_until.lock().unwrap() = Instant::now() + time;
    }

    fn reachable_from(&self) -> Instant {
        *self.cut_until.lock().unwrap()
    }
}

/// The connection of a process to the API server.
#[derive(Clone)]
pub(super) struct FaultyTransport {
    transport: Transport,
    cluster: Cluster,
    fault_injector: FaultInjector,
    /// `None` for a client that cannot die.
    process: Option<Arc<Process>>,
}

impl FaultyTransport {
    pub(super) fn new(
        transport: Transport,
        fault_injector: &FaultInjector,
        process: Option<Arc<Process>>,
    ) -> Self {
        Self {
            cluster: transport.cluster().clone(),
            transport,
            fault_injector: fault_injector.clone(),
            process,
        }
    }

    async fn wait_until_reachable(&self) {
        let Some(process) = &self.process else { return };
        if *process.dead.borrow() {
            pending::<()>().await;
        }
        sleep_until(process.reachable_from()).await;
    }

    /// Sends a request. `event_delay` is that of each event of a watch, besides random ones.
    async fn send(
        &mut self,
        request: Request<AnyBody>,
        event_delay: Duration,
    ) -> Result<Response<FaultyBody>, BoxError> {
        let watches = ApiRequest::of(request.method(), request.uri()).verb == "watch";
        let (breaks, forgets) = if watches {
            self.fault_injector.watch_fault()
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
            let until = Instant::now() + self.fault_injector.cache_lag();
            process.behind_until.lock().unwrap().insert(path.clone(), until);
        }
        let resource = path.rsplit('/').next().unwrap_or_default().to_owned();
        let answer = self.transport.call(request).await?;
        let line = watches.then(|| DelayedEvents {
            breaks_seen: self.fault_injector.breaks(&resource),
            resource,
            silent_until: self.process.as_ref().and_then(|process| {
                let behind = process.behind_until.lock().unwrap();
                behind.get(&path).copied()
            }),
            fault_injector: self.fault_injector.clone(),
            event_delay,
            process: self.process.clone(),
            queue: VecDeque::new(),
            ended: false,
            breaks: breaks.map(|after| Instant::now() + after),
            timer: Box::pin(sleep(Duration::ZERO)),
        });
        Ok(answer.map(|body| FaultyBody {
            body: Box::pin(body),
            watched: line,
        }))
    }
}

impl<B> Service<Request<B>> for FaultyTransport
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<FaultyBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<FaultyBody>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut line = self.clone();
        Box::pin(async move {
            line.wait_until_reachable().await;
            let request = if line.process.is_some() {
                match line.permit(request).await? {
                    Ok(request) => request,
                    Err(refusal) => return Ok(refusal),
                }
            } else {
                request.map(|body| body.map_err(Into::into).boxed_unsync())
            };
            let api_request = ApiRequest::of(request.method(), request.uri());
            let effect = line
                .fault_injector
                .apply(&api_request, line.process.is_some());
            if let Some(effect) = effect {
                let what = format!("{effect:?}: {} {}", request.method(), request.uri());
                line.cluster.with(|state| state.trace_line(&what));
            }
            line.send_with(effect, request).await
        })
    }
}

impl FaultyTransport {
    /// Sends a request with this effect on it.
    async fn send_with(
        &mut self,
        effect: Option<Effect>,
        request: Request<AnyBody>,
    ) -> Result<Response<FaultyBody>, BoxError> {
        match effect {
            None => self.send(request, Duration::ZERO).await,
            Some(Effect::DelayEvents(delay)) => self.send(request, delay).await,
            Some(Effect::Delay(Before, time)) => {
                sleep(time).await;
                self.send(request, Duration::ZERO).await
            }
            Some(Effect::Delay(After, time)) => {
                let answer = self.send(request, Duration::ZERO).await;
                sleep(time).await;
                answer
            }
            Some(Effect::Overtake) => {
                overtake(&self.cluster, &ApiRequest::of(request.method(), request.uri()));
                self.send(request, Duration::ZERO).await
            }
            Some(Effect::Answer(moment, code)) => {
                self.send_if(moment, request).await?;
                refusal(code)
            }
            Some(Effect::Disconnect(moment)) => {
                self.send_if(moment, request).await?;
                Err("the connection broke".into())
            }
            Some(Effect::Hang(moment)) => {
                self.send_if(moment, request).await?;
                pending().await
            }
            Some(Effect::Kill(moment)) => {
                self.send_if(moment, request).await?;
                self.kill();
                pending().await
            }
        }
    }

    /// Sends a request, and drops its response, if the effect comes after it.
    async fn send_if(&mut self, moment: Moment, request: Request<AnyBody>) -> Result<(), BoxError> {
        if moment == After {
            self.send(request, Duration::ZERO).await?;
        }
        Ok(())
    }
}

impl FaultyTransport {
    /// Responds to access reviews, and to requests without permission.
    async fn permit<B>(
        &self,
        request: Request<B>,
    ) -> Result<Result<Request<AnyBody>, Response<FaultyBody>>, BoxError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let path = request.uri().path();
        if path.ends_with("selfsubjectaccessreviews") {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(Into::into)?.to_bytes();
            let mut review: serde_json::Value = serde_json::from_slice(&body)?;
            let asked = &review["spec"]["resourceAttributes"];
            let [verb, resource] =
                ["verb", "resource"].map(|field| asked[field].as_str().unwrap_or_default());
            if self.fault_injector.is_denied(verb, resource) {
                review["status"] = json!({ "allowed": false });
                return Ok(Err(answer(201, &review, false)?));
            }
            let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
            return Ok(Ok(Request::from_parts(parts, body)));
        }
        let asked = ApiRequest::of(request.method(), request.uri());
        // A right to a resource includes its subresources here.
        let resource = asked.resource.split('/').next().unwrap_or_default();
        let is_refused = self.fault_injector.is_denied(&asked.verb, resource);
        if is_refused {
            return Ok(Err(refusal(403)?));
        }
        Ok(Ok(request.map(|body| body.map_err(Into::into).boxed_unsync())))
    }

    fn kill(&self) {
        if let Some(process) = &self.process {
            process.kill();
        }
    }
}

/// Whether a list may come from a cache.
fn takes_any_version(uri: &Uri) -> bool {
    let mut query = uri.query().unwrap_or_default().split('&');
    query.any(|parameter| parameter == "resourceVersion=0")
}

fn refusal(code: u16) -> Result<Response<FaultyBody>, BoxError> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    // As the authorizer words it.
    let why = if code == 403 {
        " is forbidden: User cannot do this"
    } else {
        ""
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code,
        "reason": reason, "message": format!("injected fault {code}{why}"),
    });
    answer(code, &status, matches!(code, 429 | 504))
}

fn answer(code: u16, object: &serde_json::Value, later: bool) -> Result<Response<FaultyBody>, BoxError> {
    let body = ResponseBody::Whole(Some(object.to_string().into()));
    let mut answer = Response::builder().status(code);
    if later {
        // Longer than any random pause of the client.
        answer = answer.header(http::header::RETRY_AFTER, "16");
    }
    Ok(answer.body(FaultyBody {
        body: Box::pin(body),
        watched: None,
    })?)
}

/// Writes the object of a request as another client.
fn overtake(cluster: &Cluster, request: &ApiRequest) {
    let plural = request.resource.split('/').next().unwrap_or_default();
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|kind| {
        let it = kind.resource_type();
        it.group == request.group && it.plural == plural
    });
    if let Some(kind) = kind {
        let touched = cluster.clock().now().as_millisecond().to_string();
        let change = json!({ "metadata": { "annotations": { "example.com/touched": touched } } });
        let _ = cluster
            .acting_as("passer-by")
            .patch(kind, &request.namespace, &request.name, &change);
    }
}

/// The body of a response with its faults.
pub(super) struct FaultyBody {
    body: Pin<Box<ResponseBody>>,
    watched: Option<DelayedEvents>,
}

struct DelayedEvents {
    fault_injector: FaultInjector,
    resource: String,
    event_delay: Duration,
    /// Number of broken watches of the resource at its start.
    breaks_seen: u32,
    process: Option<Arc<Process>>,
    queue: VecDeque<(Instant, Frame<Bytes>)>,
    ended: bool,
    /// Delivers nothing before this time: the cache lags.
    silent_until: Option<Instant>,
    breaks: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl HttpBody for FaultyBody {
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
                    let due = Instant::now() + watched.event_delay + watched.fault_injector.event_delay();
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

impl DelayedEvents {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let now = Instant::now();
        let held = self.fault_injector.poll_held(&self.resource, cx.waker());
        let broken = self.fault_injector.breaks(&self.resource) != self.breaks_seen;
        if broken || self.breaks.is_some_and(|at| at <= now) {
            return Poll::Ready(None);
        }
        if held {
            return Poll::Pending;
        }
        let heard = self
            .process
            .as_ref()
            .map_or(now, |process| process.reachable_from());
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
