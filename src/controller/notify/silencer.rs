//! Keeps the silences of one Alertmanager as they should be: one for each node that a Plan works on, and no other of this
//! controller. Nothing waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};
use url::Url;

use super::{DEBOUNCE, Shared};
use refit_api::Reason;
use refit_base::backoff::Backoff;
use refit_channel::{Access, WebhookAnswer, WebhookRequest};
use refit_facts::PlanFacts;
use refit_formats::notify::{KnownSilence, SilenceRule, created_by, down, known_silences, silence};

/// How often the silences are listed, in case another client has changed them.
const LIST_AGAIN: Duration = Duration::from_secs(300);
/// Bytes of a list of silences.
const MAX_LIST: usize = 16 << 20;
/// Bytes of another answer.
const MAX_ANSWER: usize = 64 << 10;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Failures after which the Alertmanager is reported.
const REPORTED_AFTER: u32 = 3;

/// The nodes to silence, by their keys.
type Nodes<'p> = BTreeMap<String, (&'p PlanFacts, &'p str)>;

/// Why the silences could not be changed.
struct Failed {
    why: String,
    retry_after: Option<Duration>,
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self {
            why,
            retry_after: None,
        }
    }
}

/// Follows the decisions until it is dropped.
pub(super) async fn run(shared: Shared, rule: SilenceRule) {
    let context = &shared.context;
    let author = created_by(&context.cluster_id, &context.namespace, &context.controller);
    let mut silencer = Silencer {
        shared: &shared,
        rule: &rule,
        author,
        known: None,
        listed: Instant::now(),
    };
    let mut decided = shared.plans.clone();
    let mut backoff = Backoff::default();
    loop {
        let plans = decided.borrow_and_update().clone();
        if let Some(plans) = plans {
            let of_plan = |plan| down(plan).map(move |(key, node)| (key, (plan, &*node.name)));
            let down: Nodes<'_> = plans.iter().map(|plan| &**plan).flat_map(of_plan).collect();
            match silencer.reconcile(&down).await {
                Ok(()) => backoff = Backoff::default(),
                Err(failed) => {
                    // What was done is not known for sure.
                    silencer.known = None;
                    let pause = backoff.pause(FIRST_PAUSE, MAX_PAUSE);
                    shared.metrics.silence_failed();
                    if backoff.failures() == REPORTED_AFTER {
                        let message = format!(
                            "alerts are not silenced through secrets {:?}: {}; refit tries again, and roll-outs continue",
                            rule.secret, failed.why
                        );
                        shared.report(Reason::SilenceFailed, &message);
                    } else {
                        tracing::debug!(secret = rule.secret, why = failed.why, "a silence is tried again");
                    }
                    sleep(pause.max(failed.retry_after.unwrap_or_default().min(MAX_PAUSE))).await;
                    continue;
                }
            }
        }
        tokio::select! {
            biased;
            // First: in a large roll-out there is always a decision.
            () = sleep_until(silencer.listed + LIST_AGAIN) => silencer.known = None,
            changed = decided.changed() => {
                if changed.is_err() {
                    return;
                }
                sleep(DEBOUNCE).await;
            }
        }
    }
}

struct Silencer<'a> {
    shared: &'a Shared,
    rule: &'a SilenceRule,
    author: String,
    /// By key; `None` if they must be listed.
    known: Option<BTreeMap<String, KnownSilence>>,
    listed: Instant,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "silenceID")]
    id: String,
}

impl Silencer<'_> {
    async fn reconcile(&mut self, down: &Nodes<'_>) -> Result<(), Failed> {
        let is_settled = |known: &BTreeMap<String, KnownSilence>| {
            down.keys().all(|key| known.contains_key(key))
                && known
                    .iter()
                    .all(|(key, silence)| !silence.is_active || down.contains_key(key))
        };
        if self.known.as_ref().is_some_and(is_settled) {
            return Ok(());
        }
        let (base, access) = self.shared.access(&self.rule.secret).await?;
        let mut known = match self.known.take() {
            Some(known) => known,
            None => self.list(&base, &access).await?,
        };
        for (key, (plan, node)) in down {
            // One that has ended was ended by a person, or the node takes too long: its alerts are wanted.
            if !known.contains_key(key) {
                let silence = self.create(&base, &access, plan, (key, node)).await?;
                known.insert(key.clone(), silence);
            }
        }
        for (key, silence) in &mut known {
            if silence.is_active && !down.contains_key(key) {
                self.end(&base, &access, &silence.id).await?;
                silence.is_active = false;
            }
        }
        // Those that have ended are of no use any more, unless their node is still being upgraded.
        known.retain(|key, _| down.contains_key(key));
        self.known = Some(known);
        Ok(())
    }

    async fn list(&mut self, base: &Url, access: &Access) -> Result<BTreeMap<String, KnownSilence>, Failed> {
        let answer = self
            .send(Method::GET, silences(base), access, None, MAX_LIST)
            .await?;
        let answer = good(answer)?;
        let mut known = BTreeMap::new();
        for silence in known_silences(&answer.body, &self.author)? {
            let is_new = known
                .get(&silence.key)
                .is_none_or(|known: &KnownSilence| !known.is_active);
            if is_new {
                known.insert(silence.key.clone(), silence);
            }
        }
        self.listed = Instant::now();
        Ok(known)
    }

    async fn create(
        &self,
        base: &Url,
        access: &Access,
        plan: &PlanFacts,
        (key, node): (&str, &str),
    ) -> Result<KnownSilence, Failed> {
        let now = self.shared.clock.now();
        let body = silence(self.rule, plan, (key, node), &self.author, now);
        let body = Some(body.to_string().into_bytes());
        let answer = good(
            self.send(Method::POST, silences(base), access, body, MAX_ANSWER)
                .await?,
        )?;
        let created: Created = serde_json::from_slice(&answer.body)
            .map_err(|_| "Alertmanager does not say the ID of the silence".to_owned())?;
        tracing::info!(
            node,
            plan = &*plan.name,
            silence = created.id,
            "alerts are silenced"
        );
        Ok(KnownSilence {
            id: created.id,
            key: key.to_owned(),
            is_active: true,
        })
    }

    async fn end(&self, base: &Url, access: &Access, id: &str) -> Result<(), Failed> {
        let mut url = base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v2", "silence", id]);
        }
        let answer = self.send(Method::DELETE, url, access, None, MAX_ANSWER).await?;
        if answer.status != StatusCode::NOT_FOUND {
            good(answer)?;
        }
        tracing::info!(silence = id, "alerts are not silenced any more");
        Ok(())
    }

    async fn send(
        &self,
        method: Method,
        url: Url,
        access: &Access,
        body: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<WebhookAnswer, Failed> {
        if !self.shared.leadership.is_leader() {
            return Err("this process does not lead any more".to_owned().into());
        }
        let request = WebhookRequest {
            method,
            url,
            access,
            content_type: body.as_ref().map(|_| "application/json"),
            headers: &[],
            body: body.unwrap_or_default(),
            limit,
            allow_plain_http: self.rule.allow_plain_http,
        };
        let sent = self.shared.webhooks.send(request, self.shared.clock.now()).await;
        sent.map_err(|error| error.to_string().into())
    }
}

/// The URL of all silences. Alertmanager may have a path of its own.
fn silences(base: &Url) -> Url {
    let mut url = base.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(["api", "v2", "silences"]);
    }
    url
}

fn good(answer: WebhookAnswer) -> Result<WebhookAnswer, Failed> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    Err(Failed {
        why: format!("Alertmanager answers {}", answer.status),
        retry_after: answer.retry_after,
    })
}
