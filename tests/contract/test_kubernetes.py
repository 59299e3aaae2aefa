"""The manifests for Kubernetes say what the compose file says, and are what Kubernetes reads."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
# Where a container finds a secret of the compose file.
MOUNTED = "/run/secrets"
WITH_WAY_OUT = {"agent", "retrieval"}


def filled_in(text: str) -> str:
    """The compose file as it is read where nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")


COMPOSE: dict[str, dict[str, Any]] = yaml.safe_load(filled_in((ROOT / "docker-compose.yml").read_text()))["services"]
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = [one for file in KUSTOMIZATION["resources"] for one in yaml.safe_load_all((FOLDER / file).read_text())]
RUNNING = {one["metadata"]["name"]: one for one in MANIFESTS if one["kind"] in ("Deployment", "StatefulSet", "Job")}


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in MANIFESTS if one["kind"] == kind}


def pod(name: str) -> dict[str, Any]:
    return RUNNING[name]["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def container(name: str) -> dict[str, Any]:
    (only,) = pod(name)["containers"]
    return only  # type: ignore[no-any-return]


def volumes(name: str) -> dict[str, dict[str, Any]]:
    """By where they are mounted."""
    found = {one["name"]: one for one in pod(name)["volumes"]}
    claimed = {one["metadata"]["name"]: one for one in RUNNING[name]["spec"].get("volumeClaimTemplates", ())}
    return {mount["mountPath"]: (found | claimed)[mount["name"]] for mount in container(name)["volumeMounts"]}


def in_memory(name: str) -> dict[str, str]:
    sizes = {at: one["emptyDir"] for at, one in volumes(name).items() if "emptyDir" in one}
    assert all(size["medium"] == "Memory" for size in sizes.values())
    return {at: size["sizeLimit"] for at, size in sizes.items()}


def secrets(name: str) -> set[tuple[str, str]]:
    """Each secret with the file that it is."""
    items = [item for one in pod(name)["volumes"] if "secret" in one for item in one["secret"]["items"]]
    mounts = [mount for mount in container(name)["volumeMounts"] if mount["name"] == "secrets"]
    named = {mount["subPath"]: mount["mountPath"] for mount in mounts if "subPath" in mount}
    return {(item["key"], named.get(item["path"], f"{MOUNTED}/{item['path']}")) for item in items}


def said(value: str | bool | None) -> str:
    """A variable of the compose file as a process sees it."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value


def kubernetes_size(size: str) -> str:
    return size.upper() + "i"


def test_what_runs_is_what_the_compose_file_runs() -> None:
    assert RUNNING.keys() == COMPOSE.keys()
    assert set(KUSTOMIZATION["resources"]) == {path.name for path in FOLDER.iterdir()} - {"kustomization.yaml"}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: f"{manifest['kind']} {manifest['metadata']['name']}")
def test_a_manifest_is_of_the_form_that_kubernetes_reads(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", COMPOSE)
def test_a_container_gets_the_same_image_variables_and_secrets(name: str) -> None:
    its, here = COMPOSE[name], container(name)
    assert here["image"] == its["image"]
    assert here.get("command") == its.get("command")
    assert {one["name"]: one["value"] for one in here.get("env", ())} == {
        name: said(value) for name, value in its.get("environment", {}).items()
    }
    given = {(one, f"{MOUNTED}/{one}") if isinstance(one, str) else (one["source"], one["target"]) for one in its.get("secrets", ())}
    assert secrets(name) == given


@pytest.mark.parametrize("name", COMPOSE)
def test_a_container_is_held_to_the_same_limits(name: str) -> None:
    its, here = COMPOSE[name], container(name)
    assert here["resources"]["limits"]["memory"] == kubernetes_size(its["mem_limit"])
    assert here["securityContext"] == {
        "readOnlyRootFilesystem": its["read_only"],
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": its["cap_drop"]},
    }
    assert pod(name)["securityContext"]["runAsNonRoot"]
    if "user" in its:
        owner = pod(name)["securityContext"]
        assert f"{owner['runAsUser']}:{owner['runAsGroup']}" == its["user"]
    assert not pod(name)["automountServiceAccountToken"]
    grace = pod(name).get("terminationGracePeriodSeconds", 30)
    assert grace >= int(its.get("stop_grace_period", "10s").removesuffix("s"))
    sizes = {mount.split(":")[0]: kubernetes_size(mount.rsplit("size=", 1)[1]) for mount in its.get("tmpfs", ())}
    shared_memory = {"/dev/shm": kubernetes_size(its["shm_size"])} if "shm_size" in its else {}
    assert in_memory(name) == sizes | shared_memory


@pytest.mark.parametrize("name", COMPOSE)
def test_data_that_the_compose_file_keeps_are_kept(name: str) -> None:
    kept = {mount.rsplit(":", 1)[1] for mount in COMPOSE[name].get("volumes", ())}
    assert {at for at, one in volumes(name).items() if one.keys().isdisjoint({"emptyDir", "secret"})} == kept


@pytest.mark.parametrize("name", [name for name, its in COMPOSE.items() if "healthcheck" in its])
def test_whether_a_container_is_well_is_asked_in_the_same_way(name: str) -> None:
    test, probe = COMPOSE[name]["healthcheck"]["test"], container(name)["readinessProbe"]
    if "httpGet" in probe:
        port = {one["name"]: one["containerPort"] for one in container(name)["ports"]}[probe["httpGet"]["port"]]
        assert f"http://127.0.0.1:{port}{probe['httpGet']['path']}" in test[-1]
    else:
        assert probe["exec"]["command"] == (["sh", "-c", test[1]] if test[0] == "CMD-SHELL" else test[1:])


def test_every_name_that_is_asked_is_a_service_that_lets_its_askers_in() -> None:
    services, policies = of_kind("Service"), of_kind("NetworkPolicy")
    asked: dict[str, set[str]] = {}
    for name in RUNNING:
        for variable in container(name).get("env", ()):
            if (found := re.match(r"\w+://(?:\w+@)?([\w-]+)", variable["value"])) is not None:
                asked.setdefault(found[1], set()).add(name)
    assert asked.keys() == services.keys() - {"gateway"}
    for name, askers in asked.items():
        (port,) = services[name]["spec"]["ports"]
        assert port["port"] in [one["containerPort"] for one in container(name)["ports"]]
        (rule,) = policies[name]["spec"]["ingress"]
        assert {peer["podSelector"]["matchLabels"]["app"] for peer in rule["from"]} == askers
        assert rule["ports"] == [{"port": port["port"]}]


def test_nothing_speaks_to_the_outside_but_what_asks_providers() -> None:
    policies = of_kind("NetworkPolicy")
    assert policies["nothing-in"]["spec"] == {"podSelector": {"matchLabels": {"part-of": "marginalia"}}, "policyTypes": ["Ingress"]}
    assert policies["nothing-out"]["spec"]["podSelector"]["matchLabels"] == {"part-of": "marginalia", "outside": "no"}
    for name, one in RUNNING.items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert labels == {"app": name, "part-of": "marginalia", "outside": "yes" if name in WITH_WAY_OUT else "no"}
        if labels["outside"] == "yes":
            assert "default" in COMPOSE[name]["networks"]
