//! The loop of a drain: asks pods to go, so many at a time; lists the node to see who is gone; ends when nothing is left to
//! do, the time is up, or it is told to stop. What is done next is the board's to say.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _, OptionFuture};
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::answer::Answer;
use super::board::{Board, News, OUTAGE};
use super::event::Event;
use super::evict::Evictor;
use super::find::Finder;
use super::pods::{PodId, Rules};
use super::publish::Publisher;
use crate::api::DrainNote;
use crate::clock::Clock;
use crate::controller::client::brief;

/// Requests at a time. Most of an eviction is two writes to etcd, and an API server takes 400 writes at a time from all.
const PARALLEL: usize = 32;
/// How often the node is listed while pods are going, and when but a few are left and a list is cheap.
const LOOK: Duration = Duration::from_millis(500);
const LOOK_AT_FEW: Duration = Duration::from_millis(200);
const FEW: usize = 20;
/// How long answers are waited for at the end, so that the last line is true.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How often it is said what is waited for.
const TELL: Duration = Duration::from_secs(30);

/// How a drain came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing is left to be done.
    Over,
    /// `--timeout` is over.
    TimeUp,
    /// By this signal.
    Signal(&'static str),
    /// The controller has cancelled it.
    Cancelled,
    /// Nothing is known of the node any more, and why.
    Blind(String),
}

/// What the loop needs.
pub(super) struct Loop<'a> {
    pub(super) finder: &'a Finder,
    pub(super) evictor: &'a Evictor,
    pub(super) rules: Rules,
    pub(super) timeout: Option<Duration>,
    pub(super) clock: &'a Clock,
    pub(super) tell: &'a (dyn Fn(Event) + Send + Sync),
    pub(super) publisher: Option<&'a Publisher>,
    pub(super) stop: watch::Receiver<Option<&'static str>>,
    /// Ends when the controller has cancelled the drain.
    pub(super) cancelled: BoxFuture<'static, ()>,
}

type Look =
    BoxFuture<'static, Result<std::collections::BTreeMap<String, Option<jiff::Timestamp>>, kube::Error>>;

impl Loop<'_> {
    /// Makes the pods go, and says how it ended and what the board is then.
    pub(super) async fn run(mut self, pods: Vec<PodId>) -> (End, Board) {
        let began = Instant::now();
        let deadline = self.timeout.map(|timeout| began + timeout);
        let mut board = Board::new(pods, self.rules, self.clock.now());
        let mut asked = FuturesUnordered::new();
        let mut look: OptionFuture<Look> = None.into();
        let mut looking = false;
        let mut next_look = began + LOOK;
        let mut next_tell = began + TELL;
        let mut blind_since = None;
        let end = loop {
            if let Some(signal) = *self.stop.borrow() {
                break End::Signal(signal);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                break End::TimeUp;
            }
            while asked.len() < PARALLEL
                && let Some((pod, first)) = board.next(now - began)
            {
                if first {
                    (self.tell)(Event::Evicting { pod: pod.clone() });
                }
                asked.push(self.evictor.clone().ask(pod));
            }
            if board.is_over() {
                break End::Over;
            }
            if !looking && now >= next_look && board.wants_list() {
                let finder = self.finder.clone();
                look = Some(async move { finder.present().await }.boxed()).into();
                looking = true;
            }
            let note = board.note();
            if let Some(publisher) = self.publisher {
                publisher.show(&note);
            }
            if now >= next_tell {
                next_tell = now + TELL;
                self.tell_progress(&board, note);
            }
            let wake = [
                board
                    .wake()
                    .map(|wake| began + wake)
                    .filter(|_| asked.len() < PARALLEL),
                (!looking && board.wants_list()).then_some(next_look),
                deadline,
                Some(next_tell),
            ];
            let wake = wake.into_iter().flatten().min().unwrap_or(next_tell);
            tokio::select! {
                biased; // so that a rehearsal can be repeated; what ends the drain comes first
                () = &mut self.cancelled => break End::Cancelled,
                Ok(()) = self.stop.changed() => {}
                Some((pod, answer)) = asked.next(), if !asked.is_empty() => {
                    let answer = self.with_budgets(&pod, answer).await;
                    let news = board.answered(&pod, answer, began.elapsed(), self.evictor.dry_run);
                    self.tell_news(news);
                }
                Some(seen) = &mut look, if looking => {
                    looking = false;
                    look = None.into();
                    let few = board.pending().nth(FEW).is_none();
                    next_look = Instant::now() + if few { LOOK_AT_FEW } else { LOOK };
                    match seen {
                        Ok(seen) => {
                            blind_since = None;
                            self.tell_news(board.seen(&seen, self.clock.now()));
                        }
                        Err(error) => {
                            let since = *blind_since.get_or_insert(now);
                            let for_good = matches!(&error, kube::Error::Api(status) if status.code == 403);
                            if for_good || since.elapsed() >= OUTAGE {
                                break End::Blind(brief(&error));
                            }
                        }
                    }
                }
                () = sleep_until(wake) => {}
            }
        };
        let rest = async {
            while let Some((pod, answer)) = asked.next().await {
                let news = board.answered(&pod, answer, began.elapsed(), self.evictor.dry_run);
                self.tell_news(news);
            }
        };
        let _ = tokio::time::timeout(LAST_ANSWERS, rest).await;
        (end, board)
    }

    /// The API server does not say which two budgets a pod has.
    async fn with_budgets(&self, pod: &PodId, answer: Answer) -> Answer {
        let Answer::TwoBudgets(why) = answer else {
            return answer;
        };
        let names = self.finder.budgets(pod).await.filter(|names| names.len() > 1);
        Answer::TwoBudgets(match names {
            Some(names) => format!("{why} They are {}.", names.join(", ")),
            None => why,
        })
    }

    fn tell_progress(&self, board: &Board, note: DrainNote) {
        (self.tell)(Event::Progress {
            node: self.finder.node.clone(),
            pending: board.pending().count(),
            note,
        });
    }

    fn tell_news(&self, news: impl IntoIterator<Item = News>) {
        for news in news {
            (self.tell)(match news {
                News::Refused(pod, refusal) => Event::Refused {
                    pod,
                    pdb: refusal.pdb,
                    message: refusal.why,
                },
                News::Gone(pod) => Event::Gone {
                    pod,
                    is: if self.evictor.by_delete {
                        "deleted"
                    } else {
                        "evicted"
                    },
                },
                News::GivenUp(pod) => Event::GivenUp {
                    pod,
                    seconds: self.rules.skip_wait_for_delete,
                },
                News::Failed(pod, message) => Event::Failed { pod, message },
            });
        }
    }
}
