//! The findings as a table whose cells are wrapped, because a message is longer than a line.

use std::fmt::Write as _;

use crate::cli::output;
use refit_offline::migrate::Finding;

/// Width without a terminal.
const WIDTH: usize = 160;
const MIN_WIDTH: usize = 80;
/// Longer names take several lines.
const MAX_OBJECT: usize = 52;
const GAP: &str = "  ";
const HEADINGS: [&str; 4] = ["SEVERITY", "OBJECT", "WHAT CHANGES", "WHAT TO DO"];

pub(super) fn table(found: &[Finding]) -> String {
    let width = if output::is_terminal() {
        output::size().1
    } else {
        WIDTH
    };
    wrapped(found, width)
}

fn wrapped(found: &[Finding], width: usize) -> String {
    if found.is_empty() {
        return String::new();
    }
    let object = found
        .iter()
        .map(|one| one.object.chars().count())
        .max()
        .unwrap_or_default();
    let width = width.max(MIN_WIDTH);
    let object = object.clamp(HEADINGS[1].len(), MAX_OBJECT.min(width / 3));
    let rest = width - HEADINGS[0].len() - object - 3 * GAP.len();
    let change = rest * 3 / 5;
    let widths = [HEADINGS[0].len(), object, change, rest - change];
    let mut text = row(&HEADINGS, &widths);
    for one in found {
        text += &row(
            &[one.severity.word(), &one.object, &one.change, &one.remedy],
            &widths,
        );
    }
    text
}

fn row(cells: &[&str; 4], widths: &[usize; 4]) -> String {
    let cells: Vec<Vec<String>> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| lines(cell, *width))
        .collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or_default();
    let mut text = String::new();
    for line in 0..height {
        let mut whole = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let part = cell.get(line).map(String::as_str).unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = write!(whole, "{part:width$}{GAP}");
        }
        text += whole.trim_end();
        text.push('\n');
    }
    text
}

/// Breaks a text between words, and a word that is too long anywhere.
fn lines(text: &str, width: usize) -> Vec<String> {
    let text = output::one_line(text);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        while let Some(line) = lines.last_mut() {
            let used = line.chars().count();
            let space = usize::from(used > 0);
            if used + space + word.len() <= width {
                if space > 0 {
                    line.push(' ');
                }
                line.extend(word.drain(..));
                break;
            }
            if used == 0 {
                line.extend(word.drain(..width));
            }
            lines.push(String::new());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use refit_offline::migrate::Severity;

    #[test]
    fn cells_are_wrapped_to_the_width_of_the_terminal() {
        let finding = Finding {
            severity: Severity::Action,
            rule: "rule",
            object: format!("Plan system-upgrade/{}", "x".repeat(60)),
            change: "a change of more than one line, which takes several of them in its own column"
                .to_owned(),
            remedy: "nothing\nat all".to_owned(),
        };
        let text = wrapped(&[finding], 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("nothing\\nat"), "a line feed forges no row: {text}");
        assert!(text.lines().count() > 3, "{text}");
        assert_eq!(wrapped(&[], 80), "");
    }
}
