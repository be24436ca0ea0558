//! The attacks: what an attacker writes, and where refit names it.

use refit_api::{Holder, Ledger};
use serde_json::{Value, json};

use crate::testenv::channel::{Answer, ChannelServer};
use crate::testenv::context::TestContext;

/// Later than the last time that refit's library can hold. Go accepts it.
const LATE: &str = "9999-12-31T23:59:59Z";

pub(super) struct Attack {
    pub(super) what: &'static str,
    pub(super) by: &'static str,
    /// What the attacker writes, in this order.
    pub(super) objects: Vec<Value>,
    pub(super) reported_in: ReportedIn,
    /// Whether `cargo cluster` runs it.
    pub(super) is_short: bool,
}

/// Where the object of the attacker is named.
#[derive(Debug)]
pub(super) enum ReportedIn {
    /// In the status of this Plan, with this text.
    Status(&'static str, &'static str),
    /// In an event about the object of this name, with this reason.
    Event(String, &'static str),
    /// Nowhere, because nothing of it is refused.
    Nowhere,
}

impl ReportedIn {
    pub(super) fn text(&self) -> String {
        match self {
            Self::Status(..) => "status of its Plan".to_owned(),
            Self::Event(_, reason) => format!("event `{reason}`"),
            Self::Nowhere => "nothing is refused".to_owned(),
        }
    }
}

fn ready(time: &str) -> Value {
    json!({ "type": "Ready", "status": "True", "reason": "Odd", "message": "odd",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": time })
}

fn node(name: &str, metadata: &Value, status: &Value) -> Value {
    let mut node =
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status });
    node["metadata"]["name"] = name.into();
    node
}

fn plan(name: &str, annotations: &Value, more: Value) -> Value {
    let mut spec =
        json!({ "version": "v1", "concurrency": 1, "nodeSelector": {}, "upgrade": { "image": "i" } });
    if let Value::Object(more) = more {
        spec.as_object_mut().unwrap().extend(more);
    }
    json!({ "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan",
        "metadata": { "name": name, "annotations": annotations }, "spec": spec })
}

/// A Plan that follows a channel.
fn follower(name: &str, channel: &str) -> Value {
    plan(name, &json!({}), json!({ "version": null, "channel": channel }))
}

pub(super) fn attacks(ctx: &TestContext, channel: &ChannelServer) -> Vec<Attack> {
    let none = &json!({});
    [
        of_nodes(ctx),
        of_pods(ctx),
        of_plans(none),
        of_secrets(none, channel),
        of_other_objects(ctx),
        of_channels(channel),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn of_nodes(ctx: &TestContext) -> Vec<Attack> {
    let name = |number: usize| ctx.node_name(&format!("evil{number}"));
    let late = |number: usize| node(&name(number), &json!({}), &json!({ "conditions": [ready(LATE)] }));
    let holder = |number: usize| Holder {
        namespace: ctx.namespace().to_owned(),
        controller: "system-upgrade-controller".to_owned(),
        plan: format!("none{number}"),
        plan_uid: format!("00000000-0000-0000-0000-{number:012}").into(),
        cancelled: false,
        completed: false,
        evicted: Vec::new(),
    };
    let add =
        |ledger: Option<Ledger>, number| Ledger::with_holder(ledger.as_ref(), false, holder(number)).ok();
    let ledger = (0..40).fold(None, add);
    let mut annotations = json!({ "refit.rs/cordon": ledger.map(|it| it.to_text()) });
    for number in 0..200 {
        let record = json!({ "plan": "x", "message": "m".repeat(900) });
        annotations[format!("plan.refit.rs/none{number}")] = record.to_string().into();
    }
    let mut cordoned = node(
        &name(0),
        &json!({ "annotations": annotations }),
        &json!({ "conditions": [ready("2026-01-01T00:00:00Z")] }),
    );
    cordoned["spec"]["unschedulable"] = true.into();
    let taints: Vec<_> = (0..100)
        .map(|number| json!({ "key": format!("example.com/t{number}"), "value": "v".repeat(63), "effect": "NoExecute" }))
        .collect();
    let conditions: Vec<_> = (0..200)
        .map(|number| json!({ "type": format!("C{number}"), "status": "True", "message": "m".repeat(2_000) }))
        .collect();
    let info = json!({
        "bootID": "b".repeat(300_000), "kubeletVersion": "v".repeat(300_000), "machineID": "m", "systemUUID": "u", "kernelVersion": "k",
        "osImage": "o", "containerRuntimeVersion": "c", "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64",
    });
    let mut large = node(
        &name(0),
        &json!({ "annotations": { "example.com/large": "a".repeat(250_000) } }),
        &json!({ "conditions": conditions, "nodeInfo": info }),
    );
    large["spec"]["taints"] = taints.into();
    let large_too = {
        let mut other = large.clone();
        other["metadata"]["name"] = name(1).into();
        other
    };
    vec![
        Attack {
            what: "a time after the year 9999 in a condition of a Node",
            by: "a kubelet",
            objects: vec![late(0)],
            reported_in: ReportedIn::Event(name(0), "ObjectUnreadable"),
            is_short: true,
        },
        Attack {
            what: "the same on 40 Nodes that change twice a second",
            by: "kubelets",
            objects: (0..40).map(late).collect(),
            reported_in: ReportedIn::Event(name(0), "ObjectUnreadable"),
            is_short: false,
        },
        Attack {
            what: "a ledger of 40 and 200 records of Plans that never existed, on a cordoned Node",
            by: "a kubelet",
            objects: vec![cordoned],
            reported_in: ReportedIn::Event(name(0), "HolderUnknown"),
            is_short: true,
        },
        Attack {
            what: "two Nodes of 1.2 MB each: boot ID, versions, conditions, taints, annotations; written twice a second",
            by: "kubelets",
            objects: vec![large, large_too],
            reported_in: ReportedIn::Nowhere,
            is_short: false,
        },
    ]
}

fn of_pods(ctx: &TestContext) -> Vec<Attack> {
    let host = ctx.node_name("evil0");
    let pod = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("forged{number}"), "labels": {
                "upgrade.cattle.io/controller": "system-upgrade-controller", "upgrade.cattle.io/plan": super::HEALTHY,
                "job-name": format!("apply-{}-on-{}", super::HEALTHY, ctx.node_name("n0000")),
            }, "annotations": { "refit.rs/drain": "d".repeat(100_000), "example.com/large": "a".repeat(100_000) } },
            "spec": { "nodeName": host, "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] },
        })
    };
    let pods = (0..50).map(pod);
    let host = node(
        &host,
        &json!({}),
        &json!({ "conditions": [ready("2026-01-01T00:00:00Z")] }),
    );
    let large = (0..50).map(|number| {
        let mut pod = pod(number);
        let envs: Vec<_> = (0..1_000)
            .map(|number| json!({ "name": format!("E{number}"), "value": "v".repeat(1_000) }))
            .collect();
        pod["spec"]["containers"][0]["env"] = envs.into();
        pod
    });
    vec![
        Attack {
            what: "50 pods of 200 kB each with the labels of the Plan's Jobs",
            by: "a kubelet",
            objects: [host.clone()].into_iter().chain(pods).collect(),
            reported_in: ReportedIn::Nowhere,
            is_short: true,
        },
        Attack {
            what: "50 such pods of 1.2 MB each, in one page of a list",
            by: "a kubelet",
            objects: [host].into_iter().chain(large).collect(),
            reported_in: ReportedIn::Nowhere,
            is_short: false,
        },
    ]
}

