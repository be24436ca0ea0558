//! `refit validate`: prints what is wrong with Plan files, for people, programs and GitHub.

mod ci;
mod text;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use serde_json::json;

use super::channel_access::ChannelFlags;
use super::chosen::no_plan;
use super::output_format::{OutputFormat, any_of};
use super::{USAGE, output};
use refit_base::nearest::nearest;
use refit_base::table::aligned;
use refit_cluster::clock::Clock;
use refit_offline::gitops::check::{Options, Report, check};
use refit_offline::gitops::{Finding, Levels, Rule, Severity, Source, input, kustomize};
use refit_rehearse::words::pluralized;

pub(super) const EXAMPLES: &str = "Examples:
  refit validate examples/                          every Plan below a folder
  kustomize build clusters/prod | refit validate -  what a cluster would get
  refit validate --allow master-label plan.yaml     leave out a rule
  refit validate -o github --online clusters/       in CI, with requests to the channels
  refit validate --rules                            all rules with their severities";

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns such as 'clusters/**/plan*.yaml', or - for standard input
    #[arg(value_name = "FILE", required_unless_present = "rules")]
    files: Vec<String>,

    /// Switch a rule off. May be repeated or comma-separated
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = RuleParser, hide_possible_values = true)]
    allow: Vec<Rule>,

    /// Make a rule a warning
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = RuleParser, hide_possible_values = true)]
    warn: Vec<Rule>,

    /// Make a rule an error
    #[arg(long, value_name = "RULE", value_delimiter = ',', value_parser = RuleParser, hide_possible_values = true)]
    deny: Vec<Rule>,

    /// Namespace of the controller; warn about Plans in others
    #[arg(long, short = 'n', value_name = "NAME")]
    namespace: Option<String>,

    /// Query the channels as well, and ask the registries whether images that follow the version exist
    #[arg(long)]
    online: bool,

    /// Format of findings
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json, OutputFormat::Github, OutputFormat::Sarif, OutputFormat::Junit]))]
    output: OutputFormat,

    /// Print all rules and exit
    #[arg(long)]
    rules: bool,

    #[command(flatten)]
    channels: ChannelFlags,
}

fn rule(name: &str) -> Result<Rule, String> {
    Rule::named(name).ok_or_else(|| {
        let near = nearest(name, Rule::ALL.iter().map(|rule| rule.name()));
        let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
        format!("unknown rule{near} (--rules lists all)")
    })
}

/// Parses the name of a rule, and lists the names for shell completion.
#[derive(Clone, Copy, Debug)]
struct RuleParser;

