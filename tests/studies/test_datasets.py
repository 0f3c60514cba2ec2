"""The data folder is read in its own formats; what is absent is said with where to put it."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from tangentlens.errors import BadInput
from tangentlens.studies import datasets
from tangentlens.studies.sun2023.language import own, treebank, wikipedia


def read(name: str, folder: Path, *choices: str) -> object:
    try:
        return getattr(datasets, name)(*choices, folder=folder)
    except datasets.MissingData as absent:
        pytest.skip(str(absent))


@pytest.mark.parametrize(
    ("name", "shape", "tests"), [("mnist", (10_000, 1, 28, 28), 10_000), ("cifar10", (1_000, 3, 32, 32), 1_000)]
)
def test_images_have_channels_first_and_values_from_0_to_1(
    name: str, shape: tuple[int, ...], tests: int, data_folder: Path
) -> None:
    images = read(name, data_folder, "test")
    assert images.inputs.shape[1:] == shape[1:] and len(images) in (tests, 10_000)
    assert (float(images.inputs.min()), float(images.inputs.max())) == (0.0, 1.0)
    assert sorted(images.labels.unique().tolist()) == list(range(10)) and len(images.classes) == 10
    assert images.first(7).inputs.shape == (7, *shape[1:])


def test_the_first_digits_are_the_digits_everyone_knows(data_folder: Path) -> None:
    try:
        images = datasets.mnist(folder=data_folder, examples=8)
    except datasets.MissingData as absent:
        pytest.skip(str(absent))
    assert images.labels.tolist() == [5, 0, 4, 1, 9, 2, 1, 3]


@pytest.mark.parametrize(
    ("name", "splits", "classes"),
    [
        ("sst2", {"train": 6_920, "dev": 872, "test": 1_821}, 2),
        ("ag_news", {"train": 6_904, "test": 7_600}, 4),
        ("imdb", {"test": 25_000}, 2),
    ],
)
def test_labelled_texts_are_complete(name: str, splits: dict[str, int], classes: int, data_folder: Path) -> None:
    for split, length in splits.items():
        found = read(name, data_folder, split)
        assert len(found) == len(found.texts) == length
        assert sorted(found.labels.unique().tolist()) == list(range(classes)) and len(found.classes) == classes
        assert all(found.texts)
        assert len(found.first(10)) == 10
        if name == "imdb":  # classes alternate, so that a prefix is balanced
            assert found.first(1000).labels.double().mean() == 0.5


def test_plain_texts_are_strings_of_known_length(data_folder: Path) -> None:
    assert len(read("tiny_shakespeare", data_folder)) == 1_115_394
    assert len(read("wikitext2", data_folder, "test").split()) > 200_000


def test_the_training_part_of_wikitext_is_read_where_the_user_has_it(tmp_path: Path) -> None:
    with pytest.raises(datasets.MissingData, match=r"wiki.train.tokens.*from the wiki.\*.tokens of WikiText-2"):
        datasets.wikitext2("train", tmp_path)
    (tmp_path / "wikitext2").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "wikitext2" / f"wiki.{split}.tokens").write_text(f"= {split} =\n a b\n")
    assert datasets.wikitext2("train", tmp_path).split() == ["=", "train", "=", "a", "b"]
    text = wikipedia(tmp_path)
    assert len(text.train) == 5 and text.words[0] == "<unk>"


def test_news_are_read_as_their_authors_publish_them_plain_or_gzipped(tmp_path: Path) -> None:
    folder = tmp_path / "ag_news"
    folder.mkdir()
    with pytest.raises(datasets.MissingData, match=r"ag_news needs .*the train.csv and test.csv of Zhang et al"):
        datasets.ag_news("train", tmp_path)
    rows = '"3","Wall St.","goes up, and ""down"""\n"1","World","news"\n'
    (folder / "train.csv").write_text(rows)
    (folder / "test.csv.gz").write_bytes(gzip.compress(rows.encode()))
    for split in ("train", "test"):
        found = datasets.ag_news(split, tmp_path)
        assert found.texts == ('Wall St. goes up, and "down"', "World news") and found.labels.tolist() == [2, 0]


