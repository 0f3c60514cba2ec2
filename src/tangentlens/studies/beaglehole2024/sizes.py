"""How much of everything: the sizes of the released code, and a short version for a laptop."""

from __future__ import annotations

from dataclasses import dataclass

from tangentlens.studies.beaglehole2024.images import MLP_RATES, Training
from tangentlens.studies.beaglehole2024.transformer import Shape

# No speeds for images are known. These follow the pattern of the author's code (one layer times C, the others over C;
# C = 20, eps = 0.1 stand there), with a rate that fits.
IMAGE_SPEEDS = (("0", 20.0), ("*", 0.05))
QUADRATIC_NETWORKS = 40
"""Single quadratic networks scatter by up to 0.017, more than their prediction's tolerance; means of forty by 0.003."""


@dataclass(frozen=True)
class Sizes:
    """Numbers of examples, epochs and networks; `vgg` and `transformer` are left out where they are None.

    `stand_ins`: whether speed limits are tried on MNIST and CIFAR-10, too, of which the paper does not speak.
    """

    exponents: tuple[float, ...]
    networks: int
    images: dict[str, int]
    tests: int
    mlp_width: int
    mlp_epochs: dict[str, int]
    probe: int | None
    draws: int
    vgg: Training | None
    transformer: Shape | None
    beyond: bool
    stand_ins: bool

    def mlp(self, dataset: str) -> dict[str, Training]:
        """Plain training as released, speed limits, and the baselines that hold or slow the layers above."""
        epochs = self.mlp_epochs[dataset]
        looks = tuple(sorted({round(epochs * share) for share in (0.1, 0.25, 0.5)}))
        common = {"epochs": epochs, "looks": looks, "probe": self.probe, "draws": self.draws}
        rate = MLP_RATES[dataset]
        return {
            "plain": Training(rate, **common),  # type: ignore[arg-type]
            "speed-limited": Training(0.05, speeds=IMAGE_SPEEDS, **common),  # type: ignore[arg-type]
            "frozen above": Training(0.05, speeds=(("0", 20.0), ("*", 0.0)), **common),  # type: ignore[arg-type]
            "layer-wise rates": Training(rate / 100, first_layer_rate=rate, **common),  # type: ignore[arg-type]
        }


QUICK = Sizes(
    exponents=(0.0, 0.5, 1.0, 1.5),
    networks=4,
    # data, rates and batches as released wherever they are short enough; what is cut is the number of epochs
    images={"mnist": 50_000, "cifar10": 4_000, "svhn": 4_000, "celeba": 4_000},
    tests=1_000,
    mlp_width=256,
    mlp_epochs={"mnist": 6, "cifar10": 40, "svhn": 12, "celeba": 12},
    probe=2_000,
    draws=39,
    vgg=None,
    transformer=None,
    beyond=True,
    stand_ins=False,
)
FULL = Sizes(
    exponents=(0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5),
    networks=12,
    images=dict.fromkeys(MLP_RATES, 50_000),
    tests=10_000,
    mlp_width=256,
    mlp_epochs={"mnist": 50, "cifar10": 150, "svhn": 150, "celeba": 50},
    probe=None,
    draws=39,
    vgg=Training(1.0, epochs=50, batch=256, momentum=0.9, looks=(1, 5, 12, 25), probe=1000, draws=39),
    transformer=Shape(),
    beyond=True,
    stand_ins=True,
)
