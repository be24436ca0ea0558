//! `refit pin` on generated files: in every style, the result is the file that the same generator writes for the new
//! version.

use proptest::prelude::*;
use proptest::sample::select;
use refit_fixtures::repetitions::cases;
use refit_offline::gitops::Source;
use refit_offline::gitops::check::{Options, check};
use refit_offline::gitops::pin::{PinRequest, plans, rewrite};
use refit_offline::gitops::yaml::is_text_to_all;

use super::{files, source};

/// Number of generated files, of which `cases` takes a share.
const CASES: u32 = 10_000;

/// The style of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    Plain,
    Single,
    Double,
    Literal,
    Folded,
    Tagged,
    NextLine,
    Absent,
    Empty,
    Null,
    EmptyQuotes,
}

/// The style of a Plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Block,
    Flow,
    FlowLines,
    Json,
}

#[derive(Clone, Debug)]
struct PlanShape {
    form: Form,
    spelling: Spelling,
    old: &'static str,
    /// The order of the fields of the spec.
    order: Vec<usize>,
    note: String,
    script: Vec<String>,
    blanks: usize,
    comment: Option<String>,
    quoted_keys: bool,
}

#[derive(Clone, Debug)]
enum Doc {
    Plan(PlanShape),
    /// A List; with `anchored`, the version of the first Plan has an anchor.
    List {
        plans: Vec<PlanShape>,
        anchored: bool,
    },
    Other(String),
    Empty,
}

#[derive(Clone, Debug)]
struct FileShape {
    docs: Vec<Doc>,
    eol: &'static str,
    bom: bool,
    step: usize,
    final_newline: bool,
    comment: Option<String>,
}

fn plan_shape() -> impl Strategy<Value = PlanShape> {
    use Spelling::*;
    let form = prop_oneof![4 => Just(Form::Block), 1 => Just(Form::Flow), 1 => Just(Form::FlowLines), 1 => Just(Form::Json)];
    let spellings = vec![
        Plain,
        Plain,
        Single,
        Double,
        Literal,
        Folded,
        Tagged,
        NextLine,
        Absent,
        Absent,
        Empty,
        Null,
        EmptyQuotes,
    ];
    let olds = vec![
        "v1.33.3+k3s1",
        "v1.33.3-k3s1",
        "1.33",
        "24.04",
        "1.2.3-alpine",
        "v1.34.1+k3s1",
        "2026.08.1",
    ];
    let line = prop_oneof![
        3 => "[!-~][ -~]{0,16}",
        1 => Just("  version: v1.33.3+k3s1".to_owned()),
        1 => Just("spec: {version: v1.33.3+k3s1}".to_owned()),
        1 => Just(String::new()),
        1 => "[äß€🚀]{1,4}",
    ];
    (
        form,
        select(spellings),
        select(olds),
        Just((0..FIELDS).collect::<Vec<_>>()).prop_shuffle(),
        "[ -~äß€🚀]{0,12}",
        prop::collection::vec(line, 0..4),
        1_usize..4,
        prop::option::of("[ -~ä🚀]{0,12}"),
        any::<bool>(),
    )
        .prop_map(
            |(form, spelling, old, order, note, script, blanks, comment, quoted_keys)| PlanShape {
                form,
                spelling,
                old,
                order,
                note,
                script,
                blanks,
                comment,
                quoted_keys,
            },
        )
}

fn file_shape() -> impl Strategy<Value = FileShape> {
    let doc = prop_oneof![
        5 => plan_shape().prop_map(Doc::Plan),
        2 => (prop::collection::vec(plan_shape(), 1..3), any::<bool>())
            .prop_map(|(plans, anchored)| Doc::List { plans, anchored }),
        1 => "[ -~ä]{0,12}".prop_map(Doc::Other),
        1 => Just(Doc::Empty),
    ];
    (
        prop::collection::vec(doc, 1..4),
        prop_oneof![3 => Just("\n"), 1 => Just("\r\n")],
        prop::bool::weighted(0.1),
        1_usize..5,
        prop::bool::weighted(0.9),
        prop::option::of("[ -~ä🚀]{0,12}"),
    )
        .prop_map(|(docs, eol, bom, step, final_newline, comment)| FileShape {
            docs,
            eol,
            bom,
            step,
            final_newline,
            comment,
        })
}

/// Fields of the spec: concurrency, channel, version, nodeSelector, upgrade, window.
const FIELDS: usize = 6;
const CHANNEL: &str = "https://update.k3s.io/v1-release/channels/stable";

