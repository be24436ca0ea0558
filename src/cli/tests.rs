mod evidence;
mod man;
mod manifests;
mod messages;

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;

use super::*;
use refit_controller::settings::{FrontEndName, MetricsAddress};
use refit_controller::telemetry::LogFormat;

fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
    super::parse(args.iter().map(OsString::from))
}

/// The parsed controller flags.
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

/// The error message for invalid arguments.
fn usage(args: &[&str]) -> String {
    let error = parse(args).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn wrong_arguments_end_with_two_and_where_kubectl_has_the_command_with_one() {
    let check = |line: &str, code: u8| {
        let args: Vec<&str> = line.split(' ').collect();
        let error = parse(&args).unwrap_err();
        let args: Vec<_> = args.iter().map(OsString::from).collect();
        assert_eq!(exit_code(&args, &error), code, "{line}");
    };
    for command in AS_KUBECTL {
        // It names no node.
        check(&format!("refit {command}"), 1);
        check(&format!("refit {command} a --dry-run=maybe"), 1);
        check(&format!("refit {command} --help"), 0);
    }
    for line in ["refit drian a", "refit --threads drain", "refit controller drain"] {
        check(line, 2);
    }
}

#[test]
fn the_flags_are_sound() {
    command().debug_assert();
    groups::grouped(command()).debug_assert();
}

#[test]
fn what_runs_on_nodes_has_its_old_names_too() {
    for line in [
        "probe --host /h",
        "prepull",
        "prepull --lend /dir",
        "agent --node n",
    ] {
        let of = |line: String| match parse(&line.split(' ').collect::<Vec<_>>()).unwrap().command {
            Some(Command::Node(it) | Command::OnNode(it)) => format!("{it:?}"),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            of(format!("refit {line}")),
            of(format!("refit node {line}")),
            "{line}"
        );
    }
}

#[test]
fn refit_without_a_command_and_under_its_old_name_is_the_controller() {
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
        channel_host: vec!["a.test".parse().unwrap(), "*.b.test".parse().unwrap()],
        log_format: Some(LogFormat::Json),
        identity: Some("me".into()),
        lease_duration: Some(Duration::from_secs(90)),
        renew_deadline: Some(Duration::from_secs(60)),
        retry_period: Some(Duration::from_millis(1500)),
        metrics_bind_address: Some(MetricsAddress(Some("127.0.0.1:9000".parse().unwrap()))),
        metrics_cert_file: Some("/c".into()),
        metrics_key_file: Some("/d".into()),
        metrics_secure: Some(true),
        check_drains: Some(true),
        node_conditions: Some(true),
        enable: vec![FrontEndName::Reboots, FrontEndName::Maintenance],
    };
    let text = "refit --name n --namespace=ns --node-name node --leader-elect --threads 5 --kubeconfig /k \
                --master https://m --debug --service-account sa --manage-crd=false --ca-file /a --ca-file=/b \
                --channel-host a.test --channel-host=*.b.test \
                --log-format json --identity me --lease-duration 1m30s --renew-deadline 1m --retry-period 1.5s \
                --metrics-bind-address 127.0.0.1:9000 --metrics-cert-file /c --metrics-key-file=/d --metrics-secure --check-drains \
                --node-conditions --enable=reboots,maintenance";
    let args: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(controller(&args), expected);
    // Go accepts one dash as well.
    let args: Vec<String> = args.iter().map(|arg| arg.replacen("--", "-", 1)).collect();
    assert_eq!(
        controller(&args.iter().map(String::as_str).collect::<Vec<_>>()),
        expected
    );
}

#[test]
fn a_bool_flag_takes_its_value_with_an_equals_sign_only() {
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
    let kind = |arg: &str| parse(&["refit", arg]).unwrap_err().kind();
    assert_eq!(kind("-h"), ErrorKind::DisplayHelp);
    for version in ["-v", "-V", "--version", "-version"] {
        assert_eq!(kind(version), ErrorKind::DisplayVersion, "{version}");
    }
    assert!(usage(&["refit", "-x"]).contains("unexpected argument '-x'"));
}

#[test]
fn an_argument_error_names_the_flag_the_value_and_what_is_allowed() {
    for (args, text) in [
        (
            "--threads=many",
            "invalid value 'many' for '--threads <NUMBER>': must be a whole number",
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
        (
            "--log-format=xml",
            "invalid value 'xml' for '--log-format <FORMAT>'",
        ),
        ("--log-format=xml", "[possible values: text, json]"),
        ("--kubeconfg /k", "a similar argument exists: '--kubeconfig'"),
        ("upgrade", "unrecognized subcommand 'upgrade'"),
        ("--name a --name b", "cannot be used multiple times"),
    ] {
        let line = format!("refit {args}");
        let message = usage(&line.split(' ').collect::<Vec<_>>());
        assert!(message.contains(text), "{line}: {message}");
    }
}

#[test]
fn help_shows_each_flag_with_its_variable() {
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
