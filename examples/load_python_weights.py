# The Python side of load_python_weights.cpp: trains a network, y = sin(x), and saves its weights,
# with some inputs and what it makes of them.
#   python3 load_python_weights.py load_python_weights.safetensors

import sys

import torch
from safetensors.torch import save_file


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(1, 16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(x)))


torch.manual_seed(0)
net = Net()
adam = torch.optim.Adam(net.parameters(), lr=0.01)
x = torch.linspace(-3, 3, 200).unsqueeze(1)
for step in range(2000):
    adam.zero_grad()
    loss = (net(x) - x.sin()).square().mean()
    loss.backward()
    adam.step()
print(f"Loss after {step + 1} steps: {loss.item():.2e}")

with torch.no_grad():
    x = torch.linspace(-2, 2, 5).unsqueeze(1)
    save_file({**net.state_dict(), "input": x, "output": net(x)}, sys.argv[1])