/// Objects that refit reads or writes, and does not own alone.
fn of_other_objects(ctx: &TestContext) -> Vec<Attack> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": "system-upgrade-controller", "annotations": {
            "example.com/large": "a".repeat(200_000), "refit.rs/known-plans": "\u{1b}[2J,".repeat(5_000),
        } },
        "spec": { "renewTime": "9999-12-31T23:59:59.999999Z", "leaseTransitions": i32::MAX },
    });
    let event = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": "JobFailed", "message": "m".repeat(1_000),
            "metadata": { "name": format!("{}.{number}", super::HEALTHY), "annotations": { "example.com/large": "a".repeat(100_000) } },
            "involvedObject": { "apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "name": super::HEALTHY, "namespace": ctx.namespace() },
            "firstTimestamp": LATE, "lastTimestamp": LATE, "count": -1,
        })
    };
    let blackouts: Vec<_> = (0..64)
        .map(|number| json!({ "start": "2001-01-01", "end": "2001-01-02", "reason": "r".repeat(300 + number) }))
        .collect();
    let limits = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "refit" },
        "data": { "blackouts": Value::from(blackouts).to_string(), "notifications": "n".repeat(800_000), "maxUnavailable": "100%" },
    });
    let attack = |what, by, objects| Attack {
        what,
        by,
        objects,
        reported_in: ReportedIn::Nowhere,
        is_short: true,
    };
    vec![
        attack(
            "the Lease with a renewal after the year 9999 and 200 kB of annotations, written twice a second",
            "who may write Leases of the namespace",
            vec![lease],
        ),
        Attack {
            is_short: false,
            ..attack(
                "300 Events of 100 kB about the Plan",
                "who may create Events",
                (0..300).map(event).collect(),
            )
        },
        attack(
            "the ConfigMap `refit` with 64 blackouts in the past and 800 kB",
            "who may write this ConfigMap",
            vec![limits],
        ),
    ]
}

