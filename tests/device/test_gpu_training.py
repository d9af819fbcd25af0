"""On a CUDA device: a captured training is as one that is not, and on the fast path it ends in the CPU's bits."""

import re
from pathlib import Path

import pytest
import torch

import envs
from pipeline import capture, checkpoint
from pipeline import config as configuration
from pipeline.assembly import Training, assemble
from pipeline.profile import clock_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device: no training is run on one"),
]

GOLDEN = Path(__file__).parents[1] / "golden"


def golden(run: str) -> tuple[list[str], str]:
    """The configuration of a golden run, and the hash of the parameters that it ends in."""
    text = (GOLDEN / f"{run}.cpp").read_text()
    overrides = re.findall(r"^//   (.+)$", text, re.MULTILINE)
    found = re.search(r'^constexpr char PARAMS_SHA256\[\] = "(\w+)";$', text, re.MULTILINE)
    assert overrides
    assert found
    return overrides, found.group(1)


def begin(*overrides: str) -> Training:
    config = configuration.load([*overrides, "device=cuda", "tracking.enabled=false"])
    device = torch.device("cuda")
    return assemble(config, envs.spec(config.env.name, config.env.max_episode_steps), device, clock_of(device))


def trained(training: Training, ahead: bool) -> tuple[list[str], str]:
    """Every iteration's numbers, and the hash of the parameters."""
    ppo = training.ppo
    metrics = [repr(ppo.iterate(ahead)) for _ in range(ppo.iterations)]
    return metrics, checkpoint.parameters_sha256(training.flat.parameters.cpu())


@pytest.mark.parametrize("run", ["cartpole", "pendulum"])
def test_the_golden_hash(run: str) -> None:
    overrides, wanted = golden(run)
    training = begin(*overrides)
    if training.ppo.path.name != "fused":
        pytest.skip(f"the {training.path} runs here, which promises no bits of the CPU's")
    assert trained(training, ahead=True)[1] == wanted


@pytest.mark.parametrize(
    "more", [(), ("device.fused=false",), ("device.matmul=bf16",), ("ppo.optimizer=muon",)], ids=str
)
def test_a_graph_is_as_eager(more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the general path too: the same launches of the same shapes, whoever makes them."""
    overrides = [each for each in golden("cartpole")[0] if not each.startswith("policy.hidden")]
    overrides += ["policy.hidden=[17,9]", *more]
    graph = trained(begin(*overrides), ahead=True)
    for path in (capture.CapturedFused, capture.CapturedGeneral):
        monkeypatch.setattr(path, "whole", lambda self, work, state: work)
    assert trained(begin(*overrides), ahead=False) == graph


def test_the_device_tells_its_phases() -> None:
    training = begin(*golden("cartpole")[0])
    trained(training, ahead=True)
    seconds = training.ppo.clock.seconds()
    for name in ("rollout_forward", "advantage", "minibatch_update"):
        assert 0 < seconds[name] < seconds["wall"]