/// The version in refit's default style.
fn bare(version: &str) -> String {
    if is_text_to_all(version) {
        version.to_owned()
    } else {
        format!("\"{version}\"")
    }
}

impl PlanShape {
    fn key(&self, key: &str) -> String {
        if self.quoted_keys {
            format!("\"{key}\"")
        } else {
            key.to_owned()
        }
    }

    /// `key:` and the blanks after it.
    fn colon(&self, key: &str) -> String {
        format!("{}:{}", self.key(key), " ".repeat(self.blanks))
    }

    fn trailing(&self) -> String {
        self.comment
            .as_ref()
            .map_or(String::new(), |comment| format!(" # {comment}"))
    }

    /// The Plan with the old version, or with `new`.
    fn lines(&self, step: usize, new: Option<&str>, anchor: &str) -> Vec<String> {
        match self.form {
            Form::Block => self.block(step, new, anchor),
            Form::Flow => vec![self.flow(new, ", ", "")],
            Form::FlowLines => {
                // An object over several lines, each entry on its own.
                let spec = self.flow_spec(new, false);
                let mut lines = vec![
                    "apiVersion: upgrade.cattle.io/v1".to_owned(),
                    "kind: Plan".to_owned(),
                    "metadata: {name: generated}".to_owned(),
                    "spec: {".to_owned(),
                ];
                lines.extend(spec.iter().map(|entry| format!("   {entry},")));
                lines.push(" }".to_owned());
                lines
            }
            Form::Json => vec![self.json(new)],
        }
    }

    fn block(&self, step: usize, new: Option<&str>, anchor: &str) -> Vec<String> {
        let pad = " ".repeat(step);
        let mut lines = vec![
            format!("{}upgrade.cattle.io/v1", self.colon("apiVersion")),
            "kind: Plan".to_owned(),
            "metadata:".to_owned(),
            format!("{pad}name: generated"),
            format!("{pad}annotations:"),
            format!("{pad}{pad}note: {}", serde_json::to_string(&self.note).unwrap()),
            format!("spec:{}", self.trailing()),
        ];
        let mut spec = Vec::new();
        for field in &self.order {
            match field {
                0 => spec.push(format!("{}1{}", self.colon("concurrency"), self.trailing())),
                1 => {
                    spec.push(format!("{}{CHANNEL}{}", self.colon("channel"), self.trailing()));
                    if let (Spelling::Absent, Some(new)) = (self.spelling, new) {
                        spec.push(format!("version: {}", bare(new)));
                    }
                }
                2 => spec.extend(self.version(step, new, anchor)),
                3 => spec.extend([
                    "nodeSelector:".to_owned(),
                    format!("{pad}matchLabels: {{a: \"b\", 'c': d}}"),
                ]),
                4 => {
                    spec.extend([
                        "upgrade:".to_owned(),
                        format!("{pad}image: rancher/k3s-upgrade{}", self.trailing()),
                        format!("{pad}args:"),
                        format!("{pad}- |-"),
                    ]);
                    spec.push(format!("{pad}{pad} set -e"));
                    spec.extend(self.script.iter().map(|line| {
                        if line.is_empty() {
                            String::new()
                        } else {
                            format!("{pad}{pad} {line}")
                        }
                    }));
                }
                _ => spec.extend([
                    format!("# {}", self.note),
                    format!(
                        "window: {{days: [mo, \"tu\"], startTime: '{}', endTime: \"23:00\"}}",
                        "22:00"
                    ),
                    String::new(),
                ]),
            }
        }
        lines.extend(spec.into_iter().map(|line| {
            if line.is_empty() {
                line
            } else {
                format!("{pad}{line}")
            }
        }));
        lines
    }

    fn version(&self, step: usize, new: Option<&str>, anchor: &str) -> Vec<String> {
        let (colon, trailing, pad) = (self.colon("version"), self.trailing(), " ".repeat(step));
        let version = new.unwrap_or(self.old);
        // Values that are not strings to YAML are left unquoted only by mistake.
        let plain = new.map_or_else(|| self.old.to_owned(), bare);
        let one = |text: String| vec![format!("{colon}{anchor}{text}{trailing}")];
        match self.spelling {
            Spelling::Plain => one(plain),
            Spelling::Single => one(format!("'{version}'")),
            Spelling::Double => one(format!("\"{version}\"")),
            Spelling::Tagged => one(format!("!!str {plain}")),
            Spelling::NextLine => vec![
                format!("{}:{anchor}", self.key("version")),
                format!("{pad}{plain}{trailing}"),
            ],
            Spelling::Literal => vec![format!("{colon}{anchor}|-"), format!("{pad}{version}")],
            Spelling::Folded => vec![format!("{colon}{anchor}>-"), format!("{pad}{pad}{version}")],
            Spelling::Absent => Vec::new(),
            Spelling::Empty => match new {
                None => vec![format!("{}:{trailing}", self.key("version"))],
                Some(new) => vec![format!("{}: {}{trailing}", self.key("version"), bare(new))],
            },
            Spelling::Null => one(new.map_or("~".to_owned(), bare)),
            Spelling::EmptyQuotes => one(format!("'{}'", new.unwrap_or_default())),
        }
    }

