use super::*;

fn problems(value: &str) -> Vec<String> {
    let (good, bad) = receivers(value);
    assert_eq!(good, [], "{value}");
    bad.iter().map(ToString::to_string).collect()
}

#[test]
fn each_format_is_read_with_its_defaults() {
    let (receivers, problems) = receivers(
        "- {name: slack, secret: refit-slack, format: slack, events: [NodeFailed, RolloutStalled], plans: [k3s], stalledAfter: 20m}\n\
         - {name: bus, secret: refit-bus, format: cloudevents, mode: binary, allowPlainHTTP: true}\n\
         - name: own\n  secret: own\n  format: template\n  body: |\n    {\"text\": \"{{ text }}\"}\n",
    );
    assert_eq!(problems, []);
    let [slack, bus, own] = &receivers[..] else {
        panic!("{receivers:#?}")
    };
    assert_eq!(slack.kinds.len(), 2);
    assert!(slack.wants(NoticeKind::NodeFailed, "k3s") && !slack.wants(NoticeKind::NodeFailed, "os"));
    assert!(!slack.wants(NoticeKind::RolloutComplete, "k3s"));
    assert_eq!(slack.stalled_after, SignedDuration::from_mins(20));
    assert_eq!(bus.format, Format::CloudEvents(Mode::Binary));
    assert!(bus.allow_plain_http && !slack.allow_plain_http);
    assert_eq!(bus.kinds.len(), NoticeKind::ALL.len());
    assert_eq!(bus.stalled_after, STALLED_AFTER);
    assert!(matches!(&own.format, Format::Template { content_type, .. } if content_type == JSON));
    assert_eq!(super::receivers(" \n"), (Vec::new(), Vec::new()));
}

#[test]
fn a_mistake_is_named_and_the_other_entries_are_used() {
    let (good, bad) = receivers(
        "- {name: a, secret: s, format: slak}\n- {name: b, secret: s, format: slack}\n- {name: b, secret: t, format: slack}\n",
    );
    assert_eq!(good.len(), 1);
    let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
    assert_eq!(
        bad,
        [
            "key \"notifications\": entry 0: format is \"slak\": it must be cloudevents, slack or template; did you mean slack?",
            "key \"notifications\": entry 2: another entry has the name \"b\"",
        ]
    );
    for (entry, why) in [
        ("secret: s, format: slack", "missing field `name`"),
        ("name: 'a b', secret: s, format: slack", "name is \"a b\""),
        (
            "name: a, secret: '../x', format: slack",
            "secret is \"../x\", which is not the name of a Secret",
        ),
        (
            "name: a, secret: s, format: slack, url: 'https://x.test'",
            "unknown field `url`",
        ),
        (
            "name: a, secret: s, format: slack, mode: binary",
            "mode is only for",
        ),
        (
            "name: a, secret: s, format: slack, body: x",
            "contentType and body are only for",
        ),
        (
            "name: a, secret: s, format: cloudevents, mode: batched",
            "mode is \"batched\"",
        ),
        (
            "name: a, secret: s, format: template",
            "the format template needs body",
        ),
        (
            "name: a, secret: s, format: template, body: '{{ nodes }}'",
            "body is not a template: it has {{ nodes }}",
        ),
        (
            "name: a, secret: s, format: template, body: '{\"text\": {{ text }}}'",
            "body is not JSON",
        ),
        (
            "name: a, secret: s, format: template, contentType: \"a\\nb\", body: x",
            "contentType is not a media type",
        ),
        (
            "name: a, secret: s, format: slack, events: [NodeFaild]",
            "events has \"NodeFaild\"; the events are RolloutStarted",
        ),
        (
            "name: a, secret: s, format: slack, stalledAfter: -1m",
            "stalledAfter is \"-1m\"",
        ),
        (
            "name: a, secret: s, format: slack, stalledAfter: soon",
            "stalledAfter is \"soon\"",
        ),
    ] {
        let found = problems(&format!("[{{{entry}}}]"));
        let [found] = &found[..] else {
            panic!("{entry}: {found:#?}")
        };
        let found = found.strip_prefix("key \"notifications\": entry 0: ").unwrap();
        assert!(found.starts_with(why), "{entry}: {found}");
    }
}

#[test]
fn hostile_values_end_in_short_messages() {
    let long = "x".repeat(1 << 20);
    let bomb: String = ["a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()]
        .into_iter()
        .chain("abcdefgh".chars().zip("bcdefghi".chars()).map(|(of, name)| {
            let item = format!("*{of}");
            format!("{name}: &{name} [{}]\n", [item.as_str(); 9].join(","))
        }))
        .collect();
    for value in [
        "a: b",
        "- [",
        "\t- x",
        "- 1",
        "text",
        &long,
        &bomb,
        &"[".repeat(60_000),
        &format!(
            "- {{name: a, secret: s, format: template, body: '{}'}}",
            "y".repeat(100_000)
        ),
        &format!("- {{name: a, secret: s, format: '{}'}}", "y".repeat(100_000)),
        &format!(
            "- {{name: a, secret: s, format: slack, '{}': 1}}",
            "y".repeat(100_000)
        ),
    ] {
        let found = problems(value);
        assert!(!found.is_empty(), "{}", shorten(value, 80));
        assert!(found.iter().all(|problem| problem.len() < 600), "{found:#?}");
    }
    let many: Vec<String> = (0..20)
        .map(|number| format!("- {{name: r{number}, secret: s, format: slack}}\n"))
        .collect();
    let many = many.concat();
    let (good, bad) = receivers(&many);
    assert_eq!((good.len(), bad.len()), (MAX_ENTRIES, 1));
}

#[test]
fn a_silence_must_name_the_node_and_end() {
    let (rules, problems) = silence_rules(
        "- {secret: am}\n- {secret: am, matchers: ['instance=~\"{{ node }}(:[0-9]+)?\"', job!=x], duration: 20m}\n",
    );
    assert_eq!(problems, []);
    assert_eq!(rules[0].duration, SignedDuration::from_hours(1));
    assert_eq!(rules[1].matchers.len(), 2);
    for (entry, why) in [
        ("{secret: am, matchers: []}", "no matcher has {{ node }}"),
        (
            "{secret: am, matchers: ['job=\"kubelet\"']}",
            "no matcher has {{ node }}",
        ),
        (
            "{secret: am, matchers: ['node!=\"{{ node }}\"']}",
            "no matcher has {{ node }}",
        ),
        (
            "{secret: am, matchers: ['node']}",
            "a matcher is \"node\": it must be as in Alertmanager",
        ),
        (
            "{secret: am, matchers: ['no de=\"{{ node }}\"']}",
            "a matcher is \"no de=",
        ),
        (
            "{secret: am, matchers: ['node=~\"{{ node }}(\"']}",
            "the matcher \"node=~",
        ),
        ("{secret: am, duration: 48h}", "duration is \"48h\""),
        ("{secret: am, duration: 1s}", "duration is \"1s\""),
        ("{}", "missing field `secret`"),
    ] {
        let (rules, problems) = silence_rules(&format!("[{entry}]"));
        assert_eq!(rules, [], "{entry}");
        let problem = problems[0].to_string();
        let problem = problem.strip_prefix("key \"silences\": entry 0: ").unwrap();
        assert!(problem.starts_with(why), "{entry}: {problem}");
    }
}
