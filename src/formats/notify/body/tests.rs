//! The bytes that receivers get. Whoever changes them changes what others parse.

use super::*;
use crate::notify::config::receivers;

fn receiver(entry: &str) -> Receiver {
    let (mut good, bad) = receivers(&format!("[{{name: r, secret: s, cluster: prod, {entry}}}]"));
    assert_eq!(bad, []);
    good.remove(0)
}

fn context() -> Context {
    Context {
        cluster_id: "11111111-2222".to_owned(),
        namespace: "system-upgrade".to_owned(),
        controller: "refit".to_owned(),
    }
}

fn text(entry: &str) -> (Body, String) {
    let body = body(&receiver(entry), &Notice::example(), &context());
    let text = String::from_utf8(body.bytes.clone()).unwrap();
    (body, text)
}

const DATA: &str = r#"{"cluster":"prod","event":"NodeFailed","message":"exit code 1: \"no space left\"\n\\ <on> {device} & 50 %","namespace":"system-upgrade","node":"node-1","plan":"k3s","reason":"BackoffLimitExceeded","severity":"Warning","text":"Plan k3s: v1.33.4+k3s1 failed on node node-1: exit code 1: \"no space left\"\n\\ <on> {device} & 50 %","version":"v1.33.4+k3s1","wave":"canary"}"#;

#[test]
fn a_structured_cloud_event_has_all_in_its_body() {
    let (body, text) = text("format: cloudevents");
    assert_eq!(body.content_type, "application/cloudevents+json; charset=utf-8");
    assert_eq!(body.headers, []);
    let expected = format!(
        r#"{{"data":{DATA},"datacontenttype":"application/json","id":"0123456789abcdef0123456789abcdef","source":"/clusters/11111111-2222/namespaces/system-upgrade/refit/refit","specversion":"1.0","subject":"k3s/node-1","time":"1970-01-01T00:00:00Z","type":"rs.refit.node.failed"}}"#
    );
    assert_eq!(text, expected);
}

#[test]
fn a_binary_cloud_event_has_its_attributes_in_headers() {
    let (body, text) = text("format: cloudevents, mode: binary");
    assert_eq!(body.content_type, "application/json");
    let headers: Vec<(&str, &str)> = body
        .headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            ("ce-specversion", "1.0"),
            ("ce-id", "0123456789abcdef0123456789abcdef"),
            (
                "ce-source",
                "/clusters/11111111-2222/namespaces/system-upgrade/refit/refit"
            ),
            ("ce-type", "rs.refit.node.failed"),
            ("ce-subject", "k3s/node-1"),
            ("ce-time", "1970-01-01T00:00:00Z"),
        ]
    );
    assert_eq!(text, DATA);
    // The example of the specification.
    assert_eq!(header("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
    assert_eq!(header("a\r\nb: \"%\""), "a%0D%0Ab:%20%22%25%22");
}

#[test]
fn a_message_for_slack_mentions_nobody() {
    let (body, text) = text("format: slack");
    assert_eq!(body.content_type, "application/json");
    assert_eq!(
        text,
        r#"{"text":":warning: [prod] Plan k3s: v1.33.4+k3s1 failed on node node-1: exit code 1: \"no space left\"\n\\ &lt;on&gt; {device} &amp; 50 %"}"#
    );
}

#[test]
fn a_template_is_rendered_as_its_media_type_needs() {
    let (body, json) = text(r#"format: template, body: '{"summary": "{{ text }}", "key": "{{id}}"}'"#);
    assert_eq!(body.content_type, "application/json");
    assert_eq!(
        json,
        r#"{"summary": "Plan k3s: v1.33.4+k3s1 failed on node node-1: exit code 1: \"no space left\"\n\\ <on> {device} & 50 %", "key": "0123456789abcdef0123456789abcdef"}"#
    );
    let (body, plain) =
        text("format: template, contentType: text/plain, body: '{{ plan }} {{ event }} {{ severity }}'");
    assert_eq!(
        (body.content_type.as_str(), plain.as_str()),
        ("text/plain", "k3s NodeFailed Warning")
    );
}

#[test]
fn every_kind_says_its_plan_and_its_version_or_what_it_wants() {
    for kind in crate::notify::NoticeKind::ALL {
        let notice = Notice {
            kind: *kind,
            ..Notice::example()
        };
        let text = notice.text();
        assert!(
            text.starts_with("Plan k3s: ") && text.contains(&notice.message),
            "{text}"
        );
    }
}