    /// The entries of the spec in braces.
    fn flow_spec(&self, new: Option<&str>, json: bool) -> Vec<String> {
        let mut entries = Vec::new();
        let key = |key: &str| {
            if json {
                format!("\"{key}\":")
            } else {
                format!("{key}: ")
            }
        };
        let text = |text: &str| {
            if json {
                format!("\"{text}\"")
            } else {
                text.to_owned()
            }
        };
        for field in &self.order {
            match field {
                0 => entries.push(format!("{}1", key("concurrency"))),
                1 => {
                    entries.push(format!("{}{}", key("channel"), text(CHANNEL)));
                    if let (true, Some(new)) = (self.is_absent(), new) {
                        let value = if json { text(new) } else { bare(new) };
                        entries.push(format!("{}{value}", key("version")));
                    }
                }
                2 if self.is_absent() => {}
                2 => {
                    let version = new.unwrap_or(self.old);
                    let value = match self.spelling {
                        _ if json => text(version),
                        Spelling::Single => format!("'{version}'"),
                        Spelling::Plain => new.map_or_else(|| self.old.to_owned(), bare),
                        _ => format!("\"{version}\""),
                    };
                    entries.push(format!("{}{value}", key("version")));
                }
                3 if json => entries.push("\"nodeSelector\":{\"matchLabels\":{\"a\":\"b\"}}".to_owned()),
                3 => entries.push("nodeSelector: {matchLabels: {a: 'b'}}".to_owned()),
                4 => {
                    let args = serde_json::to_string(&self.script).unwrap();
                    let (image, args_key) = (key("image"), key("args"));
                    entries.push(format!(
                        "{}{{{image}{},{args_key}{args}}}",
                        key("upgrade"),
                        text("i")
                    ));
                }
                _ => {}
            }
        }
        entries
    }

    fn is_absent(&self) -> bool {
        matches!(self.spelling, Spelling::Absent | Spelling::Empty)
    }

    fn flow(&self, new: Option<&str>, between: &str, end: &str) -> String {
        let spec = self.flow_spec(new, false).join(between);
        let note = serde_json::to_string(&self.note).unwrap();
        format!(
            "{{kind: Plan, apiVersion: upgrade.cattle.io/v1, metadata: {{name: generated, annotations: {{note: {note}}}}}, spec: \
             {{{spec}}}{end}}}"
        )
    }

    fn json(&self, new: Option<&str>) -> String {
        let spec = self.flow_spec(new, true).join(",");
        let note = serde_json::to_string(&self.note).unwrap();
        format!(
            "{{\"apiVersion\":\"upgrade.cattle.io/v1\",\"kind\":\"Plan\",\"metadata\":{{\"name\":\"generated\",\"annotations\":{{\
             \"note\":{note}}}}},\"spec\":{{{spec}}}}}"
        )
    }
}

impl FileShape {
    fn text(&self, new: Option<&str>) -> String {
        let mut lines = Vec::new();
        if let Some(comment) = &self.comment {
            lines.push(format!("# {comment}"));
        }
        for (index, doc) in self.docs.iter().enumerate() {
            if index > 0 {
                lines.push("---".to_owned());
            }
            match doc {
                Doc::Plan(plan) => lines.extend(plan.lines(self.step, new, "")),
                Doc::List { plans, anchored } => {
                    lines.extend(["apiVersion: v1", "kind: List", "items:"].map(str::to_owned));
                    for (number, plan) in plans.iter().enumerate() {
                        let is_anchored = *anchored && number == 0;
                        let plan = Self::in_list(plan, is_anchored);
                        let item = plan.lines(self.step, new, if is_anchored { "&v " } else { "" });
                        for (row, line) in item.into_iter().enumerate() {
                            let dash = if row == 0 { "- " } else { "  " };
                            lines.push(if line.is_empty() {
                                line
                            } else {
                                format!("{dash}{line}")
                            });
                        }
                    }
                }
                Doc::Other(note) => lines.extend([
                    "apiVersion: v1".to_owned(),
                    "kind: ConfigMap".to_owned(),
                    format!(
                        "data: {{version: v1.33.3+k3s1, note: {}}}",
                        serde_json::to_string(note).unwrap()
                    ),
                ]),
                Doc::Empty => lines.push("# nothing".to_owned()),
            }
        }
        let mut text = lines.join(self.eol);
        if self.final_newline {
            text.push_str(self.eol);
        }
        if self.bom {
            text.insert(0, '\u{feff}');
        }
        text
    }