impl TypedValueParser for RuleParser {
    type Value = Rule;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Rule, clap::Error> {
        let parser = StringValueParser::new().try_map(|name| rule(&name));
        parser.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let rules = Rule::ALL.iter().map(|rule| PossibleValue::new(rule.name()));
        Some(Box::new(rules))
    }
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    if flags.rules {
        output::text(&rules()).context("the rules cannot be printed")?;
        return Ok(ExitCode::SUCCESS);
    }
    let (sources, unread) = read(&flags.files);
    let options = Options {
        levels: levels(flags),
        namespace: flags.namespace.clone(),
    };
    let mut report = check(&sources, &options);
    if flags.online {
        ask(flags, &sources, &mut report)?;
    }
    match flags.output {
        OutputFormat::Json => output::json(&as_json(&report, sources.len())),
        OutputFormat::Sarif => output::json(&ci::sarif(&report)),
        OutputFormat::Junit => output::text(&ci::junit(
            &report,
            sources.iter().map(|source| source.name.as_str()),
        )),
        OutputFormat::Github => output::text(&report.findings.iter().map(as_annotation).collect::<String>()),
        _ => {
            let styled = output::is_colored();
            let files: BTreeMap<&str, &Source> = sources
                .iter()
                .map(|source| (source.name.as_str(), source))
                .collect();
            let text = |found: &Finding| text::text(found, files.get(&*found.file).copied(), styled);
            output::raw(&report.findings.iter().map(text).collect::<String>())
        }
    }
    .context("the findings cannot be printed")?;
    output::note(summary(&report, sources.len()));
    let checked = report.plans + report.node_ops + report.maintenances;
    let is_empty = checked == 0 && report.findings.is_empty();
    if is_empty && !unread {
        output::error(no_plan(&sources));
    }
    Ok(if unread || is_empty {
        ExitCode::from(USAGE)
    } else if report
        .findings
        .iter()
        .any(|found| found.severity > Severity::Note)
    {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Reads all readable files, and reports the others. Templates without a Plan and Kustomize patches are skipped.
pub(super) fn read(files: &[String]) -> (Vec<Source>, bool) {
    let (inputs, errors) = input::expand(files);
    let mut unread = !errors.is_empty();
    errors.iter().for_each(output::error);
    let mut sources = Vec::new();
    for input in &inputs {
        match input::read(input) {
            // Other templates of a Helm chart are not an error.
            Ok(source) if source.is_template_without_plan() => output::note(format_args!(
                "{}: skipped, a template without a Plan",
                source.name
            )),
            Ok(source) => sources.push(source),
            Err(error) => {
                unread = true;
                output::error(error);
            }
        }
    }
    kustomize::attach_with_neighbours(&mut sources);
    // One that is named without its kustomization is read as it is.
    let patches = kustomize::patches(&sources);
    sources.retain(|source| {
        let is_patch = kustomize::is_patch(&patches, source);
        if is_patch {
            output::note(format_args!("{}: skipped, a patch of Kustomize", source.name));
        }
        !is_patch
    });
    (sources, unread)
}

fn levels(flags: &Flags) -> Levels {
    let mut levels = Levels::default();
    let of_flags = [
        (&flags.allow, None),
        (&flags.warn, Some(Severity::Warning)),
        (&flags.deny, Some(Severity::Error)),
    ];
    for (rules, severity) in of_flags {
        for rule in rules {
            levels.set(*rule, severity);
        }
    }
    levels
}

fn ask(flags: &Flags, sources: &[Source], report: &mut Report) -> anyhow::Result<()> {
    let urls = report
        .channels
        .iter()
        .map(|channel| channel.url.clone())
        .collect();
    let answers = flags.channels.ask(urls)?;
    let now = Clock::system().now();
    let unreachable = report.channels.iter().filter_map(|channel| {
        let why = match answers.get(&channel.url)? {
            Ok(offer) => return channel.unreachable(&channel.refusal(offer, now)?),
            Err(why) => why.to_string(),
        };
        if channel.with_secret {
            // A Secret that only the cluster has is not a mistake of the Plan.
            output::note(format_args!(
                "refit asked a channel without the Secret that it needs: {why}"
            ));
            return None;
        }
        channel.unreachable(&why)
    });
    report.findings.extend(unreachable);
    let offer = |channel: &Option<String>| answers.get(channel.as_ref()?)?.as_ref().ok();
    let images = report.images.iter();
    let images: Vec<_> = images
        .flat_map(|images| images.at_version(offer(&images.channel), now))
        .collect();
    let (missing, unknown) = flags.channels.missing(&images)?;
    // What the nodes' way to it is, nobody knows here.
    unknown.iter().for_each(output::note);
    report.findings.extend(missing);
    let order = |found: &Finding| sources.iter().position(|source| source.name == found.file);
    report
        .findings
        .sort_by_key(|found| (order(found), found.position, found.rule));
    Ok(())
}

fn rules() -> String {
    let row = |rule: &Rule| [rule.name(), rule.severity().word(), rule.about()].map(str::to_owned);
    let lines = aligned(&Rule::ALL.iter().map(row).collect::<Vec<_>>(), &[]);
    lines.join("\n") + "\n"
}

fn as_json(report: &Report, files: usize) -> String {
    let findings: Vec<_> = report
        .findings
        .iter()
        .map(|found| {
            json!({
                "file": found.file,
                "line": found.position.line,
                "column": found.position.column,
                "severity": found.severity,
                "rule": found.rule.name(),
                "plan": found.plan,
                "field": found.field,
                "message": found.message,
                "hint": found.hint,
            })
        })
        .collect();
    let [errors, warnings, notes] = counts(report);
    let report = json!({
        "files": files,
        "plans": report.plans,
        "nodeOps": report.node_ops,
        "nodeMaintenances": report.maintenances,
        "errors": errors,
        "warnings": warnings,
        "notes": notes,
        "findings": findings,
    });
    format!("{report:#}\n")
}

/// A workflow command for GitHub Actions: `::error file=…,line=…,col=…,title=…::…`.
fn as_annotation(found: &Finding) -> String {
    let command = match found.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    // As `escapeData` and `escapeProperty` of GitHub's toolkit (actions/toolkit, packages/core/src/command.ts).
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let hint = found
        .hint
        .as_ref()
        .map_or(String::new(), |hint| format!("\nhint: {hint}"));
    format!(
        "::{command} file={},line={},col={},title={}::{}\n",
        // GitHub expects paths relative to the repository.
        property(found.file.trim_start_matches("./")),
        found.position.line,
        found.position.column,
        property(&format!("refit: {}", found.rule)),
        data(&format!("{}{hint}", found.message)),
    )
}

fn counts(report: &Report) -> [usize; 3] {
    [Severity::Error, Severity::Warning, Severity::Note].map(|severity| {
        report
            .findings
            .iter()
            .filter(|found| found.severity == severity)
            .count()
    })
}

fn summary(report: &Report, files: usize) -> String {
    let [errors, warnings, notes] = counts(report);
    let others = [
        (report.node_ops, "NodeOp"),
        (report.maintenances, "NodeMaintenance"),
    ];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    let mut kinds: Vec<_> = others.map(|(number, kind)| pluralized(number, kind)).collect();
    if report.plans > 0 || kinds.is_empty() {
        kinds.insert(0, pluralized(report.plans, "Plan"));
    }
    format!(
        "{} in {}: {}, {}, {}",
        kinds.join(", "),
        pluralized(files, "file"),
        pluralized(errors, "error"),
        pluralized(warnings, "warning"),
        pluralized(notes, "note")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_offline::gitops::position::Position;

    pub(super) fn finding() -> Finding {
        Finding {
            file: "a,b:c.yaml".to_owned(),
            position: Position { line: 3, column: 5 },
            rule: Rule::WrongType,
            severity: Severity::Error,
            plan: None,
            field: None,
            message: "100% wrong,\nall of it".to_owned(),
            hint: Some("try: again".to_owned()),
        }
    }

    #[test]
    fn an_annotation_escapes_what_github_reads() {
        assert_eq!(
            as_annotation(&finding()),
            "::error file=a%2Cb%3Ac.yaml,line=3,col=5,title=refit%3A wrong-type::100%25 wrong,%0Aall of it%0Ahint: try: again\n"
        );
    }

    #[test]
    fn an_unknown_rule_is_reported_with_the_nearest_one() {
        assert_eq!(rule("wrong-type"), Ok(Rule::WrongType));
        let error = rule("wrong-types").unwrap_err();
        assert_eq!(
            error,
            "unknown rule; did you mean wrong-type? (--rules lists all)"
        );
    }
}
