"""The manifests and the dashboard of the examples name commands, routes and metrics that exist."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from tests.http.client import opened
from tests.support import fail_after
from toolwright.cli.app import app as command_line

EXAMPLES = Path(__file__).parents[2] / "examples"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "agent.yaml").read_text()))
DEPLOYMENTS = {each["metadata"]["name"]: each["spec"] for each in MANIFESTS if each["kind"] == "Deployment"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_container_runs_a_command_that_exists_and_has_time_to_end(name):
    pod = DEPLOYMENTS[name]["template"]["spec"]
    (container,) = pod["containers"]
    command, *words = container["args"]
    known = get_command(command_line).commands[command]  # type: ignore[attr-defined]
    options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options
    pause = float(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [0, 0])[1])
    assert pod["terminationGracePeriodSeconds"] > pause + float(words[words.index("--grace") + 1])
    given = {each["name"] for each in container["env"]}
    assert {used for word in words for used in re.findall(r"\$\((\w+)\)", word)} <= given


def test_each_selector_finds_the_pods_of_a_deployment():
    labels = [spec["template"]["metadata"]["labels"] for spec in DEPLOYMENTS.values()]
    for each in MANIFESTS:
        selector = each["spec"]["selector"]
        wanted = selector.get("matchLabels", selector)
        assert [found for found in labels if wanted.items() <= found.items()], each["metadata"]["name"]


async def test_the_probes_of_a_server_are_answered():
    (container,) = DEPLOYMENTS["agent-server"]["template"]["spec"]["containers"]
    async with opened() as client:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            answer = await client.get(container[probe]["httpGet"]["path"])
            assert answer.status_code == 200, probe


async def test_the_dashboard_shows_metrics_that_exist(tmp_path):
    dashboard = json.loads((EXAMPLES / "service" / "grafana-dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = {name for query in queries for name in re.findall(r"\b(?:toolwright|process)_\w+", query)}
    async with opened(store=tmp_path / "agent.db", worker=True) as client:
        async with fail_after(60):
            while (await client.get("/v1/ready")).status_code != 200:
                pass  # the worker has not renewed its leases yet
        text = (await client.get("/v1/metrics")).text
    given = {sample for family in text_string_to_metric_families(text) for sample in names_of(family)}
    assert used
    assert used <= given


def names_of(family: Any) -> set[str]:
    ends = {"counter": ["_total"], "summary": ["_sum", "_count"]}
    return {family.name + end for end in ends.get(family.type, [""])}


@pytest.mark.promise("HTTP-05")
async def test_a_server_answers_probes_that_name_its_pod_by_the_address():
    (container,) = DEPLOYMENTS["agent-server"]["template"]["spec"]["containers"]
    words, address = container["args"], "10.1.2.3"
    assert {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}} in container["env"]
    names = [name for word, name in pairwise(words) if word == "--allowed-host"]
    hosts = [name.replace("$(POD_IP)", address) for name in names]
    async with opened(hosts=hosts) as client:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            headers = {"Host": f"{address}:{container['ports'][0]['containerPort']}"}
            assert (await client.http.get(path, headers=headers)).status_code == 200, probe
            assert (await client.http.get(path, headers={"Host": "10.9.9.9:8700"})).status_code == 403
