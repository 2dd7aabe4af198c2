"""A video in, a table of features out: `python examples/features_only.py VIDEO`.

`--checkpoint random` tries it without weights; real features need `pjepa fetch` first.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

video, *options = sys.argv[1:]
command = [sys.executable, "-m", "pjepa", "extract", video, "--out", "features", *options]
subprocess.run(command, check=True)
file = Path("features") / f"{Path(video).stem}.npy"
told = json.loads(Path(f"{file}.json").read_text())  # times, hashes, lookahead
table = pd.DataFrame(np.load(file), index=pd.Index(told["time_s"], name="time_s"))
print(table.iloc[:5, :6])  # one row per quarter second, one column per feature
