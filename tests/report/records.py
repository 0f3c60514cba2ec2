"""Synthetic records that follow docs/record.md, without any training: what the report's tests look at.

The numbers are made to look like a network that groks modular addition (p = 29, 841 examples) and like one that stays
lazy; nothing about a real network is claimed by them.
"""

from __future__ import annotations

import json

import numpy as np
import xarray as xr

STEPS = np.array([0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120, 150, 200, 300, 400, 500])
FAMILIES = ["a", "b", "a+b", "a−b"]
LAYERS = ["net.0", "net.2", "head"]
EXAMPLES, BLOCK = 841, 56


def rise(steps: np.ndarray, middle: float, width: float, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """A smooth step from low to high."""
    return low + (high - low) / (1 + np.exp(-(steps - middle) / width))


def record(
    *,
    title: str = "modular addition",
    rich: bool = True,
    steps: np.ndarray = STEPS,
    modes: int = 200,
    seed: int = 0,
    layers: list[str] | None = None,
    state: str = "finished",
) -> xr.DataTree:
    """A whole record with every group of the schema."""
    random = np.random.default_rng(seed)
    layers = layers or LAYERS
    groups = {
        "/": xr.Dataset(attrs=root_attributes(title, steps, seed, layers, state)),
        "/training": training(steps, rich, layers),
        "/tangent": tangent(steps, rich, modes, layers, random),
        "/forward": forward(steps, rich, random),
        "/ansatz": ansatz(steps, rich, layers, random),
        "/tokens": tokens(steps, rich, random),
        "/overhead": overhead(steps, random),
        "/errors": xr.Dataset(attrs={"log": "[]"}),
    }
    for layer in layers[:2]:
        groups[f"/ansatz/layers/{layer}"] = matrices(steps, rich, random)
    return xr.DataTree.from_dict(groups)


def root_attributes(title: str, steps: np.ndarray, seed: int, layers: list[str], state: str) -> dict[str, object]:
    return {
        "schema": "tangentlens record 1",
        "state": state,
        "title": title,
        "created": "2025-01-31T10:00:00+00:00",
        "updated": "2025-01-31T10:01:12+00:00",
        "model": "GromovMLP",
        "parameters": 44544,
        "layers": json.dumps(layers),
        "probe": "841 examples of 58 numbers (float32), 841 targets (int64)",
        "examples": EXAMPLES,
        "device": "cpu",
        "dtype": "float32",
        "seed": str(seed),
        "git_commit": "0123456789abcdef0123456789abcdef01234567",
        "versions": json.dumps({"python": "3.11.2", "torch": "2.13.0", "tangentlens": "0.1.0"}),
        "settings": json.dumps({"lr": 0.05, "optimiser": "AdamW"}),
        "schedule": f"{len(steps)} chosen steps to {steps[-1]}",
        "planned_steps": json.dumps([int(step) for step in steps]),
        "last_step": int(steps[-1]),
        "rungs": json.dumps({f"{layer}.weight": "factored" for layer in layers}),
        "overhead": 0.084,
    }


def training(steps: np.ndarray, rich: bool, layers: list[str]) -> xr.Dataset:
    train = rise(steps, 25, 5, 0.03, 1.0)
    test = rise(steps, 85, 7, 0.03, 1.0) if rich else rise(steps, 60, 30, 0.03, 0.05)
    distance = np.outer(
        rise(steps, 60, 30, 0, 80.0 if rich else 4.0) - rise(0, 60, 30, 0, 80.0 if rich else 4.0),
        np.linspace(1, 0.6, len(layers)),
    )
    data = {
        "loss": ("step", np.exp(-steps / 60) * 0.03 + 1e-4),
        "test_loss": ("step", 0.033 * (1.05 - test)),
        "train_accuracy": ("step", train, {"bounds": [0.0, 1.0]}),
        "test_accuracy": ("step", test, {"bounds": [0.0, 1.0]}),
        "probe_accuracy": ("step", 0.7 * train + 0.3 * test, {"chance": "probe_chance"}),
        "probe_chance": ("step", np.full(len(steps), 1 / 29)),
        "parameter_norm": ("step", np.linspace(211, 150, len(steps))),
        "parameter_distance": ("step", distance[:, 0] * 1.4),
        "layer_distance": (("step", "layer"), distance),
    }
    return xr.Dataset(data, coords={"step": steps, "layer": layers})


def tangent(steps: np.ndarray, rich: bool, modes: int, layers: list[str], random: np.random.Generator) -> xr.Dataset:
    count = len(steps)
    learned = rise(steps, 75, 12) if rich else np.full(count, 0.0)
    growth = rise(steps, 60, 15, 1.0, 300.0)
    levels = np.concatenate([[29.0], np.full(BLOCK, 1.0), np.full(BLOCK, 0.05), np.geomspace(0.05, 0.002, 2000)])[
        :modes
    ]
    values = np.outer(growth, levels) * 2e-3
    values[:, 1 + BLOCK : 1 + 2 * BLOCK] *= (1 + 6 * learned)[:, None]
    values = -np.sort(-values * np.exp(0.06 * random.normal(size=values.shape)), axis=1)
    blocks = np.array([[0, 1], [1, 1 + BLOCK], [1 + BLOCK, 1 + 2 * BLOCK]], float)
    first, ends = np.tile(blocks[:, 0], (count, 1)), np.tile(blocks[:, 1], (count, 1))
    first[learned < 0.1, 2] = ends[learned < 0.1, 2] = np.nan
    chance = (ends - first) / EXAMPLES
    overlap = np.tile(chance[:, :, None], (1, 1, 4)) * np.exp(0.1 * random.normal(size=(count, 3, 4)))
    overlap[:, 1, :2] = 0.983
    overlap[:, 2, 2] = np.where(np.isnan(first[:, 2]), np.nan, chance[:, 2] + 0.88 * learned)
    overlap[:, 2, 3] = np.where(np.isnan(first[:, 2]), np.nan, chance[:, 2] + 0.83 * learned)
    share = np.tile(np.full(modes, 1 / EXAMPLES)[None, :, None], (count, 1, 4))
    share[:, 1 : 1 + BLOCK, :2] = 0.98 / BLOCK
    share[:, 1 + BLOCK : 1 + 2 * BLOCK, 2:] += (learned * 0.85 / BLOCK)[:, None, None]
    maps = np.abs(random.normal(size=(count, modes, 56))) * 0.04
    for feature in range(28):
        maps[:, 1 + feature * 2 : 3 + feature * 2, feature] = 0.7
        maps[:, 57 + feature * 2 : 59 + feature * 2, 28 + feature] += (0.65 * learned)[:, None]
    data = {
        "eigenvalues": (("step", "mode"), values, {"long_name": "eigenvalue", "scale": "log"}),
        "trace": ("step", values.sum(1)),
        "kernel_growth": ("step", growth),
        "kernel_drift": ("step", 0.72 * rise(steps, 55, 15) if rich else 0.03 * rise(steps, 55, 15)),
        "effective_dimension": ("step", 90 - 40 * learned),
        "layer_share": (
            ("step", "layer"),
            np.tile(np.linspace(2, 1, len(layers)) / np.linspace(2, 1, len(layers)).sum(), (count, 1)),
        ),
        "block_first": (("step", "block"), first),
        "block_last": (("step", "block"), ends),
        "cliff_ratio": (("step", "block"), np.where(np.isnan(first), np.nan, [29.0, 4.5, 1.6]), {"null": "cliff_null"}),
        "cliff_null": ("step", np.full(count, 1.2)),
        "overlap": (("step", "block", "family"), overlap, {"chance": "overlap_chance", "null_high": "overlap_null"}),
        "overlap_chance": (("step", "block"), chance),
        "overlap_null": (("step", "block", "family"), np.tile(chance[:, :, None] * 1.3, (1, 1, 4))),
        "share": (("step", "mode", "family"), share),
        "captured": (("step", "mode", "family"), share.cumsum(1)),
        "mode_feature": (("step", "mode", "feature"), maps),
    }
    features = [f"{family}, k={k}" for family in ("a", "a+b") for k in range(1, 29)]
    coords = {
        "step": steps,
        "family": FAMILIES,
        "layer": layers,
        "feature": features,
        "feature_family": ("feature", ["a"] * 28 + ["a+b"] * 28),
        "family_size": ("family", [28] * 4),
    }
    return xr.Dataset(data, coords=coords)


def forward(steps: np.ndarray, rich: bool, random: np.random.Generator) -> xr.Dataset:
    count, features, outputs = len(steps), 128, 29
    learned = rise(steps, 75, 15) if rich else np.full(count, 0.02)
    falling = np.exp(-np.arange(features)[None, :] / (10 + 60 * (1 - learned[:, None])))
    falling[:, outputs:] *= (1 - 0.97 * learned)[:, None]
    used = 1 - np.exp(-np.arange(1, features + 1)[None, :] / (5 + 40 * (1 - learned[:, None])))
    good = used * rise(steps, 80, 10, 0.2, 0.99)[:, None]
    value = 0.62 - 0.5 * learned
    data = {
        "eigenvalues": (("step", "mode"), falling * 3),
        "relative_eigenvalues": (("step", "mode"), falling),
        "cumulative_quality": (("step", "mode"), good),
        "cumulative_utilisation": (("step", "mode"), used),
        "effective_dimension": ("step", 60 - 35 * learned),
        "effective_dimension_quality": ("step", 50 - 25 * learned),
        "effective_dimension_utilisation": ("step", 45 - 18 * learned),
        "richness": (
            "step",
            value,
            {
                "initial": "richness_initial",
                "null": "richness_isotropic",
                "chance": "richness_random_head",
                "low": "richness_low",
                "high": "richness_high",
                "bounds": [0.0, 1.0],
            },
        ),
        "richness_low": ("step", value - 0.02),
        "richness_high": ("step", value + 0.02),
        "richness_robust": ("step", value + 0.002 * random.normal(size=count)),
        "richness_initial": ("step", np.full(count, 0.61)),
        "richness_isotropic": ("step", np.full(count, 0.52)),
        "richness_random_head": ("step", np.full(count, 0.66)),
        "inside_share": ("step", 0.4 + 0.5 * learned),
        "participation_ratio": ("step", 20 + 5 * learned),
        "output_rank": ("step", np.full(count, 28.0)),
        "initial_alignment": ("step", 1 - 0.8 * learned),
        "nc1": ("step", np.exp(-4 * learned)),
        "regime": (
            "step",
            np.where(learned > 0.9, 1.0, 2.0),
            {
                "flag_values": [0, 1, 2],
                "flag_meanings": "coefficient_learning minimal_feature extended_feature",
                "thresholds": json.dumps({"initial_alignment": 0.99, "utilisation": 0.95}),
            },
        ),
    }
    return xr.Dataset(data, coords={"step": steps}, attrs={"layer": "head", "features": features, "outputs": outputs})


def ansatz(steps: np.ndarray, rich: bool, layers: list[str], random: np.random.Generator) -> xr.Dataset:
    shape = (len(steps), len(layers))
    tilt = np.linspace(1, 0.7, len(layers))
    null = np.broadcast_to(np.linspace(0.45, 0.6, len(layers)), shape)
    gain = rise(steps, 60, 25)[:, None] * tilt * (0.5 if rich else 0.02)
    noise = 0.01 * random.normal(size=shape)
    data: dict[str, object] = {}
    for kind, extra in (("uncentred", 0.0), ("centred", 0.05)):
        level = null + extra
        value = np.clip(level + gain * (1 - level) * 1.6 + noise, 0, 0.99)
        if kind == "centred":
            value = np.where(steps[:, None] == 0, np.nan, value)
        names = {"null": f"{kind}_null", "null_low": f"{kind}_null_low", "null_high": f"{kind}_null_high"}
        data[kind] = (("step", "layer"), value, names)
        data[f"{kind}_null"] = (("step", "layer"), level)
        data[f"{kind}_null_low"], data[f"{kind}_null_high"] = (
            (("step", "layer"), level - 0.06),
            (("step", "layer"), level + 0.06),
        )
        data[f"{kind}_adjusted"] = (("step", "layer"), (value - level) / (1 - level))
    data["ratio"] = (("step", "layer"), rise(steps, 60, 20, 1e-3, 0.8)[:, None] * tilt)
    data["weight_change"] = (("step", "layer"), rise(steps, 60, 20, 0, 0.7)[:, None] * tilt)
    data["ptk_drift"] = (("step", "layer"), rise(steps, 50, 20, 0, 0.4)[:, None] * tilt)
    return xr.Dataset(data, coords={"step": steps, "layer": layers})


def matrices(steps: np.ndarray, rich: bool, random: np.random.Generator, units: int = 24) -> xr.Dataset:
    weights = random.normal(size=(units, units)) / np.sqrt(units)
    direction = random.normal(size=units)
    nfm, agop = [], []
    for learned in rise(steps, 60, 20) * rich:
        grown = weights + 0.5 * learned * np.outer(direction, direction) / units
        nfm.append(grown.T @ grown)
        agop.append((grown.T @ grown) @ (grown.T @ grown) * 0.1)
    alignment = np.full((len(steps), units, units), 1 / units)
    alignment += np.eye(units)[None] * (rise(steps, 60, 20) * rich)[:, None, None] * 0.7
    data = {
        "nfm": (("step", "unit", "other"), np.array(nfm)),
        "agop": (("step", "unit", "other"), np.array(agop)),
        "alignment": (("step", "mode", "feature"), alignment),
    }
    return xr.Dataset(data, coords={"step": steps})


def tokens(steps: np.ndarray, rich: bool, random: np.random.Generator, count: int = 300) -> xr.Dataset:
    polarity = random.choice([-1, 0, 1], size=count, p=[0.3, 0.4, 0.3])
    together = np.clip(0.5 + 0.3 * polarity + 0.08 * random.normal(size=count), 0, 1)
    seen = random.integers(20, 100, count)
    grown = rise(steps, 60, 20)[:, None]
    score = grown * (together - 0.5)[None, :] * 3 + 0.15 * random.normal(size=count)
    labels = np.stack([-score, score], axis=2)
    adjectives = np.array([1.0, 0.6, -1.0, -1.3])
    additive = np.array([np.nan, 0.55, np.nan, -1.4])
    data = {
        "label_scores": (("step", "token", "label"), labels),
        "score_correlation": (("step", "label"), np.repeat(0.94 * grown, 2, axis=1)),
        "sign_accuracy": ("step", 0.5 + 0.49 * grown[:, 0], {"chance": "sign_accuracy_chance"}),
        "sign_accuracy_chance": ("step", np.full(len(steps), 0.52)),
        "asymmetry": ("step", 0.1 * np.sin(steps / 50)),
        "bias_ratio": ("step", np.full(len(steps), 0.119), {"theory": "bias_ratio_theory"}),
        "bias_ratio_theory": ("step", np.full(len(steps), 0.106)),
        "kernel_drift": ("step", (0.6 if rich else 0.02) * grown[:, 0], {"limit": 0.1}),
        "kernel_change": ("step", (30.0 if rich else 0.2) * grown[:, 0], {"limit": 0.5}),
        "predicted_scores": (("step", "token", "label"), labels * (0.7 if rich else 1.0)),
        "negation": (
            ("step", "group", "label"),
            np.einsum("s,gl->sgl", grown[:, 0], np.stack([-adjectives, adjectives], 1)),
            {"null": "negation_additive"},
        ),
        "negation_additive": (
            ("step", "group", "label"),
            np.einsum("s,gl->sgl", grown[:, 0], np.stack([-additive, additive], 1)),
        ),
    }
    coords = {
        "step": steps,
        "token": [f"word{i}" for i in range(count)],
        "label": ["negative", "positive"],
        "group": ["adj+", "not adj+", "adj-", "not adj-"],
        "polarity": ("token", polarity),
        "cooccurrence": (
            ("token", "label"),
            np.round(np.stack([1 - together, together], 1) * seen[:, None]),
            {"long_name": "co-occurrence"},
        ),
        "count": ("token", seen),
    }
    return xr.Dataset(data, coords=coords)


def overhead(steps: np.ndarray, random: np.random.Generator) -> xr.Dataset:
    measures = ["tangent/eigenvalues", "tangent/overlap", "forward/richness", "ansatz/centred"]
    seconds = np.abs(random.normal(size=(len(steps), 4))) * [0.2, 0.05, 0.02, 0.03]
    data = {
        "measuring": ("step", seconds.sum(1)),
        "writing": ("step", np.full(len(steps), 0.015)),
        "training": ("step", np.diff(steps.astype(float), prepend=0) * 0.05),
        "share": ("step", 0.5 * np.exp(-steps / 200) + 0.08),
        "seconds": (("step", "measure"), seconds),
    }
    return xr.Dataset(data, coords={"step": steps, "measure": measures})
