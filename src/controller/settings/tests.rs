//! Every flag and variable of system-upgrade-controller (docs/contract.md, S2 and S3): default, value, invalid value.

use super::*;

const NAME: (&str, &str) = ("SYSTEM_UPGRADE_CONTROLLER_NAME", "system-upgrade-controller");
const NAMESPACE: (&str, &str) = ("SYSTEM_UPGRADE_CONTROLLER_NAMESPACE", "system-upgrade");

/// Selects one setting of Jobs.
type Read<T> = fn(&JobSettings) -> T;

fn resolve_with(flags: Flags, pairs: &[(&str, &str)]) -> Result<(Settings, Vec<Notice>), SettingsError> {
    let lookup = |name: &str| Some(pairs.iter().find(|(key, _)| *key == name)?.1.to_owned());
    Settings::resolve(flags, &lookup, "pod-1")
}

/// Settings from the required flags and these variables.
fn resolve(pairs: &[(&str, &str)]) -> Result<(Settings, Vec<Notice>), SettingsError> {
    resolve_with(Flags::default(), &[&[NAME, NAMESPACE], pairs].concat())
}

fn settings(pairs: &[(&str, &str)]) -> Settings {
    let (settings, notices) = resolve(pairs).unwrap();
    assert!(notices.is_empty(), "{notices:?}");
    settings
}

fn error(pairs: &[(&str, &str)]) -> String {
    resolve(pairs).unwrap_err().to_string()
}

/// The settings and the only notice for these variables.
fn notice(pairs: &[(&str, &str)]) -> (Settings, Notice) {
    let (settings, mut notices) = resolve(pairs).unwrap();
    assert_eq!(notices.len(), 1, "{notices:?}");
    (settings, notices.remove(0))
}

/// The settings for a variable that cannot be read, with an error that starts with `text`.
fn unreadable(name: &str, value: &str, text: &str) -> Settings {
    let (settings, notice) = notice(&[(name, value)]);
    let expected = format!("failed to parse ${name}: {text}");
    assert!(
        matches!(&notice, Notice::Error(text) if text.starts_with(&expected)),
        "{notice:?}"
    );
    settings
}

#[test]
fn the_defaults_are_system_upgrade_controllers() {
    assert_eq!(
        settings(&[]),
        Settings {
            name: "system-upgrade-controller".into(),
            namespace: "system-upgrade".into(),
            node_name: "pod-1".into(),
            hostname: "pod-1".into(),
            pod: PodIdentity::default(),
            identity: "pod-1".into(),
            leader_elect: false,
            lease: LeaseTiming {
                lease_duration: Duration::from_secs(45),
                renew_deadline: Duration::from_secs(30),
                retry_period: Duration::from_secs(2),
            },
            api: ApiSource::default(),
            proxies: ProxyEnv::default(),
            manage_crd: true,
            ca_files: Vec::new(),
            channel_hosts: Hosts::default(),
            polling_interval: Duration::from_secs(900),
            min_node_age: Duration::from_secs(60),
            check_images: true,
            check_drains: false,
            jobs: JobSettings::new("system-upgrade-controller", ""),
            serving: Some(Serving {
                address: BindAddress::DEFAULT,
                is_required: false,
                tls: None,
                secure: false,
            }),
            node_conditions: false,
            enable: Vec::new(),
            debug: false,
            log_format: LogFormat::Text,
        }
    );
}

