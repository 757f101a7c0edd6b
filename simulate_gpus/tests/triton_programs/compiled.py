# SPDX-License-Identifier: MIT
"""torch.compile against eager code: training steps, sizes that change, CUDA graphs; with "more" also a choice between
candidates, and attention with a score of one's own.

Usage: compiled.py [more | PACKAGE], where a model is compiled ahead of time for package.cpp
"""
import copy
import sys
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

warnings.filterwarnings("ignore", message="TensorFloat32")
DEVICE = "cuda"


class Language(nn.Module):
    """A small GPT."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 32), nn.Parameter(torch.randn(16, 32) / 50)
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        # Keys have no bias: softmax cancels it, its gradient is rounding alone.
        self.heads, self.out = nn.Linear(32, 96, bias=False), nn.Linear(32, 32)
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
        self.head = nn.Linear(32, 50)

    def forward(self, x, y):
        h = self.words(x) + self.places[:x.size(1)]
        q, k, v = self.heads(self.first(h)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        h = h + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = h + self.mlp(self.second(h))
        return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())


class Pictures(nn.Module):
    def __init__(self):
        super().__init__()
        # No bias before a norm: its gradient is rounding alone.
        self.net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
                                 nn.Conv2d(8, 16, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


def losses(step, model, batches):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for batch in batches:
        loss = step(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def check_training(name, make, batches, **options):
    torch.manual_seed(0)
    eager = make().to(DEVICE)
    model = copy.deepcopy(eager)
    wanted, got = losses(eager, eager, batches), losses(torch.compile(model, **options), model, batches)
    torch.testing.assert_close(torch.tensor(got), torch.tensor(wanted), rtol=2e-5, atol=2e-5)
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=2e-4)
    print(name, flush=True)


def words(rows, length):
    return torch.randint(50, (rows, length), device=DEVICE), torch.randint(50, (rows, length), device=DEVICE)


def check_reductions():
    def reductions(x):
        return (x.softmax(-1) * x.exp().sum(0)).mean(1) + x.std(1) + x.cumsum(0).argmax(1)

    x = torch.randn(24, 40, device=DEVICE)
    torch.testing.assert_close(torch.compile(reductions)(x), reductions(x))
    print("reductions", flush=True)


def check_candidates():
    x = torch.randn(24, 40, device=DEVICE)
    product = torch.compile(lambda a, b: F.relu(a @ b + 1), mode="max-autotune-no-cudagraphs")
    torch.testing.assert_close(product(x, x.mT), F.relu(x @ x.mT + 1), rtol=1e-4, atol=1e-4)
    print("candidates", flush=True)


def check_attention():
    q, k, v = torch.randn(3, 1, 2, 128, 32, device=DEVICE)
    scored = torch.compile(flex_attention)(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j) / 8)
    i = torch.arange(128, device=DEVICE)
    wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=(i[:, None] - i[None]) / 8)
    torch.testing.assert_close(scored, wanted, rtol=1e-2, atol=1e-2)
    print("attention", flush=True)


class Packed(nn.Module):
    def forward(self, x):
        weights = torch.linspace(-1, 1, x.size(1) * 4, device=x.device).view(x.size(1), 4)
        return F.gelu(x @ weights).softmax(-1)


def make_package(file):
    x = torch.ones(3, 8, device=DEVICE)
    with torch.no_grad():
        program = torch.export.export(Packed(), (x,), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=64)},))
        torch._inductor.aoti_compile_and_package(program, package_path=file)
        torch.testing.assert_close(torch._inductor.aoti_load_package(file)(x), Packed()(x))
    print("package", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["more"]:
        check_candidates()
        check_attention()
        check_training("a small GPT", Language, [words(4, 16)] * 4)
    elif len(sys.argv) > 1:
        make_package(sys.argv[1])
    else:
        check_reductions()
        check_training("sizes that change", Language, [words(2, 8), words(3, 12), words(4, 16)], dynamic=True)
        pictures = torch.randn(6, 3, 12, 12, device=DEVICE), torch.randint(10, (6,), device=DEVICE)
        check_training("a convolutional network, in CUDA graphs", Pictures, [pictures] * 4, mode="reduce-overhead")
