# SPDX-License-Identifier: MIT
"""What networks of Python's torch cost on a simulated GPU beside the CPU: one process, one thread, medians of interleaved rounds.

    simulate_gpus 1 python benchmarks/simulated_models.py

It needs transformers. A figure is the simulator's own cost, never a GPU's time. Results are compared first.
"""

import copy
import statistics
import sys
import time

import torch
import transformers
from torch import nn
from torch.nn import functional as F

ROUNDS = 9
torch.set_num_threads(1)
torch.manual_seed(0)


class Mnist(nn.Module):
    """PyTorch's example: two convolutions, two linear layers. Without dropout, so that both devices compute the same."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), 1)


def training_step(model, device):
    optimizer = torch.optim.Adadelta(model.parameters())
    images, labels = torch.rand(64, 1, 28, 28).to(device), torch.arange(64).remainder(10).to(device)

    def step():
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def forward_of(**inputs):
    def of(model, device):
        there = {name: x.to(device) for name, x in inputs.items()}

        def call():
            with torch.no_grad():
                found = model(**there)
            return found[0].double().sum().item()

        return call

    return of


def lstm(model, device):
    x = torch.rand(50, 4, 32).to(device)

    def call():
        with torch.no_grad():
            return model(x)[0].sum().item()

    return call


words = torch.randint(3, 1000, (2, 32))
bert = transformers.BertModel(
    transformers.BertConfig(vocab_size=1000, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4))
gpt2 = transformers.GPT2LMHeadModel(
    transformers.GPT2Config(vocab_size=1000, n_embd=128, n_layer=4, n_head=4, bos_token_id=1, eos_token_id=1))
t5 = transformers.T5ForConditionalGeneration(
    transformers.T5Config(vocab_size=1000, d_model=128, d_kv=32, d_ff=512, num_layers=4, num_heads=4, decoder_start_token_id=0))
greedy = {"attention_mask": torch.ones_like(words), "max_new_tokens": 24, "min_new_tokens": 24, "do_sample": False, "pad_token_id": 0}


def generate(model, device):
    there = {name: x.to(device) if isinstance(x, torch.Tensor) else x for name, x in greedy.items()}
    there["input_ids"] = words.to(device)
    return lambda: model.generate(**there).double().sum().item()


PROGRAMS = {
    "mnist, a step of training": (Mnist(), training_step),
    "BERT, forward": (bert.eval(), forward_of(input_ids=words)),
    "GPT-2, forward": (gpt2.eval(), forward_of(input_ids=words)),
    "GPT-2, generate": (gpt2, generate),
    "T5, forward": (t5.eval(), forward_of(input_ids=words, decoder_input_ids=words)),
    "T5, generate": (t5, generate),
    "LSTM of 50 steps, forward": (nn.LSTM(32, 32), lstm),
}

print(f"{'':28}{'CPU':>10}{'simulated':>12}{'ratio':>8}")
wrong = False
for name, (model, make) in PROGRAMS.items():
    calls = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(1)
        calls[device] = make(copy.deepcopy(model).to(device), device)
    found = {device: call() for device, call in calls.items()}
    wrong |= abs(found["cpu"] - found["cuda"]) > 1e-3 * max(1, abs(found["cpu"]))
    times = {device: [] for device in calls}
    for _ in range(ROUNDS):
        for device, call in calls.items():
            start = time.perf_counter()
            call()
            times[device].append((time.perf_counter() - start) * 1e3)
    cpu, simulated = (statistics.median(times[device]) for device in calls)
    print(f"{name:28}{cpu:7.1f} ms{simulated:9.1f} ms{simulated / cpu:8.2f}", flush=True)
if wrong:
    sys.exit("simulated_models: WRONG RESULT")