fn of_plans(none: &Value) -> Vec<Attack> {
    let digest = json!({ "upgrade.cattle.io/digest": ",".repeat(240_000) });
    let requirements: Vec<_> = (0..8_000)
        .map(|number| json!({ "key": format!("example.com/k{number}"), "operator": "DoesNotExist" }))
        .collect();
    let selector = json!({ "nodeSelector": { "matchExpressions": requirements } });
    let secrets: Vec<_> = (0..20_000)
        .map(|number| json!({ "name": format!("s{number}"), "path": "/s" }))
        .collect();
    // More are refused by the definition.
    let windows: Vec<_> = (0..64)
        .map(|_| json!({ "cron": "*/1 * * * *", "duration": "1m" }))
        .collect();
    let large = json!({ "upgrade": { "image": "i", "args": ["a".repeat(1_500_000)] } });
    let by = "the author of a Plan";
    let attack = |what, object, text| Attack {
        what,
        by,
        objects: vec![object],
        reported_in: ReportedIn::Status("evil", text),
        is_short: false,
    };
    let many = (0..100).map(|number| {
        let secrets: Vec<_> = (0..100)
            .map(|other| json!({ "name": format!("s{number}-{other}"), "path": "/s" }))
            .collect();
        let name = if number == 0 {
            "evil".to_owned()
        } else {
            format!("evil{number}")
        };
        plan(&name, none, json!({ "secrets": secrets }))
    });
    vec![
        Attack {
            is_short: true,
            ..attack(
                "`upgrade.cattle.io/digest` with 240,000 commas",
                plan("evil", &digest, json!({})),
                "has 240000 bytes",
            )
        },
        attack(
            "a selector of 8,000 requirements",
            plan("evil", none, selector),
            "requirements",
        ),
        Attack {
            is_short: true,
            ..attack(
                "20,000 Secrets",
                plan("evil", none, json!({ "secrets": secrets })),
                "names 20000 secrets",
            )
        },
        Attack {
            objects: many.collect(),
            ..attack(
                "100 Plans with 100 Secrets each that do not exist",
                json!({}),
                "not found",
            )
        },
        Attack {
            reported_in: ReportedIn::Nowhere,
            ..attack(
                "64 windows that begin each minute",
                plan("evil", none, json!({ "windows": windows })),
                "",
            )
        },
        Attack {
            reported_in: ReportedIn::Nowhere,
            ..attack("a spec of 1.5 MB", plan("evil", none, large), "")
        },
    ]
}

fn of_secrets(none: &Value, channel: &ChannelServer) -> Vec<Attack> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": { "name": "stolen", "annotations": { "kubernetes.io/service-account.name": "system-upgrade" } },
    });
    channel.redirects("/theirs", "/v1.2.3");
    let thief = json!({ "version": null, "channel": channel.url("/theirs"), "channelSecretRef": { "name": "stolen" } });
    vec![Attack {
        what: "`channelSecretRef` to the token of a service account, with a channel at one's own server",
        by: "the author of a Plan",
        objects: vec![secret, plan("evil", none, thief)],
        reported_in: ReportedIn::Status("evil", "is the token of a service account"),
        is_short: true,
    }]
}

