//! What the walk over a schema finds, of values as the simulated API server has them.

use super::*;
use crate::json::json;

struct Messages(Vec<String>);

impl<'s> Visitor<'s, &Value> for Messages {
    fn enters(&mut self, _: &Path<'_>, schema: &'s JSONSchemaProps, value: &Value) -> bool {
        !(value.is_null() && schema.nullable == Some(true))
    }

    fn found(&mut self, path: &Path<'_>, _: &'s JSONSchemaProps, _: &Value, problem: Problem<'_>) {
        self.0.push(format!("{path} {problem:?}"));
    }
}

fn problems(schema: &serde_json::Value, value: &Value) -> Vec<String> {
    let schema: JSONSchemaProps = serde_json::from_value(schema.clone()).unwrap();
    let mut found = Messages(Vec::new());
    walk(&schema, value, &Path::Field(&Path::Root, "spec"), &mut found);
    found.0
}

#[test]
fn every_problem_of_a_value_is_told_with_its_path() {
    let schema = serde_json::json!({
        "type": "object",
        "required": ["image"],
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "properties": {
            "image": {"type": "string"},
            "a": {"type": "string", "enum": ["x", "y"]},
            "b": {"type": "string", "maxLength": 2, "pattern": "^[a-z]*$"},
            "count": {"type": "integer", "format": "int32", "minimum": 1.0},
            "limit": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "boolean"}},
            "maybe": {"type": "string", "nullable": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"n": {"type": "number"}}},
        },
    });
    let good = json!({
        "image": "i", "b": "ab", "count": 2.0, "limit": "5%", "list": [true], "maybe": null, "labels": {"a.b/c": "d"},
        "open": {"other": 1, "n": 1},
    });
    assert_eq!(problems(&schema, &good), [] as [&str; 0]);
    let bad = json!({
        "a": "z", "b": "A", "count": 0, "limit": 1.5, "list": ["x", true, null], "labels": {"a.b/c": 5}, "open": {"n": "x"},
        "imgae": "i",
    });
    assert_eq!(
        problems(&schema, &bad),
        [
            "spec Missing(\"image\")",
            "spec.a NotIn([JSON(String(\"x\")), JSON(String(\"y\"))])",
            "spec.b Pattern(\"^[a-z]*$\")",
            "spec.count Outside(1, 2147483647)",
            "spec Unknown(\"imgae\")",
            "spec.labels.a.b/c Type(\"string\")",
            "spec.limit Type(\"integer,string\")",
            "spec.list TooMany(2)",
            "spec.list[0] Type(\"boolean\")",
            "spec.list[2] Type(\"boolean\")",
            "spec.open.n Type(\"number\")",
        ]
    );
    let none = json!({"image": "i", "list": []});
    assert_eq!(
        problems(&schema, &none),
        ["spec NoAlternative", "spec Missing(\"a\")", "spec.list TooFew(1)"]
    );
}

#[test]
fn a_path_has_its_steps() {
    let waves = Path::Field(&Path::Root, "spec");
    let item = Path::Item(&waves, 1);
    let field = Path::Field(&item, "a.b/c");
    assert_eq!(field.to_string(), "spec[1].a.b/c");
    assert_eq!(
        field.steps(),
        [
            Step::Field("spec".into()),
            Step::Item(1),
            Step::Field("a.b/c".into())
        ]
    );
}
