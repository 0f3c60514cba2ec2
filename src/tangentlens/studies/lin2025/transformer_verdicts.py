"""What lin2025 says about the one-layer Transformer at its seed 2, and how our run compares."""

from __future__ import annotations

from typing import Any

from tangentlens.measures.cliffs import largest_gaps
from tangentlens.measures.tracking import onset, rate_of_change
from tangentlens.studies.claims import Band, Claim, Source, Verdict, judged_all, positions_are, within_share
from tangentlens.studies.lin2025.modular_transformer import READ_CLOSELY_TO, WINDOWS, TransformerRun

CODE: Source = "author's code"
RERUN: Source = "independent run"
KEYS, SPECTRA, TABLE2, FIG3 = "Sec. 4 (v4)", "spectra (v4), epoch 4000", "Table 2 (v4), epoch 4000", "Fig. 3 (v4)"

# claim, name in the paper, parameter here, window of modes, family, share claimed in per cent, source, accepted
_SHARES: tuple[tuple[str, str, str, str, str, float, Source, Band], ...] = (
    ("X2", "W_U", "unembedding", "modes 0-4", "a+b", 99.1, CODE, Band(low=97)),
    ("X3", "W_U", "unembedding", "modes 5-8", "axis sum", 98.5, CODE, Band(low=96)),
    ("X4.1", "W_out", "mlp_out", "modes 1-4", "axis sum", 97.2, RERUN, Band(low=92)),
    ("X4.5", "W_out", "mlp_out", "modes 5-8", "a+b", 98.1, RERUN, Band(low=92)),
    ("X5.in", "W_in", "mlp_in", "modes 0-4", "axis sum", 95.6, RERUN, Band(low=90)),
    ("X5.O", "W_O", "attention_out", "modes 0-4", "axis sum", 92.3, RERUN, Band(low=87)),
    ("X6.E", "W_E", "embedding", "modes 0-4", "a+b", 24, RERUN, Band(high=50)),
    ("X6.Q", "W_Q", "query", "modes 0-4", "a+b", 26, RERUN, Band(high=50)),
    ("X6.K", "W_K", "key", "modes 0-4", "a+b", 9, RERUN, Band(high=50)),
    ("X6.V", "W_V", "value", "modes 0-4", "a+b", 23, RERUN, Band(high=50)),
    ("X6.V5", "W_V", "value", "modes 5-8", "axis sum", 51, RERUN, Band(high=70)),
)
# claim, parameter, position of the drop, ratio across it, accepted: half of it either way, but never no drop
_DROPS = (
    ("X7.U5", "unembedding", 5, 12.0, within_share(12.0, 0.5)),
    ("X7.U9", "unembedding", 9, 7.0, within_share(7.0, 0.5)),
    ("X7.out", "mlp_out", 10, 6.6, within_share(6.6, 0.5)),
    ("X7.full", "full", 11, 1.8, Band(1.4, 2.7)),
)


def these_two(found: Any) -> bool:
    """exactly {1, 12}."""
    return sorted(found) == [1, 12]


CLAIMS = (
    Claim("X1", "key frequencies of the embedding, found by their power", KEYS, "{1, 12}", CODE, these_two),
    Claim("X1.modes", "the same, found in the top five modes of W_U's kernel", KEYS, "{1, 12}", CODE, these_two),
    *(
        Claim(name, f"{tensor}, {window}: share of the {family} family at the key frequencies",
              TABLE2, claimed, source, band, "%")
        for name, tensor, _, window, family, claimed, source, band in _SHARES
    ),
    Claim("X7.U", "W_U's two largest gaps lie after 5 and 9", SPECTRA, "[5, 9]", RERUN, positions_are(5, 9)),
    *(
        Claim(name, f"spectrum of {parameter}: ratio across the drop after {position}",
              SPECTRA, claimed, RERUN, band, "times")
        for name, parameter, position, claimed, band in _DROPS
    ),
    Claim("X9.train", "training accuracy 100 %, first recorded", FIG3, 220, CODE, Band(160, 280), "epoch"),
    Claim("X9.test", "test accuracy 100 %, first recorded", FIG3, 1900, CODE, Band(1300, 2500), "epoch"),
    Claim("X10", "the a+b overlap of W_U's top five modes rises fastest at", FIG3, 150, CODE, Band(100, 200), "epoch"),
    Claim("X10.rate", "its rate there", FIG3, 4, CODE, Band(2, 10), "points per 20 epochs"),
)  # fmt: skip


def transformer_verdicts(run: TransformerRun) -> list[Verdict]:
    """Claims X1 to X10 on one run; the paper's seed is 2."""
    readout = run.tensors["unembedding"]
    rate = rate_of_change(run.kernel_steps, run.sum_overlap)
    values: dict[str, Any] = {
        "X1": [sorted(run.frequencies)],
        "X1.modes": [run.frequencies_of_modes],
        **{name: run.tensors[tensor].held[window][family] for name, _, tensor, window, family, *_ in _SHARES},
        "X7.U": [largest_gaps(readout.eigenvalues, 2)],
        **{name: run.tensors[tensor].ratio(position) for name, tensor, position, *_ in _DROPS},
        "X9.train": [onset(run.steps, run.train_accuracy, 1.0)],
        "X9.test": [onset(run.steps, run.test_accuracy, 1.0)],
        "X10": run.kernel_steps[int(rate.argmax())],
        "X10.rate": 20 * float(rate.max()),
    }
    rows = run.task.modulus**2
    chance = {name: 100 * (WINDOWS[window][1] - WINDOWS[window][0]) / rows for name, _, _, window, *_ in _SHARES}
    passed = onset(run.steps, run.test_accuracy, 0.15)
    late = 3 * run.task.epochs // 4
    drifts = {name: run.readout_ratios(position, late) for name, _, position, *_ in _DROPS[:2]}
    notes = {
        "X1": "significant against shuffled tokens",
        "X7.U": f"ranked by size; {readout.positions or 'none'} significant against a smooth spectrum",
        **{
            name: f"over epochs {late} to {run.steps[-1]}: {min(each):.3g} .. {max(each):.3g}"
            for name, each in drifts.items()
            if each
        },
        **{
            name: f"the strongest of all families there: {_strongest(run.tensors[tensor].held[window])}"
            for name, _, tensor, window, *_ in _SHARES
            if name.startswith("X6")
        },
        "X10": f"retrospective: frequencies of the finished run; read every {run.kernel_steps[1]} epochs up to "
        f"{READ_CLOSELY_TO}; test accuracy passes 15 % at epoch {passed}",
        "X10.rate": "an independent run saw 7.6",
    }
    baselines: dict[str, float | str] = {**chance, "X10": f"init {run.sum_overlap[0]:.1f} %, chance {500 / rows:.1f} %"}
    return judged_all(CLAIMS, values, baselines, notes)


def _strongest(held: dict[str, float]) -> str:
    family = max(held, key=lambda name: held[name])
    return f"{family} {held[family]:.1f} %"