def test_reviews_are_read_from_the_folders_their_archive_unpacks_to(tmp_path: Path) -> None:
    for side in ("neg", "pos"):
        folder = tmp_path / "imdb" / "aclImdb" / "train" / side
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / f"{number}_7.txt").write_text(f"{side} {number}")
    found = datasets.imdb("train", tmp_path)
    assert found.texts == ("neg 0", "pos 0", "neg 1", "pos 1") and found.labels.tolist() == [0, 1, 0, 1]
    (folder / "0_7.txt").unlink()
    with pytest.raises(BadInput, match="as many reviews in .*neg as in pos, got 2 and 1"):
        datasets.imdb("train", tmp_path)


def test_a_table_without_labels_is_refused_by_its_columns(tmp_path: Path) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "test.tsv").write_text("index\tsentence\n0\ta fine film\n")
    with pytest.raises(BadInput, match=r"columns named sentence and label, got \['index', 'sentence'\]"):
        datasets.sst2("test", tmp_path)


def test_treebank_and_ones_own_text_are_lines_with_an_end(tmp_path: Path) -> None:
    for name, file in (("ptb", "ptb.{}.txt"), ("text", "{}.txt")):
        (tmp_path / name).mkdir()
        for split in ("train", "test"):
            (tmp_path / name / file.format(split)).write_text(" no it was n't <unk> \n\n but N while\n")
    words = ["no", "it", "was", "n't", "<unk>", "<eos>", "but", "N", "while", "<eos>"]
    assert datasets.penn_treebank("train", tmp_path).split() == datasets.own_text("test", tmp_path).split() == words
    for language in (treebank(tmp_path), own(tmp_path)):
        assert len(language.train) == 10 and set(language.words) == set(words) and language.train[4] == 0
    with pytest.raises(datasets.MissingData, match=r"ptb needs .*ptb.valid.txt.*Mikolov's simple-examples"):
        datasets.penn_treebank("valid", tmp_path)


def test_house_numbers_are_read_with_zero_as_class_zero(tmp_path: Path) -> None:
    from scipy.io import savemat

    (tmp_path / "svhn").mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 4), dtype=np.uint8)
    savemat(tmp_path / "svhn" / "train_32x32.mat", {"X": pixels, "y": np.array([[10], [1], [9], [10]])})
    images = datasets.svhn(folder=tmp_path)
    assert images.labels.tolist() == [0, 1, 9, 0]
    torch.testing.assert_close(images.inputs[2, 1, 5, 7], torch.tensor(pixels[5, 7, 1, 2] / 255, dtype=torch.float32))


def test_faces_are_cropped_square_and_labelled_by_an_attribute(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    faces = tmp_path / "celeba" / "img_align_celeba"
    faces.mkdir(parents=True)
    for number in range(3):
        pillow.new("RGB", (178, 218), (40 * number, 0, 255)).save(faces / f"{number}.jpg")
    (tmp_path / "celeba" / "list_attr_celeba.txt").write_text("3\nEyeglasses Male\n0.jpg -1 1\n1.jpg 1 1\n2.jpg 1 -1\n")
    (tmp_path / "celeba" / "list_eval_partition.txt").write_text("0.jpg 0\n1.jpg 0\n2.jpg 2\n")
    images = datasets.celeba("Eyeglasses", folder=tmp_path, size=24)
    assert images.inputs.shape == (2, 3, 24, 24) and images.labels.tolist() == [0, 1]
    assert datasets.celeba("Male", "test", tmp_path, size=24).labels.tolist() == [0]
    with pytest.raises(ValueError, match="Eyeglasses, Male"):
        datasets.celeba("Hat", folder=tmp_path)


def test_absent_data_are_said_with_the_place_they_belong_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        datasets.MissingData, match=r"mnist needs .*train-images-idx3-ubyte.gz.*yann.lecun.*TANGENTLENS_DATA"
    ):
        datasets.mnist(folder=tmp_path)
    monkeypatch.setenv("TANGENTLENS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(datasets.MissingData, match="nowhere; set TANGENTLENS_DATA"):
        datasets.sst2()
