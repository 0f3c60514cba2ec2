"""The benchmarks' own arithmetic: what they report must be right even where nobody looks at the clock."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from benchmarks import gpu, models
from benchmarks.flops import counted_flops
from benchmarks.growth import Axis, slope, verdict
from benchmarks.peers.environments import HERE, PEERS
from benchmarks.peers.harness import error_of, shared, with_modes
from benchmarks.peers.table import HEAD, markdown, table
from benchmarks.scale_out import Machine, Work, language_model, predicted
from benchmarks.workloads import WORKLOADS, toy, written
from tangentlens.capture.sources import Piece
from tangentlens.kernels.passes import captured, chosen_passes
from tangentlens.kernels.ways import Cost, Costs
from tests.reference import tangent

GIB = 2**30


def work(kept: float, width: int = 1, examples: int = 1000, products: float = 4e12) -> Work:
    """One parameter whose gradients are formed again for every block they meet."""
    piece = Piece("w", torch.Size([2, 2]), [])
    costs = Costs({"w": (piece, Cost("sliced", products, kept))}, 1, {"w": kept}, {"w": kept}, 0.0, 1e9)
    return Work("w", examples, width, 2e9, 1e9, costs, 0.0)


FAST = Machine(1e12, 1e12, 1e9, 100 * GIB)


def test_a_workloads_file_gives_every_peer_the_same_network_and_the_exact_kernel(tmp_path):
    workload = toy(WORKLOADS["mlp"])
    held = shared(written(workload, tmp_path))
    model, inputs = held.torch()
    exact = tangent.full_kernel(tangent.jacobian(model.double(), inputs[:2].double()))
    np.testing.assert_allclose(held.reference, exact, rtol=1e-12)
    assert error_of(held.reference, held.reference) == 0.0
    averaged = np.einsum("ncmc->nm", held.reference) / 3
    assert error_of(1.01 * averaged, held.reference) == pytest.approx(0.01)


def test_a_workloads_file_is_made_again_when_its_sizes_change(tmp_path):
    small = toy(WORKLOADS["mlp"])
    file = written(small, tmp_path)
    before = file.stat().st_mtime_ns
    assert written(small, tmp_path).stat().st_mtime_ns == before
    other = toy(WORKLOADS["cnn"])
    assert shared(written(type(small)(**{**vars(other), "name": "mlp"}), tmp_path)).described["builder"] == "cnn"


def test_the_resnet_has_the_parameters_of_a_resnet18_with_ten_outputs():
    assert sum(parameter.numel() for parameter in models.resnet18().parameters()) == 11_173_962
    assert models.resnet18(3, 4).eval()(torch.randn(2, 3, 8, 8)).shape == (2, 3)


def test_every_peer_has_a_script_and_its_own_requirements_or_none():
    for peer in PEERS:
        assert (HERE / peer / "run.py").is_file()
        requirements = HERE / peer / "requirements.txt"
        if requirements.is_file() and peer != "neural_tangents":  # the only one without torch
            assert requirements.read_text().startswith("torch==2.13.0\n")
        if requirements.is_file():
            lines = [line for line in requirements.read_text().splitlines() if not line.startswith("#")]
            assert all("==" in line for line in lines), peer


def test_the_table_puts_the_fastest_first_and_says_why_a_peer_cannot():
    done = {"peak": 2**30, "error": 1e-7, "flops": 0, "rate": 1e9}
    rows = [
        {"peer": "tangentlens", "method": "exact", "seconds": [2.0, 1.0, 3.0], **done},
        {"peer": "vivit", "method": "Gram", "seconds": [1.0], **done},
        {"peer": "asdl", "method": "direct", "failed": "NotImplementedError: no"},
    ]
    lines = table("title", rows).splitlines()
    assert "vivit" in lines[2] and "0.5x" in lines[2] and "tangentlens" in lines[3] and "1x" in lines[3]
    assert lines[-1] == "asdl, direct: NotImplementedError: no"
    page = markdown("title", rows).splitlines()
    assert page[-1] == "- asdl, direct: NotImplementedError: no"
    assert all(line.count("|") == len(HEAD) + 1 for line in page[2:6]) and page[4].startswith("| vivit, Gram | 1 s |")


@pytest.mark.parametrize(
    ("layer", "groups"), [(torch.nn.Conv2d, 1), (torch.nn.Conv2d, 4), (torch.nn.ConvTranspose2d, 2)]
)
def test_a_convolution_costs_three_times_itself_with_its_gradients_in_any_groups(layer, groups):
    convolution, images = layer(4, 8, 3, stride=2, groups=groups), torch.randn(5, 4, 9, 9, requires_grad=True)
    places = 9 * 9 if layer is torch.nn.ConvTranspose2d else 4 * 4
    with counted_flops() as counter:
        convolution(images).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 5 * places * (4 * 8 // groups) * 3 * 3


def test_devices_share_captures_and_products_and_add_the_ring_and_the_sum():
    one, four = predicted(work(1e6), FAST, 1), predicted(work(1e6), FAST, 4)
    assert (one.capture, one.products, one.travel, one.summed, one.captures) == (2.0, 8.0, 0.0, 0.0, 1)
    assert (four.capture, four.products) == (0.5, 2.0)
    assert four.travel == pytest.approx(4e6 * 1000 * 2 / 4 / 1e9)  # two of the three other blocks, a quarter each
    assert four.summed == pytest.approx(2 * 3 / 4 * 4 * 1000**2 / 1e9)  # every device ends with the whole kernel
    assert one.kernel_held == four.kernel_held == 4 * 1000**2


def test_gradients_that_are_not_held_are_formed_for_every_block_they_meet():
    """Counted on processes: with 2 of them 2.5 blocks a process instead of 1, with 3 three, with 4 four and a half."""
    assert predicted(work(1e6), FAST, 1).forming == 0.0
    for devices, blocks in ((2, 2.5), (3, 3.0), (4, 4.5)):
        formed = predicted(work(1e6), FAST, devices).forming * FAST.product_rate * devices / 1e9 + 1000
        assert formed == pytest.approx(blocks * devices * -(-1000 // devices))


def test_what_does_not_fit_is_captured_as_often_as_the_library_chooses():
    little = Machine(1e12, 1e12, 1e9, 2 * GIB)
    chosen = chosen_passes(work(1e6).costs, 1000, None, torch.float32, torch.device("cuda"), 2 * GIB - 4 * 1000**2)
    times = sum(captured(one, 1000, None) for one in chosen.passes) / 1000
    assert times > 2 and predicted(work(1e6), little, 1).captures == times
    assert predicted(work(1e6), little, 1).capture == times * predicted(work(1e6), FAST, 1).capture
    large = work(1e3, width=30)
    stored = predicted(large, little, 1)
    assert stored.on_disk and stored.stored == pytest.approx(4 * 30_000**2 / 2e9)
    assert not predicted(large, FAST, 1).on_disk


def test_a_language_models_products_are_two_flops_per_parameter_and_pair_halved():
    model = language_model(10, 4, layers=1, width=2, hidden=3, grouped=1, rest=7)
    parameters = 2 * 2 * 2 + 2 * 2 + 3 * 6
    assert model.product_flops == 10 * 10 * parameters + 2 * 4 * parameters * 10
    assert model.weights_bytes == 4 * (parameters + 7)


def test_a_power_law_has_its_exponent():
    exponent, error = slope([10, 20, 40, 80], [5 * size**1.5 for size in (10, 20, 40, 80)])
    assert exponent == pytest.approx(1.5) and error == pytest.approx(0, abs=1e-9)


def test_growth_is_as_theory_or_says_why_not():
    axis, rates = Axis("n", (1, 2), lambda n: None, 2.0, "pairs"), (1e9, 4e9)
    assert verdict(1.9, 1.8, axis, rates) == "within 0.15 of theory"
    assert verdict(1.6, 1.7, axis, rates).startswith("as counted at these sizes")
    assert "operations grow with 2.00, and their rate changes from 1 to 4 Gflop/s" in verdict(1.3, 2.0, axis, rates)


def test_a_peer_without_spectra_gets_its_modes_from_its_full_kernel(tmp_path):
    held = shared(written(toy(WORKLOADS["modular"]), tmp_path))
    kernel = np.random.default_rng(0).normal(size=(6, 5, 30))
    gram = np.einsum("ncp,mdp->ncmd", kernel, kernel)

    def method(shared, kernel):
        assert kernel == "full"
        return lambda n: gram[:n, :, :n], lambda found, few: found[:few, :, :few]

    modes, residual = with_modes(method)(held, "top200")
    matrix, values, vectors = modes(6)
    expected = np.linalg.eigvalsh(gram.reshape(30, 30))[1:]
    np.testing.assert_allclose(np.sort(values), expected, rtol=1e-8, atol=1e-8 * expected[-1])
    assert residual((matrix, values, vectors), 4) < 1e-8


def test_a_table_says_when_and_with_what_it_was_made():
    row = {"peer": "vivit", "method": "Gram", "seconds": [1.0], "peak": 2**30, "error": 1e-7, "flops": 0, "rate": 1e9}
    dated = row | {"date": "2026-01-02", "versions": {"torch": "2.13.0"}}
    for text in (table("t", [dated]), markdown("t", [dated])):
        assert text.splitlines()[-1] == "Measured 2026-01-02: torch 2.13.0."


def test_the_gpu_table_shows_rows_that_failed_beside_those_that_did_not():
    row = {"seconds": [0.2, 0.1, 0.3], "floor": 0.1, "peak": 2**30, "error": 1e-7, "note": "n"}
    text = gpu.table({"machine": {"device": "d", "torch": "t"}, "rows": {"a": row, "b": {"failed": "out of memory"}}})
    assert "50%" in text and text.splitlines()[-1].endswith("out of memory")


def test_a_row_that_dies_does_not_take_the_others_with_it(monkeypatch, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(
        "import sys, json\n"
        "names = sys.argv[sys.argv.index('--rows') + 1:]\n"
        "print(json.dumps({'machine': {}}), flush=True)\n"
        "for name in names:\n"
        "    if name == 'bad': print('out of luck', flush=True); sys.exit(1)\n"
        "    print(json.dumps({'row': name, 'seconds': [1.0]}), flush=True)\n"
    )
    monkeypatch.setattr(gpu, "__file__", str(script))
    monkeypatch.setattr(gpu, "listed", lambda toy: {name: {"cap": 5.0} for name in ("first", "bad", "last")})
    found = gpu.gathered(["first", "bad", "last"], False, time.monotonic() + 20)
    assert found["rows"]["bad"] == {"failed": "out of luck"}
    assert found["rows"]["first"] == found["rows"]["last"] == {"seconds": [1.0]}
