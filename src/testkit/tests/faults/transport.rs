//! The connection of a process to the API server, with the faults on its requests, responses and watches.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
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

use super::FaultInjector;
use crate::fault::Moment::{After, Before};
use crate::fault::{ApiRequest, Effect, Moment};
use refit_rehearse::server::{ResponseBody, Transport};
use refit_rehearse::{Cluster, Kind};

type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

/// A client process, which may die or be disconnected.
pub(in crate::tests) struct Process {
    dead: watch::Sender<bool>,
    cut_until: Mutex<Instant>,
    /// Until when the caches lag from which it has read a list, by path.
    behind_until: Mutex<BTreeMap<String, Instant>>,
}

impl Process {
    pub(in crate::tests) fn new() -> Arc<Self> {
        Arc::new(Self {
            dead: watch::Sender::new(false),
            cut_until: Mutex::new(Instant::now()),
            behind_until: Mutex::default(),
        })
    }

    pub(in crate::tests) fn kill(&self) {
        self.dead.send_replace(true);
    }

    pub(in crate::tests) async fn died(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Disconnects the process for a time.
    pub(in crate::tests) fn cut_off(&self, time: Duration) {
        *self.cut_until.lock().unwrap() = Instant::now() + time;
    }

    fn reachable_from(&self) -> Instant {
        *self.cut_until.lock().unwrap()
    }
}

/// The connection of a process to the API server.
#[derive(Clone)]
pub(in crate::tests) struct FaultyTransport {
    transport: Transport,
    cluster: Cluster,
    fault_injector: FaultInjector,
    /// `None` for a client that cannot die.
    process: Option<Arc<Process>>,
}

impl FaultyTransport {
    pub(in crate::tests) fn new(
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

    async fn send(&mut self, request: Request<AnyBody>) -> Result<Response<FaultyBody>, BoxError> {
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
            let effect = line.fault_injector.apply(&api_request, line.process.is_some());
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
            None => self.send(request).await,
            Some(Effect::Delay(Before, time)) => {
                sleep(time).await;
                self.send(request).await
            }
            Some(Effect::Delay(After, time)) => {
                let answer = self.send(request).await;
                sleep(time).await;
                answer
            }
            Some(Effect::Overtake) => {
                overtake(&self.cluster, &ApiRequest::of(request.method(), request.uri()));
                self.send(request).await
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
            self.send(request).await?;
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
pub(in crate::tests) struct FaultyBody {
    body: Pin<Box<ResponseBody>>,
    watched: Option<DelayedEvents>,
}

struct DelayedEvents {
    fault_injector: FaultInjector,
    resource: String,
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
                    let due = Instant::now() + watched.fault_injector.event_delay();
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
