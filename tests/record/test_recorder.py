"""A recorder shown a training loop: what it writes, what it leaves alone, and how it fails."""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tangentlens.errors import BadInput, DifferentRun
from tangentlens.record import Measure, Recorder, Snapshot, at, errors, every, log_spaced, open_record, when
from tangentlens.record.asked import check_measures, check_model, check_plan, whole
from tangentlens.record.instruments import training
from tangentlens.report import verdict
from tests.record.runs import NORM, first_weight_norm, identical, recorded, small_model, small_probe, trained, weights


def failing_after(step: int) -> Measure:
    def value(snapshot: Snapshot) -> float:
        if snapshot.step >= step:
            raise ZeroDivisionError(f"no value at {snapshot.step}")
        return 1.0

    return Measure("mine/fails", (), value)


def test_a_recorded_run_ends_with_the_very_weights_of_an_unrecorded_one(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.net(x)

    def noisy(snapshot: Snapshot) -> float:
        torch.rand(3), np.random.rand(3)
        snapshot.model(snapshot.inputs).sum().backward()
        return 1.0

    ended = []
    for run in (None, tmp_path / "run"):
        torch.manual_seed(3)
        model = Net()
        measures = [*training(), NORM, Measure("mine/noisy", (), noisy)]
        recorder = run and Recorder(run, model, small_probe(), measures, every(2))
        trained(model, recorder, range(12))
        assert all(module.training for module in model.modules())
        ended.append([*weights(model), torch.rand(4)])
        if recorder:
            recorder.close()
    assert identical(*ended)
    assert errors(open_record(tmp_path / "run")) == []


def test_gradients_flags_and_hooks_are_left_as_they_were(tmp_path: Path) -> None:
    model = small_model()
    model[0].eval()
    model[2].bias.requires_grad_(False)
    inputs, targets = small_probe()
    functional.cross_entropy(model(inputs), targets).backward()
    model[0].register_forward_hook(lambda *_: None)
    kept = [(parameter.grad, parameter.requires_grad, parameter._version) for parameter in model.parameters()]
    flags, hooks = [module.training for module in model.modules()], len(model[0]._forward_hooks)
    before = [None if gradient is None else gradient.clone() for gradient, *_ in kept]
    with Recorder(tmp_path / "run", model, (inputs, targets), training(), every(1)) as recorder:
        recorder.observe(0)
    for (gradient, required, version), copy, parameter in zip(kept, before, model.parameters(), strict=True):
        assert parameter.grad is gradient and parameter.requires_grad == required and parameter._version == version
        assert gradient is None or torch.equal(gradient, copy)
    assert [module.training for module in model.modules()] == flags and len(model[0]._forward_hooks) == hooks


def test_scalars_measures_and_attributes_are_in_the_record(tmp_path: Path) -> None:
    tree = open_record(recorded(tmp_path / "mine", steps=4, seed=11, settings={"lr": 0.1}, title="first try"))
    assert (
        tree["training/loss"].dims == ("step",) and tree["training/loss"].values[0] > tree["training/loss"].values[-1]
    )
    assert tree["mine/norm"].dtype == np.float32 and tree["mine/step"].values.tolist() == [0, 1, 2, 3]
    attrs = tree.attrs
    assert attrs["state"] == "finished" and attrs["seed"] == 11 and attrs["title"] == "first try"
    assert json.loads(attrs["settings"]) == {"lr": 0.1} and json.loads(attrs["layers"]) == ["0", "2"]
    assert attrs["device"] == "cpu" and attrs["dtype"] == "float32" and attrs["parameters"] == 83
    assert json.loads(attrs["versions"])["torch"].startswith(torch.__version__.split("+")[0])
    assert attrs["probe"] == "inputs (10, 6) float32, targets (10,) int64"


def test_the_last_step_shown_is_recorded_and_no_step_twice(tmp_path: Path) -> None:
    model = small_model()
    with Recorder(tmp_path / "run", model, small_probe(), [NORM], at(0, 3)) as recorder:
        trained(model, recorder, range(8))
        recorder.observe(7)
    assert open_record(tmp_path / "run")["mine/step"].values.tolist() == [0, 3, 7]


def test_a_step_on_a_level_of_the_loss_is_recorded(tmp_path: Path) -> None:
    model = small_model()
    with Recorder(tmp_path / "run", model, small_probe(), [NORM], when("loss", below=0.9)) as recorder:
        trained(model, recorder, range(30))
    losses = open_record(tmp_path / "run")["training/loss"].values
    assert len(losses) == 2 and losses[0] <= 0.9 and losses[1] < losses[0]


def test_a_failing_measure_is_noted_with_its_step_and_training_goes_on(tmp_path: Path) -> None:
    model = small_model()
    with (
        pytest.warns(UserWarning, match="mine/fails failed at step 2 and training goes on: ZeroDivisionError"),
        Recorder(tmp_path / "run", model, small_probe(), [failing_after(2), NORM], every(1)) as recorder,
    ):
        trained(model, recorder, range(4))
    tree = open_record(tmp_path / "run")
    assert np.array_equal(tree["mine/fails"].values, [1, 1, np.nan, np.nan], equal_nan=True)
    assert np.isfinite(tree["mine/norm"].values).all()
    assert [(e["step"], e["measure"], e["type"]) for e in errors(tree)] == [
        (step, "mine/fails", "ZeroDivisionError") for step in (2, 3)
    ]


def test_strict_lets_a_failing_measure_stop_the_run_and_keeps_what_was_recorded(tmp_path: Path) -> None:
    model = small_model()
    with (
        pytest.raises(ZeroDivisionError),
        Recorder(tmp_path / "run", model, small_probe(), [failing_after(2)], every(1), strict=True) as recorder,
    ):
        trained(model, recorder, range(4))
    tree = open_record(tmp_path / "run")
    assert tree["mine/step"].values.tolist() == [0, 1] and tree.attrs["state"] == "failed"


def test_a_measure_that_writes_into_the_model_is_named(tmp_path: Path) -> None:
    def vandal(snapshot: Snapshot) -> float:
        with torch.no_grad():
            next(snapshot.model.parameters()).mul_(1.0)
        return 0.0

    with pytest.warns(UserWarning, match="wrote into 0.weight"):
        recorded(tmp_path / "run", [Measure("mine/vandal", (), vandal)], steps=1)


def test_a_record_that_cannot_be_written_does_not_stop_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model()
    recorder = Recorder(tmp_path / "run", model, small_probe(), [NORM], every(1))
    monkeypatch.setattr(recorder._logbook._writer, "_append", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.warns(UserWarning, match="training goes on: OSError: disk full"), recorder:
        trained(model, recorder, range(5))


def test_readings_are_made_once_a_step_however_many_measures_ask(tmp_path: Path) -> None:
    calls: list[int] = []

    def costly(snapshot: Snapshot) -> float:
        calls.append(snapshot.step)
        return 2.0

    measures = [Measure(f"mine/m{i}", (), lambda s: s.reading(costly)) for i in range(3)]
    recorded(tmp_path / "run", measures, steps=3)
    assert calls == [0, 1, 2]


def test_the_initial_network_is_kept_with_its_readings(tmp_path: Path) -> None:
    asked: list[int] = []

    def reading(snapshot: Snapshot) -> float:
        asked.append(snapshot.step)
        return first_weight_norm(snapshot).item()

    needs = frozenset({"initial"})
    at_first = Measure("mine/first", (), lambda s: s.beginning.reading(reading), needs=needs)
    subset = Measure(
        "mine/subset", (), lambda s: len(s.subset(4).outputs) - len(s.beginning.subset(4).outputs), needs=needs
    )
    tree = open_record(recorded(tmp_path / "run", [at_first, NORM, subset], steps=4))
    assert np.ptp(tree["mine/first"].values) == 0 and len(asked) == 1
    assert tree["mine/first"].values[0] == pytest.approx(tree["mine/norm"].values[0]) != tree["mine/norm"].values[3]
    assert (tree["mine/subset"].values == 0).all()


def test_training_measures_say_what_they_mean(tmp_path: Path) -> None:
    tree = open_record(recorded(tmp_path / "run", training(), steps=6))
    data = tree["training"].to_dataset()
    assert data["parameter_distance"][0] == 0 and (np.diff(data["parameter_distance"]) > 0).all()
    assert np.allclose((data["layer_norm"] ** 2).sum("layer"), data["parameter_norm"] ** 2)
    assert np.allclose((data["layer_distance"] ** 2).sum("layer"), data["parameter_distance"] ** 2)
    targets = small_probe()[1]
    assert data["probe_chance"][0].item() == torch.bincount(targets).max().item() / 10
    assert data["probe_accuracy"].attrs["chance"] == "probe_chance"
    assert np.allclose(data["probe_loss"][:-1], data["loss"][1:])  # the loop's loss is that before its update


def test_the_recorders_own_cost_is_recorded(tmp_path: Path) -> None:
    import time

    slow = Measure("mine/slow", (), lambda snapshot: time.sleep(0.02) or 1.0)
    data = open_record(recorded(tmp_path / "run", [slow, NORM], steps=4))["overhead"].to_dataset()
    assert (data["measuring"] > 0.02).all() and (data["seconds"].sel(measure="mine/slow") >= 0.02).all()
    assert data["seconds"].sum("measure").max() <= data["measuring"].max()
    assert 0 < data["share"][-1] < 1


def test_a_measure_with_its_own_schedule_is_missing_in_between(tmp_path: Path) -> None:
    rare = Measure("mine/rare", (), first_weight_norm, schedule=every(2))
    tree = open_record(recorded(tmp_path / "run", [NORM, rare], steps=4))
    assert np.isnan(tree["mine/rare"].values).tolist() == [False, True, False, True]


def test_mirrors_get_every_number_of_a_recorded_step(tmp_path: Path) -> None:
    seen: dict[int, dict[str, float]] = {}
    recorded(tmp_path / "run", steps=3, mirrors=[lambda step, values: seen.update({step: dict(values)})])
    assert list(seen) == [0, 1, 2] and {"training/loss", "mine/norm"} <= set(seen[1])


def test_a_mirror_that_fails_is_left_out_and_training_goes_on(tmp_path: Path) -> None:
    def broken(step: int, values: object) -> None:
        raise ConnectionError("no network")

    with pytest.warns(UserWarning, match="a mirror failed at step 0 and is left out from now on: no network"):
        run = recorded(tmp_path / "run", steps=3, mirrors=[broken])
    assert open_record(run)["mine/step"].values.tolist() == [0, 1, 2]


def test_measuring_takes_place_in_eval_mode_without_autocast(tmp_path: Path) -> None:
    seen: list[tuple[bool, bool, torch.dtype]] = []

    def look(snapshot: Snapshot) -> float:
        seen.append((snapshot.model.training, torch.is_autocast_enabled("cpu"), snapshot.model(snapshot.inputs).dtype))
        return 0.0

    model = small_model()
    recorder = Recorder(tmp_path / "run", model, small_probe(), [Measure("mine/look", (), look)], every(1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        recorder.observe(0)
        assert torch.is_autocast_enabled("cpu")
    recorder.close()
    assert seen == [(False, False, torch.float32)] and model.training


def test_a_compiled_model_is_measured_in_eager_and_trains_on(tmp_path: Path) -> None:
    kinds: list[type] = []
    model = small_model()
    compiled = torch.compile(model, backend="eager")
    look = Measure("mine/look", (), lambda snapshot: kinds.append(type(snapshot.model)) or first_weight_norm(snapshot))
    with Recorder(tmp_path / "run", compiled, small_probe(), [look], every(1)) as recorder:
        trained(compiled, recorder, range(3))
    plain = trained(small_model(), None, range(3))
    assert set(kinds) == {nn.Sequential} and identical(weights(model), weights(plain))


class Mixed(nn.Module):
    """What measuring could disturb: batch statistics, dropout, and a layer of every common kind."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.LayerNorm(8), nn.Linear(8, 3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_all_default_instruments_leave_training_as_it_was(tmp_path: Path, amp: bool, compiled: bool) -> None:
    ended = []
    for run in (None, tmp_path / "run"):
        torch.manual_seed(3)
        model = Mixed()
        shown = torch.compile(model, backend="eager") if compiled else model
        optimizer, (inputs, targets) = torch.optim.AdamW(model.parameters(), lr=0.01), small_probe(24)
        recorder = run and Recorder(run, shown, (inputs, targets), schedule=every(3), budget=100.0)
        for step in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
                loss = functional.cross_entropy(shown(inputs), targets)
                if recorder:
                    recorder.observe(step, loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if recorder:
            recorder.close()
        ended.append([*weights(model), torch.rand(4)])
    assert identical(*ended)
    tree = open_record(tmp_path / "run")
    assert {"training", "tangent", "forward", "ansatz"} <= set(tree.children) and errors(tree) == []


def test_several_inputs_and_hugging_face_labels_are_understood(tmp_path: Path) -> None:
    class Sum(nn.Linear):
        def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
            return super().forward(left + right)

    inputs, targets = small_probe()
    shapes: list[tuple[int, ...]] = []
    look = Measure("mine/look", (), lambda s: shapes.append(tuple(s.outputs.shape)) or 0.0)
    for name, probe in {
        "pair": ((inputs, inputs), None), "dict": {"left": inputs, "right": inputs, "labels": targets},
    }.items():  # fmt: skip
        recorder = Recorder(tmp_path / name, Sum(6, 3), probe, [look], every(1))
        recorder.observe(0)
        recorder.close()
        assert (recorder.targets is None) == (name == "pair")
    assert shapes == [(10, 3)] * 2
    with pytest.raises(BadInput, match=r"one row for each of the 10 examples, got \(4,\)"):
        Recorder(tmp_path / "short", Sum(6, 3), (inputs, targets[:4]), [look])
    with pytest.raises(BadInput, match="got a tuple of 3"):
        Recorder(tmp_path / "three", Sum(6, 3), (inputs, inputs, targets), [look])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measures": [NORM, NORM]}, "mine/norm twice"),
        ({"measures": training(), "probe": small_probe()[0]}, "need targets, got a probe without"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_written(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recorder(tmp_path / "run", small_model(), **{"probe": small_probe(), **arguments})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_plan(10, None), "made by every, at, log_spaced, .* got 10; as in schedule="),
        (lambda: check_plan(None, "much"), "a share of the run time above 0, got 'much'"),
        (lambda: check_measures(("tangent",), None), "a list of Measure, got 'tangent' among them"),
        (lambda: check_model(len), "a torch.nn.Module, got builtin_function_or_method; hand over the module"),
    ],
)
def test_things_of_another_kind_are_named(check, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget": -2}, "a share of the run time above 0, got -2"),
        ({"probe": None}, r"the inputs to measure on, or \(inputs, targets\), got None"),
        (
            {"measures": training(), "probe": (small_probe()[0], torch.full((10,), 7))},
            "classes from 0 to 2, one for each output, got 7 to 7; leave out the examples",
        ),
    ],
)
def test_what_is_no_plan_model_or_target_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: dict, message: str
) -> None:
    given = {"model": small_model(), "probe": small_probe(), "measures": [NORM], **arguments}
    with pytest.raises(BadInput, match=message):
        Recorder(tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("step", ["a", 1.5, -1, None])
def test_a_step_that_does_not_count_is_refused(step: object) -> None:
    with pytest.raises(TypeError, match="a whole number from 0 on, got"):
        whole(step)
    assert [whole(step) for step in (3, np.int64(3), torch.tensor(3))] == [3, 3, 3]


def test_a_recorder_works_and_ends_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def cell_of_a_notebook() -> None:
        recorded(tmp_path / "run", [NORM], steps=3)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(cell_of_a_notebook())
    tree = open_record(tmp_path / "run")
    assert tree.attrs["state"] == "finished" and tree["mine/step"].values.tolist() == [0, 1, 2]


def test_steps_that_go_back_and_closed_recorders_are_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), [NORM], every(1))
    recorder.observe(4)
    with pytest.raises(ValueError, match="steps must increase, got 3 after 4"):
        recorder.observe(3)
    recorder.close()
    with pytest.raises(ValueError, match="is closed; make a new one with resume=True"):
        recorder.observe(5)


def test_a_scalar_that_is_no_number_is_refused(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), [NORM], every(1))
    for value in (torch.zeros(2), np.zeros(3)):
        with pytest.raises(TypeError, match=rf"of shape \({len(value)},\) for loss; record arrays with a Measure"):
            recorder.observe(0, loss=value)
    assert recorder.observe(0, loss=np.float32(0.5), other=np.ones(1), third=torch.tensor([2.0]))
    recorder.close()
    tree = open_record(tmp_path / "run")["training"]
    assert [tree[name].values.tolist() for name in ("loss", "other", "third")] == [[0.5], [1.0], [2.0]]


@pytest.mark.parametrize("name", ["probe_loss", "layer_norm", "layer", "step_"])
def test_a_scalar_under_a_name_the_record_uses_itself_is_refused_at_once(tmp_path: Path, name: str) -> None:
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), training(), every(1))
    if name == "step_":  # the word step itself is the argument's
        assert recorder.observe(0, step_=1.0)
    else:
        with pytest.raises(ValueError, match=f"got {name}, which the record's /training group uses itself; rename it"):
            recorder.observe(0, **{name: 0.5})
    recorder.close()


def test_a_variable_that_contradicts_the_record_costs_itself_alone(tmp_path: Path) -> None:
    turns = {0: torch.zeros(2), 1: torch.zeros(2), 2: torch.zeros(3)}
    named = Measure("mine/named", ("layer",), lambda s: dict(zip("ab", turns[0], strict=True)))
    longer = Measure("mine/longer", ("layer",), lambda s: turns[s.step])
    with pytest.warns(UserWarning, match="mine/longer failed at step 2 and training goes on: .* label them all"):
        run = recorded(tmp_path / "run", [named, longer, NORM], steps=3)
    tree = open_record(run)
    assert tree["mine/step"].values.tolist() == [0, 1, 2] and tree.attrs["state"] == "finished"
    assert np.isfinite(tree["mine/longer"].values).all(1).tolist() == [True, True, False]
    assert [(e["step"], e["measure"]) for e in errors(tree)] == [(2, "mine/longer")]
    with pytest.raises(ValueError, match="label them all"):
        recorded(tmp_path / "strict", [named, longer], steps=3, strict=True)


def test_a_measure_whose_labels_do_not_fit_costs_itself_alone(tmp_path: Path) -> None:
    bad = Measure("mine/bad", ("layer",), lambda s: torch.zeros(3), coords={"layer": ["a", "b"]})
    with pytest.warns(UserWarning, match="mine/bad failed at step 0"):
        tree = open_record(recorded(tmp_path / "run", [NORM, bad], steps=3))
    assert tree["mine/step"].values.tolist() == [0, 1, 2] and len(errors(tree)) == 3


def test_a_finished_run_is_not_continued_by_accident(tmp_path: Path) -> None:
    recorded(tmp_path / "run", steps=3)
    with pytest.raises(BadInput, match="got one that is finished with 3 steps up to 2; .* resume=True"):
        recorded(tmp_path / "run", steps=3)
    recorded(tmp_path / "run", steps=5, resume=True)
    assert open_record(tmp_path / "run")["mine/step"].values.tolist() == [0, 1, 2, 3, 4]


def test_another_model_or_probe_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "run", steps=2)
    wider = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 3))
    with pytest.raises(DifferentRun, match="recorded with another model: expected Sequential 83 .*, got Sequential 93"):
        Recorder(tmp_path / "run", wider, small_probe(), [NORM], resume=True)
    inputs, targets = small_probe()
    with pytest.raises(DifferentRun, match="recorded with another probe: .* record into another folder"):
        Recorder(tmp_path / "run", small_model(), (inputs + 1e-6, targets), [NORM], resume=True)
    assert open_record(tmp_path / "run")["mine/step"].values.tolist() == [0, 1]


def test_resuming_skips_what_is_recorded_and_measures_against_the_same_beginning(tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None) -> None:
        model = small_model()
        recorder = Recorder(folder, model, small_probe(), [*training(), NORM], every(1))
        for_ = range(stop if stop is not None else 8)
        trained(model, recorder, for_)
        if stop is None:
            recorder.close()
        else:
            recorder._logbook._writer.close()  # stopped without a word, as a kill would

    run(tmp_path / "whole", None)
    run(tmp_path / "parts", 3)
    assert open_record(tmp_path / "parts").attrs["state"] == "recording"
    run(tmp_path / "parts", None)
    whole, parts = open_record(tmp_path / "whole"), open_record(tmp_path / "parts")
    for group in ("training", "mine"):
        assert whole[group].to_dataset().identical(parts[group].to_dataset())


def killed_run(folder: Path, seed: int = 0, steps: int = 3, **settings: object) -> None:
    """Some steps of a run that is then stopped without a word, as a kill would."""
    model = small_model(seed)
    recorder = Recorder(folder, model, small_probe(), training(), every(1), **settings)
    try:
        trained(model, recorder, range(steps))
    finally:
        recorder._logbook._writer.close()


def test_a_run_that_starts_anew_from_other_weights_is_refused(tmp_path: Path) -> None:
    killed_run(tmp_path / "run")
    with pytest.raises(DifferentRun, match="began with other weights: .* record into another folder, or go on"):
        killed_run(tmp_path / "run", seed=1)
    assert open_record(tmp_path / "run")["training/step"].values.tolist() == [0, 1, 2]
    killed_run(tmp_path / "run", steps=5)
    assert open_record(tmp_path / "run")["training/step"].values.tolist() == [0, 1, 2, 3, 4]


def test_weights_of_a_checkpoint_go_on_with_the_run(tmp_path: Path) -> None:
    killed_run(tmp_path / "run")
    model = small_model()
    trained(model, None, range(3))
    with Recorder(tmp_path / "run", model, small_probe(), training(), every(1)) as recorder:
        assert recorder.observe(3)
    assert open_record(tmp_path / "run")["training/step"].values.tolist() == [0, 1, 2, 3]


def test_other_settings_are_another_run_unless_told_to_go_on(tmp_path: Path) -> None:
    killed_run(tmp_path / "run", settings={"lr": 0.1, "epochs": 3})
    with pytest.raises(DifferentRun, match="other settings: expected epochs=3, got epochs=9; .* by resume=True"):
        killed_run(tmp_path / "run", settings={"lr": 0.1, "epochs": 9})
    again = Recorder(tmp_path / "run", small_model(), small_probe(), [*training(), NORM], at(0, 1, 2, 3),
                     settings={"lr": 0.1, "epochs": 9}, resume=True)  # fmt: skip
    trained(small_model(), again, range(4))
    again.close()
    attrs = open_record(tmp_path / "run").attrs
    assert json.loads(attrs["settings"])["epochs"] == 9 and json.loads(attrs["planned_steps"]) == [0, 1, 2, 3]
    assert json.loads(attrs["measures"]) == [measure.name for measure in [*training(), NORM]]


def test_another_seed_is_another_run_even_when_told_to_go_on(tmp_path: Path) -> None:
    recorded(tmp_path / "run", steps=2, seed=3)
    with pytest.raises(DifferentRun, match="recorded with seed 3, got seed 4"):
        recorded(tmp_path / "run", steps=2, seed=4, resume=True)


def test_a_loop_that_shows_few_of_its_steps_is_recorded_as_often_as_planned(tmp_path: Path) -> None:
    for name, schedule in {"open": None, "to the end": log_spaced(20, last=10_000), "every": every(2_500)}.items():
        with Recorder(tmp_path / name, small_model(), small_probe(), [NORM], schedule) as recorder:
            for step in range(0, 10_001, 100):
                recorder.observe(step)
    steps = {name: open_record(tmp_path / name)["mine/step"].values.tolist() for name in ("open", "to the end")}
    assert steps["open"][:4] == [0, 100, 200, 300] and len(steps["open"]) > 20
    assert steps["to the end"][-1] == 10_000 and 10 <= len(steps["to the end"]) <= 20
    assert open_record(tmp_path / "every")["mine/step"].values.tolist() == [0, 2_500, 5_000, 7_500, 10_000]


def test_the_default_schedule_is_log_spaced_and_open_ended(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), [NORM])
    assert str(recorder.schedule) == str(log_spaced()) and recorder.schedule.planned == ()
    recorder.close()


def test_the_report_of_a_run_lies_inside_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), training(), every(1))
    recorder.observe(0, loss=1.0)
    page = recorder.report()
    assert page == tmp_path / "run" / "report.html" and "parameter" in page.read_text()
    assert open_record(tmp_path / "run").attrs["state"] == "finished"


def test_probe_accuracy_is_missing_where_targets_are_no_classes(tmp_path: Path) -> None:
    inputs, _ = small_probe()
    recorder = Recorder(tmp_path / "run", small_model(), (inputs, torch.randn(10, 3)), training(), every(1))
    recorder.observe(0)
    recorder.close()
    tree = open_record(tmp_path / "run")
    assert math.isnan(tree["training/probe_accuracy"].values[0]) and tree["training/probe_loss"].values[0] > 0


def test_a_network_that_became_nan_is_right_on_nothing_and_called_diverged(tmp_path: Path) -> None:
    model = small_model()
    with Recorder(tmp_path / "run", model, small_probe(), training(), every(1)) as recorder:
        recorder.observe(0)
        assert json.loads(open_record(tmp_path / "run").attrs.get("not_finite", "[]")) == []
        with torch.no_grad():
            model[0].weight.fill_(math.nan)
        recorder.observe(1)
    tree = open_record(tmp_path / "run")
    assert np.isnan(tree["training/probe_accuracy"].values).tolist() == [False, True]
    assert {"parameter_norm", "probe_loss"} <= set(json.loads(tree.attrs["not_finite"]))
    assert verdict(tree).sentence.startswith("Diverged")


def test_a_run_that_is_gone_on_with_counts_the_time_before(tmp_path: Path) -> None:
    import time

    slow = Measure("mine/slow", (), lambda snapshot: time.sleep(0.05) or 1.0)
    recorder = Recorder(tmp_path / "run", small_model(), small_probe(), [slow], every(1))
    recorder.observe(0)
    recorder.observe(1)
    recorder.abandon()
    again = Recorder(tmp_path / "run", small_model(), small_probe(), [slow], every(1))
    assert again.clock.spent > 0.1 and again.clock.elapsed > again.clock.spent
    again.close()


def test_outputs_that_are_not_finite_from_the_start_do_not_stop_training(tmp_path: Path) -> None:
    inputs, targets = small_probe()
    recorder = Recorder(tmp_path / "run", small_model(), (inputs * torch.nan, targets))
    with pytest.warns(UserWarning, match="must be finite"), recorder:
        recorder.observe(0)
    tree = open_record(tmp_path / "run")
    assert np.isfinite(tree["training/parameter_norm"].values).all()
    assert {error["type"] for error in errors(tree)} == {"NonFiniteKernel"}