/// The environment of system-upgrade-controller's manifest.
#[test]
fn the_manifests_environment_is_understood() {
    let (settings, notices) = resolve(&[
        ("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "false"),
        ("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "true"),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "2"),
        ("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "server-1"),
        ("SYSTEM_UPGRADE_JOB_ACTIVE_DEADLINE_SECONDS", "900"),
        ("SYSTEM_UPGRADE_JOB_BACKOFF_LIMIT", "99"),
        ("SYSTEM_UPGRADE_JOB_IMAGE_PULL_POLICY", "Always"),
        ("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE", "rancher/kubectl:v1.30.3"),
        ("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE_WINDOWS", ""),
        ("SYSTEM_UPGRADE_JOB_PRIVILEGED", "true"),
        ("SYSTEM_UPGRADE_JOB_TTL_SECONDS_AFTER_FINISH", "900"),
        ("SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL", "15m"),
        ("KUBERNETES_SERVICE_HOST", "10.43.0.1"),
    ])
    .unwrap();
    assert!(settings.leader_elect && !settings.debug && settings.api.in_cluster);
    assert_eq!(settings.node_name, "server-1");
    assert_eq!(settings.identity, "pod-1");
    assert_eq!(settings.jobs.active_deadline_seconds, 900);
    assert_eq!(settings.jobs.backoff_limit, 99);
    assert_eq!(settings.jobs.image_pull_policy, "Always");
    assert_eq!(settings.polling_interval, Duration::from_secs(900));
    assert_eq!(
        notices,
        [Notice::Info(
            "SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE has no effect: nodes are cordoned and drained with refit's own image".into()
        )]
    );
}

#[test]
fn name_and_namespace_are_required_and_checked() {
    let required = |pairs: &[(&str, &str)]| resolve_with(Flags::default(), pairs).unwrap_err().to_string();
    assert_eq!(
        required(&[NAMESPACE]),
        "--name is required; set it, or the environment variable SYSTEM_UPGRADE_CONTROLLER_NAME"
    );
    assert_eq!(
        required(&[NAME, (NAMESPACE.0, "")]),
        "--namespace is required; set it, or the environment variable SYSTEM_UPGRADE_CONTROLLER_NAMESPACE"
    );
    let long = "a".repeat(64);
    for name in ["a b", "-a", "a/b", &long] {
        assert!(
            required(&[(NAME.0, name), NAMESPACE]).starts_with(&format!("--name is {name:?}; it must be"))
        );
    }
    for namespace in ["A", "a_b", "a.b", "-a"] {
        assert!(
            required(&[NAME, (NAMESPACE.0, namespace)]).starts_with("--namespace is "),
            "{namespace}"
        );
    }
}

#[test]
fn a_list_of_hosts_limits_channels_and_one_that_is_wrong_ends_the_program() {
    let listed = settings(&[("REFIT_CHANNEL_HOST", "update.k3s.io,*.example.com")]);
    let patterns = ["update.k3s.io", "*.example.com"].map(|host| host.parse().unwrap());
    assert_eq!(listed.channel_hosts, Hosts::new(patterns.into()));
    let wrong = [NAME, NAMESPACE, ("REFIT_CHANNEL_HOST", "https://update.k3s.io")];
    let error = resolve_with(Flags::default(), &wrong).unwrap_err().to_string();
    assert!(
        error.contains("REFIT_CHANNEL_HOST") && error.contains("without scheme"),
        "{error}"
    );
}

#[test]
fn a_flag_goes_before_its_variable() {
    let flags = Flags {
        name: Some("n".into()),
        namespace: Some("ns".into()),
        node_name: Some("node".into()),
        leader_elect: Some(false),
        threads: Some(7),
        kubeconfig: Some("/flag".into()),
        master: Some("https://flag".into()),
        debug: Some(true),
        service_account: Some("ignored".into()),
        manage_crd: Some(false),
        ca_file: vec!["/a".into(), "/b".into()],
        channel_host: vec!["a.test".parse().unwrap()],
        log_format: Some(LogFormat::Json),
        identity: Some("me".into()),
        lease_duration: Some(Duration::from_secs(9)),
        renew_deadline: Some(Duration::from_secs(6)),
        retry_period: Some(Duration::from_secs(1)),
        metrics_bind_address: Some(MetricsAddress(Some("127.0.0.1:9000".parse().unwrap()))),
        metrics_cert_file: Some("/cert".into()),
        metrics_key_file: Some("/key".into()),
        metrics_secure: Some(true),
        check_drains: Some(true),
        node_conditions: Some(true),
        enable: vec![FrontEndName::Maintenance],
    };
    let environment = [
        NAME,
        NAMESPACE,
        ("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "other"),
        ("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "true"),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "not even a number"),
        ("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG", "/env"),
        ("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL", "https://env"),
        ("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "false"),
        ("REFIT_MANAGE_CRD", "true"),
        ("REFIT_CA_FILE", "/c"),
        ("REFIT_CHANNEL_HOST", "b.test"),
        ("REFIT_LOG_FORMAT", "text"),
        ("REFIT_IDENTITY", "you"),
        ("REFIT_CHECK_DRAINS", "false"),
        ("REFIT_ENABLE", "reboots"),
        ("POD_UID", "uid"),
        ("CATTLE_ELECTION_LEASE_DURATION", "1h"),
        ("CATTLE_ELECTION_RENEW_DEADLINE", "1h"),
        ("CATTLE_ELECTION_RETRY_PERIOD", "1h"),
        ("REFIT_METRICS_BIND_ADDRESS", "0"),
        ("REFIT_METRICS_CERT_FILE", "/other"),
        ("REFIT_METRICS_KEY_FILE", "/other"),
        ("REFIT_METRICS_SECURE", "false"),
    ];
    let (settings, notices) = resolve_with(flags, &environment).unwrap();
    let names = [&settings.name, &settings.namespace, &settings.node_name];
    assert_eq!(names, ["n", "ns", "node"]);
    assert!(!settings.leader_elect && settings.debug && !settings.manage_crd);
    assert_eq!(settings.api.kubeconfig, Some("/flag".into()));
    assert_eq!(settings.api.master.as_deref(), Some("https://flag"));
    assert_eq!(settings.ca_files, [PathBuf::from("/a"), PathBuf::from("/b")]);
    assert_eq!(
        settings.channel_hosts,
        Hosts::new(vec!["a.test".parse().unwrap()])
    );
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.identity, "me");
    assert_eq!(settings.lease.retry_period, Duration::from_secs(1));
    assert_eq!(settings.jobs.controller_name, "n");
    assert_eq!(settings.enable, [FrontEndName::Maintenance]);
    assert!(settings.check_drains);
    assert_eq!(
        settings.serving,
        Some(Serving {
            address: "127.0.0.1:9000".parse().unwrap(),
            is_required: true,
            tls: Some(("/cert".into(), "/key".into())),
            secure: true,
        })
    );
    let notice = "--service-account is deprecated and has no effect";
    assert_eq!(notices, [Notice::Info(notice.into())]);
}

#[test]
fn a_variable_goes_before_the_default() {
    let settings = settings(&[
        ("SYSTEM_UPGRADE_CONTROLLER_NODE_NAME", "node"),
        ("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "T"),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "7"),
        ("SYSTEM_UPGRADE_CONTROLLER_KUBE_CONFIG", "/env"),
        ("SYSTEM_UPGRADE_CONTROLLER_MASTER_URL", "https://env"),
        ("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "1"),
        ("REFIT_MANAGE_CRD", "False"),
        ("REFIT_CA_FILE", "/c:/d:"),
        ("REFIT_LOG_FORMAT", "json"),
        ("REFIT_IMAGE", "registry.example/refit:v9"),
        ("REFIT_JOB_API_ACCESS", "PrepareOnly"),
        ("REFIT_MIN_NODE_AGE", "1m30s"),
        ("REFIT_CHECK_IMAGES", "false"),
        ("REFIT_CHECK_DRAINS", "true"),
        ("REFIT_NODE_CONDITIONS", "true"),
        ("POD_UID", "uid"),
        ("HTTPS_PROXY", "proxy:3128"),
        ("CATTLE_ELECTION_LEASE_DURATION", "3s"),
        ("CATTLE_ELECTION_RENEW_DEADLINE", "2s"),
        ("CATTLE_ELECTION_RETRY_PERIOD", "500ms"),
    ]);
    assert!(settings.leader_elect && settings.debug && !settings.manage_crd);
    assert_eq!(settings.api.kubeconfig, Some("/env".into()));
    assert_eq!(settings.api.master.as_deref(), Some("https://env"));
    assert_eq!(settings.ca_files, [PathBuf::from("/c"), PathBuf::from("/d")]);
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.jobs.own_image, "registry.example/refit:v9");
    assert_eq!(settings.jobs.own_account_api_access, ApiAccess::PrepareOnly);
    assert_eq!(settings.min_node_age, Duration::from_secs(90));
    assert!(!settings.check_images && settings.check_drains && settings.node_conditions);
    assert_eq!(settings.identity, "pod-1_uid");
    assert_ne!(settings.proxies, ProxyEnv::default());
    assert_eq!(
        settings.lease,
        LeaseTiming {
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(500),
        }
    );
}

#[test]
fn a_flags_variable_that_cannot_be_read_is_an_error() {
    let bool = "true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)";
    let threads = "a whole number";
    let duration = "a duration such as 45s or 1m30s";
    for (name, value, expected) in [
        ("SYSTEM_UPGRADE_CONTROLLER_DEBUG", "yes", bool),
        ("SYSTEM_UPGRADE_CONTROLLER_LEADER_ELECT", "yes", bool),
        ("REFIT_MANAGE_CRD", "yes", bool),
        ("REFIT_CHECK_IMAGES", "yes", bool),
        ("REFIT_CHECK_DRAINS", "yes", bool),
        ("REFIT_NODE_CONDITIONS", "yes", bool),
        // Not logged and replaced by a default, which would give more than was meant.
        ("REFIT_JOB_API_ACCESS", "none", "one of All, PrepareOnly, None"),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "", threads),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "x", threads),
        ("SYSTEM_UPGRADE_CONTROLLER_THREADS", "2.5", threads),
        ("REFIT_LOG_FORMAT", "xml", "text or json"),
        ("CATTLE_ELECTION_LEASE_DURATION", "bomb", duration),
        ("CATTLE_ELECTION_RENEW_DEADLINE", "bomb", duration),
        ("CATTLE_ELECTION_RETRY_PERIOD", "bomb", duration),
        ("REFIT_MIN_NODE_AGE", "bomb", duration),
    ] {
        let text = format!("the environment variable {name} is {value:?}; it must be {expected}");
        assert_eq!(error(&[(name, value)]), text);
        if expected == duration {
            assert!(
                error(&[(name, "-1s")]).ends_with("it must not be negative"),
                "{name}"
            );
        }
    }
    assert_eq!(
        error(&[("HTTPS_PROXY", "ftp://u:s3cret@p")]),
        "the environment variable HTTPS_PROXY is not the URL of a proxy, such as http://proxy.example:3128"
    );
}

#[test]
fn a_bool_is_what_go_accepts_as_one() {
    let name = "SYSTEM_UPGRADE_CONTROLLER_DEBUG";
    for value in ["1", "t", "T", "TRUE", "true", "True"] {
        assert!(settings(&[(name, value)]).debug, "{value}");
    }
    for value in ["0", "f", "F", "FALSE", "false", "False", ""] {
        assert!(!settings(&[(name, value)]).debug, "{value}");
    }
    for value in ["tRUE", "on", "yes", " true"] {
        assert!(
            error(&[(name, value)]).contains("must be true or false"),
            "{value}"
        );
    }
}

#[test]
fn times_of_the_election_that_cannot_work_are_an_error() {
    assert_eq!(
        error(&[("CATTLE_ELECTION_LEASE_DURATION", "30s")]),
        "the times of the leader election cannot work: the lease duration (30s) must be more than the renew deadline (30s)"
    );
    // wrangler's own test uses these, which client-go then refuses.
    assert_eq!(
        error(&[
            ("CATTLE_ELECTION_LEASE_DURATION", "1s"),
            ("CATTLE_ELECTION_RENEW_DEADLINE", "2s"),
            ("CATTLE_ELECTION_RETRY_PERIOD", "3m"),
        ]),
        "the times of the leader election cannot work: the renew deadline (2s) must be more than 1.2 times the retry period (180s)"
    );
    assert_eq!(
        settings(&[("CATTLE_ELECTION_LEASE_DURATION", "")]).lease,
        LeaseTiming::default()
    );
}

#[test]
fn a_number_for_jobs_is_read_or_reported() {
    let [i64_max, i32_max] = ["9223372036854775808", "2147483648"]; // each one too large
    let cases: [(&str, Read<i64>, i64, &str); 4] = [
        (
            "ACTIVE_DEADLINE_SECONDS",
            |jobs| jobs.active_deadline_seconds,
            600,
            i64_max,
        ),
        (
            "ACTIVE_DEADLINE_SECONDS_MAX",
            |jobs| jobs.active_deadline_seconds_max,
            0,
            i64_max,
        ),
        ("BACKOFF_LIMIT", |jobs| jobs.backoff_limit.into(), 2, i32_max),
        (
            "TTL_SECONDS_AFTER_FINISH",
            |jobs| jobs.ttl_seconds_after_finish.into(),
            900,
            i32_max,
        ),
    ];
    for (name, value_of, default, too_large) in cases {
        let name = format!("SYSTEM_UPGRADE_JOB_{name}");
        let name = name.as_str();
        for (text, value) in [("77", 77), ("-5", -5), ("+5", 5)] {
            assert_eq!(value_of(&settings(&[(name, text)]).jobs), value, "{name}");
        }
        for bad in ["", "x", "1.5", " 1", "1_000", "0x10", too_large] {
            let settings = unreadable(name, bad, &format!("{bad:?} is not a whole number, or too large"));
            assert_eq!(value_of(&settings.jobs), default, "{name} {bad}");
        }
    }
}

#[test]
fn a_bool_for_jobs_is_read_or_reported() {
    let cases: [(&str, Read<bool>); 2] = [
        ("SYSTEM_UPGRADE_JOB_PRIVILEGED", |jobs| jobs.privileged),
        ("ALLOW_USER_DEFINED_SECURITY_CONTEXT", |jobs| {
            jobs.allow_user_defined_security_context
        }),
    ];
    for (name, value_of) in cases {
        assert!(!value_of(&settings(&[(name, "false")]).jobs));
        assert!(value_of(&settings(&[(name, "T")]).jobs));
        for bad in ["", "no", "enabled"] {
            let settings = unreadable(name, bad, &format!("{bad:?} must be true or false"));
            assert!(value_of(&settings.jobs), "{name} {bad}");
        }
    }
}

#[test]
fn a_text_for_jobs_is_passed_on_unless_it_is_empty() {
    let cases: [(&str, Read<String>, &str); 3] = [
        (
            "IMAGE_PULL_POLICY",
            |jobs| jobs.image_pull_policy.clone(),
            "IfNotPresent",
        ),
        (
            "POD_REPLACEMENT_POLICY",
            |jobs| jobs.pod_replacement_policy.clone(),
            "TerminatingOrFailed",
        ),
        (
            "KUBECTL_IMAGE_WINDOWS",
            |jobs| jobs.kubectl_image_windows.clone(),
            "",
        ),
    ];
    for (name, value_of, default) in cases {
        let name = format!("SYSTEM_UPGRADE_JOB_{name}");
        let name = name.as_str();
        assert_eq!(value_of(&settings(&[(name, "Whatever")]).jobs), "Whatever");
        assert_eq!(value_of(&settings(&[(name, "")]).jobs), default);
    }
}

#[test]
fn a_polling_interval_counts_when_it_is_longer_than_a_minute() {
    let name = "SYSTEM_UPGRADE_PLAN_POLLING_INTERVAL";
    for (value, seconds) in [
        ("1h", 3600),
        ("90s", 90),
        ("61s", 61),
        ("60s", 900),
        ("1m", 900),
        ("5s", 900),
        ("0", 900),
        ("-1h", 900),
    ] {
        let interval = settings(&[(name, value)]).polling_interval;
        assert_eq!(interval, Duration::from_secs(seconds), "{value}");
    }
    for value in ["", "15", "15 minutes"] {
        let settings = unreadable(name, value, "time: ");
        assert_eq!(settings.polling_interval, Duration::from_secs(900), "{value}");
    }
}

#[test]
fn a_setting_without_effect_is_reported_once() {
    assert!(
        settings(&[("SYSTEM_UPGRADE_JOB_KUBECTL_IMAGE", ""), ("CATTLE_DEV_MODE", "")])
            .ca_files
            .is_empty()
    );
    let (settings, notice) = notice(&[("CATTLE_DEV_MODE", "true")]);
    assert_eq!(settings.lease, LeaseTiming::default());
    assert!(matches!(notice, Notice::Info(text) if text.starts_with("CATTLE_DEV_MODE has no effect")));
}

#[test]
fn an_empty_flag_is_the_same_as_none() {
    let flags = Flags {
        master: Some(String::new()),
        kubeconfig: Some(PathBuf::new()),
        identity: Some(String::new()),
        node_name: Some(String::new()),
        ..Flags::default()
    };
    let (settings, _) = resolve_with(flags, &[NAME, NAMESPACE]).unwrap();
    assert_eq!(settings.api, ApiSource::default());
    assert_eq!(
        (settings.identity.as_str(), settings.node_name.as_str()),
        ("pod-1", "pod-1")
    );
}

#[test]
fn metrics_are_served_at_an_address_that_is_one_and_with_a_whole_certificate() {
    const ADDRESS: &str = "REFIT_METRICS_BIND_ADDRESS";
    let serving = |pairs: &[(&str, &str)]| settings(pairs).serving;
    assert_eq!(serving(&[(ADDRESS, "0")]), None);
    let at = |text: &str| serving(&[(ADDRESS, text)]).unwrap();
    for text in [":9090", "127.0.0.1:0", "[::1]:8443"] {
        assert!(
            at(text).is_required && at(text).address.to_string() == text,
            "{text}"
        );
    }
    assert!(
        !serving(&[(ADDRESS, "")]).unwrap().is_required,
        "as if it were absent"
    );
    for text in ["8080", "localhost", ":70000", "127.0.0.1", "::1:8080x"] {
        let error = error(&[(ADDRESS, text)]);
        assert!(
            error.contains(ADDRESS) && error.contains("such as :8080"),
            "{error}"
        );
    }
    let half = error(&[("REFIT_METRICS_CERT_FILE", "/cert")]);
    assert!(half.contains("belong together"), "{half}");
    let clear = error(&[("REFIT_METRICS_SECURE", "true")]);
    assert!(clear.contains("--metrics-cert-file"), "{clear}");
}

#[test]
fn a_deployment_that_still_asks_for_the_page_starts_with_a_warning() {
    let (_, notices) = resolve(&[("REFIT_DASHBOARD", "true")]).unwrap();
    let is_hint =
        |notice: &Notice| matches!(notice, Notice::Warning(text) if text.contains("use `refit dashboard`"));
    assert!(notices.len() == 1 && is_hint(&notices[0]), "{notices:?}");
}

#[test]
fn other_objects_are_handled_only_if_they_are_named() {
    let enabled = |value: &str| settings(&[("REFIT_ENABLE", value)]).enable;
    assert_eq!(enabled(""), []);
    assert_eq!(enabled("maintenance"), [FrontEndName::Maintenance]);
    assert_eq!(
        enabled(" reboots, maintenance,nodeops"),
        [
            FrontEndName::Reboots,
            FrontEndName::Maintenance,
            FrontEndName::Nodeops
        ]
    );
    assert_eq!(
        error(&[("REFIT_ENABLE", "nodes")]),
        "the environment variable REFIT_ENABLE is \"nodes\"; it must be `maintenance`, `nodeops`, both, separated by a comma, or empty"
    );
}
