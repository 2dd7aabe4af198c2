"""A representation in a PyTorch DataLoader: `python examples/pytorch_probe.py` after `dvc repro`.

Fits a linear layer on the train takes and prints its accuracy on the test takes. The pipeline's own
probes (`pjepa.probes`) do more: hold-out selection, intervals, segment metrics.
"""

import sys

import pandas as pd
import torch
from torch.utils.data import DataLoader, TensorDataset

from pjepa import read_stream
from pjepa.streams.stream import read_labels

name = sys.argv[1] if len(sys.argv) > 1 else "pjepa"
stream = read_stream(f"data/representations/{name}/stream.parquet")
labels = read_labels("data/tokens/labels.parquet")  # take id: class per token, -1 unknown
takes = pd.read_parquet("data/takes/takes.parquet").set_index("take_id")


def tokens(split: str) -> TensorDataset:
    """Return the known tokens of a split: features [N, D] and labels [N]."""
    chosen = [take for take in stream.takes if takes.loc[take, "split"] == split]
    x = torch.cat([torch.as_tensor(stream.read(take).features) for take in chosen])
    y = torch.cat([torch.as_tensor(labels[take]).long() for take in chosen])
    return TensorDataset(x[y >= 0], y[y >= 0])


torch.manual_seed(0)
train, test = tokens("train"), tokens("test")
mean, std = train.tensors[0].mean(0), train.tensors[0].std(0) + 1e-6
probe = torch.nn.Linear(stream.info.width, 1 + int(train.tensors[1].max()))
optimiser = torch.optim.AdamW(probe.parameters(), lr=1e-2)
for _ in range(30):
    for x, y in DataLoader(train, batch_size=256, shuffle=True):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(probe((x - mean) / std), y).backward()
        optimiser.step()
x, y = test.tensors
accuracy = (probe((x - mean) / std).argmax(1) == y).float().mean()
print(f"{name}: {100 * accuracy:.1f} % of {len(y)} test tokens")
