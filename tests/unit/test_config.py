from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rte import config, errors
from rte.agent.settings import AgentSettings, Output, SinkKind, SinkSetting
from rte.k8s.selectors import parse_text
from rte.nrt import Method
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry.logs import Format, Level, LogSettings
from tests.depth import scaled

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "configuration.md"


def load(
    *flags: str,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
    command: str = "run",
) -> config.Config:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser, command)
    words = [*(["--config", str(file)] if file else []), *flags]
    return config.load(command, vars(parser.parse_args(words)), environ or {})


@pytest.fixture
def file(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "rte.yaml"
        path.write_text(text)
        return path

    return write


def test_defaults_are_what_the_components_say() -> None:
    assert load() == config.Config(agent=AgentSettings(), log=LogSettings())
    assert load().agent.sink == SinkSetting(SinkKind.KUBE)
    assert load().agent.fingerprint is Method.EXCLUSIVE
    assert load().agent.koordinator_annotations is True
    assert load().log == LogSettings(level=Level.INFO, format=Format.TEXT)


def test_file_then_environment_then_flags_win(file) -> None:
    path = file("log-level: error\nlog-format: json\nnode-name: of-file\n")
    environ = {"RTE_LOG_LEVEL": "warning", "RTE_NODE_NAME": "of-environment"}

    merged = load("--log-level", "debug", environ=environ, file=path)

    assert merged.log.level is Level.DEBUG
    assert merged.agent.node_name == "of-environment"
    assert merged.log.format is Format.JSON


@pytest.mark.parametrize(
    ("environ", "flags", "name"),
    [
        ({"NODE_NAME": "pod-says"}, [], "pod-says"),
        ({"NODE_NAME": "pod-says", "RTE_NODE_NAME": "rte-says"}, [], "rte-says"),
        ({"NODE_NAME": "pod-says"}, ["--node-name", "flag-says"], "flag-says"),
        ({"NODE_NAME": ""}, [], "file-says"),
    ],
)
def test_the_node_name_of_the_downward_api_is_honoured(file, environ, flags, name) -> None:
    path = file("node-name: file-says\n")

    assert load(*flags, environ=environ, file=path).agent.node_name == name


def test_the_file_may_be_named_by_the_environment(file) -> None:
    path = file("log-level: error\n")

    assert load(environ={"RTE_CONFIG": str(path)}).log.level is Level.ERROR


#: One valid text per option, and what comes of it.
SAMPLES = {
    "sysfs-root": ("/s", Path("/s")),
    "procfs-root": ("/p", Path("/p")),
    "podresources-socket": ("unix:///k.sock", "unix:///k.sock"),
    "kubelet-state-dir": ("/k", Path("/k")),
    "device-plugin-dir": ("/d", Path("/d")),
    "kubelet-config-file": ("/k/c.yaml", Path("/k/c.yaml")),
    "kubelet-config-dir": ("/k/c.d", Path("/k/c.d")),
    "node-name": ("n1", "n1"),
    "kubeconfig": ("/kc", Path("/kc")),
    "oneshot": ("true", True),
    "oneshot-timeout": ("2.5", 2.5),
    "drift-check": ("false", False),
    "case-dir": ("/c", Path("/c")),
    "listen-tls": ("true", True),
    "tls-cert-file": ("/c", Path("/c")),
    "tls-private-key-file": ("/k", Path("/k")),
    "client-ca-file": ("/a", Path("/a")),
    "extender-profiles": ("gold", ("gold",)),
    "device-share": ("true", True),
    "groups-policy": ("/g", Path("/g")),
    "scores": ("/s", Path("/s")),
    "kueue-controller-name": ("example.com/fit", "example.com/fit"),
    "move-every": ("60", 60.0),
    "clean-refused": ("60", 60.0),
    "collect-reports": ("3600", 3600.0),
    "kueue-hold": ("0", 0.0),
    "fit-shapes": ("/s.yaml", Path("/s.yaml")),
    "stats-listen": ("127.0.0.1:45655", "127.0.0.1:45655"),
    "stats-cert": ("/t", Path("/t")),
    "stats-key": ("/t", Path("/t")),
    "stats-client-ca": ("/t", Path("/t")),
    "sink": ("file:/a:b", SinkSetting(SinkKind.FILE, Path("/a:b"))),
    "output": ("yaml", Output.YAML),
    "fingerprint": ("all", Method.ALL),
    "koordinator-annotations": ("false", False),
    "numaplacement": ("off", False),
    "legacy-policies": ("off", False),
    "group-inventory": ("true", True),
    "nic-speeds": ("eth0=25000,ib0=56000", (("eth0", 25_000), ("ib0", 56_000))),
    "reference-container": ("ns/pod/c", ("ns", "pod", "c")),
    "exclude-pods": ("kube-*/x,b/?", (("kube-*", "x"), ("b", "?"))),
    "exclude-resources": ("hugepages-*", ("hugepages-*",)),
    "metrics-listen": ("127.0.0.1:0", "127.0.0.1:0"),
    "lease-namespace": ("node-agents", "node-agents"),
    "poll-interval": ("1e2", 100.0),
    "scheduler-name": ("mine", "mine"),
    "listen": (":1", ":1"),
    "extender-listen": ("h:2", "h:2"),
    "leader-elect": ("false", False),
    "scheduler-lease-namespace": ("ns", "ns"),
    "lease-name": ("l", "l"),
    "lease-seconds": ("30", 30.0),
    "renew-seconds": ("0.5", 0.5),
    "agent-namespace": ("ns", "ns"),
    "bind-timeout": ("7", 7.0),
    "reserve-after": ("0", 0.0),
    "align-patience": ("5", 5.0),
    "gang-timeout": ("0", 0.0),
    "also-for": ("a,b", ("a", "b")),
    "nodes": ("pool=a", parse_text("pool=a")),
    "preemption": ("off", False),
    "shared-limit": ("1.5", 1.5),
    "resource-status": ("true", True),
    "log-level": ("debug", Level.DEBUG),
    "log-format": ("json", Format.JSON),
}
#: One text that is refused, for options that do not take any text.
BAD = {
    "sysfs-root": "",
    "oneshot": "maybe",
    "oneshot-timeout": "0",
    "sink": "file:",
    "output": "xml",
    "fingerprint": "some",
    "koordinator-annotations": "2",
    "numaplacement": "perhaps",
    "legacy-policies": "perhaps",
    "group-inventory": "perhaps",
    "nic-speeds": "eth0=fast",
    "reference-container": "ns/pod",
    "exclude-pods": "ns",
    "exclude-resources": "[a",
    "metrics-listen": "9101",
    "lease-namespace": "No_Such",
    "poll-interval": "inf",
    "log-level": "loud",
    "log-format": "xml",
}


def value_of(merged: config.Config, option: config.Setting) -> object:
    return getattr(getattr(merged, option.component), option.attribute)


@pytest.mark.parametrize(
    ("command", "option"),
    [(command, option) for option in config.SETTINGS for command in option.commands],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_option_can_be_given_in_all_three_ways(command: str, option, file) -> None:
    if option.file_key not in SAMPLES:
        pytest.fail(f"give a sample for {option.file_key}")
    text, value = SAMPLES[option.file_key]
    flag = [f"--{option.name}", text] if option.value else [f"--{option.name}"]
    if option.syntax.negated and not value:
        flag = [f"--no-{option.name}"]
    path = file(f"{option.file_key}: '{text}'\n")

    assert value_of(load(*flag, command=command), option) == value
    assert value_of(load(environ={option.variable: text}, command=command), option) == value
    assert value_of(load(file=path, command=command), option) == value
    assert value_of(load(command=command), option) != value


def test_agent_and_scheduler_share_a_file_and_an_environment(file) -> None:
    path = file(
        "kubeconfig: /k\nlease-namespace: agents\nagent-namespace: agents\n"
        "scheduler-lease-namespace: elections\nlease-name: ours\nsink: stdout\n"
    )
    environ = {"RTE_PREEMPTION": "false", "RTE_LOG_LEVEL": "debug", "RTE_NODE_NAME": "n"}
    agent = load(file=path, environ=environ)
    scheduler = load(file=path, environ=environ, command="scheduler")
    assert agent.agent.lease_namespace == scheduler.scheduler.agent_namespace == "agents"
    assert scheduler.scheduler.lease_namespace == "elections"
    assert agent.agent.kubeconfig == scheduler.scheduler.kubeconfig == Path("/k")
    assert agent.log == scheduler.log == LogSettings(level=Level.DEBUG)
    assert agent.scheduler == SchedulerSettings()
    assert scheduler.agent == AgentSettings()
    flags = load("--lease-namespace", "here", "--preemption", file=path, command="scheduler")
    assert (flags.scheduler.lease_namespace, flags.scheduler.preemption) == ("here", True)


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_named_by_where_it_stands(name: str, file) -> None:
    option = next(option for option in config.SETTINGS if option.name == name)

    if option.value:
        with pytest.raises(errors.UsageError, match=rf"^--{name}: (expected|bad) "):
            load(f"--{name}={BAD[name]}")
    if BAD[name]:
        with pytest.raises(
            errors.UsageError, match=rf"^{option.variable}: (expected|bad) .*, got "
        ):
            load(environ={option.variable: BAD[name]})
    with pytest.raises(errors.UsageError, match=rf"rte\.yaml, key '{name}': (expected|bad) "):
        load(file=file(f"{name}: '{BAD[name]}'\n"))


def test_all_mistakes_are_told_in_one_line(file) -> None:
    path = file("log-level: loud\nunheard-of: 1\n")

    with pytest.raises(errors.UsageError) as caught:
        load("--sink", "nowhere", environ={"RTE_OUTPUT": "xml"}, file=path)

    message = str(caught.value)
    assert "\n" not in message
    for name in ("'log-level'", "'unheard-of': unknown", "--sink", "RTE_OUTPUT"):
        assert name in message


def test_an_unknown_key_is_refused_with_the_one_that_may_be_meant(file) -> None:
    with pytest.raises(errors.UsageError, match="'loglevel': unknown, did you mean log-level"):
        load(file=file("loglevel: debug\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "expected keys and values at the top level"),
        ("a: [1\n", "not YAML"),
        ("when: 2001-99-99\n", "not YAML"),
        ("sink: {kind: kube}\n", "key 'sink': expected a value"),
        ("exclude-pods: {a: b}\n", "key 'exclude-pods': expected a list of texts"),
        ("sink: null\n", "key 'sink': expected a value"),
    ],
)
def test_a_file_of_another_shape_is_refused_in_one_line(file, text: str, message: str) -> None:
    with pytest.raises(errors.UsageError, match=message) as caught:
        load(file=file(text))

    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"absent\.yaml: No such file"):
        load(file=tmp_path / "absent.yaml")


def test_an_empty_file_says_nothing(file) -> None:
    assert load(file=file("# nothing yet\n")) == config.Config()


@given(st.text(max_size=200) | st.binary(max_size=200))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scaled(1000))
def test_garbage_in_the_file_is_a_usage_error(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "garbage.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode(errors="replace"))

    try:
        load(file=path)
    except errors.UsageError as error:
        assert "\n" not in str(error)


@given(st.sampled_from(config.SETTINGS), st.text(max_size=40))
@settings(max_examples=scaled(1000))
def test_garbage_in_a_variable_is_a_value_or_a_usage_error(option, text: str) -> None:
    try:
        load(environ={option.variable: text})
    except errors.UsageError as error:
        assert option.variable in str(error)
        assert "\n" not in str(error)


def test_lists_add_up_within_a_source_and_replace_those_of_weaker_ones(file) -> None:
    path = file("exclude-resources:\n- from-file\n")

    assert load(file=path).agent.exclude_resources == ("from-file",)
    flags = ["--exclude-resources", "a,b", "--exclude-resources", "c"]
    assert load(*flags, file=path).agent.exclude_resources == ("a", "b", "c")


def test_yaml_booleans_and_numbers_need_no_quotes(file) -> None:
    merged = load(file=file("oneshot: yes\nkoordinator-annotations: off\noneshot-timeout: 3\n"))

    assert merged.agent.oneshot is True
    assert merged.agent.koordinator_annotations is False
    assert merged.agent.oneshot_timeout == 3.0


def test_every_setting_of_every_component_can_be_given() -> None:
    offered = {f"{option.component}.{option.attribute}" for option in config.SETTINGS}

    assert offered == {
        f"{component.name}.{attribute.name}"
        for component, owner in zip(
            fields(config.Config), (AgentSettings, SchedulerSettings, LogSettings), strict=True
        )
        for attribute in fields(owner)
    }


def test_the_documentation_lists_every_option() -> None:
    for command in ("run", "scheduler"):
        assert config.reference(command) in DOCUMENTATION.read_text()


# Which kubelet is meant (hardware from one place and a kubelet from another never mix by accident)


@pytest.mark.parametrize(
    ("flags", "state_dir", "socket"),
    [
        ([], "/var/lib/kubelet", "unix:///var/lib/kubelet/pod-resources/kubelet.sock"),
        (["--kubelet-state-dir", "/k"], "/k", "unix:///k/pod-resources/kubelet.sock"),
        (["--podresources-socket", "/s"], "/var/lib/kubelet", "/s"),
        (["--sysfs-root", "/x"], None, None),
        (["--sysfs-root", "/x", "--kubelet-state-dir", "/k"], "/k", None),
        (["--sysfs-root", "/x", "--podresources-socket", "/s"], None, "/s"),
    ],
)
def test_the_kubelet_belongs_to_the_hardware(flags, state_dir, socket) -> None:
    agent = load(*flags).agent

    assert agent.state_dir == (Path(state_dir) if state_dir else None)
    assert agent.socket == socket
    assert agent.asks_kubelet is bool(state_dir or socket)


def test_the_device_managers_folder_is_the_usual_one_whatever_the_kubelets_root_is() -> None:
    here = AgentSettings(kubelet_state_dir=Path("/var/lib/k0s/kubelet"))
    assert here.plugin_dir == Path("/var/lib/kubelet/device-plugins")
    captured = AgentSettings(sysfs_root=Path("/x/sys"), kubelet_state_dir=Path("/x/kubelet"))
    assert captured.plugin_dir == Path("/x/kubelet/device-plugins")
    named = AgentSettings(device_plugin_dir=Path("/device-plugins"))
    assert named.plugin_dir == Path("/device-plugins")
    assert AgentSettings(sysfs_root=Path("/x/sys")).plugin_dir is None
