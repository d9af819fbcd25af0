"""Sampling of actions: the right distribution, independent draws, and the log-probability of what was drawn."""

import numpy as np
import pytest
import reference
import scipy.stats
import torch
from compare import assert_close, poisoned
from conftest import Plant
from torch import Tensor
from torch.distributions import Categorical, Normal

from kernels.sample import CATEGORICAL, GAUSSIAN, SEVERAL, sample_categorical, sample_gaussian, sample_several

pytestmark = pytest.mark.usefixtures("quick_builds")

DRAWS = 40_000


def categorical(logits: Tensor, step: int = 0, run_seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Action (N), log-probability (N), entropy (N)."""
    N = len(logits)
    outputs = poisoned(N, dtype=torch.int32), poisoned(N), poisoned(N)
    sample_categorical(logits, *outputs, step, run_seed)
    return outputs


def gaussian(parameters: Tensor, step: int = 0, run_seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Action (N, A), log-probability (N), entropy (N)."""
    N, A = len(parameters), parameters.shape[1] // 2
    outputs = poisoned(N, A), poisoned(N), poisoned(N)
    sample_gaussian(parameters, *outputs, step, run_seed)
    return outputs


def random_logits(N: int, A: int) -> Tensor:
    return 2.0 * torch.randn(N, A, generator=torch.Generator().manual_seed(N))


def random_parameters(N: int, A: int) -> Tensor:
    """Means and log standard deviations, (N, 2A)."""
    return 0.7 * torch.randn(N, 2 * A, generator=torch.Generator().manual_seed(N))


def log_prob_and_entropy(logits: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    log_probs, entropy = reference.categorical(logits)
    return np.take_along_axis(log_probs, action[:, None].astype(np.int64), axis=-1)[:, 0], entropy


def check_categorical(N: int = 257, A: int = 5, step: int = 7, run_seed: int = 2**63 + 5) -> None:
    logits = random_logits(N, A)
    action, log_prob, entropy = categorical(logits, step, run_seed)
    wanted, margin = reference.sample_categorical(logits.numpy(), step, run_seed)
    same = action.numpy() == wanted
    assert (same | (margin < 1e-6)).all()  # a draw within rounding of a bound may fall on either side
    assert same.mean() > 0.99
    assert_close((log_prob, entropy), log_prob_and_entropy, logits, action)


def check_gaussian(N: int = 257, A: int = 6, step: int = 7, run_seed: int = 2**63 + 5) -> None:
    parameters = random_parameters(N, A)
    action, log_prob, entropy = gaussian(parameters, step, run_seed)
    assert_close([action], lambda p: [reference.sample_gaussian(p, step, run_seed)], parameters)
    assert_close((log_prob, entropy), reference.gaussian, parameters, action)


@pytest.mark.parametrize(("N", "A"), [(33, 1), (1, 2), (7, 3), (257, 5), (64, 18)])
def test_categorical_reference(N: int, A: int) -> None:
    check_categorical(N, A)


@pytest.mark.parametrize(("N", "A"), [(1, 1), (7, 3), (33, 4), (257, 6)])
def test_gaussian_reference(N: int, A: int) -> None:
    check_gaussian(N, A)


def test_categorical_by_hand() -> None:
    """Logits log 1, log 2, log 5: probabilities 1/8, 2/8, 5/8."""
    logits = torch.tensor([[1.0, 2.0, 5.0]]).log().expand(64, 3).contiguous()
    action, log_prob, entropy = categorical(logits)
    probabilities = torch.tensor([1 / 8, 2 / 8, 5 / 8])
    assert log_prob.exp().tolist() == pytest.approx(probabilities[action.long()].tolist(), rel=1e-6)
    assert entropy.tolist() == pytest.approx([-float((probabilities * probabilities.log()).sum())] * 64, rel=1e-6)


def test_gaussian_by_hand() -> None:
    """Deviation 1: the log-probability is -z^2 / 2 - log sqrt(2 pi), the entropy (1 + log 2 pi) / 2."""
    action, log_prob, entropy = gaussian(torch.tensor([[3.0, 0.0]]).expand(64, 2).contiguous())
    wanted = -((action[:, 0] - 3) ** 2) / 2 - 0.9189385
    assert log_prob.tolist() == pytest.approx(wanted.tolist(), rel=1e-5)
    assert entropy.tolist() == pytest.approx([1.4189385] * 64, rel=1e-6)


def test_as_torch_distributions() -> None:
    logits, parameters = random_logits(257, 5), random_parameters(257, 6)
    action, log_prob, entropy = categorical(logits)
    theirs = Categorical(logits=logits.double())
    assert torch.allclose(log_prob.double(), theirs.log_prob(action), rtol=1e-5, atol=1e-6)
    assert torch.allclose(entropy.double(), theirs.entropy(), rtol=1e-5, atol=1e-6)
    raw, log_prob, entropy = gaussian(parameters)
    independent = Normal(parameters[:, :6].double(), parameters[:, 6:].double().exp())
    assert torch.allclose(log_prob.double(), independent.log_prob(raw).sum(-1), rtol=1e-5, atol=1e-5)
    assert torch.allclose(entropy.double(), independent.entropy().sum(-1), rtol=1e-5, atol=1e-6)


def check_raw_actions() -> None:
    """Half of these actions are outside [-1, 1], and their log-probability is that of the raw action."""
    parameters = torch.tensor([[0.0, 0.4]]).expand(257, 2).contiguous()
    action, log_prob, _ = gaussian(parameters)
    assert 0.3 < float((action.abs() > 1.0).float().mean()) < 0.7
    z = action[:, 0].double() / np.exp(0.4)
    wanted = -z * z / 2 - 0.4 - np.log(2 * np.pi) / 2
    assert torch.allclose(log_prob.double(), wanted, rtol=1e-5, atol=1e-6)


def test_the_raw_action_and_its_log_probability_are_stored() -> None:
    check_raw_actions()


def test_categorical_frequencies_and_independence() -> None:
    logits = torch.tensor([[0.3, -1.0, 1.2, 0.0, -0.4]]).expand(DRAWS, 5).contiguous()
    expected = logits[0].double().softmax(-1).numpy() * DRAWS
    # neighbours in rows, steps and run seeds, and the run seed's upper half
    one = categorical(logits, step=3, run_seed=9)[0].numpy()
    others = [
        np.roll(one, 1),
        categorical(logits, step=4, run_seed=9)[0].numpy(),
        categorical(logits, step=3, run_seed=10)[0].numpy(),
        categorical(logits, step=3, run_seed=9 + 2**32)[0].numpy(),
    ]
    for other in others:
        assert scipy.stats.chisquare(np.bincount(other, minlength=5), expected).pvalue > 1e-3
        table = np.bincount(one * 5 + other, minlength=25).reshape(5, 5)
        assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


def test_normals_moments_and_independence() -> None:
    parameters = torch.zeros(DRAWS, 12)
    z = gaussian(parameters, step=3, run_seed=9)[0].double().numpy()  # (DRAWS, 6): two Philox blocks a row
    assert scipy.stats.kstest(z.ravel(), "norm").pvalue > 1e-3
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((z**power).mean() - moment) < 4 * np.sqrt(variance / z.size)
    others = np.concatenate(
        [z, np.roll(z, 1, axis=0), *(gaussian(parameters, *k)[0].double().numpy() for k in ((4, 9), (3, 10)))], axis=1
    )
    correlations = np.corrcoef(others.T) - np.eye(24)
    assert np.abs(correlations).max() < 5 / np.sqrt(DRAWS)
    assert np.abs(np.corrcoef((others**2).T) - np.eye(24)).max() < 5 / np.sqrt(DRAWS)


def several(logits: Tensor, sizes: tuple[int, ...], step: int = 3, run_seed: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Actions (N, choices), log-probability (N) and entropy (N) of several choices."""
    N = len(logits)
    outputs = poisoned(N, len(sizes), dtype=torch.int32), poisoned(N), poisoned(N)
    sample_several(logits, *outputs, step, run_seed, sizes)
    return outputs


SEVERAL_SIZES = [(3, 2), (2,), (5, 1, 4, 2, 3), (2, 2, 2, 2, 7)]


def check_several(sizes: tuple[int, ...] = (3, 2, 4, 2, 5)) -> None:
    """As torch's distributions of each choice; more than four choices take a second Philox block."""
    N = 257
    logits = random_logits(N, sum(sizes))
    action, log_prob, entropy = several(logits, sizes)
    theirs = [Categorical(logits=part.double()) for part in logits.split(sizes, dim=-1)]
    wanted = sum(t.log_prob(action[:, k]) for k, t in enumerate(theirs))
    assert torch.allclose(log_prob.double(), torch.as_tensor(wanted), rtol=1e-5, atol=1e-5)
    assert torch.allclose(entropy.double(), torch.as_tensor(sum(t.entropy() for t in theirs)), rtol=1e-5, atol=1e-5)
    words = reference.philox(reference.counters(range(N * -(-len(sizes) // 4)), 3, reference.ACTION, 0), 9)
    u = reference.uniform(words.reshape(N, -1))
    for k, distribution in enumerate(theirs):
        bounds = distribution.probs.numpy().cumsum(axis=-1)[:, :-1]
        drawn = u[:, k : k + 1]
        clear = np.abs(drawn - bounds).min(axis=-1, initial=np.inf) > 1e-6
        assert (action[:, k].numpy() == (drawn >= bounds).sum(axis=-1))[clear].all()


@pytest.mark.parametrize("sizes", SEVERAL_SIZES)
def test_several_choices(sizes: tuple[int, ...]) -> None:
    check_several(sizes)


def test_one_choice_in_a_list_is_one_choice() -> None:
    logits = random_logits(257, 5)
    one, listed = categorical(logits, 3, 9), several(logits, (5,))
    assert torch.equal(one[0], listed[0][:, 0])
    assert torch.equal(one[1], listed[1])
    assert torch.equal(one[2], listed[2])


def test_choices_are_independent() -> None:
    action, _, _ = several(torch.zeros(DRAWS, 5), (3, 2))
    table = np.bincount(action[:, 0].numpy() * 2 + action[:, 1].numpy(), minlength=6).reshape(3, 2)
    assert scipy.stats.chisquare(table.ravel()).pvalue > 1e-3
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


SEVERAL_FAULTS = {
    "every choice draws the same word": ("uniform(words.word[choice % 4])", "uniform(words.word[0])"),
    "the fifth choice draws the first one's word": ("if (choice % 4 == 0) words", "if (choice == 0) words"),
    "the log-probability of the last choice": ("sum = sum + value;", "sum = value;"),
    "the logits of the first choice": ("FIRST += SIZE, choice++", "choice++"),
}


@pytest.mark.parametrize("fault", SEVERAL_FAULTS)
def test_fault_of_several_choices_is_found(plant: Plant, fault: str) -> None:
    plant(SEVERAL, *SEVERAL_FAULTS[fault])
    with pytest.raises(AssertionError):
        check_several()


def test_impossible_actions_are_not_drawn() -> None:
    logits = torch.tensor([[0.0, -200.0, 0.0]]).expand(DRAWS, 3).contiguous()
    action, log_prob, entropy = categorical(logits)
    assert not (action == 1).any()
    assert log_prob.isfinite().all()
    assert entropy.tolist() == pytest.approx([np.log(2)] * DRAWS, rel=1e-6)


CATEGORICAL_FAULTS = {
    "every row draws alike": ("philox(index * BLOCKS + choice / 4", "philox(choice / 4"),
    "every step draws alike": ("choice / 4, step, PURPOSE_ACTION", "choice / 4, 0, PURPOSE_ACTION"),
    "the cumulative sum is off by one": ("a < first + size - 1; a++", "a < first + size - 2; a++"),
    "the largest logit is not taken off": ("F largest = logits[first]", "F largest = all<F>(99.0f)"),
    "entropy with the wrong sign": ("sum = sum - exp_(log_probs[a])", "sum = sum + exp_(log_probs[a])"),
    "log-probability of the first action": (
        "select(action[choice] == a, log_probs[first + a], value)",
        "log_probs[first]",
    ),
}
GAUSSIAN_FAULTS = {
    "variance in place of deviation": ("exp_(log_std[d]) * z.value", "exp_(2.0f * log_std[d]) * z.value"),
    "the deviation's logarithm is left out": ("z * z - log_std[d]", "z * z"),
    "one dimension only": ("sum = sum + (-0.5f", "sum = (-0.5f"),
    "blocks overlap": ("philox(index * BLOCKS + block", "philox(index + block"),
    "entropy of deviation 1": ("LOG_SQRT_2PI + log_std[d]", "LOG_SQRT_2PI"),
}
CLIP = "for (int d = 0; d < A; d++) mine[d] = mine[d] < -1.0f ? -1.0f : mine[d] > 1.0f ? 1.0f : mine[d];"
RAW_FAULTS = {
    "the clipped action is stored": ("log_prob[n] =", f"{CLIP} log_prob[n] ="),
    "the clipped action's log-probability is stored": (
        "log_prob[n] = distribution.log_prob(mine);",
        f"float raw[A]; for (int d = 0; d < A; d++) raw[d] = mine[d]; {CLIP}"
        "log_prob[n] = distribution.log_prob(mine); for (int d = 0; d < A; d++) mine[d] = raw[d];",
    ),
}


@pytest.mark.parametrize("fault", CATEGORICAL_FAULTS)
def test_categorical_fault_is_found(plant: Plant, fault: str) -> None:
    plant(CATEGORICAL, *CATEGORICAL_FAULTS[fault])
    with pytest.raises(AssertionError):
        check_categorical()


@pytest.mark.parametrize("fault", GAUSSIAN_FAULTS)
def test_gaussian_fault_is_found(plant: Plant, fault: str) -> None:
    plant(GAUSSIAN, *GAUSSIAN_FAULTS[fault])
    with pytest.raises(AssertionError):
        check_gaussian()


@pytest.mark.parametrize("fault", RAW_FAULTS)
def test_raw_action_fault_is_found(plant: Plant, fault: str) -> None:
    plant(GAUSSIAN, *RAW_FAULTS[fault])
    with pytest.raises(AssertionError):
        check_raw_actions()
