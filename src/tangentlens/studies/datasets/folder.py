"""Where data lies: the folder given, TANGENTLENS_DATA, or shared/data beside the checkout."""

from __future__ import annotations

import os
from pathlib import Path

from tangentlens.errors import BadInput

_CHECKOUT = Path(__file__).resolve().parents[4]


SOURCES = {
    "ag_news": "the train.csv and test.csv of Zhang et al. 2015, as they are or gzipped",
    "celeba": "mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    "cifar10": "cs.toronto.edu/~kriz/cifar.html, as one npz of x_train, y_train, x_test, y_test",
    "imdb": "ai.stanford.edu/~amaas/data/sentiment, its folder aclImdb as it unpacks, or a tsv of text and label",
    "mnist": "yann.lecun.com/exdb/mnist",
    "ptb": "the ptb.train.txt, ptb.valid.txt and ptb.test.txt of Mikolov's simple-examples, "
    "fit.vutbr.cz/~imikolov/rnnlm/simple-examples.tgz",
    "sst2": "nlp.stanford.edu/sentiment, as tsv files with the columns sentence and label",
    "svhn": "ufldl.stanford.edu/housenumbers",
    "text": "a text of your own, words parted by blanks",
    "tinyshakespeare": "github.com/karpathy/char-rnn, data/tinyshakespeare/input.txt, gzipped",
    "wikitext2": "the wiki.*.tokens of WikiText-2, huggingface.co/datasets/Salesforce/wikitext",
}
"""Where a dataset is to be had."""


class MissingData(BadInput):
    """A dataset is not in the data folder, or there is no such folder."""


def data_folder(given: Path | str | None = None) -> Path:
    """The folder that holds one subfolder per dataset."""
    if given is not None:
        tried = [Path(given)]
    elif "TANGENTLENS_DATA" in os.environ:
        tried = [Path(os.environ["TANGENTLENS_DATA"])]
    else:
        tried = [_CHECKOUT.parent / "shared" / "data", Path.cwd().parent / "shared" / "data"]
    for folder in tried:
        if folder.is_dir():
            return folder
    raise MissingData(
        f"no data folder at {' or '.join(map(str, tried))}; set TANGENTLENS_DATA to the folder that holds the datasets"
    )


def data_file(dataset: str, name: str, given: Path | str | None = None) -> Path:
    """One file (or folder) of a dataset; says what is missing and where it was looked for."""
    file = data_folder(given) / dataset / name
    if not file.exists():
        source = f" (from {SOURCES[dataset]})" if dataset in SOURCES else ""
        raise MissingData(f"{dataset} needs {file}, which is not there; put it there{source} or set TANGENTLENS_DATA")
    return file


def any_data_file(dataset: str, names: tuple[str, ...], given: Path | str | None = None) -> Path:
    """Whichever of several forms of a dataset is there; where none is, the first is asked for."""
    there = [name for name in names if (data_folder(given) / dataset / name).exists()]
    return data_file(dataset, there[0] if there else names[0], given)
