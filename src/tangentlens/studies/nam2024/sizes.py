"""How large each experiment is: minutes on two cores, or the paper's networks on a GPU, by the same code."""

from __future__ import annotations

from dataclasses import dataclass, field

from tangentlens.studies.nam2024.training import Training

VGG16 = (64, 64, None, 128, 128, None, 256, 256, 256, None, 512, 512, 512, None, 512, 512, 512, None)
# as deep as the paper's, since what batch norm does depends on depth, and an eighth as wide
NARROW_VGG16 = tuple(width and width // 8 for width in VGG16)


@dataclass(frozen=True)
class Sizes:
    """Examples to train on and to look with, network widths, and trainings; the defaults are the quick ones."""

    train: int = 4000
    looked: int = 2000
    # pictures of CIFAR-10 averaged over squares of this side before they are used
    shrink: int = 2

    regression_points: int = 400
    regression_widths: tuple[int, ...] = (100, 100, 100, 100)
    # a thousand steps learn the sine in some seeds only; regression is to be looked at when it has ended
    regression: Training = field(default=Training(steps=10_000, batch=400, learning_rate=1e-3, method="adamw"))

    dense_widths: tuple[int, ...] = (256, 128)
    dense: Training = field(default=Training(steps=400, learning_rate=0.05))

    digits_channels: int = 8
    digits_units: int = 64
    digits: Training = field(default=Training(steps=300, learning_rate=0.02))

    memorised: int = 500
    # 200 epochs, as is usual behind 95 % on CIFAR-10: shuffled labels have to be known by heart, not half learned
    memorising: Training = field(default=Training(steps=1600, learning_rate=0.05))

    residual_blocks: tuple[int, ...] = (1, 1, 1)
    residual_width: int = 8
    # pictures for learning rates and batch norm: the paper's networks were trained to the end, and so short a training
    # knows 500 pictures at every learning rate (128 epochs), and not yet 1000
    learned: int = 500
    residual: Training = field(default=Training(steps=1000, learning_rate=0.05, weight_decay=5e-4, cosine=True))
    training_sizes: tuple[int, ...] = (250, 1000, 4000)
    # the paper's 0.005, 0.05, 0.2 in spacing; under the loss summed over ten outputs 0.2 breaks this network
    learning_rates: tuple[float, ...] = (0.002, 0.02, 0.08)

    vgg_widths: tuple[int | None, ...] = NARROW_VGG16
    # a head sees 64 features of order 1, a curvature of about 130: momentum 0.9 is stable below 3.8 / 130 = 0.03
    # without batch norm a few hundred steps are a plateau at two in ten right: three times as many leave it
    vgg: Training = field(default=Training(steps=1500, learning_rate=0.02, weight_decay=5e-4, cosine=True))

    # digits for weight decay
    decayed: int = 1000
    weight_decays: tuple[float, ...] = (0.0, 1.0)
    # the lazy start of the first author's code for MNIST has 5, in tanh networks; under ReLU a signal then grows 3.5
    # times a layer and the network without decay does not learn its own pictures, at 2 it does
    decaying_scale: float = 2.0
    # twice the time in which the decay acts, 1 / (learning rate * decay) = 1000 steps
    decaying: Training = field(default=Training(steps=2000, learning_rate=1e-3, method="adamw"))
    downscalings: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)
    # a twentieth of the targets left is past the point where every training picture is told apart; lazy networks need
    # several times as many steps to get there, 660 at alpha 30
    downscaled: Training = field(default=Training(steps=4000, learning_rate=0.05, enough=0.05))

    modulus: int = 23
    addition_width: int = 48
    addition_layers: int = 2
    addition_share: float = 0.8
    addition: Training = field(
        default=Training(steps=2400, batch=10_000, learning_rate=3e-3, weight_decay=0.5, method="adamw")
    )
    # the paper's 200th step, in steps of Adam three times as long; then until the end
    addition_looks: tuple[int, ...] = (67, 200, 400, 800, 1200, 1600, 2000)


QUICK = Sizes()

FULL = Sizes(
    train=50_000,
    looked=10_000,
    shrink=1,
    regression_points=1000,
    regression_widths=(200, 200, 200, 200),
    regression=Training(steps=10_000, batch=1000, learning_rate=1e-3, method="adamw"),
    dense_widths=(512, 512, 512),
    dense=Training(steps=8000, batch=128, learning_rate=0.05),
    digits_channels=32,
    digits_units=128,
    digits=Training(steps=8000, batch=128, learning_rate=0.05),
    memorised=5000,
    memorising=Training(steps=20_000, batch=128, learning_rate=0.05),
    learned=50_000,
    decayed=50_000,
    learning_rates=(0.005, 0.05, 0.2),
    residual_blocks=(2, 2, 2, 2),
    residual_width=64,
    # the mean over outputs: 512 features of order 1 under the summed loss are beyond the stable learning rate
    residual=Training(
        steps=20_000, batch=128, learning_rate=0.05, weight_decay=5e-4, cosine=True, loss="mean squared error"
    ),
    training_sizes=(500, 1000, 5000, 10_000, 50_000),
    vgg_widths=VGG16,
    vgg=Training(
        steps=20_000, batch=128, learning_rate=0.02, weight_decay=5e-4, cosine=True, loss="mean squared error"
    ),
    decaying=Training(steps=8000, batch=128, learning_rate=1e-3, method="adamw"),
    downscaled=Training(steps=50_000, batch=128, learning_rate=0.05, enough=0.05),
    modulus=97,
    addition_width=128,
    addition_layers=2,
    addition_share=0.5,
    addition=Training(steps=20_000, batch=100_000, learning_rate=1e-3, weight_decay=0.5, method="adamw"),
    addition_looks=(200, 400, 800, 1500, 3000, 5000, 10_000, 15_000),
)
