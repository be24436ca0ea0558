//! Findings in the formats of CI systems: SARIF 2.1.0 (OASIS) and `JUnit`'s XML, as Jenkins and GitLab read it.

use std::fmt::Write as _;

use serde_json::json;

use refit_offline::gitops::check::Report;
use refit_offline::gitops::{Finding, Rule, Severity};

pub(super) fn sarif(report: &Report) -> String {
    let level = |severity: Severity| match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let rules = Rule::ALL.iter().map(|rule| {
        json!({
            "id": rule.name(),
            "shortDescription": { "text": rule.about() },
            "defaultConfiguration": { "level": level(rule.severity()) },
        })
    });
    let results = report.findings.iter().map(|found| {
        json!({
            "ruleId": found.rule.name(),
            "level": level(found.severity),
            "message": { "text": with_hint(found) },
            "locations": [{ "physicalLocation": {
                "artifactLocation": { "uri": found.file.trim_start_matches("./") },
                "region": { "startLine": found.position.line, "startColumn": found.position.column },
            } }],
        })
    });
    let sarif = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "refit validate",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.collect::<Vec<_>>(),
            } },
            "results": results.collect::<Vec<_>>(),
        }],
    });
    format!("{sarif:#}\n")
}

/// A test case for each file. Errors and warnings are failures; notes are in the output.
pub(super) fn junit<'f>(report: &Report, files: impl Iterator<Item = &'f str>) -> String {
    let files: Vec<&str> = files.collect();
    let fails = |found: &&Finding| found.severity > Severity::Note;
    let failures = report.findings.iter().filter(fails).count();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        xml,
        "<testsuites><testsuite name=\"refit validate\" tests=\"{}\" failures=\"{failures}\">",
        files.len()
    );
    for file in files {
        let _ = writeln!(
            xml,
            "<testcase classname=\"refit validate\" name=\"{}\">",
            escaped(file)
        );
        let of_file = || report.findings.iter().filter(|found| found.file == file);
        for found in of_file().filter(fails) {
            let (line, column) = (found.position.line, found.position.column);
            let text = escaped(&with_hint(found));
            let _ = writeln!(
                xml,
                "<failure type=\"{}\" message=\"{file}:{line}:{column}: {}\">{text}</failure>",
                found.rule,
                escaped(&found.message),
                file = escaped(file),
            );
        }
        let mut notes = String::new();
        for found in of_file().filter(|found| !fails(found)) {
            let (line, column) = (found.position.line, found.position.column);
            let _ = writeln!(notes, "{line}:{column}: {}", with_hint(found));
        }
        if !notes.is_empty() {
            let _ = writeln!(xml, "<system-out>{}</system-out>", escaped(&notes));
        }
        xml.push_str("</testcase>\n");
    }
    xml + "</testsuite></testsuites>\n"
}

fn with_hint(found: &Finding) -> String {
    match &found.hint {
        Some(hint) => format!("{}\nhint: {hint}", found.message),
        None => found.message.clone(),
    }
}

/// As XML text or attribute. Control characters are not allowed in XML 1.0, even as references.
fn escaped(text: &str) -> String {
    let allowed = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    allowed
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            '\n' => "&#10;".to_owned(),
            c => c.to_string(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_offline::gitops::position::Position;

    fn report() -> Report {
        let finding = |severity, rule, message: &str| Finding {
            file: "./a&b.yaml".to_owned(),
            position: Position { line: 3, column: 5 },
            rule,
            severity,
            plan: None,
            field: None,
            message: message.to_owned(),
            hint: Some("try \"this\"".to_owned()),
        };
        Report {
            findings: vec![
                finding(Severity::Error, Rule::WrongType, "1 < 2\u{1b}[31m"),
                finding(Severity::Note, Rule::Placeholder, "a note"),
            ],
            ..Report::default()
        }
    }

    #[test]
    fn sarif_has_each_rule_and_the_place_of_each_finding() {
        let sarif: serde_json::Value = serde_json::from_str(&sarif(&report())).unwrap();
        let run = &sarif["runs"][0];
        assert_eq!(
            run["tool"]["driver"]["rules"].as_array().unwrap().len(),
            Rule::ALL.len()
        );
        let first = &run["results"][0];
        assert_eq!(
            (&first["ruleId"], &first["level"]),
            (&json!("wrong-type"), &json!("error"))
        );
        let place = &first["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "a&b.yaml");
        assert_eq!(place["region"], json!({ "startLine": 3, "startColumn": 5 }));
    }

    #[test]
    fn junit_has_a_case_for_each_file_and_escapes_what_xml_reads() {
        let xml = junit(&report(), ["./a&b.yaml", "clean.yaml"].into_iter());
        assert_eq!(
            xml,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<testsuites><testsuite name=\"refit validate\" tests=\"2\" failures=\"1\">
<testcase classname=\"refit validate\" name=\"./a&amp;b.yaml\">
<failure type=\"wrong-type\" message=\"./a&amp;b.yaml:3:5: 1 &lt; 2[31m\">1 &lt; 2[31m&#10;hint: try &quot;this&quot;</failure>
<system-out>3:5: a note&#10;hint: try &quot;this&quot;&#10;</system-out>
</testcase>
<testcase classname=\"refit validate\" name=\"clean.yaml\">
</testcase>
</testsuite></testsuites>
"
        );
    }
}