fn of_channels(channel: &ChannelServer) -> Vec<Attack> {
    let json = |body: String| Answer::Plain(200, "application/json", body);
    let tags: Vec<_> = (0..1_000_000).map(|number| format!("\"{number:05x}\"")).collect();
    channel.answers(
        "/v2/a/million/tags/list",
        json(format!("{{\"tags\":[{}]}}", tags.join(","))),
    );
    channel.answers(
        "/v2/a/deep/tags/list",
        json(format!("{{\"tags\":{}", "[".repeat(8_000_000))),
    );
    let loops = channel.url("/v2/a/loop/tags/list");
    channel.answers("/v2/a/loop/tags/list", Answer::Redirect(302, loops));
    channel.answers("/hangs", Answer::Hang);
    channel.answers(
        "/long",
        Answer::Redirect(302, format!("https://example.com/{}", "v".repeat(60_000))),
    );
    channel.answers("/v2/a/drip/tags/list", Answer::Drip);
    let circle = vec![("link", "</v2/a/circle/tags/list?n=1>; rel=\"next\"".to_owned())];
    channel.answers("/v2/a/circle/tags/list", Answer::Headers(200, circle));
    let many_headers = (0..2_000)
        .map(|number| ("x-many", format!("{number:0>100}")))
        .collect();
    channel.answers("/v2/a/headers/tags/list", Answer::Headers(200, many_headers));
    let realm = "Bearer realm=\"http://169.254.169.254/token\",service=\"s\"".to_owned();
    channel.answers(
        "/v2/a/realm/tags/list",
        Answer::Headers(401, vec![("www-authenticate", realm)]),
    );
    let later = vec![("retry-after", "1".repeat(300))];
    channel.answers("/v2/a/later/tags/list", Answer::Headers(429, later));
    let of = |name: &str| format!("oci://{}", channel.url(name).trim_start_matches("http://"));
    let by = "a channel server";
    let attack = |what, by, url: &str, text| Attack {
        what,
        by,
        objects: vec![follower("evil", url)],
        reported_in: ReportedIn::Status("evil", text),
        is_short: false,
    };
    let many = (0..40).map(|number| {
        let name = if number == 0 {
            "evil".to_owned()
        } else {
            format!("evil{number}")
        };
        follower(&name, &format!("{}?{number}", channel.url("/hangs")))
    });
    vec![
        Attack {
            is_short: true,
            ..attack(
                "a registry with a million tags",
                by,
                &of("/a/million"),
                "more than 20000 tags",
            )
        },
        attack(
            "a registry whose page has 8 million levels",
            by,
            &of("/a/deep"),
            "not a list of tags",
        ),
        attack(
            "a registry that redirects to itself",
            by,
            &of("/a/loop"),
            "redirect",
        ),
        attack(
            "a registry that sends a byte a second",
            by,
            &of("/a/drip"),
            "lastError",
        ),
        attack(
            "a registry whose pages follow each other in a circle",
            by,
            &of("/a/circle"),
            "lastError",
        ),
        attack(
            "a response with 2,000 headers",
            by,
            &of("/a/headers"),
            "lastError",
        ),
        Attack {
            is_short: true,
            ..attack(
                "a registry whose token server is the metadata service of the cloud",
                by,
                &of("/a/realm"),
                "169.254.169.254",
            )
        },
        attack(
            "429 with a Retry-After of 300 digits",
            by,
            &of("/a/later"),
            "lastError",
        ),
        attack("a Location of 60 kB", by, &channel.url("/long"), "lastError"),
        Attack {
            objects: many.collect(),
            reported_in: ReportedIn::Status("evil", "lastError"),
            ..attack("40 channels that do not answer", by, "", "")
        },
        attack(
            "a channel at the metadata service of the cloud",
            "the author of a Plan",
            "http://169.254.169.254/latest",
            "169.254.169.254",
        ),
    ]
}
