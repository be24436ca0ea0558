use super::*;

#[test]
fn a_duration_is_in_gos_form_whatever_was_written() {
    for (written, expected) in [
        ("30", Some("30s")),
        ("600", Some("600s")),
        ("1.5", Some("1.5s")),
        ("5 minutes", Some("5m")),
        ("5 min", Some("5m")),
        ("1d", Some("24h")),
        ("2 days", Some("48h")),
        ("1h 30m", Some("1h30m")),
        ("PT15M", Some("15m")),
        ("30S", Some("30s")),
        ("1 week", Some("168h")),
        ("5m", Some("5m")),
        ("2h5m", Some("2h5m")),
        ("soon", None),
        ("", None),
        ("-5", None),
        ("-5 minutes", None),
    ] {
        assert_eq!(duration(written).as_deref(), expected, "{written}");
    }
}

#[test]
fn a_time_of_day_has_two_digits_for_each_part() {
    for (written, expected) in [
        ("22", Some("22:00")),
        ("2200", Some("22:00")),
        ("0730", Some("07:30")),
        ("730", Some("07:30")),
        ("22.3", Some("22:30")),
        ("22.30", Some("22:30")),
        ("10 PM", Some("22:00")),
        ("12am", Some("00:00")),
        ("9:05 pm", Some("21:05")),
        ("22h30", Some("22:30")),
        ("22h", Some("22:00")),
        ("24", None),
        ("2260", None),
        ("13 pm", None),
        ("noon", None),
    ] {
        assert_eq!(time_of_day(written).as_deref(), expected, "{written}");
    }
}

#[test]
fn a_line_becomes_the_arguments_that_a_shell_would_make_of_it() {
    for (line, expected) in [
        (r#"/bin/sh -c "echo hi""#, r#"["/bin/sh", "-c", "echo hi"]"#),
        ("sh -c 'a && b'", r#"["sh", "-c", "a && b"]"#),
        ("sh -c echo hi", r#"["sh", "-c", "echo hi"]"#),
        ("prepare k3s-server", "[prepare, k3s-server]"),
        (
            r#"sh -c "a b" && reboot"#,
            r#"["/bin/sh", "-c", "sh -c \"a b\" && reboot"]"#,
        ),
        (r#"sh -c "a; b" c"#, r#"["sh", "-c", "a; b", "c"]"#),
        (
            "bash x.sh && reboot",
            r#"["/bin/sh", "-c", "bash x.sh && reboot"]"#,
        ),
        ("a | b", r#"["/bin/sh", "-c", "a | b"]"#),
        ("a $(NAME)", r#"["a", "$(NAME)"]"#),
        ("$(which sh) x", r#"["/bin/sh", "-c", "$(which sh) x"]"#),
        ("chroot /host", "[chroot, /host]"),
        ("one\ntwo\n", r#"["/bin/sh", "-c", "one\ntwo"]"#),
    ] {
        let list = Value::from(words(line).unwrap());
        assert_eq!(yaml(&list), expected, "{line}");
    }
    assert_eq!(words("an 'open quote"), None);
    assert_eq!(words(""), None);
}

#[test]
fn a_share_of_nodes_is_a_whole_number_of_percent() {
    for (written, expected) in [
        ("3", Some("3")),
        ("25 %", Some("25%")),
        ("150%", Some("100%")),
        ("0%", None),
        ("0", Some("1")),
        ("half", None),
    ] {
        assert_eq!(node_limit(written).as_deref(), expected, "{written}");
    }
}
