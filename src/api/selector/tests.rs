use super::*;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn parse(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

fn spec(yaml: &str) -> LabelSelector {
    serde_saphyr::from_str(yaml).unwrap()
}

/// Selectors that apimachinery 0.36 parses, and how it prints them.
const READ: &[(&str, &str)] = &[
    ("", ""),
    ("a", "a"),
    ("!a", "!a"),
    ("a=b", "a=b"),
    ("a==b", "a==b"),
    ("a!=b", "a!=b"),
    ("a=", "a="),
    ("a=,b", "a=,b"),
    ("a in (b,c)", "a in (b,c)"),
    ("a in(b)", "a in (b)"),
    ("a in ( b , c )", "a in (b,c)"),
    ("a\tin\t(b)", "a in (b)"),
    ("a notin (c,b)", "a notin (b,c)"),
    ("a in (b,b,a)", "a in (a,b)"),
    ("a in ()", "a in ()"),
    ("a in (,)", "a in ()"),
    ("a in (,b)", "a in (,b)"),
    ("a in (b,)", "a in (,b)"),
    ("a in (b,,c)", "a in (,b,c)"),
    ("in in (in,notin)", "in in (in,notin)"),
    ("notin", "notin"),
    ("a >5", "a>5"),
    ("a<5", "a<5"),
    ("z,a,m", "a,m,z"),
    ("a=b , a=c", "a=b,a=c"),
    ("x/y=z", "x/y=z"),
    ("a.b_c-d=e..f", "a.b_c-d=e..f"),
    ("a=b,c!=d,e in (f,g),!h,i", "a=b,c!=d,e in (f,g),!h,i"),
];

/// Selectors that apimachinery 0.36 refuses, and its messages.
const REFUSED: &str = r#"
a, => found '', expected: identifier after ','
a,,b => found ',', expected: identifier after ','
,a => found ',', expected: !, identifier, or 'end of string'
=a => found '=', expected: !, identifier, or 'end of string'
a b => unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt
a gt 1 => unable to parse requirement: found 'gt', expected: in, notin, =, ==, !=, gt, lt
a in b => unable to parse requirement: found 'b' expected: '('
a in => unable to parse requirement: found '' expected: '('
a in (b => unable to parse requirement: found '', expected: ',' or ')'
a in (b c) => unable to parse requirement: found 'c', expected: ',' or ')'
a in (=) => unable to parse requirement: found '=', expected: ',', ')' or identifier
a in (b,=) => unable to parse requirement: found '=', expected: ',', or identifier
a in (b)) => found ')', expected: ',' or 'end of string'
!!a => unable to parse requirement: found '!', expected: identifier
!a=b => found '=', expected: ',' or 'end of string'
a===b => unable to parse requirement: found '=', expected: identifier
a=b=c => found '=', expected: ',' or 'end of string'
a>x => unable to parse requirement: values[0]: Invalid value: "x": for 'Gt', 'Lt' operators, the value must be an integer
/a => unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty
-a => unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
X/y => unable to parse requirement: <nil>: Invalid value: "X/y": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
x/y/z => unable to parse requirement: <nil>: Invalid value: "x/y/z": a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')
a=ü => unable to parse requirement: values[0][a]: Invalid value: "ü": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
"#;

#[test]
fn a_text_is_read_and_printed_as_kubectl_does() {
    for (text, printed) in READ {
        assert_eq!(parse(text).to_string(), *printed, "{text:?}");
        assert_eq!(parse(printed).to_string(), *printed, "{printed:?} again");
    }
}

fn error(text: &str) -> String {
    text.parse::<Selector>().unwrap_err().to_string()
}

#[test]
fn a_selector_that_kubectl_refuses_is_refused_in_its_words() {
    for (text, words) in REFUSED.lines().filter_map(|line| line.split_once(" => ")) {
        assert_eq!(error(text), words, "{text:?}");
    }
}

#[test]
fn a_selector_key_or_value_that_is_too_long_is_refused() {
    let long = "k".repeat(64);
    let invalid = "unable to parse requirement:";
    assert_eq!(
        error(&long),
        format!("{invalid} <nil>: Invalid value: \"{long}\": name part must be no more than 63 bytes")
    );
    assert_eq!(
        error(&format!("a={long}")),
        format!("{invalid} values[0][a]: Invalid value: \"{long}\": must be no more than 63 bytes")
    );
    let prefix = error(&format!("{}/a", "k".repeat(254)));
    assert!(
        prefix.ends_with("prefix part must be no more than 253 bytes"),
        "{prefix}"
    );
}

#[test]
fn an_absent_selector_selects_nothing_and_an_empty_one_everything() {
    let nothing = Selector::new(None).unwrap();
    let everything = Selector::new(Some(&LabelSelector::default())).unwrap();
    assert!(nothing == Selector::nothing() && !nothing.is_everything() && !nothing.matches(&labels(&[])));
    assert!(
        everything.is_everything() && everything != Selector::nothing() && everything.matches(&labels(&[]))
    );
    assert_eq!(
        (nothing.to_string(), everything.to_string()),
        (String::new(), String::new())
    );
    assert_eq!(
        Selector::new(Some(&spec("{matchLabels: {}, matchExpressions: []}"))),
        Ok(everything)
    );
}

#[test]
fn nothing_and_something_is_nothing() {
    let key = Selector::exists("a").unwrap();
    assert_eq!(Selector::nothing().and(key.clone()), Selector::nothing());
    assert_eq!(key.and(Selector::nothing()), Selector::nothing());
}

#[test]
fn the_drains_selector_is_sorted_by_key() {
    let own = Selector::does_not_exist("upgrade.cattle.io/controller").unwrap();
    let users = spec("matchExpressions: [{key: component, operator: NotIn, values: [sonobuoy]}]");
    let both = own.and(Selector::new(Some(&users)).unwrap());
    assert_eq!(
        both.to_string(),
        "component notin (sonobuoy),!upgrade.cattle.io/controller"
    );
}

#[test]
fn the_selector_of_a_spec_is_printed_in_kubectls_syntax() {
    let selector = Selector::new(Some(&spec(
        "{matchLabels: {tier: db, app: x}, matchExpressions: [{key: zone, operator: In, values: [c, a]}, {key: app, operator: Exists}, {key: b, operator: DoesNotExist}]}",
    )));
    assert_eq!(
        selector.unwrap().to_string(),
        "app=x,app,!b,tier=db,zone in (a,c)"
    );
}

#[test]
fn a_bad_spec_is_refused_in_apimachinerys_words() {
    let refused = |yaml: &str| Selector::new(Some(&spec(yaml))).unwrap_err().to_string();
    assert_eq!(
        refused("matchExpressions: [{key: a, operator: x}]"),
        "\"x\" is not a valid label selector operator"
    );
    assert_eq!(
        refused("matchExpressions: [{key: a, operator: In}]"),
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"
    );
    assert_eq!(
        refused("matchExpressions: [{key: a, operator: Exists, values: [b, 'c\"']}]"),
        "[values: Invalid value: [\"b\",\"c\\\"\"]: values set must be empty for exists and does not exist, \
         values[1][a]: Invalid value: \"c\\\"\": a valid label must be an empty string or consist of alphanumeric \
         characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
         'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"
    );
    assert!(
        refused("matchLabels: {'': b}")
            .starts_with("key: Invalid value: \"\": name part must be non-empty; ")
    );
}

#[test]
fn each_operator_matches_as_in_kubernetes() {
    let node = labels(&[("a", "b"), ("n", "5"), ("empty", "")]);
    let matching = ";a;a=b;a==b;a!=c;x!=c;a in (b,c);a notin (c);x notin (c);!x;n>4;n<6;empty=;empty;a=b,n=5";
    let others = "x;a=c;a==c;a!=b;a in (c);x in (b);a notin (b,c);!a;n>5;n<5;a>1;x>1;x<1;x=;a=b,n=6";
    for text in matching.split(';') {
        assert!(parse(text).matches(&node), "{text:?}");
    }
    for text in others.split(';') {
        assert!(!parse(text).matches(&node), "{text:?}");
    }
}

#[test]
fn a_selector_value_is_quoted_as_go_quotes_it() {
    assert_eq!(
        syntax::quote("a\"\\\t\n\r\x07\x08\x0b\x0c\x01\x7f"),
        r#""a\"\\\t\n\r\a\b\v\f\x01\x7f""#
    );
    assert_eq!(syntax::quote("ü\u{200b}\u{10ffff}'"), "\"ü\\u200b\\U0010ffff'\"");
}

#[test]
fn a_selector_of_more_requirements_than_anyone_needs_is_refused() {
    let text = |count: usize| {
        (0..count)
            .map(|number| format!("k{number}"))
            .collect::<Vec<_>>()
            .join(",")
    };
    assert!(text(256).parse::<Selector>().is_ok());
    assert_eq!(
        text(257).parse::<Selector>().unwrap_err().to_string(),
        "the selector has 257 requirements, and at most 256 are supported"
    );
    let labels = (0..257)
        .map(|number| (format!("k{number}"), "v".to_owned()))
        .collect();
    let selector = LabelSelector {
        match_labels: Some(labels),
        match_expressions: None,
    };
    assert!(Selector::new(Some(&selector)).is_err());
}

#[test]
fn a_long_list_of_values_is_searched_by_bisection_and_has_the_same_meaning() {
    let values: Vec<_> = (0..50_000).rev().map(|number| format!("v{number}")).collect();
    let text = |operator: &str| format!("k {operator} ({})", values.join(","));
    let (within, without): (Selector, Selector) =
        (text("in").parse().unwrap(), text("notin").parse().unwrap());
    for (value, is_listed) in [("v0", true), ("v49999", true), ("v50000", false), ("v", false)] {
        let labels = [("k".to_owned(), value.to_owned())].into();
        assert_eq!(
            (within.matches(&labels), without.matches(&labels)),
            (is_listed, !is_listed),
            "{value}"
        );
    }
}
