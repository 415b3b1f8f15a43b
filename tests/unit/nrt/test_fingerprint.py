from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.nrt import attributes
from tests.conformance import consumers


@pytest.mark.parametrize(
    ("pods", "signature"),
    [
        ([], "pfp0v001ef46db3751d8e999"),
        ([("default", "test-pod-0")], "pfp0v001fe53c4dbd2c5f4a0"),
        ([("namespace1", "pod1")], "pfp0v0019e0420efb37746c6"),
        ([("a", "b")], "pfp0v001b62c44d557501be8"),
        ([("a", "b"), ("a", "b")], "pfp0v0015a0007ca4c8b2639"),
        ([("a", "b"), ("c", "d")], "pfp0v0013488490366c73835"),
        (
            [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")],
            "pfp0v001b92008c14168b3a6",
        ),
    ],
)
def test_signatures_are_those_of_the_published_libraries(pods: list, signature: str) -> None:
    assert attributes.sign(pods) == signature


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5))), st.randoms())
def test_the_order_of_pods_does_not_matter(pods: list, randomness) -> None:
    shuffled = list(pods)
    randomness.shuffle(shuffled)

    assert attributes.sign(shuffled) == attributes.sign(pods)


@pytest.mark.parametrize(
    ("candidate", "verdict"),
    [
        ("pfp0v001b62c44d557501be8", consumers.SignatureVerdict.OK),
        ("pfp0v001ef46db3751d8e999", consumers.SignatureVerdict.MISMATCH),
        ("pfp0v001b62c44d557501BE8", consumers.SignatureVerdict.MISMATCH),
        ("pfp0v001b62c44d5", consumers.SignatureVerdict.MISMATCH),
        ("pfp0v001b62c44d", consumers.SignatureVerdict.MALFORMED),
        ("PFP0v001b62c44d557501be8", consumers.SignatureVerdict.MALFORMED),
        ("pfp0v002b62c44d557501be8", consumers.SignatureVerdict.VERSION),
        ("", consumers.SignatureVerdict.MALFORMED),
    ],
)
def test_a_candidate_is_compared(candidate: str, verdict: consumers.SignatureVerdict) -> None:
    assert consumers.check(candidate, attributes.sign([("a", "b")])) is verdict


def pod(qos: QOS, kind: ContainerKind = ContainerKind.APP, **requests: int) -> Pod:
    wanted = {name.replace("__", "/"): amount for name, amount in requests.items()}
    return Pod(uid="u", qos=qos, containers=(Container(name="c", kind=kind, requests=wanted),))


@pytest.mark.parametrize(
    ("subject", "nrt_resources", "exclusive"),
    [
        (pod(QOS.GUARANTEED, cpu=2000), frozenset(), True),
        (pod(QOS.GUARANTEED, cpu=1500), frozenset(), False),
        (pod(QOS.GUARANTEED, cpu=0), frozenset(), False),
        (pod(QOS.GUARANTEED, cpu=500, memory=1), frozenset(), True),
        (pod(QOS.BURSTABLE, cpu=2000, memory=1), frozenset({"cpu", "memory"}), False),
        (pod(QOS.BURSTABLE, vendor__gpu=1), frozenset({"vendor/gpu"}), True),
        (pod(QOS.BEST_EFFORT, vendor__gpu=0), frozenset({"vendor/gpu"}), True),
        (pod(QOS.BURSTABLE, vendor__gpu=1), frozenset(), False),
        (pod(QOS.GUARANTEED, ContainerKind.INIT, cpu=2000), frozenset(), False),
        (pod(QOS.GUARANTEED, ContainerKind.SIDECAR, cpu=2000), frozenset(), True),
    ],
)
def test_which_pods_the_plug_in_takes_for_exclusive(
    subject: Pod, nrt_resources: frozenset[str], exclusive: bool
) -> None:
    assert bool(consumers.exclusive_containers(subject, nrt_resources)) is exclusive
