//! `refit convert`: prints Plans that do what the objects of other programs did.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use super::output_format::{OutputFormat, any_of};
use super::render::all_are_read;
use super::{USAGE, output, validate};
use refit_api::Plan;
use refit_formats::convert::{Converted, KINDS, convert, join_parts};
use refit_offline::gitops::objects::objects;

pub(super) const EXAMPLES: &str = "Examples:
  kubectl -n kube-system get daemonset kured -o yaml | refit convert - > reboots.yaml
      a Plan that reboots nodes as kured did
  refit convert clusters/prod/ -n upgrades
      all objects below a folder
  refit convert nodeop.yaml | refit rehearse -
      what the Plan would do";

/// Length of a line of a comment.
const WIDTH: usize = 100;

#[derive(Args, Clone, Debug)]
pub(super) struct Flags {
    /// Files, folders, patterns such as 'clusters/**/kured*.yaml', or - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<String>,

    /// Namespace of the Plans: that of the controller
    #[arg(long, short = 'n', value_name = "NAME", default_value = "system-upgrade")]
    namespace: String,

    /// Format of the Plans
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "yaml", value_parser = any_of(&[OutputFormat::Yaml, OutputFormat::Json]))]
    output: OutputFormat,
}

pub(super) fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    let (sources, unread) = validate::read(&flags.files);
    let mut failed = !all_are_read(&sources) || unread;
    let mut plans: Vec<(String, Converted)> = Vec::new();
    let mut known = false;
    for source in &sources {
        for object in objects(&source.stream.documents) {
            let written = object.written();
            let line = source.position(object.node.offset()).line;
            let from = format!("{} {} ({}:{line})", object.kind, object.title(), source.name);
            match convert(&written, &flags.namespace) {
                None => {}
                Some(Ok(converted)) => {
                    known = true;
                    plans.push((from, converted));
                }
                Some(Err(why)) => {
                    known = true;
                    failed = true;
                    output::error(format_args!("{from}: {why}"));
                }
            }
        }
    }
    if !known && !failed {
        output::error(format_args!(
            "nothing in these files can be converted: refit knows {KINDS}"
        ));
        return Ok(ExitCode::from(USAGE));
    }
    let plans = join_parts(plans);
    for (from, converted) in &plans {
        for note in &converted.notes {
            output::note(format_args!("{from}: {}", note.text));
        }
    }
    let mut names: Vec<&str> = plans
        .iter()
        .filter_map(|(_, one)| one.plan.metadata.name.as_deref())
        .collect();
    names.sort_unstable();
    for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
        failed = true;
        output::error(format_args!(
            "two Plans would be called {}: rename one of them",
            pair[0]
        ));
    }
    match flags.output {
        OutputFormat::Json => output::json(&as_json(&plans)?),
        _ => output::data(&as_yaml(&plans)?),
    }
    .context("the Plans cannot be printed")?;
    Ok(if unread {
        ExitCode::from(USAGE)
    } else if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn as_yaml(plans: &[(String, Converted)]) -> anyhow::Result<String> {
    let mut text = String::new();
    for (index, (from, converted)) in plans.iter().enumerate() {
        if index > 0 {
            text.push_str("---\n");
        }
        comment(&mut text, &format!("From {from}."), "#");
        for note in &converted.notes {
            comment(&mut text, &note.text, "# -");
        }
        text.push_str(&serde_saphyr::to_string(&converted.plan)?);
    }
    Ok(text)
}

/// A comment in lines. What comes from a file stays in it, whatever it contains.
fn comment(text: &mut String, words: &str, bullet: &str) {
    let words = output::one_line(words);
    let mut line = bullet.to_owned();
    for word in words.split(' ') {
        if line.len() > bullet.len() && line.len() + word.len() >= WIDTH {
            let _ = writeln!(text, "{line}");
            line = format!("#{}", " ".repeat(bullet.len() - 1));
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(text, "{line}");
}

fn as_json(plans: &[(String, Converted)]) -> anyhow::Result<String> {
    let plans: Vec<&Plan> = plans.iter().map(|(_, one)| &one.plan).collect();
    Ok(match plans.as_slice() {
        [] => String::new(),
        [one] => format!("{}\n", serde_json::to_string_pretty(one)?),
        several => {
            let items = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": several });
            format!("{items:#}\n")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_wrapped_and_stays_a_comment_whatever_is_in_it() {
        let mut text = String::new();
        comment(
            &mut text,
            &format!("a\nkind: Secret {}", "word ".repeat(40).trim()),
            "# -",
        );
        assert!(
            text.lines()
                .all(|line| line.starts_with('#') && line.len() <= WIDTH),
            "{text}"
        );
        assert!(text.starts_with("# - a\\nkind: Secret word"), "{text}");
        assert_eq!(text.lines().count(), 3, "{text}");
    }
}