    /// An anchor needs a value.
    fn in_list(plan: &PlanShape, is_anchored: bool) -> PlanShape {
        let mut plan = plan.clone();
        if is_anchored {
            plan.form = Form::Block;
            plan.spelling = Spelling::Plain;
        }
        plan
    }
}

fn pinned(source: &Source, version: &str) -> Result<String, String> {
    let wants: Vec<_> = plans(source)
        .into_iter()
        .map(|plan| PinRequest {
            plan,
            version: version.to_owned(),
            images: false,
            digests: std::collections::BTreeMap::new(),
        })
        .collect();
    rewrite(source, &wants).map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(CASES), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_that_is_pinned_is_the_file_written_with_the_new_version(
        shape in file_shape(),
        new in select(vec!["v1.34.1+k3s1", "v1.35.0-rc1-k3s1", "1.35", "2026.10.1", "26.04"]),
    ) {
        let (before, after) = (shape.text(None), shape.text(Some(new)));
        let old = source("generated.yaml", &before);
        prop_assert_eq!(&old.stream.errors, &[], "{}", before);
        let found = pinned(&old, new);
        prop_assert_eq!(found.as_deref(), Ok(after.as_str()), "{}", before);
        // Otherwise the same document: only the versions differ.
        let now = old.with_text(after.clone());
        prop_assert_eq!(now.stream.documents.len(), old.stream.documents.len());
        for (before, after) in old.stream.documents.iter().zip(&now.stream.documents) {
            prop_assert_eq!(at(before.to_json(), new), after.to_json());
        }
        let again = pinned(&now, new);
        prop_assert_eq!(again.as_deref(), Ok(after.as_str()), "the second time");
    }
}

/// A document with all its Plans at a version.
fn at(mut document: serde_json::Value, version: &str) -> serde_json::Value {
    let plans = match document["kind"].as_str() {
        Some("Plan") => vec![&mut document],
        Some("List") => document["items"].as_array_mut().unwrap().iter_mut().collect(),
        _ => Vec::new(),
    };
    for plan in plans {
        plan["spec"]["version"] = version.into();
    }
    document
}

/// A file of the corpora with a part removed, repeated or replaced.
fn damaged() -> impl Strategy<Value = String> {
    let texts: Vec<_> = ["pin/before", "pin/refused", "broken", "suc"]
        .into_iter()
        .flat_map(files)
        .map(|(_, text)| text)
        .collect();
    let piece = prop_oneof![
        Just(String::new()),
        "[ -~]{1,3}",
        "[\\t\\r\\n:{}&*!|>\u{feff}🚀-]{1,3}",
        Just("\n---\n".to_owned()),
    ];
    (select(texts), any::<prop::sample::Index>(), 0_usize..12, piece).prop_map(|(text, at, length, piece)| {
        let chars: Vec<char> = text.chars().collect();
        let at = at.index(chars.len());
        let rest = chars.iter().skip(at + length);
        chars[..at]
            .iter()
            .copied()
            .chain(piece.chars())
            .chain(rest.copied())
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_are_validated_and_pinned_files_can_be_parsed(text in damaged()) {
        let source = source("damaged.yaml", &text);
        for found in check(std::slice::from_ref(&source), &Options::default()).findings {
            let line = text.split('\n').nth(found.position.line - 1);
            // With CR alone as line break there are more lines than LFs.
            prop_assert!(line.is_some() || text.contains('\r'), "{found:?}");
        }
        for plan in plans(&source) {
            let wants = [PinRequest { plan: plan.clone(), version: "v9.9.9+k3s9".to_owned(), images: true, digests: std::collections::BTreeMap::new() }];
            let Ok(changed) = rewrite(&source, &wants) else { continue };
            let changed = source.with_text(changed);
            prop_assert_eq!(&changed.stream.errors, &[]);
            let again = plans(&changed).into_iter().find(|other| other.path == plan.path && other.document == plan.document);
            let version = again.and_then(|plan| plan.version);
            prop_assert_eq!(version.as_deref(), Some("v9.9.9+k3s9"));
        }
    }
}
