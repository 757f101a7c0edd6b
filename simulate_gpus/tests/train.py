# SPDX-License-Identifier: MIT
"""As train.cpp, in Python: trains a convolutional network on the GPU where there is one."""
import torch
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
labels = torch.randint(2, (512,))
wave = (torch.arange(28) * 0.9).sin()
stripes = torch.stack([wave.expand(28, 28), wave.unsqueeze(1).expand(28, 28)])
images = torch.randn(512, 1, 28, 28) * 0.5 + stripes[labels].unsqueeze(1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64)
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3),
                    nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 2)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
print("device", device)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        print("loss", loss.item())
