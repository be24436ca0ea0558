//! YAML is read like kubectl reads it: for a corpus of YAML and JSON, the real kubectl and refit must find the same
//! objects, or refuse the file. The table in kubectl.md lists all differences.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use refit_offline::gitops::yaml;
use serde_json::Value;

use super::folder;
use crate::testenv::binaries::Binaries;

const HEAD: &str = "apiVersion: upgrade.cattle.io/v1\nkind: Plan\nmetadata: {name: p}\n";

/// The objects that kubectl finds, without a cluster.
fn by_kubectl(kubectl: &Path, text: &str) -> Result<Vec<Value>, String> {
    let mut child = Command::new(kubectl)
        .args(["label", "--local", "--filename=-", "seen=yes", "--output=json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let objects = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
    Ok(objects.map(|object| plain(object.unwrap())).collect())
}

fn by_refit(text: &str) -> Result<Vec<Value>, String> {
    let stream = yaml::read(text);
    if let Some(error) = stream.errors.first() {
        return Err(error.to_string());
    }
    let documents = stream.documents.iter().filter(|document| !document.is_null());
    Ok(documents.map(|document| plain(document.to_json())).collect())
}

/// The object without the label, with all numbers as Go prints them.
fn plain(mut object: Value) -> Value {
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.remove("seen");
        if labels.is_empty() {
            object["metadata"].as_object_mut().unwrap().remove("labels");
        }
    }
    numbers(&mut object);
    object
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "a whole number of less than 2^53"
)]
fn numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let float = number.as_f64().unwrap();
            *value = if float.trunc() == float && float.abs() < 9e15 {
                (float as i64).into()
            } else {
                // The parser of this test is not exact to the last digit.
                format!("{float:.14e}").into()
            };
        }
        Value::Array(items) => items.iter_mut().for_each(numbers),
        Value::Object(fields) => fields.values_mut().for_each(numbers),
        _ => {}
    }
}

/// Plain scalars that may be a number, a bool, a date or text, separated by two spaces.
const SCALARS: &str = r#"
v1.33.4+k3s1  1.30  1.33.4  1.  .5  -.5  +.5  1e3  1E3  1e+3  1e  1_000  _1  1__0  0755  0o17  0O17  0x1F
0X1f  0b101  0b2  -0x1f  -017  +017  08  09.5  0_7  1:30  22:00  190:20:30  12:30:45.5  2026-08-01
2026-08-01T10:00:00Z  2026-8-1  yes  Yes  YES  yEs  y  Y  n  N  no  NO  on  On  off  OFF  true  True  TRUE
tRUE  false  null  Null  NULL  nULL  ~  .inf  -.inf  .Inf  .nan  .NaN  inf  nan  Infinity  1.5.2  1,000
1 000  9223372036854775807  9223372036854775808  18446744073709551615  18446744073709551616
-9223372036854775808  -9223372036854775809  1e400  1e-400  0.1  0.30000000000000004
123456789012345678901234567890  1.7976931348623157e308  -0  -0.0  +0  0  00  0x  0b  0o  --1  +-1  1-1
a:b  a#b  a #b  10%  %10  @a  `a`  a'b  a"b  =  <<  ?a  -a  :a  a:  !a  &a  *a  |a  >a  a, b  [a]  {a: b}
[a, b,]  {a: 1, b: 2,}  {a, b}  [a: b]  {? a : b}  !!str 1.30  !!int "5"  !!float 5  !!bool "yes"
!!null x  !!binary aGk=  !custom a  ! a  !!str  !!int 1.5  !!bool maybe  '1.30'  "1.30"  'it''s'
"\\u00e4\\x41\\n"  "\\/"  "\\q"  "\\e"  "\\U0001F600"  "\\uD83D\\uDE00"  'a\\n'  &x 5  &x  a\tb  5 # five
text # comment  text#no  äöü  🚀  a\u{a0}b  a\u{2028}b  a\u{85}b  \u{feff}a  a\u{feff}  0.0.0.0  1.2.3.4/24
::1  08:00  1e3.5  0xg  0b12  1_0.5_0  ._5  1._5  1.5_  1_  -_1  0x_1  0_x1  685_230.15  0x7fffffffffffffff
0x8000000000000000  0xffffffffffffffff  0x1ffffffffffffffff  -0xffffffffffffffff  01777777777777777777777
0777777777777777777777  0o1777777777777777777777  &a.b 1  &ä 1  &a: 1  !env VERSION  1e5.0  +.inf  0x1p4  1_000.5e3
"#;

