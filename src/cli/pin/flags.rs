//! The flags of `refit pin`.

use clap::Args;

use crate::cli::channel_access::ChannelFlags;
use crate::cli::output_format::{OutputFormat, any_of};
use refit_base::version::Range;

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct Flags {
    /// Files, folders, patterns such as 'clusters/**/plan*.yaml', or - for standard input to standard output
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<String>,

    /// Write nothing: print the changes as a unified diff, and end with 1 if there are any
    #[arg(long)]
    pub(super) check: bool,

    /// Take only versions in this range, such as '>=1.33 <1.34', instead of the Plan's `versionPolicy.range`; a Plan
    /// whose channel gives another version stays as it is
    #[arg(long, value_name = "RANGE", value_parser = range)]
    pub(super) range: Option<Range>,

    /// Also take a version that is older than the one in the file. The distribution of a Plan never changes
    #[arg(long)]
    pub(super) allow_downgrade: bool,

    /// Channel for Plans that have none
    #[arg(long, value_name = "URL")]
    pub(super) channel: Option<String>,

    /// Write this version, without querying a channel, and without asking whether its images exist
    #[arg(long, value_name = "VERSION", conflicts_with = "channel")]
    pub(super) to: Option<String>,

    /// Only the Plan of this name, such as k3s-server or system-upgrade/k3s-server. May be repeated
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    pub(super) plan: Vec<String>,

    /// Also change the tags of images that are the version in the file
    #[arg(long)]
    pub(super) image_tag: bool,

    /// Write images that follow the version with their tag and its digest, as the registry has it now
    #[arg(long)]
    pub(super) digest: bool,

    /// Format of the output
    #[arg(short = 'o', long, value_name = "FORMAT", default_value = "text", value_parser = any_of(&[OutputFormat::Text, OutputFormat::Json]))]
    pub(super) output: OutputFormat,

    #[command(flatten)]
    pub(super) channels: ChannelFlags,
}

fn range(text: &str) -> std::result::Result<Range, String> {
    text.parse::<Range>().map_err(|error| error.to_string())
}
