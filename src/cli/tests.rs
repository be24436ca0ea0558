mod man;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;

use super::*;
use crate::controller::settings::LogFormat;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    super::parse(args.iter().map(OsString::from))
}

/// The flags of the controller that these arguments start.
fn controller(args: &[&str]) -> Flags {
    match parse(args).unwrap() {
        Cli {
            flags, command: None, ..
        } => flags,
        Cli {
            command: Some(Command::Controller(flags)),
            ..
        } => *flags,
        other => panic!("{other:?}"),
    }
}

/// What is said about these arguments, which are wrong.
fn usage(args: &[&str]) -> String {
    let error = parse(args).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn wrong_arguments_end_with_two_and_where_kubectl_has_the_command_with_one() {
    let ends_with = |args: &[&str]| {
        exit_code(
            &args.iter().map(OsString::from).collect::<Vec<_>>(),
            &parse(args).unwrap_err(),
        )
    };
    for command in AS_KUBECTL {
        assert_eq!(ends_with(&["refit", command]), 1, "{command} names no node");
        assert_eq!(
            ends_with(&["refit", command, "a", "--dry-run=maybe"]),
            1,
            "{command}"
        );
        assert_eq!(ends_with(&["refit", command, "--help"]), 0, "{command}");
    }
    assert_eq!(ends_with(&["refit", "drian", "a"]), 2);
    assert_eq!(ends_with(&["refit", "--threads", "drain"]), 2);
    assert_eq!(ends_with(&["refit", "controller", "drain"]), 2);
}

#[test]
fn the_flags_are_sound() {
    Cli::command().debug_assert();
}

#[test]
fn without_a_command_and_under_its_old_name_it_is_the_controller() {
    for name in ["refit", "/bin/system-upgrade-controller"] {
        assert_eq!(controller(&[name]), Flags::default());
        assert_eq!(controller(&[name, "controller"]), Flags::default());
        assert_eq!(
            controller(&[name, "--threads", "5"]),
            controller(&[name, "controller", "--threads", "5"])
        );
    }
}

#[test]
fn every_flag_is_read() {
    let expected = Flags {
        name: Some("n".into()),
        namespace: Some("ns".into()),
        node_name: Some("node".into()),
        leader_elect: Some(true),
        threads: Some(5),
        kubeconfig: Some("/k".into()),
        master: Some("https://m".into()),
        debug: Some(true),
        service_account: Some("sa".into()),
        manage_crd: Some(false),
        ca_file: vec![PathBuf::from("/a"), PathBuf::from("/b")],
        log_format: Some(LogFormat::Json),
        identity: Some("me".into()),
        lease_duration: Some(Duration::from_secs(90)),
        renew_deadline: Some(Duration::from_secs(60)),
        retry_period: Some(Duration::from_millis(1500)),
    };
    let text = "refit --name n --namespace=ns --node-name node --leader-elect --threads 5 --kubeconfig /k \
                --master https://m --debug --service-account sa --manage-crd=false --ca-file /a --ca-file=/b \
                --log-format json --identity me --lease-duration 1m30s --renew-deadline 1m --retry-period 1.5s";
    let args: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(controller(&args), expected);
    // As Go reads flags, one dash is as good as two.
    let args: Vec<String> = args.iter().map(|arg| arg.replacen("--", "-", 1)).collect();
    assert_eq!(
        controller(&args.iter().map(String::as_str).collect::<Vec<_>>()),
        expected
    );
}

#[test]
fn a_bool_takes_its_value_with_an_equals_sign_only() {
    for (arg, expected) in [
        ("--debug=false", false),
        ("--debug=T", true),
        ("--debug", true),
        ("-debug=0", false),
    ] {
        assert_eq!(controller(&["refit", arg]).debug, Some(expected), "{arg}");
    }
    let flags = controller(&["refit", "--leader-elect", "--name", "true"]);
    assert_eq!(
        (flags.leader_elect, flags.name.as_deref()),
        (Some(true), Some("true"))
    );
}

#[test]
fn one_dash_is_for_long_names_only() {
    assert_eq!(
        parse(&["refit", "-h"]).unwrap_err().kind(),
        ErrorKind::DisplayHelp
    );
    for version in ["-v", "-V", "--version", "-version"] {
        assert_eq!(
            parse(&["refit", version]).unwrap_err().kind(),
            ErrorKind::DisplayVersion,
            "{version}"
        );
    }
    assert!(usage(&["refit", "-x"]).contains("unexpected argument '-x'"));
}

#[test]
fn what_is_wrong_is_said_with_flag_value_and_what_is_allowed() {
    for (arg, text) in [
        (
            "--threads=0",
            "invalid value '0' for '--threads <NUMBER>': must be a whole number from 1 to 1000",
        ),
        (
            "--debug=yes",
            "invalid value 'yes' for '--debug[=<BOOL>]': must be true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)",
        ),
        (
            "--lease-duration=45",
            "invalid value '45' for '--lease-duration <DURATION>': must be a duration such as 45s or 1m30s",
        ),
        (
            "--retry-period=-2s",
            "invalid value '-2s' for '--retry-period <DURATION>': must not be negative",
        ),
    ] {
        let said = usage(&["refit", arg]);
        assert!(said.contains(text), "{said}");
    }
    let said = usage(&["refit", "--log-format=xml"]);
    assert!(
        said.contains("invalid value 'xml' for '--log-format <FORMAT>'"),
        "{said}"
    );
    assert!(said.contains("[possible values: text, json]"), "{said}");
    assert!(usage(&["refit", "--kubeconfg", "/k"]).contains("a similar argument exists: '--kubeconfig'"));
    assert!(usage(&["refit", "upgrade"]).contains("unrecognized subcommand 'upgrade'"));
    assert!(usage(&["refit", "--name", "a", "--name", "b"]).contains("cannot be used multiple times"));
}

#[test]
fn help_tells_each_flag_with_its_variable() {
    let help = parse(&["refit", "--help"]).unwrap_err().to_string();
    for words in [
        "SYSTEM_UPGRADE_CONTROLLER_NAME",
        "SYSTEM_UPGRADE_CONTROLLER_THREADS",
        "CATTLE_ELECTION_RETRY_PERIOD",
        "REFIT_CA_FILE",
        "--manage-crd[=<BOOL>]",
        "Print the CRD of the Plan as YAML",
    ] {
        assert!(help.contains(words), "{words} is not in\n{help}");
    }
    assert!(!help.contains("service-account"), "{help}");
}