/// Keys, separated by two spaces.
const KEYS: &str = "1  1.5  yes  true  null  ~  'a'  \"a b\"  ? a  [a]  {a: b}  0x1f  a b  <<  '<<'  -  - a  2026-08-01  1e3  !!str 5  *a  &a b";

/// Files by name. `<json>`, `<flow>` and `<block>` are the same Plan, `<head>` is its beginning, `<json q>` and
/// `<other>` are another one, and `<json:VALUE>` is the Plan with that version.
const FILES: &str = r##"
json with blanks before it => \n \t<json>
json with a newline at its end => <json>\n
json with a trailing comma => <json:"v1",>
json with a comment => <json> # a comment\n
json with a comment before it => # a comment\n<json>\n
json with a surrogate pair => <json:"\\uD83D\\uDE00">
json with a slash escaped => <json:"a\\/b">
json with large numbers => <json:123456789012345678901>
json with a number with an exponent => <json:1e3>
json with NaN => <json:NaN>
json with a number with a plus => <json:+5>
json with a number with a zero before it => <json:010>
json with yes => <json:yes>
json, then yaml => <json>\n---\n<block>
yaml, then json => <block>---\n<json>\n
yaml, then two json objects => <block>---\n<json>\n<json>\n
json, then text => <json>\nand more\n
json, then a brace => <json>}\n
json list => [<json>]
json after a separator => ---\n<json>\n
flow => <flow>\n
flow with a comment before it => # a comment\n<flow>\n
flow after a separator => ---\n<flow>\n
flow on the separator's line => --- <flow>\n
flow, then block => <flow>\n---\n<other>
block, then flow => <block>---\n<flow>\n
block after a separator => ---\n<block>
block with an end => <block>...\n
block with an end, then another => <block>...\n<other>
block with an end and a separator => <block>...\n---\n<other>
two blocks => <block>---\n<other>
two blocks with a comment at the separator => <block>--- # another\n<other>
two blocks with blanks at the separator => <block>---  \n<other>
two blocks with a tab at the separator => <block>---\t\n<other>
two blocks with a separator that is indented => <block> ---\n<other>
two blocks with four dashes => <block>----\n<other>
two blocks with a key at the separator => <block>--- kind: x\n<other>
two blocks with a tag at the separator => <block>--- !!map\n<other>
empty documents => ---\n---\n<block>---\n---\n# nothing\n---\n<other>---\n
a stream of jsonnet => ---\n<json>\n---\n<json q>\n...\n
a stream of jsonnet with a comment at its end => ---\n<json>\n... # over\n
json with an end => <json>\n...\n
json with an end, then another => ---\n<json>\n...\n<other>
a document of null => null\n---\n<block>
a document of text => text\n---\n<block>
a document of a number => 5\n---\n<block>
a document that is a list => - a\n---\n<block>
a comment only => # nothing\n
blanks only =>   \n\n
a directive => %YAML 1.2\n---\n<block>
a directive of YAML 1.1 => %YAML 1.1\n---\n<block>
a directive after a comment => # a comment\n%YAML 1.2\n---\n<block>
a directive without a separator => %YAML 1.2\n<block>
a tag directive => %TAG !e! tag:example.com,2000:\n---\n<block>
a directive of another document => <block>...\n%YAML 1.2\n---\n<other>
a byte order mark => \u{feff}<block>
a byte order mark before json => \u{feff}<json>
a byte order mark before flow => \u{feff}<flow>
a byte order mark before a separator => \u{feff}---\n<block>
a byte order mark in the second document => <block>---\n\u{feff}<other>
a line separator in a comment => # one\u{2028}two\n<block>
a line separator in a comment at an end => <block># one\u{2028}two: three\n
a paragraph separator in a comment => # one\u{2029}two\n<block>
a next line in a comment => # one\u{85}two\n<block>
a form feed in a comment => # one\u{c}two\n<block>
a vertical tab in text => <block>x: a\u{b}b\n
a DEL in text => <block>x: a\u{7f}b\n
a C1 control in text => <block>x: a\u{81}b\n
a NUL in text => <block>x: a\u{0}b\n
a line separator in quotes => <block>x: "a\u{2028}b"\n
a next line in quotes => <block>x: "a\u{85}b"\n
a line separator in a block => <block>x: |\n  a\u{2028}b\n
a line separator between keys => <block>x: a\u{2028}y: b\n
a next line between keys => <block>x: a\u{85}y: b\n
a private character => <block>x: \u{e000}\n
a noncharacter => <block>x: \u{fffe}\n
a tab before a key => <head>spec:\n\tversion: v1\n
a tab after a key => <head>spec:\n  version:\tv1\n
a tab at an end => <head>spec:\n  version: v1\t\n
a tab in an empty line => <head>spec:\n\t\n  version: v1\n
a tab before a comment => <head>spec:\n  version: v1\t# why\n
a tab in flow => <head>spec: {\n\tversion: v1\n\t}\n
a tab after a dash => <head>spec:\n  a:\n  -\tb\n
a tab in a block => <head>spec:\n  a: |\n    \tb\n
a tab before a block => <head>spec:\n  a: |\n\tb\n
a key twice => <head>spec: {a: 1, a: 2}\n
a key twice at the top => <head>kind: Plan\n
a merge key => <head>spec:\n  base: &b {x: 1, y: 2}\n  use: {<<: *b, y: 3}\n
a merge key after a key => <head>spec:\n  base: &b {x: 1, y: 2}\n  use: {y: 3, <<: *b}\n
a merge key of a list => <head>spec:\n  a: &a {x: 1}\n  b: &b {x: 2, y: 2}\n  use: {<<: [*a, *b]}\n
a merge key twice => <head>spec:\n  a: &a {x: 1}\n  b: &b {y: 2}\n  use:\n    <<: *a\n    <<: *b\n
a merge key in quotes => <head>spec:\n  a: &a {x: 1}\n  use: {'<<': *a}\n
a merge key of text => <head>spec: {<<: text}\n
a merge key of null => <head>spec: {<<: }\n
a merge key of an object => <head>spec: {<<: {x: 1}, y: 2}\n
a merge key of a merge key => <head>spec:\n  a: &a {x: 1}\n  b: &b {<<: *a, y: 2}\n  c: {<<: *b}\n
an alias => <head>spec: {a: &a [1], b: *a}\n
an alias of nobody => <head>spec: {b: *a}\n
an alias of a later anchor => <head>spec: {b: *a, a: &a 1}\n
an alias of another document => <head>spec: {a: &a 1}\n---\n<head>spec: {a: *a}\n
an alias of itself => <head>spec: {a: &a [*a]}\n
an anchor twice => <head>spec: {a: &a 1, b: &a 2, c: *a}\n
an alias as a key => <head>spec: {a: &a x, *a : 1}\n
a literal block => <head>spec:\n  a: |\n    one\n      two\n\n    three\n\n
a literal block that is stripped => <head>spec:\n  a: |-\n    one\n
a literal block that is kept => <head>spec:\n  a: |+\n    one\n\n\n  b: 1\n
a folded block => <head>spec:\n  a: >\n    one\n    two\n\n    three\n      four\n    five\n
a block with an indicator => <head>spec:\n  a: |2\n      one\n    two\n
a block with a comment => <head>spec:\n  a: | # why\n    one\n
a block of nothing => <head>spec:\n  a: |\n  b: 1\n
a block with dashes => <head>spec:\n  a: |\n    ---\n    one\n
a block with dashes at the margin => <head>spec:\n  a: |\n---\n<block>
a block without an end => <head>spec:\n  a: |\n    one
a block that is less indented => <head>spec:\n  a: |\n      one\n    two\n
a block with empty lines of blanks => <head>spec:\n  a: |\n    one\n      \n    two\n
a block at the margin => <head>spec: |\none\n
text in lines => <head>spec:\n  a: one\n    two\n\n    three\n
text in quotes in lines => <head>spec:\n  a: "one\n    two \\\n    three"\n
text in quotes at the margin => <head>spec:\n  a: "one\ntwo"\n
text in quotes with dashes at the margin => <head>spec:\n  a: "one\n--- two"\n
text in quotes with a separator => <head>spec:\n  a: "one\n---\ntwo"\n
a list at its key's margin => <head>spec:\n  a:\n  - 1\n  - 2\n
a list in a list => <head>spec:\n  a:\n  - - 1\n    - 2\n  - - 3\n
an object in a list => <head>spec:\n  a:\n  - b: 1\n    c: 2\n  -\n    b: 3\n
an item of nothing => <head>spec:\n  a:\n  -\n  - 1\n
a key that is explicit => <head>spec:\n  ? a\n  : 1\n  ? b\n
a colon in text => <head>spec:\n  a: b: c\n
a colon at an end => <head>spec:\n  a: b:\n
a colon without a blank in flow => <head>spec: {a:1, "b":2}\n
a question mark in flow => <head>spec: [?a, ? b]\n
a comma without a blank => <head>spec: [a,b,c]\n
a comma twice => <head>spec: [a,,b]\n
a comma at the start => <head>spec: [,a]\n
flow in lines below its key => <head>spec: {\n  a: 1,\n  b: 2\n}\n
flow at the margin => <head>spec:\n{a: 1}\n
flow with a comment => <head>spec: [a, # one\n  b]\n
flow that is not closed => <head>spec: [a\n
flow that is closed twice => <head>spec: [a]]\n
flow with text behind it => <head>spec: [a] b\n
flow with a comment stuck to it => <head>spec: [a]#b\n
quotes with text behind them => <head>spec: "a" b\n
quotes with a comment stuck to them => <head>spec: "a"#b\n
quotes that are not closed => <head>spec: "a\n
a dash in flow => <head>spec: [- a]\n
a lonely dash in flow => <head>spec: [-]\n
keys that are unevenly indented => <head>spec:\n  a: 1\n   b: 2\n
keys that are less indented => <head>spec:\n    a: 1\n  b: 2\n
a key without a blank => <head>spec:\n  a:1\n
a key alone => <head>spec:\n  a\n
a key of many lines => <head>spec:\n  "a\n  b": 1\n
a tag with a handle of nobody => <head>spec: !e!x a\n
a tag of an object => <head>spec: !!map {a: 1}\n
a tag of a set => <head>spec: !!set {a}\n
a tag of a list for an object => <head>spec: !!seq {a: 1}\n
an anchor without a value => <head>spec: {a: &x , b: *x}\n
an anchor with a tag => <head>spec: {a: &x !!str 5, b: !!str &y 6}\n
json => <json>
two json objects => <json><json q>
two json objects in lines => <json>\n<json q>\n
two json objects with a separator => <json>\n---\n<json q>\n
json with a tab in a string => <json:"v\t1">
json with a key twice => <json:"v0", "version": "v1">
json with a next line in a string => <json:"a\u{85}b">
json with a DEL in a string => <json:"a\u{7f}b">
json with a C1 control in a string => <json:"a\u{9b}b">
json with a noncharacter in a string => <json:"a\u{fffe}b">
json with a line separator in a string => <json:"a\u{2028}b">
json with half of a surrogate pair => <json:"\\uD800">
json, then yaml in lines => <json>\n<other>
two flow objects => <flow>\n<flow>\n
an object without a kind => {}\n---\n<block>
a key that differs in case => <json:"v1", "Kind": "Plan">
a merge key of an alias of a list => <head>spec:\n  a: &a [{x: 1}]\n  use: {<<: *a}\n
an end before all => ...\n<block>
a tab in flow in a list => <head>spec:\n  a:\n  - b: [\n\ta,\n\tb]\n
flow with a comment stuck to a comma => <head>spec: [a,#b\n  c]\n
flow with a comment stuck to its start => <head>spec: [#a\n  c]\n
an object with a comment stuck to a comma => <head>spec: {a: b,#c\n  d: e}\n
a block with a comment stuck to it => <head>spec:\n  a: |#c\n    one\n
flow that begins with a comment => {#a\n  apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: p}}\n
a key that is binary => <head>spec: {!!binary aGk=: 1}\n
a list of a list of objects => apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - <json>\n
a tab before a key below a value => <head>spec:\n  a: b\n\tversion: v1\n
a no-break space before a key => <head>spec:\n  a: b\n\u{a0}\u{a0}version: v1\n
block => <block>
nothing => 
"##;

fn scalars() -> BTreeSet<String> {
    let written = SCALARS.lines().flat_map(|line| line.split("  ")).map(unescaped);
    // Each sign and prefix with each suffix.
    let made = ["", "-", "+"].into_iter().flat_map(|sign| {
        ["", "0", "0x", "0b", "0o", ".", "1."]
            .into_iter()
            .flat_map(move |prefix| {
                ["7", "1_1", "12e2", "9", "e1", ""].map(move |ending| format!("{sign}{prefix}{ending}"))
            })
    });
    written.chain(made).collect()
}

/// Replaces the escapes of Rust's string literals.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut whole = parts.next().unwrap().to_owned();
    while let Some(part) = parts.next() {
        let (character, rest) = match part.chars().next() {
            None => ('\\', parts.next().unwrap()),
            Some('u') => {
                let (digits, rest) = part[2..].split_once('}').unwrap();
                let number = u32::from_str_radix(digits, 16).unwrap();
                (char::from_u32(number).unwrap(), rest)
            }
            Some('n') => ('\n', &part[1..]),
            Some('t') => ('\t', &part[1..]),
            Some(_) => panic!("{text}"),
        };
        whole.push(character);
        whole.push_str(rest);
    }
    whole
}

/// Files by name.
fn files() -> Vec<(String, String)> {
    let json = r#"{"apiVersion": "upgrade.cattle.io/v1", "kind": "Plan", "metadata": {"name": "p"}, "spec": {"version": "v1"}}"#;
    let flow = "{apiVersion: upgrade.cattle.io/v1, kind: Plan, metadata: {name: p}, spec: {version: v1}}";
    let block = format!("{HEAD}spec: {{version: v1}}\n");
    let other = block.replace("name: p", "name: q");
    let two = format!("{block}---\n{other}");
    let json_q = json.replace("\"p\"", "\"q\"");
    let expanded = |text: &str| match text.strip_prefix("<json:") {
        Some(version) => json.replace("\"v1\"", &unescaped(version.strip_suffix('>').unwrap())),
        None => [
            ("<head>", HEAD),
            ("<block>", &block),
            ("<other>", &other),
            ("<json>", json),
            ("<json q>", &json_q),
            ("<flow>", flow),
        ]
        .iter()
        .fold(unescaped(text), |text, (name, whole)| text.replace(name, whole)),
    };
    let scalars = scalars().into_iter();
    let scalars = scalars.map(|scalar| {
        (
            format!("scalar {scalar:?}"),
            format!("{HEAD}spec:\n  a: {scalar}\n"),
        )
    });
    let keys = KEYS.split("  ");
    let keys = keys.map(|key| (format!("key {key}"), format!("{HEAD}spec:\n  {key}: v\n")));
    let files = FILES.lines().filter_map(|line| line.split_once(" => "));
    let files = files.map(|(name, text)| (name.to_owned(), expanded(text)));
    let edited = [
        (
            "json with a comment in it",
            json.replace("\"kind\"", "# a comment\n\"kind\""),
        ),
        ("json with tabs", json.replace(", ", ",\n\t")),
        ("json with a key without quotes", json.replace("\"kind\"", "kind")),
        ("json with single quotes", json.replace('"', "'")),
        ("json that is not whole", json[..json.len() - 1].to_owned()),
        ("flow in lines", flow.replace(", ", ",\n  ")),
        ("flow in lines at the margin", flow.replace(", ", ",\n")),
        ("flow with a trailing comma", flow.replace("v1}}", "v1},}")),
        ("CR LF", block.replace('\n', "\r\n")),
        ("CR LF with a separator", two.replace('\n', "\r\n")),
        ("CR", block.replace('\n', "\r")),
        ("CR with a separator", two.replace('\n', "\r")),
        ("a long key", format!("{HEAD}spec:\n  {}: 1\n", "k".repeat(1100))),
    ];
    let edited = edited.map(|(name, text)| (name.to_owned(), text));
    scalars.chain(keys).chain(files).chain(edited).collect()
}

/// The rows of the table, by the names of their files.
fn documented() -> BTreeSet<String> {
    let page = std::fs::read_to_string(folder("").join("kubectl.md")).unwrap();
    let (_, table) = page
        .split_once("| differs from kubectl |")
        .expect("the table in kubectl.md");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1))
        .map(|name| name.trim().replace("\\|", "|"))
        .collect()
}

#[test]
fn refit_reads_files_as_kubectl_does_with_the_differences_in_a_table() {
    let kubectl = Binaries::ready().unwrap().path("kubectl");
    let files = files();
    let known = documented();
    let found = std::sync::Mutex::new(Vec::new());
    let next = std::sync::atomic::AtomicUsize::new(0);
    // A process per file, two at a time.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some((name, text)) =
                    files.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                {
                    let (theirs, ours) = (by_kubectl(&kubectl, text), by_refit(text));
                    let is_same = match (&theirs, &ours) {
                        (Ok(theirs), Ok(ours)) => {
                            // kubectl skips an object without a kind with an error, and refuses a file without objects.
                            theirs == ours
                        }
                        (Err(_), Err(_)) => true,
                        // kubectl refuses the kind, not the text: the file is empty, or not an object.
                        (Err(error), Ok(ours)) => {
                            let of_kind = [
                                "no objects passed",
                                "Object 'Kind' is missing",
                                "cannot unmarshal",
                                "into Go value",
                            ];
                            of_kind.iter().any(|what| error.contains(what))
                                && !ours.iter().any(|one| one["kind"].is_string())
                        }
                        _ => false,
                    };
                    if !is_same {
                        found
                            .lock()
                            .unwrap()
                            .push((name.clone(), format!("{theirs:?}\n    and refit {ours:?}")));
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap();
    let unknown: Vec<_> = found.iter().filter(|(name, _)| !known.contains(name)).collect();
    let report: Vec<_> = unknown
        .iter()
        .map(|(name, what)| format!("{name}: kubectl {what}"))
        .collect();
    assert!(unknown.is_empty(), "{}", report.join("\n"));
    let names: BTreeSet<_> = found.into_iter().map(|(name, _)| name).collect();
    assert_eq!(known, names, "the table has what is no difference any more");
    assert!(files.len() > 400, "{}", files.len());
}
