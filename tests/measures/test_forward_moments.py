"""Streaming second moments: exact in any chunking, mergeable, and precise whatever comes in."""

from __future__ import annotations

import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.measures.forward_moments import balanced_weights, forward_moments, merged, one_hot, streamed_moments
from tests.measures.forward_examples import lazy_network


@pytest.mark.parametrize("batch", [1, 7, 64, 300])
def test_streaming_in_any_batches_equals_one_batch(batch: int) -> None:
    features, outputs, targets, _ = lazy_network()
    whole = forward_moments(features, outputs, targets)
    stream = merged(
        forward_moments(features[i : i + batch], outputs[i : i + batch], targets[i : i + batch])
        for i in range(0, len(features), batch)
    )
    torch.testing.assert_close(stream.sums, whole.sums, rtol=1e-13, atol=1e-11)
    assert stream.rows == whole.rows == 300


def test_a_stream_added_in_place_is_the_merged_stream() -> None:
    features, outputs, targets, labels = lazy_network()
    cuts = [slice(0, 50), slice(50, 51), slice(51, 300)]
    for batches in (
        [(features[cut], outputs[cut], labels[cut]) for cut in cuts],
        [(features[cut], outputs[cut], targets[cut], features[cut]) for cut in cuts],
        [(features[cut], outputs[cut], targets[cut], features[cut] + (cut.start > 50)) for cut in cuts],
        [(features[cut].float(), None, None, None, torch.rand(len(features[cut]))) for cut in cuts],
    ):
        parts = [forward_moments(*batch[:3], **dict(zip(("initial", "weights"), batch[3:]))) for batch in batches]
        stream, together = streamed_moments(batches), merged(parts)
        torch.testing.assert_close(stream.sums, together.sums, rtol=1e-12, atol=1e-10)
        assert (stream.rows, stream.widths, stream.resolution) == (300, together.widths, together.resolution)
    untouched = streamed_moments([(features[cut], outputs[cut], targets[cut], features[cut]) for cut in cuts])
    assert torch.equal(untouched.total("initial", "features"), untouched.total("features", "features"))


def test_a_single_output_takes_whole_numbers_as_numbers() -> None:
    features, outputs, _, labels = lazy_network()
    ages = labels + 20
    for targets in (ages, ages[:, None]):
        moments = forward_moments(features, outputs[:, :1], targets)
        assert torch.equal(moments.sums, forward_moments(features, outputs[:, :1], ages[:, None].double()).sums)
    binary = forward_moments(features, outputs[:, 0], labels > 1)
    assert binary.mean("targets") == (labels > 1).double().mean()
    several = torch.stack([labels, labels + 7, labels, labels], 1)
    assert torch.equal(
        forward_moments(features, outputs, several).sums, forward_moments(features, outputs, several.double()).sums
    )


def test_adding_and_removing_examples_are_inverse() -> None:
    features, outputs, targets, _ = lazy_network()
    first = forward_moments(features[:100], outputs[:100], targets[:100])
    second = forward_moments(features[100:], outputs[100:], targets[100:])
    torch.testing.assert_close((first + second - second).sums, first.sums, rtol=1e-10, atol=1e-10)
    assert (first + second - second).rows == 100


def test_more_rows_than_one_internal_block_are_all_counted() -> None:
    features = torch.randn(9001, 3)
    moments = forward_moments(features)
    torch.testing.assert_close(moments.total("features", "features"), features.double().T @ features.double())


def test_float32_features_far_from_zero_keep_their_covariance() -> None:
    features = 10 + 0.1 * torch.randn(20_000, 8)
    exact = torch.cov(features.double().T, correction=0)
    moments = forward_moments(features)
    norm = torch.linalg.matrix_norm
    assert norm(moments.covariance("features", "features") - exact) < 1e-8 * norm(exact)
    naive = features.T @ features / len(features) - torch.outer(features.mean(0), features.mean(0))
    assert norm(naive - exact) > 1e-3 * norm(exact)


def test_class_labels_and_their_one_hot_targets_are_the_same_moments() -> None:
    features, outputs, targets, labels = lazy_network()
    by_label = forward_moments(features, outputs, labels)
    assert torch.equal(by_label.sums, forward_moments(features, outputs, targets).sums)


def test_untouched_features_have_bitwise_equal_moments_with_themselves() -> None:
    features, outputs, targets, _ = lazy_network()
    moments = forward_moments(features.float(), outputs, targets, initial=features.float().clone())
    assert torch.equal(moments.total("initial", "features"), moments.total("features", "features"))
    assert torch.equal(moments.total("initial", "outputs"), moments.total("features", "outputs"))
    general = forward_moments(features, outputs, targets, initial=features + 1e-30 + features * 1e-9)
    torch.testing.assert_close(moments.sums, general.sums, rtol=1e-5, atol=1e-3)


def test_balanced_weights_make_every_class_count_alike() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    targets = one_hot(labels, 2)
    moments = forward_moments(torch.randn(100, 3), targets, targets, weights=balanced_weights(labels))
    torch.testing.assert_close(moments.mean("targets"), torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert moments.rows == 100


def test_features_of_any_shape_are_flattened_per_example() -> None:
    maps = torch.randn(5, 2, 3, 3)
    assert torch.equal(forward_moments(maps).sums, forward_moments(maps.flatten(1)).sums)


def test_what_cannot_be_measured_is_refused_with_what_to_do() -> None:
    features, outputs, targets, labels = lazy_network()
    with pytest.raises(BadInput, match="one row per example"):
        forward_moments(features, outputs[:10])
    with pytest.raises(BadInput, match="pass targets="):
        forward_moments(features, outputs).total("targets", "features")
    with pytest.raises(BadInput, match="equal widths"):
        forward_moments(features, outputs) + forward_moments(features[:, :3], outputs)
    with pytest.raises(BadInput, match="number of classes"):
        forward_moments(features, targets=labels)
    with pytest.raises(BadInput, match="empty stream"):
        merged([])
    with pytest.raises(BadInput, match="empty stream"):
        streamed_moments([])
    with pytest.raises(BadInput, match="at least one example"):
        forward_moments(features[:0], outputs[:0])
    with pytest.raises(BadInput, match=r"labels lie in 0 .. 3 for 4 outputs, got 1 .. 4"):
        forward_moments(features, outputs, labels + 1)
    with pytest.raises(BadInput, match="leave rows without a class out"):
        forward_moments(features, outputs, labels - 100 * (labels == 0))
    with pytest.raises(BadInput, match=r"flatten places into rows"):
        forward_moments(features, outputs, labels[:, None])
    with pytest.raises(BadInput, match="flatten places into rows"):
        forward_moments(features.view(50, 6, 24), outputs.view(50, 6, 4), labels.view(50, 6))
    with pytest.raises(BadInput, match="one number per example"):
        streamed_moments([(features, outputs, None, None, torch.ones(3))])
    with pytest.raises(BadInput, match="give all batches the same layer"):
        streamed_moments([(features,), (features[:, :3],)])
    features[3, 2] = torch.nan
    with pytest.raises(BadInput, match="in features"):
        forward_moments(features, outputs)
