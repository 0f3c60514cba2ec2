"""How much of everything: what the spread over seeds needs, and a short version for a laptop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Widths, networks, steps and epochs.

    `widths_of` an architecture replace `widths`: a matrix a word is costly, and attention was measured at d = 48.

    `recipes` are trained on reviews for (epochs, looked at after these). Wide networks, reviews and language models
    take at most `costly_seeds`, made-up corpora at least `least_seeds`, whatever number is asked for.
    """

    widths: tuple[int, ...]
    widths_of: dict[str, tuple[int, ...]]
    networks: int
    disjoint_width: int
    lazy_widths: tuple[int, ...]
    bias_steps: tuple[int, ...]
    trained_order: tuple[str, ...]
    recipes: dict[str, tuple[int, tuple[int, ...]]]
    cnn_epochs: int
    cnn_seeds: int
    costly_seeds: int
    least_seeds: int
    topic_epochs: int
    imdb_examples: int
    imdb_epochs: int
    languages: tuple[str, ...]
    language_epochs: int
    language_width: int
    beyond: bool

    def widths_for(self, architecture: str) -> tuple[int, ...]:
        return self.widths_of.get(architecture, self.widths)


QUICK = Sizes(
    widths=(16, 32, 64, 384),
    widths_of={"MV full": (16, 32, 96), "SA": (16, 48, 384)},
    networks=24,
    disjoint_width=256,
    lazy_widths=(64, 1024),
    bias_steps=(20, 100),
    trained_order=("SA", "linear CNN", "ReLU CNN", "MV diagonal"),
    recipes={
        "ReLU s_v=.1": (200, (0, 100, 200)),
        "ReLU s_v=.01": (200, (0, 100, 200)),
        "GeLU s_v=.01": (100, (0, 100)),
    },
    cnn_epochs=20,
    cnn_seeds=1,
    costly_seeds=3,
    least_seeds=5,
    topic_epochs=0,
    imdb_examples=0,
    imdb_epochs=0,
    languages=("Tiny Shakespeare",),
    language_epochs=1,
    language_width=64,
    beyond=True,
)
FULL = Sizes(
    widths=(16, 32, 64, 256, 384),
    widths_of={"MV full": (16, 32, 96, 128), "SA": (16, 32, 48, 256, 384)},
    networks=48,
    disjoint_width=512,
    lazy_widths=(64, 256, 1024),
    bias_steps=(20, 100, 1000),
    trained_order=(
        "MLP ReLU",
        "SA",
        "SA+MLP ReLU",
        "linear CNN",
        "ReLU CNN",
        "MV",
        "MV diagonal",
        "L-RNN",
        "gated L-RNN",
    ),
    recipes={
        "ReLU s_v=.1": (500, (0, 20, 100, 200, 500)),
        "ReLU s_v=.01": (200, (0, 20, 100, 200)),
        "GeLU s_v=.1": (200, (0, 100, 200)),
        "GeLU s_v=.01": (200, (0, 100, 200)),
        "SA": (200, (0, 100, 200)),
    },
    cnn_epochs=100,
    cnn_seeds=3,
    costly_seeds=100,
    least_seeds=5,
    topic_epochs=40,
    imdb_examples=4000,
    imdb_epochs=20,
    languages=("Tiny Shakespeare", "WikiText-2", "PTB", "own text"),
    language_epochs=3,
    language_width=128,
    beyond=True,
)
